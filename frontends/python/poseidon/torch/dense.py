# SPDX-License-Identifier: Apache-2.0
"""A layer whose gradient goes whole: as one piece of memory, over which the mean lands."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .layer import Layer
from .memory import Memory

if TYPE_CHECKING:
    from .core import Core
    from .layer import Out


class Dense(Layer):
    def __init__(self, name: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__(name, parameters)
        self.memory = Memory(self.parameters, self.dtype, self.device, self.view)
        self.is_one = len(self.parameters) == 1  # tensor, whose memory is autograd's

    @classmethod
    def joined(cls, layers: Sequence[Layer]) -> Dense:
        """One layer of the parameters of several that are not declared, under the name of the first."""
        return cls(layers[0].name, [parameter for layer in layers for parameter in layer.parameters])

    def leave(self, out: Out) -> bool:
        if not self.gather():
            return False
        out.push_dense(self)
        return True

    def leave_nothing(self, out: Out) -> None:
        self.used = [False] * len(self.parameters)
        memory = self.memory.ready()
        if out.samples:  # an absent one would not count in the divisor, and its samples do
            memory.zero_()
        out.push_dense(self, absent=not out.samples)

    def gather(self, stays: bool = False) -> bool:
        """Brings the gradients that autograd left at the parameters into memory to lend, zero where there is none; False
        where there are none at all. `stays`: see Memory.ready."""
        gradients: list[Any] = [p.grad for p in self.parameters]  # tensors or None
        used = self.used = [gradient is not None for gradient in gradients]
        if used != self.all:
            return any(used) and self.gather_used(gradients, stays)
        memory = self.memory
        if self.is_one:
            only = gradients[0]
            if only.dtype is self.dtype and only.is_contiguous():
                memory.adopt(only)
                return True
        memory.ready(stays)
        if gradients[0] is memory.views[0]:  # backward added to some of them
            for view, gradient in zip(memory.views, gradients):
                if gradient is not view:
                    view.copy_(gradient)
        else:
            torch._foreach_copy_(memory.views, gradients)
        return True

    def gather_used(self, gradients: Sequence[torch.Tensor | None], stays: bool) -> bool:
        self.memory.ready(stays)
        for view, gradient in zip(self.memory.views, gradients):
            if gradient is None:
                view.zero_()
            elif gradient is not view:
                view.copy_(gradient)
        return True

    def staging(self, core: Core) -> torch.Tensor:
        """Memory of the host for the whole gradient of a layer on a device; made when first needed."""
        memory = self.memory
        if memory.host is None:
            memory.stage(*core.host_memory(self, memory.elements, memory.dtype))
        assert memory.host is not None
        return memory.host

    def take(self, core: Core) -> None:
        if self.staged:
            assert core.carrier is not None
            assert self.memory.landing is not None  # it has been sent
            core.carrier.bring(self.device, [(self.memory.landing, self.memory.whole())])

    def give(self) -> None:
        memory = self.memory
        if memory.own is not None:
            parameter = self.parameters[0]
            if parameter.grad is not memory.own:
                parameter.grad = memory.own
            memory.own = None
            return
        if self.used == self.all:
            try:
                for parameter, view in zip(self.parameters, memory.views):
                    parameter.grad = view
                return
            except RuntimeError:  # another precision than it travelled in
                pass
        for parameter, view, used in zip(self.parameters, memory.views, self.used):
            parameter.grad = view.to(parameter.dtype) if used else None  # rounded once, here

    def peek(self, number: int, core: Core) -> torch.Tensor | None:
        if not self.used[number]:
            return None
        whole = self.landed(core)
        begin = sum(self.memory.sizes[:number])
        return whole[begin:begin + self.memory.sizes[number]].view(self.parameters[number].shape)

    def landed(self, core: Core) -> torch.Tensor:
        """The whole mean, flat, where it has landed: of a device it has yet to be brought there."""
        return self.memory.whole().detach() if self.memory.landing is None else self.memory.landing

    def release(self) -> None:
        self.memory.own = None
        if self.is_one:
            self.memory.free()
