# SPDX-License-Identifier: Apache-2.0
"""Parameters whose update is under way: with overlap, from optimizer.step() until their module's next forward pass.

What the program does with them in between (an average of weights, clamping, a norm for the log, a look at `.grad`) first waits
until they and all others are updated, so that it finds what it would find without overlap. Torch asks __torch_function__ of an
object's class about every call that reads or writes a tensor, so such parameters have a class of their own for that while.
"""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import torch

if TYPE_CHECKING:
    from .exchange import Exchange

# What an update does not change. Others of the kind wait without need.
UNCHANGED = {getattr(torch.Tensor, name).__get__ for name in ("device", "dtype", "is_leaf", "layout", "ndim", "requires_grad", "shape")}
UNCHANGED |= {torch.Tensor.dim, torch.Tensor.is_complex, torch.Tensor.is_floating_point, torch.Tensor.numel, torch.Tensor.size}
READ_GRADIENT, SET_GRADIENT = (getattr(torch.Tensor.grad, name) for name in ("__get__", "__set__"))


class Awaited(torch.nn.Parameter):
    """A parameter of a layer of `exchange`, of which the optimizer will be told later."""

    exchange: ClassVar[Exchange]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), words: Any = None) -> Any:
        for kind in types:
            if issubclass(kind, Awaited) and not kind.lets(function, arguments):
                kind.exchange.catch_up()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(words or {}))

    @classmethod
    def lets(cls, function: Any, arguments: Any) -> bool:
        """Whether a call needs nothing that is under way."""
        if function == READ_GRADIENT:
            return cls.exchange.zeroing
        if function == SET_GRADIENT and arguments[1] is None:
            cls.exchange.cleared.append(arguments[0])
            return True
        return function in UNCHANGED

    # Torch's own make an object of the class that they find before they read.

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.exchange.catch_up()
        return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.exchange.catch_up()
        return self.__reduce_ex__(protocol)


def awaited_by(exchange: Exchange) -> type[Awaited]:
    """The class of what `exchange` has under way."""
    class Own(Awaited):
        pass
    Own.exchange = exchange
    return Own
