# SPDX-License-Identifier: Apache-2.0
"""What travels beside gradients with every backward pass: flags that all workers agree on, and a model's buffers."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .. import declared
from .. import library as c
from .aliases import Owned
from .core import Pushed
from .product import Product
from .tensors import view_of

if TYPE_CHECKING:
    from .devices import Moves
    from .layer import Layer
    from .states import Step
    from .under_way import AwaitedBuffer


class Shared(Pushed):
    """Is a layer of the core, of which every worker gets the mean."""

    dtype: int  # as the header has it
    flat: torch.Tensor  # the memory that is lent
    needed: bool  # before the next forward pass

    def declaration(self, position: int) -> c.Layer:
        return declared.declaration(self.name, [self.flat.shape], self.dtype, position)

    def note(self, now: Step) -> Moves:
        """Fills what is lent. Returns what has to be copied to the host before it is pushed."""
        raise NotImplementedError

    def tell(self) -> None:
        """Follows what has landed."""
        raise NotImplementedError


class Usage(Shared):
    """Flags: one number per parameter, one per layer that may send factors, and one more. A number is 1 or 0, less MARK times the
    number of workers where it is marked; the mean shows how many have marked it, and whether it was 1 on some.

    Of a parameter: 1 where it got a gradient. No worker's absent gradient means None and not zero, as in torch: weight decay and
    momentum would move what is zero. Marked where it is frozen. Of a layer with factors: marked where its gradient came whole
    while they all send factors. The last one: marked where this worker declares its layers anew, and 0 where its parameters are to
    be compared with the others'.
    """

    name, device, dtype = "parameters in use", None, c.F32
    MARK = 2

    def __init__(self, layers: Sequence[Layer], workers: int) -> None:
        self.layers, self.workers = layers, workers
        self.with_factors = [layer for layer in layers if isinstance(layer, Product)]
        self.parameters = sum(len(layer.parameters) for layer in layers)
        self.flat = torch.empty(self.parameters + len(self.with_factors) + 1, device="cpu")
        self.noted: list[int] = []  # the numbers of this worker that were sent last
        self.own = torch.empty_like(self.flat)  # the same
        self.parted = False  # some workers have frozen a parameter, or declare anew, and others not
        self.needed = False
        self.checked = False  # somebody wants to know `due`
        self.due = False      # parameters are to be compared, as some worker has said with the newest backward pass
        self.to_view, self.to_more = ctypes.byref(view_of(self.flat)), None

    def note(self, now: Step) -> Moves:
        mark = self.MARK * self.workers
        frozen = mark if now.joining is None else 0  # a worker without batches does not follow who freezes
        numbers = [used if parameter.requires_grad else used - frozen
                   for layer in self.layers for parameter, used in zip(layer.parameters, layer.used)]
        numbers += [1 - mark * layer.came_whole for layer in self.with_factors]
        numbers.append(1 - mark * now.renewing - (now.due and now.joining is None))
        for layer in self.with_factors:
            layer.came_whole = False
        if numbers != self.noted:
            self.noted = numbers
            self.own = torch.tensor(numbers, dtype=torch.float32, device="cpu")
        self.flat.copy_(self.own)
        return []

    def tell(self) -> None:
        """Where this worker has no gradient another one may have."""
        if self.checked:
            last = float(self.flat[-1])
            self.due = 1 - last - self.MARK * round(0.25 - last / self.MARK) > 0.5 / self.workers
        if self.flat.min() > 0:  # every parameter has a gradient on some worker, and nobody has marked anything
            for layer in self.layers:
                layer.used = layer.all
            return
        means = self.flat.tolist()
        marks = [round(0.25 - mean / self.MARK) for mean in means]
        used = iter([mean + self.MARK * marked > 0.5 / self.workers for mean, marked in zip(means, marks)])
        for layer in self.layers:
            layer.used = [next(used) for _ in layer.parameters]
        for one, marked in zip(self.with_factors, marks[self.parameters:]):
            one.steps_whole += marked > 0
        self.parted = any(0 < marked < self.workers for marked in (*marks[:self.parameters], marks[-1]))


class Buffers(Shared):
    """A model's buffers, which it saves with its parameters, as the statistics of batch norms: after every backward
    pass rank 0's on all ranks, in double precision, which holds floats and counts as they are. DistributedDataParallel has rank
    0's before every forward pass."""

    name, dtype = "buffers", c.F64

    def __init__(self, model: torch.nn.Module, rank: int) -> None:
        named = {id(buffer): (module, name) for module in model.modules() for name, buffer in module._buffers.items()
                 if buffer is not None and name not in module._non_persistent_buffers_set
                 and buffer.numel() and not buffer.is_complex() and buffer.dtype != torch.bool}
        self.places = list(named.values())  # modules may put others there
        buffers = self.buffers()
        # By dtype: a device copies a list of tensors in one launch only where all have the same.
        self.lots: dict[torch.dtype, list[int]] = {}
        for number, buffer in enumerate(buffers):
            self.lots.setdefault(buffer.dtype, []).append(number)
        self.device = next((buffer.device for buffer in buffers if buffer.device.type != "cpu"), None)
        self.staged = self.device is not None
        self.flat = torch.empty(sum(buffer.numel() for buffer in buffers), dtype=torch.float64, device="cpu",
                                pin_memory=self.staged)
        # On a device: the same there. One copy of all crosses the bus, not one of each.
        self.there = torch.empty_like(self.flat, device=self.device, pin_memory=False) if self.staged else self.flat
        self.pieces = [piece.view(buffer.shape) for piece, buffer in
                       zip(self.there.split([buffer.numel() for buffer in buffers]), buffers)]
        self.to_view = ctypes.byref(view_of(self.flat))
        self.memory: Owned | None = None  # of the buffers, where somebody has asked for it
        self.awaited: list[torch.Tensor] = []  # of another class until rank 0's numbers are there
        self.take_from(0, rank)

    def take_from(self, leader: int, rank: int) -> None:
        """From now on those of rank `leader` are sent, as the mean of the one that has weight."""
        self.mine = rank == leader
        self.needed = not self.mine
        self.to_more = ctypes.byref(c.Push(absent=not self.mine, weight=int(self.mine)))

    def buffers(self) -> list[torch.Tensor]:
        return [module._buffers[name] for module, name in self.places]  # type: ignore[misc]  # None is not among them

    def hide(self, kind: type[AwaitedBuffer]) -> bool:
        """Until rank 0's numbers are there, those who read the buffers get them from `kind`. False where somebody has their memory, or a
        buffer is of a class of its own."""
        buffers = self.buffers()
        if self.memory is None or any(one is not other for one, other in zip(buffers, self.memory.tensors)):
            self.memory = Owned(buffers)
        if self.memory.is_shared() or any(type(buffer) is not torch.Tensor for buffer in buffers):
            return False
        for buffer in buffers:
            buffer.__class__ = kind  # the same object under another name
        self.awaited = buffers
        return True

    def show(self) -> None:
        for buffer in self.awaited:
            buffer.__class__ = torch.Tensor
        self.awaited = []

    def note(self, now: Step) -> Moves:
        if not self.mine:
            return []
        self.copy(self.pieces, self.buffers())
        return [(self.there, self.flat)] if self.staged else []

    def tell(self) -> None:
        self.show()
        if not self.mine:
            if self.staged:
                self.there.copy_(self.flat, non_blocking=True)
            self.copy(self.buffers(), self.pieces)

    def copy(self, into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
        for lot in self.lots.values():
            torch._foreach_copy_([into[number] for number in lot], [source[number] for number in lot])
