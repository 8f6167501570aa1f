# SPDX-License-Identifier: Apache-2.0
"""Layers of type Python: the trainer's nets make and run objects of the user's classes, by Caffe's protocol."""
from __future__ import annotations

import ctypes
import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Sequence
from ctypes import byref
from typing import Any

from .. import interruption
from ..errors import PoseidonError
from . import library as c
from .blob import Blob, BlobVec, Keeper


class Layer:
    """The base of layers in Python: a class of a module that is found as other modules are, or in the working directory, which a
    net names by `python_param { module: "..." layer: "..." param_str: "..." }`.

    `param_str` and `phase` are there from `setup` on. `bottom` and `top` are lists of Blob.
    """

    param_str: str = ""
    phase: int = 0
    blobs: BlobVec

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Called once: checks `bottom`, `top` and param_str, adds learned blobs (self.blobs.add_blob)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Called before every forward pass: gives each `top` its shape, by those of `bottom`."""
        raise NotImplementedError(f"{type(self).__name__} has no method reshape")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Computes the data of `top` of the data of `bottom`."""
        raise NotImplementedError(f"{type(self).__name__} has no method forward")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Computes the diff of each `bottom` that `propagate_down` asks for of those of `top`, and adds to the diffs of learned
        blobs."""
        raise NotImplementedError(f"{type(self).__name__} has no method backward")


class Made:
    """An object of the user's class, and whom its blobs belong to."""

    def __init__(self, name: str, layer: Any) -> None:
        """`name`: of the class, for sentences. `layer`: the object."""
        self.name, self.layer, self.keeper = name, layer, Keeper()
        self.known: dict[int, Blob] = {}

    def blob(self, handle: int) -> Blob:
        """The blob of a handle, the same object every time."""
        if handle not in self.known:
            self.known[handle] = Blob(handle, self.keeper)
        return self.known[handle]


_objects: dict[int, Made] = {}
_numbers = itertools.count(1)
_steps = ("setup", "reshape", "forward", "backward")


def what_raised(what: str, failure: BaseException) -> str:
    """A sentence about a `failure` that `what`, a class or its method, raised."""
    return f"{what} raised {type(failure).__name__}: {failure}".replace("\n", " ")


def _tell(failure: BaseException, what: str, sentence: Any, room: int) -> None:
    """The call ends and raises `failure`; others read the sentence."""
    interruption.put(failure)
    text = what_raised(what, failure).encode(errors="replace")[:room - 1]
    ctypes.memmove(sentence, text + b"\0", len(text) + 1)


def user_module(name: str) -> Any:
    """The module `name`, which may be beside the script or in the working directory, and which says `import caffe`."""
    if "caffe" not in sys.modules and importlib.util.find_spec("caffe") is None:
        from . import stand_in
        stand_in()
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)


def new_object(module: str, layer: str, param_str: str, phase: int) -> Any:
    """A new object of the user's class `layer`, which has its `param_str` and `phase` from now on."""
    made = getattr(user_module(module), layer)()
    made.param_str, made.phase = param_str, phase
    return made


def _learned(learned: int, keeper: Keeper) -> BlobVec:
    def blobs() -> list[Blob]:
        if not keeper.alive:
            raise PoseidonError("the net of this layer is gone, and its learned blobs with it", "FAILED_PRECONDITION")
        count = c.library().learned_count(learned)
        return [Blob(c.library().learned_at(learned, index), keeper) for index in range(count)]

    return BlobVec(blobs, lambda dims: c.library().learned_add(learned, len(dims), c.shape_of(dims)))


def _make(module: bytes, layer: bytes, param_str: bytes, phase: int, learned: int, sentence: Any, room: int) -> int:
    name = f"{module.decode()}.{layer.decode()}"
    try:
        made = new_object(module.decode(), layer.decode(), param_str.decode(), phase)
        item = Made(name, made)
        made.blobs = _learned(learned, item.keeper)
        number = next(_numbers)
        _objects[number] = item
        return number
    except BaseException as failure:
        _tell(failure, name, sentence, room)
        return 0


def _run(call: Any, sentence: Any, room: int) -> int:
    wanted = call.contents
    made, step = _objects[wanted.object], _steps[wanted.what]
    try:
        bottom = [made.blob(wanted.bottom[index]) for index in range(wanted.bottoms)]
        top = [made.blob(wanted.top[index]) for index in range(wanted.tops)]
        if wanted.what == c.BACKWARD:
            made.layer.backward(top, [bool(wanted.propagate_down[index]) for index in range(wanted.bottoms)], bottom)
        else:
            getattr(made.layer, step)(bottom, top)
        return 1
    except BaseException as failure:
        _tell(failure, f"{made.name}.{step}", sentence, room)
        return 0


def _drop(number: int) -> None:
    made = _objects.pop(number, None)
    if made is not None:
        made.keeper.alive = False


_table = c.lasting(c.Layers(c.Make(_make), c.Run(_run), c.Drop(_drop)))


def serve() -> None:
    """From here on nets make layers of type Python by this module."""
    c.library().set_layers(byref(_table))
