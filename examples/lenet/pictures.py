#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the first images of an MNIST file as PNG files.

  examples/lenet/pictures.py t10k-images-idx3-ubyte.gz COUNT FOLDER      FOLDER/test-0.png, ...
"""
import gzip
import pathlib
import struct
import sys
import zlib


def png(rows):
    """The bytes of a PNG of grey pixels, a bytes object for each row."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def main(source, count, folder):
    with gzip.open(source) as file:
        _, _, height, width = struct.unpack(">IIII", file.read(16))
        for number in range(int(count)):
            (pathlib.Path(folder) / f"test-{number}.png").write_bytes(png([file.read(width) for _ in range(height)]))


main(*sys.argv[1:])
