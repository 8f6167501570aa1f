# SPDX-License-Identifier: Apache-2.0
"""Caffe's protobuf messages, put together and taken apart without protobuf."""

import struct


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def number(field, value):
    """A field that is a whole number, not below 0."""
    return varint(field << 3) + varint(value)


def message(field, content):
    """A field that is a message itself, or bytes, or packed numbers."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def datum(channels, height, width, label, image=None):
    """Caffe's Datum message of one image, black where there is none."""
    image = image or bytes(channels * height * width)
    return number(1, channels) + number(2, height) + number(3, width) + message(4, image) + number(5, label)


def mean_file(path, shape, value):
    """Writes Caffe's BlobProto of a mean image, [channels, height, width], in which all is `value`, or whose floats have these bytes."""
    channels, height, width = shape
    sides = b"".join(number(field, side) for field, side in enumerate((1, channels, height, width), 1))
    floats = value if isinstance(value, bytes) else struct.pack("<f", value) * (channels * height * width)
    path.write_bytes(sides + message(5, floats))
    return path


def fields(message):
    """The fields of a protobuf message, by number, each a list of what was found: ints, or bytes as they are."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = message[at:at + size]
            at += size
        found.setdefault(tag >> 3, []).append(value)
    return found
