# SPDX-License-Identifier: Apache-2.0
"""Writes LMDBs that `poseidon convert-mnist` would never write, through liblmdb itself."""

import ctypes
import ctypes.util
import os

_MDB_CREATE = 0x40000


class _Value(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


def write(folder, records):
    """A new LMDB in `folder` with `records`, a list of (key, value) bytes; may be empty."""
    lmdb = ctypes.CDLL(ctypes.util.find_library("lmdb") or "liblmdb.so.0")

    def call(name, *arguments):
        code = getattr(lmdb, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    os.mkdir(folder)
    environment, transaction, table = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
    call("mdb_env_create", ctypes.byref(environment))
    call("mdb_env_set_mapsize", environment, ctypes.c_size_t(1 << 24))
    call("mdb_env_open", environment, os.fsencode(folder), 0, 0o644)
    call("mdb_txn_begin", environment, None, 0, ctypes.byref(transaction))
    call("mdb_dbi_open", transaction, None, _MDB_CREATE, ctypes.byref(table))
    for key, value in records:
        parts = [_Value(len(part), ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p))
                 for part in (key, value)]
        call("mdb_put", transaction, table, ctypes.byref(parts[0]), ctypes.byref(parts[1]), 0)
    call("mdb_txn_commit", transaction)
    lmdb.mdb_env_close.restype = None
    lmdb.mdb_env_close(environment)
    return folder


def datum(channels, height, width, label, image=None):
    """Caffe's Datum message of one image, black where there is none."""
    def varint(value):
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    image = image or bytes(channels * height * width)
    fields = [b"\x08" + varint(channels), b"\x10" + varint(height), b"\x18" + varint(width),
              b"\x22" + varint(len(image)) + image, b"\x28" + varint(label)]
    return b"".join(fields)
