# SPDX-License-Identifier: Apache-2.0
"""libposeidon_caffe.so as Python sees it: the structs and functions of frontends/caffe/c/poseidon_caffe.h, by ctypes.

A call that fails raises PoseidonError with the trainer's own sentence, or what a callback of the call raised. ctypes lets go
of the interpreter lock for as long as a call lasts. The library computes with torch's libtorch_cpu.so, the one that `import
torch` loads, so that both work in one process.
"""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import sys
import weakref
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from .. import distribution, interruption, trainer
from ..errors import PoseidonError

MOST_AXES = 32
SETUP, RESHAPE, FORWARD, BACKWARD = 0, 1, 2, 3
NOTICE, WARNING, ERROR = 1, 2, 3
# What the compute library reads when it is loaded, as the program has it: its products have the same bits in every process.
SETTINGS = {"OMP_WAIT_POLICY": "passive", "MKL_CBWR": "AUTO,STRICT"}

Say = CFUNCTYPE(None, c_int32, c_char_p)
Event = CFUNCTYPE(c_int32)


class State(ctypes.Structure):
    _fields_ = [("phase", c_int32), ("level", c_int32), ("stages", c_char_p), ("seed", c_uint64)]


class View(ctypes.Structure):
    _fields_ = [("numbers", c_void_p), ("hold", c_void_p), ("axes", c_int32), ("shape", c_int64 * MOST_AXES)]


class SolverOptions(ctypes.Structure):
    _fields_ = [("type", c_char_p), ("seed", c_int64)]


class Call(ctypes.Structure):
    _fields_ = [("object", c_int64), ("what", c_int32), ("bottoms", c_int32), ("tops", c_int32), ("bottom", POINTER(c_void_p)),
                ("top", POINTER(c_void_p)), ("propagate_down", POINTER(c_uint8))]


Make = CFUNCTYPE(c_int64, c_char_p, c_char_p, c_char_p, c_int32, c_void_p, POINTER(c_char), c_size_t)
Run = CFUNCTYPE(c_int32, POINTER(Call), POINTER(c_char), c_size_t)
Drop = CFUNCTYPE(None, c_int64)


class Layers(ctypes.Structure):
    _fields_ = [("make", Make), ("call", Run), ("drop", Drop)]


NET = BLOB = SOLVER = LEARNED = c_void_p
FALLIBLE: dict[str, list[Any]] = {
    "check_torch": [],
    "net_new": [c_char_p, POINTER(State), POINTER(NET)],
    "net_forward": [NET, c_int32, c_int32, POINTER(c_double)],
    "net_backward": [NET, c_int32, c_int32],
    "net_clear_param_diffs": [NET],
    "net_need_param_diffs": [NET],
    "net_reshape": [NET],
    "net_copy_from": [NET, c_char_p],
    "net_share_with": [NET, NET],
    "net_save": [NET, c_char_p, c_int32],
    "net_set_input_arrays": [NET, c_void_p, POINTER(c_int64), c_void_p],
    "blob_view": [BLOB, c_int32, POINTER(View)],
    "blob_shape": [BLOB, POINTER(View)],
    "blob_reshape": [NET, BLOB, c_int32, POINTER(c_int64)],
    "place": [POINTER(c_int32), POINTER(c_int32)],
    "solver_new": [c_char_p, POINTER(SolverOptions), POINTER(SOLVER)],
    "solver_set_base_lr": [SOLVER, c_float],
    "solver_step": [SOLVER, c_uint64],
    "solver_solve": [SOLVER],
    "solver_restore": [SOLVER, c_char_p],
    "solver_snapshot": [SOLVER],
    "learned_add": [LEARNED, c_int32, POINTER(c_int64)],
}
PLAIN: dict[str, tuple[Any, list[Any]]] = {  # with what they return
    "version": (c_char_p, []),
    "error": (c_char_p, []),
    "culprit": (c_int32, []),
    "code_name": (c_char_p, [c_int32]),
    "layer_types": (c_char_p, []),
    "descriptor": (c_void_p, [POINTER(c_size_t)]),
    "set_say": (None, [Say]),
    "set_interrupted": (None, [interruption.Interrupted]),
    "net_free": (None, [NET]),
    "net_describe": (c_char_p, [NET]),
    "net_blob": (BLOB, [NET, c_int32]),
    "net_learned": (BLOB, [NET, c_int32, c_int32]),
    "release": (None, [c_void_p]),
    "solver_free": (None, [SOLVER]),
    "solver_abort": (None, [SOLVER, c_char_p]),
    "solver_call": (None, [SOLVER, Event, Event]),
    "solver_net": (NET, [SOLVER, c_int32]),
    "solver_iteration": (c_uint64, [SOLVER]),
    "solver_rate": (c_double, [SOLVER]),
    "solver_parameters": (c_char_p, [SOLVER]),
    "solver_hash": (c_char_p, [SOLVER]),
    "set_layers": (None, [POINTER(Layers)]),
    "learned_count": (c_int32, [LEARNED]),
    "learned_at": (BLOB, [LEARNED, c_int32]),
}


