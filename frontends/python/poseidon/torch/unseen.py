# SPDX-License-Identifier: Apache-2.0
"""Gradients that an optimizer is about to take and that no exchange has seen, found at its step()."""
from __future__ import annotations

import weakref
from collections.abc import Set
from typing import TYPE_CHECKING, NamedTuple

import torch

from . import refusals
from .replay import largest
from .under_way import UnderWay

if TYPE_CHECKING:
    from .model import Model
    from .states import Step


MOST_KEPT = 16  # gradients of an optimizer, by which it knows in its next step whether it finds the same


class Taken(NamedTuple):
    """What an optimizer found in its last step."""

    steps: int   # of the exchange, that had ended
    pauses: int  # Step.pauses
    shared: int  # how many numbers the job's collectives had had
    some: list[tuple[torch.nn.Parameter, weakref.ref[torch.Tensor]]] | None  # gradients; None: they were under way


class Unseen:
    """Of one declaration of a model: refuses gradients that torch.autograd.grad has returned or a program has set. They are this
    worker's own, and replicas would part.

    What a backward pass of the model has left since the optimizer's last step is the mean, whatever the program made of it, and what
    the optimizer has taken before it may take again. Gradients that stay on purpose (no_sync), that are zero, or that the program
    itself has shared may be taken too."""

    def __init__(self, model: Model, now: Step, known: Set[torch.nn.Parameter], late: bool) -> None:
        """`known`: the parameters that travel. `late`: their updates come with the next forward pass."""
        self.session, self.root, self.layers = model.session, model.root, model.layers
        self.now, self.known, self.late = now, known, late
        # By optimizer: how many parameters it had, and those of them that travel.
        self.owned: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[int, list[torch.nn.Parameter]]] = weakref.WeakKeyDictionary()
        self.taken: weakref.WeakKeyDictionary[torch.optim.Optimizer, Taken] = weakref.WeakKeyDictionary()
        self.first = Taken(0, now.pauses, model.session.numbers_shared, [])  # of an optimizer that has not made a step

    def of(self, optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
        """Those of its parameters that travel."""
        parameters, own = self.owned.get(optimizer, (-1, []))
        if parameters != refusals.optimized(optimizer):
            own = [p for group in optimizer.param_groups for p in group["params"] if p in self.known]
            self.owned[optimizer] = refusals.optimized(optimizer), own
        return own

    def refuse(self, optimizer: torch.optim.Optimizer) -> None:
        """Before each step of an optimizer."""
        now, own, taken = self.now, self.of(optimizer), self.taken.get(optimizer, self.first)
        if not (now.paused or now.pauses > taken.pauses):
            suspects = [p for p in self.suspects(own, now.number - taken.steps, taken) if largest(p.grad) > 0]
            if sum(parameter.numel() for parameter in suspects) > self.session.numbers_shared - taken.shared:
                name = next((name for name, p in self.root.named_parameters() if p is suspects[0]), "?")
                raise refusals.not_exchanged(optimizer, name)
        self.taken[optimizer] = Taken(now.number, now.pauses, self.session.numbers_shared, self.some_of(own))

    def suspects(self, own: list[torch.nn.Parameter], passes: int, taken: Taken) -> list[torch.nn.Parameter]:
        """Those whose gradient, if they have one, nobody has exchanged. `passes`: of the model, that have ended since the optimizer
        took what it has `taken`."""
        if passes == 0:
            again = taken.some is None or any(p.grad is not None and p.grad is gradient() for p, gradient in taken.some)
            return [] if again else own
        if passes > 1:  # one of them may have left what a later one does not have
            return []
        unused = {p for layer in self.layers if layer.used is not layer.all for p, used in zip(layer.parameters, layer.used) if not used}
        return [p for p in own if p in unused] if unused else []

    def some_of(self, own: list[torch.nn.Parameter]) -> list[tuple[torch.nn.Parameter, weakref.ref[torch.Tensor]]] | None:
        """Some of their gradients, not held: to see in the next step whether they are the same."""
        some = [(p, p.grad) for p in own[::1 + len(own) // MOST_KEPT]]
        if self.late and any(isinstance(gradient, UnderWay) for _, gradient in some):
            return None
        return [(p, weakref.ref(gradient)) for p, gradient in some if gradient is not None]
