# SPDX-License-Identifier: Apache-2.0
"""Blobs: a net's numbers as NumPy arrays that are the net's own memory."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from typing import Any

import numpy
from numpy.typing import NDArray

from ..errors import PoseidonError
from . import library as c

Array = NDArray[numpy.float32]


class Memory:
    """Numbers of a blob, which stay where they are while an array looks at them, whatever becomes of the net."""

    def __init__(self, view: c.View) -> None:
        self.hold, self.release, self.shape = view.hold, c.library().release, tuple(view.shape[:view.axes])
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "data": (view.numbers, False),
                                    "shape": self.shape}

    def __del__(self) -> None:
        self.release(self.hold)


class Keeper:
    """Whom blobs belong to: the library's net, which lives as long as they do, or a Python layer, which may be gone before."""

    def __init__(self, net: int | None = None, belongs: object = None) -> None:
        """`net`: the library's handle. `belongs`: what else lives as long."""
        self.net, self.belongs, self.alive = net, belongs, True

    def need_param_diffs(self) -> None:
        """Makes the gradients of learned blobs, zero, where there are none yet."""
        if self.net is not None:
            c.library().net_need_param_diffs(self.net)


class Blob:
    """An array of a net and its gradient.

    `data` and `diff` are float32 arrays on the net's own memory: writing into them changes the net. They stay valid after
    the net is gone. A forward pass may give a blob other memory; take `data` anew after it.
    """

    def __init__(self, handle: int, keeper: Keeper, learned: bool = False) -> None:
        """`handle`: the library's; `keeper`: whom it belongs to; `learned`: whether it is a layer's weight."""
        self._handle, self._keeper, self._learned = handle, keeper, learned

    def _checked(self) -> int:
        if not self._keeper.alive:
            raise PoseidonError("this blob belonged to a net that is gone", "FAILED_PRECONDITION")
        return self._handle

    def _view(self, diff: bool) -> Array:
        view = c.View()
        c.library().blob_view(self._checked(), diff, byref(view))
        memory = Memory(view)
        if not view.numbers:
            return numpy.zeros(memory.shape, numpy.float32)
        array: Array = numpy.asarray(memory)
        return array

    @property
    def data(self) -> Array:
        """The numbers."""
        return self._view(False)

    @property
    def diff(self) -> Array:
        """Their gradients, zero before the first backward pass."""
        if self._learned:
            self._keeper.need_param_diffs()
        return self._view(True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its axes."""
        view = c.View()
        c.library().blob_shape(self._checked(), byref(view))
        return tuple(view.shape[:view.axes])

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    def _legacy(self, axis: int) -> int:
        shape = self.shape
        if len(shape) > 4:
            raise PoseidonError(f"a blob of {len(shape)} axes has no num, channels, height and width, expected at most 4 axes",
                                "INVALID_ARGUMENT")
        return shape[axis] if axis < len(shape) else 1

    @property
    def num(self) -> int:
        """Extent of the first of at most four axes."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Extent of the second of at most four axes; 1 where there is none."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Extent of the third of at most four axes; 1 where there is none."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Extent of the last of four axes; 1 where there is none."""
        return self._legacy(3)

    def reshape(self, *dims: int) -> None:
        """Gives it the shape `dims`. What is computed from it follows in the next pass, or in Net.reshape."""
        if self._learned:
            raise PoseidonError("the shape of a learned blob is its layer's, and cannot be changed", "INVALID_ARGUMENT")
        shape = tuple(operator.index(dim) for dim in dims)
        c.library().blob_reshape(self._keeper.net, self._checked(), len(shape), c.shape_of(shape))


class BlobVec(Sequence[Blob]):
    """The learned blobs of a layer, weights before biases."""

    def __init__(self, blobs: Callable[[], list[Blob]], add: Callable[[tuple[int, ...]], None] | None = None) -> None:
        """`blobs` makes the list of them; `add` one more, where that is possible."""
        self._blobs, self._add = blobs, add

    def __len__(self) -> int:
        return len(self._blobs())

    def __getitem__(self, index: Any) -> Any:
        return self._blobs()[index]

    def __iter__(self) -> Iterator[Blob]:
        return iter(self._blobs())

    def add_blob(self, *dims: int) -> None:
        """In a Python layer's setup: one more learned blob, of shape `dims`, zero at first."""
        if self._add is None:
            raise PoseidonError("learned blobs are added in the setup of a Python layer only", "FAILED_PRECONDITION")
        self._add(tuple(operator.index(dim) for dim in dims))
