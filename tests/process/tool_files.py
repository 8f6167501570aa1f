# SPDX-License-Identifier: Apache-2.0
"""What Caffe's tools read and write, taken apart and put together without them."""

import struct
import zlib

import numpy
import pytest

import lmdb_files
import messages
from messages import message


def floats(parts):
    """float_data or a BlobProto's data: of each occurrence one number, or many where they are packed."""
    return numpy.frombuffer(b"".join(parts), numpy.float32)


def image_of(value):
    """The shape, pixels and label of a Datum of bytes."""
    datum = messages.fields(value)
    shape = tuple(datum[number][0] for number in (1, 2, 3))
    return numpy.frombuffer(datum[4][0], numpy.uint8).reshape(shape), datum[5][0]


def read(folder, kind):
    records = lmdb_files.read(folder) if kind == "lmdb" else lmdb_files.read_leveldb(folder)
    if records is None:
        pytest.skip("libleveldb is not installed")
    return records


def blob_of(path):
    """A BlobProto of the four dimensions of old."""
    blob = messages.fields(path.read_bytes())
    return floats(blob[5]).reshape([blob[number][0] for number in (1, 2, 3, 4)])


def weights_of(model):
    """The blobs of each layer that has some."""
    layers = {}
    for layer in messages.fields(model.read_bytes())[100]:
        layer = messages.fields(layer)
        blobs = [messages.fields(blob) for blob in layer.get(7, [])]
        if blobs:
            shapes = [list(_dims(blob[7][0])) for blob in blobs]
            layers[layer[1][0].decode()] = [floats(blob[5]).reshape(shape) for blob, shape in zip(blobs, shapes, strict=True)]
    return layers


def _dims(shape):
    """BlobShape's dim, which is packed."""
    (packed,) = messages.fields(shape)[1]
    value = shift = 0
    for byte in packed:
        value |= (byte & 127) << shift
        shift = shift + 7 if byte > 127 else 0
        if byte < 128:
            yield value
            value = 0


def features(records):
    return numpy.array([floats(messages.fields(value)[6]) for _, value in records])


def png(pixels, exif=b""):
    """The bytes of a PNG: pixels [height, width] or [height, width, 3], red first; with EXIF data where some are given."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"eXIf", exif) if exif else b"") + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def caffemodel(name, *blobs):
    """A caffemodel with one InnerProduct layer."""
    def blob(array):
        shape = message(1, b"".join(map(messages.varint, array.shape)))
        return message(7, message(7, shape) + message(5, array.tobytes()))
    return message(100, message(1, name) + message(2, b"InnerProduct") + b"".join(map(blob, blobs)))
