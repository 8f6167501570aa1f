# SPDX-License-Identifier: Apache-2.0
"""A layer: tensors of a model whose gradients travel as one, and where that gradient is on its way.

A layer is what one module owns directly: a Linear's weight and bias, a convolution's. Small modules join one layer, as
poseidon_join_small says. It leaves with its last gradient, in general that of its first module, and is waited for before
whichever of its modules runs first.

There are three kinds: dense.py, product.py and table.py say how each leaves, lands and is shown. What is common is here.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import declared
from .. import library as c
from .core import Pushed
from .devices import pinned
from .states import AWAITED, COMING, FLYING, GUARDED, IDLE, IN_FLIGHT, LANDED, NEXT_STATES
from .states import Layer as State
from .tensors import DTYPES, exchanged
from .under_way import UnderWay

if TYPE_CHECKING:
    from .core import Core
    from .devices import Moves
    from .under_way import Awaited


class Out(Protocol):
    """Hands gradients over to the core (sending.py). Each push lends what the layer has until its mean has landed."""

    @property
    def samples(self) -> int:
        """Of this worker's batch, by which its gradients count; 0: one worker counts as much as another."""

    def push_dense(self, layer: Any, absent: bool = False) -> None:
        """What `layer.memory` holds; `absent`: nothing, which does not count."""

    def push_factors(self, layer: Any) -> None:
        """What `layer.pending` holds."""

    def push_whole_as_factors(self, layer: Any) -> None:
        """What `layer.memory` holds, where all workers send factors."""

    def push_rows(self, layer: Any, gradient: torch.Tensor | None) -> None:
        """The rows of a sparse gradient; None: this worker has no rows."""


class Layer(Pushed):
    """Belongs to the thread that trains, and inside a backward pass to the thread that autograd has for the layer's device.

    Copies and pickles of a model leave its layers behind: they are None there.
    """

    device: torch.device
    table = False  # its gradient is rows
    local: bool    # see next_pass

    def __init__(self, name: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        """`parameters`: of one device, and of one dtype that their gradients travel in."""
        self.name, self.parameters = name, list(parameters)
        self.dtype = exchanged(parameters[0].dtype)  # in which its gradient travels and is summed
        self.device = parameters[0].device
        self.state = IDLE
        self.staged = self.device.type != "cpu"
        self.elements = sum(p.numel() for p in self.parameters)
        self.first: torch.nn.Module | None = None    # of those that use it
        self.uncalled: set[torch.nn.Module] = set()  # modules that use it and have not been seen in a forward pass
        self.all = [True] * len(self.parameters)
        self.used = list(self.all)  # by parameter: the last backward pass left a gradient, here or elsewhere
        # Numbers of the parameters' gradients that are not sent again: they are added to the mean.
        self.before: torch.Tensor | None = None
        self.guards: list[UnderWay] = []
        self.guarded: list[UnderWay | None] = []  # what parameters show while it is GUARDED
        self.awaited: list[torch.nn.Parameter] = []  # of another class until they have been updated
        # The arguments of the core's calls, made once: the addresses of what the core reads change, the structs do not.
        self.view, self.more = c.View(dtype=DTYPES[self.dtype], elements=self.elements), c.Push()
        self.to_view, self.to_more = ctypes.byref(self.view), ctypes.byref(self.more)
        self.lent: object = ()  # factors and rows, which must live unchanged until the mean has landed
        self.next_pass()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def used_by(self, module: torch.nn.Module) -> None:
        self.first = self.first or module
        self.uncalled.add(module)

    @property
    def shape(self) -> str:
        return declared.shape_of([p.shape for p in self.parameters])

    def declaration(self, position: int) -> c.Layer:
        return declared.declaration(self.name, [p.shape for p in self.parameters], DTYPES[self.dtype], position)

    # ---- states

    def becomes(self, state: State) -> None:
        assert state in NEXT_STATES[self.state], f"layer '{self.name}' cannot go from {self.state.name} to {state.name}"
        self.state = state
        self.flying = state in IN_FLIGHT

    def fail_pass(self) -> None:
        """An exception has ended the backward pass before the layer left."""
        if self.state is COMING:
            self.becomes(IDLE)
            local = self.local
            self.next_pass()
            self.local = local

    def next_pass(self) -> None:
        """What a backward pass leaves is counted anew."""
        self.waiting_for = len(self.parameters)  # gradients of this backward pass
        self.nested = False  # some of it was in a backward pass inside another, as of a reentrant checkpoint
        self.local = False   # its gradients hold some that were not exchanged (no_sync)

    # ---- leaving and landing

    def leave(self, out: Out) -> bool:
        """Hands over what this backward pass left of the gradient; False where it left nothing."""
        raise NotImplementedError

    def leave_nothing(self, out: Out) -> None:
        """Takes part in a step for which there is no gradient here."""
        raise NotImplementedError

    def take(self, core: Core) -> None:
        """Makes the gradient's memory hold the mean, which the core has."""
        raise NotImplementedError

    def give(self) -> None:
        """Shows the landed mean as the gradients of those parameters that are used, in their precision."""
        raise NotImplementedError

    def peek(self, number: int, core: Core) -> torch.Tensor | None:
        """What give() will show of a parameter once the core has the mean; None: no gradient."""
        raise NotImplementedError

    def release(self) -> None:
        """The mean has been shown, or is not wanted: memory that is not kept for the next step goes."""
        raise NotImplementedError

    def lendable(self, *tensors: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], Moves]:
        """The tensors in memory of the host, and what has to be copied there first."""
        if not self.staged:
            return tensors, []
        moves = [(tensor, pinned(tensor.numel(), tensor.dtype).view(tensor.shape)) for tensor in tensors]
        return tuple(into for _, into in moves), moves

    # ---- what the program sees meanwhile

    def forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def guard(self) -> None:
        """Until the mean has landed or is not wanted, gradients are neither None nor to be had."""
        self.becomes(GUARDED)
        if not self.guards or self.guards[0].dtype is not self.parameters[0].dtype:
            self.guards = [UnderWay(parameter) for parameter in self.parameters]
        self.guarded = [guard if used else None for guard, used in zip(self.guards, self.used)]
        for parameter, shown in zip(self.parameters, self.guarded):
            parameter.grad = shown

    def unguard(self) -> None:
        """Gradients under way are None again, for those who look at them on purpose."""
        if self.flying and self.state is not AWAITED:
            self.forget()
            if self.state is GUARDED:
                self.becomes(FLYING)

    def hide(self, kind: type[Awaited]) -> bool:
        """Until the parameters have been updated, those who read them get them from `kind`. False where one is of a class of its own."""
        if any(type(parameter) is not torch.nn.Parameter for parameter in self.parameters):
            return False
        self.becomes(AWAITED)
        self.awaited = self.parameters
        for parameter in self.awaited:
            parameter.__class__ = kind  # the same object under another name
        return True

    def show(self) -> None:
        for parameter in self.awaited:
            parameter.__class__ = torch.nn.Parameter
        self.awaited = []

    def abandon(self) -> None:
        """The session is closed: what was under way will not come, and nobody reads what was lent."""
        if self.state is GUARDED:
            self.unguard()
        self.show()
        self.lent = ()
        if self.state is LANDED or self.flying:
            self.becomes(IDLE)