def path_of_library() -> str:
    """Where the library is: as POSEIDON_CAFFE_LIBRARY says, in the build tree of a checkout, or in the trainer's wheel."""
    named = distribution.places("POSEIDON_CAFFE_LIBRARY", "libposeidon_caffe.so", "frontends/caffe/libposeidon_caffe.so")
    for path in named:
        if os.path.exists(path):
            return path
    if len(named) == 1:
        raise ImportError(f"there is no {named[0]}, expected POSEIDON_CAFFE_LIBRARY to name libposeidon_caffe.so")
    installed = trainer.find()
    if installed is None:
        raise ImportError("poseidon.caffe needs the Caffe trainer: pip install 'poseidon-train[caffe]', or make build in a checkout")
    if installed.trouble:
        raise ImportError(installed.trouble)
    return str(installed.program.parents[1] / "libposeidon_caffe.so")


def load_torch() -> None:
    """Loads torch's libraries as `import torch` would, which is not needed: whoever comes later gets the same ones."""
    if "torch" in sys.modules:
        return
    for name, setting in SETTINGS.items():
        os.environ.setdefault(name, setting)
    folder = trainer.folder_of("torch")
    if folder is None:
        raise ImportError("poseidon.caffe computes with PyTorch's library, which is not installed: pip install torch")
    for name in "libc10.so", "libtorch_cpu.so":
        file = folder / "lib" / name
        if file.exists():
            ctypes.CDLL(str(file))  # local: it exports some of an old protobuf


def load() -> ctypes.CDLL:
    path = path_of_library()
    try:
        load_torch()
        library = ctypes.CDLL(path)
    except OSError as error:
        torch = distribution.find("torch")
        version = torch.version if torch is not None else "none"
        raise ImportError(f"{path} cannot be loaded beside torch {version} ({error}), expected the torch that it was built "
                          "with") from None
    try:
        for name, arguments in FALLIBLE.items():
            function = getattr(library, "poseidon_caffe_" + name)
            function.argtypes, function.restype = arguments, c_int32
        for name, (result, arguments) in PLAIN.items():
            function = getattr(library, "poseidon_caffe_" + name)
            function.argtypes, function.restype = arguments, result
    except AttributeError as error:
        raise ImportError(f"{path} is older than the package poseidon ({error}), expected one of the same version") from None
    expected, found = distribution.version(), library.poseidon_caffe_version().decode()
    if expected not in (None, found):
        raise ImportError(f"{path} has version {found} and the package poseidon {expected}, expected the same of both")
    return library


class Library:
    """The functions, without their prefix; those that can fail raise."""

    if TYPE_CHECKING:  # attributes are made of the tables above
        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __init__(self) -> None:
        self.loaded = load()
        for name in FALLIBLE:
            setattr(self, name, self.raising(getattr(self.loaded, "poseidon_caffe_" + name)))
        for name in PLAIN:
            setattr(self, name, getattr(self.loaded, "poseidon_caffe_" + name))

    def raising(self, function: Callable[..., int]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            code = function(*arguments)
            raised = interruption.take()
            if raised is not None:
                raise raised
            if code:
                self.fail(code)
        return call

    def fail(self, code: int) -> None:
        culprit = self.culprit()
        raise PoseidonError(self.error().decode(errors="replace"), self.code_name(code).decode(), None if culprit < 0 else culprit)


def lasting(callback: Any) -> Any:
    """The `callback`, which from here on is there as long as the process: whoever uses a net while Python takes its modules apart has
    the library call it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return callback


def owned(by: object, free: Callable[..., Any], handle: int) -> weakref.finalize[..., Any]:
    """Has what the library has made for an object, a `handle`, freed with it. What is there when the process ends stays: functions of
    atexit and modules may still use it, and the system takes all memory back."""
    made = weakref.finalize(by, free, handle)
    made.atexit = False
    return made


@functools.cache
def library() -> Library:
    """The library, loaded at its first use."""
    made = Library()
    try:
        made.check_torch()
    except PoseidonError as error:
        raise ImportError(error.message) from None
    made.set_interrupted(lasting(interruption.asked))
    return made


def encoded(path: str | os.PathLike[str]) -> bytes:
    """A path for the library."""
    return os.fsencode(pathlib.Path(path))


def shape_of(dims: tuple[int, ...]) -> ctypes.Array[c_int64]:
    """A shape for the library."""
    return (c_int64 * max(1, len(dims)))(*dims)
