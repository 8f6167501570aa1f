# SPDX-License-Identifier: Apache-2.0
"""What the program finds, with overlap, in the place of gradients, parameters and buffers that are under way.

From the end of backward() to optimizer.step(): `.grad` is of a class that raises. From the end of backward() to the next forward pass
what the program does with a buffer first waits until it is rank 0's. From optimizer.step() until a layer is updated:
what the program does with its parameters (an average of weights, clamping, a norm for the log, a look at `.grad`) first waits
until they and all others are updated, so that it finds what it would find without overlap. Torch asks __torch_function__ of an
object's class about every call that reads or writes a tensor, so such parameters have a class of their own for that while.
"""
from __future__ import annotations

import copy
from typing import Any, ClassVar, NoReturn, Protocol

import torch

from ..errors import PoseidonError


class UnderWay(torch.Tensor):
    """The `grad` of a parameter whose gradient is on its way: whoever reads or changes it gets an exception. With
    None there clipping would clip nothing, and say that the norm is 0."""

    # torch declares the last two methods without types, and with other parameters than it passes.

    @staticmethod
    def __new__(cls, parameter: torch.Tensor) -> UnderWay:
        return torch.Tensor._make_wrapper_subclass(cls, parameter.shape, dtype=parameter.dtype, device=parameter.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (),  # type: ignore[override]  # see above
                           words: Any = None) -> NoReturn:
        raise PoseidonError("a gradient was read or changed while it is under way, expected distribute without "
                            "overlap=\"forward\", or synchronize(model) after backward()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # see above
        return "a gradient under way"


class Updates(Protocol):
    """What is left to do after an optimizer.step()."""

    zeroing: bool  # zero_grad looks at gradients
    cleared: list[torch.nn.Parameter]  # whose gradients the program has set to None meanwhile

    def catch_up(self) -> None:
        """Does it all."""

    def land_shared(self) -> None:
        """Brings buffers."""


# What an update does not change. Others of the kind wait without need.
UNCHANGED = {getattr(torch.Tensor, name).__get__ for name in ("device", "dtype", "is_leaf", "layout", "ndim", "requires_grad", "shape")}
UNCHANGED |= {torch.Tensor.dim, torch.Tensor.is_complex, torch.Tensor.is_floating_point, torch.Tensor.numel, torch.Tensor.size}
READ_GRADIENT, SET_GRADIENT = (getattr(torch.Tensor.grad, name) for name in ("__get__", "__set__"))


class Waits:
    """Of a tensor's class: what the program does with the tensor waits first, but for what needs nothing that is under way."""

    __slots__ = ()
    updates: ClassVar[Updates]

    @classmethod
    def bring(cls) -> None:
        """Waits."""
        raise NotImplementedError

    @classmethod
    def lets(cls, function: Any, arguments: Any) -> bool:
        """Whether a call needs nothing that is under way."""
        return function in UNCHANGED

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), words: Any = None) -> Any:
        # Torch asks the first of the classes alone.
        for kind in types:
            if issubclass(kind, Waits) and not kind.lets(function, arguments):
                kind.bring()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(words or {}))

    # Torch's own make an object of the class that they find before they read.

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.bring()
        return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.bring()
        return self.__reduce_ex__(protocol)


class Awaited(Waits, torch.nn.Parameter):
    """A parameter whose update `updates` has left for later."""

    @classmethod
    def bring(cls) -> None:
        cls.updates.catch_up()

    @classmethod
    def lets(cls, function: Any, arguments: Any) -> bool:
        if function == READ_GRADIENT:
            return cls.updates.zeroing
        if function == SET_GRADIENT and arguments[1] is None:
            cls.updates.cleared.append(arguments[0])
            return True
        return super().lets(function, arguments)


class AwaitedBuffer(Waits, torch.Tensor):
    """A buffer whose numbers, rank 0's, `updates` has yet to bring."""

    @classmethod
    def bring(cls) -> None:
        cls.updates.land_shared()


def awaited_by(updates: Updates) -> tuple[type[Awaited], type[AwaitedBuffer]]:
    """The classes of the parameters and of the buffers that wait for `updates`."""
    class Own(Awaited):
        pass

    class OwnBuffer(AwaitedBuffer):
        pass
    Own.updates = OwnBuffer.updates = updates
    return Own, OwnBuffer
