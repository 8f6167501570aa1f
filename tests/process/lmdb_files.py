# SPDX-License-Identifier: Apache-2.0
"""Databases through liblmdb and libleveldb themselves: writes LMDBs that `poseidon convert-mnist` would never write, and reads what
the tools have written."""

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


def read(folder):
    """The records of an LMDB, a list of (key, value) bytes in the order of keys."""
    lmdb = ctypes.CDLL(ctypes.util.find_library("lmdb") or "liblmdb.so.0")
    read_only, no_lock, first, following, absent = 0x20000, 0x400000, 0, 8, -30798
    environment, transaction, cursor, table = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
    assert lmdb.mdb_env_create(ctypes.byref(environment)) == 0
    assert lmdb.mdb_env_open(environment, os.fsencode(folder), read_only | no_lock, 0o644) == 0
    assert lmdb.mdb_txn_begin(environment, None, read_only, ctypes.byref(transaction)) == 0
    assert lmdb.mdb_dbi_open(transaction, None, 0, ctypes.byref(table)) == 0
    assert lmdb.mdb_cursor_open(transaction, table, ctypes.byref(cursor)) == 0
    records, key, value = [], _Value(), _Value()
    step = first
    while (code := lmdb.mdb_cursor_get(cursor, ctypes.byref(key), ctypes.byref(value), step)) == 0:
        records.append((ctypes.string_at(key.data, key.size), ctypes.string_at(value.data, value.size)))
        step = following
    assert code == absent, f"mdb_cursor_get: {code}"
    for close in (lmdb.mdb_cursor_close, lmdb.mdb_txn_abort, lmdb.mdb_env_close):
        close.restype = None
    lmdb.mdb_cursor_close(cursor)
    lmdb.mdb_txn_abort(transaction)
    lmdb.mdb_env_close(environment)
    return records


def read_leveldb(folder):
    """The same of a LevelDB, through its own library; None where that is not installed."""
    name = ctypes.util.find_library("leveldb")
    if name is None:
        return None
    leveldb = ctypes.CDLL(name)
    for function in ("options_create", "readoptions_create", "open", "create_iterator", "iter_key", "iter_value"):
        getattr(leveldb, f"leveldb_{function}").restype = ctypes.c_void_p
    leveldb.leveldb_iter_valid.restype = ctypes.c_ubyte
    error = ctypes.c_char_p()
    options = ctypes.c_void_p(leveldb.leveldb_options_create())
    database = ctypes.c_void_p(leveldb.leveldb_open(options, os.fsencode(folder), ctypes.byref(error)))
    assert error.value is None, error.value
    cursor = ctypes.c_void_p(leveldb.leveldb_create_iterator(database, ctypes.c_void_p(leveldb.leveldb_readoptions_create())))
    records = []
    leveldb.leveldb_iter_seek_to_first(cursor)
    while leveldb.leveldb_iter_valid(cursor):
        record = []
        for part in (leveldb.leveldb_iter_key, leveldb.leveldb_iter_value):
            size = ctypes.c_size_t()
            at = part(cursor, ctypes.byref(size))
            record.append(ctypes.string_at(at, size.value))
        records.append(tuple(record))
        leveldb.leveldb_iter_next(cursor)
    leveldb.leveldb_iter_destroy(cursor)
    leveldb.leveldb_close(database)
    return records
