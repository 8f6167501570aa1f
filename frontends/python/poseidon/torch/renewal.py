# SPDX-License-Identifier: Apache-2.0
"""When a program's module is not any more what was declared: parameters that were thawed or added on all workers, and Linears whose
gradients keep coming whole, make a new model of the session. What one worker alone has changed ends the job with a sentence."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

import torch

from .. import library as c
from . import refusals
from .tensors import parameters_of

if TYPE_CHECKING:
    from collections.abc import Set

    from ..session import Session
    from .model import Model
    from .product import Product

# Steps in which a layer's gradient came whole on some worker, though all send its factors, after which it goes whole.
MOST_WHOLE = 10


class Changes:
    """Of a module since `model` was declared of it."""

    def __init__(self, model: Model) -> None:
        self.model, self.root = model, model.root
        self.known = {parameter for layer in model.layers for parameter in layer.parameters}  # that travel
        self.frozen = [p for p in parameters_of(self.root) if p not in self.known]
        self.parts = list(self.root.modules())
        self.outline = self.outlined()
        self.turned: set[torch.nn.Parameter] = set()  # of Linears that are to send no factors any more

    def outlined(self) -> list[int]:
        """Identities of modules and parameters, to see whether they are still the same."""
        return [id(part) for module in self.parts for part in (*module._parameters.values(), *module._modules.values())]

    def are_due(self) -> bool:
        """Whether layers are to be declared anew, before a forward pass."""
        return bool(self.turned) or self.want_more()

    def want_more(self) -> bool:
        """Whether something wants a gradient that is in no layer."""
        if self.outlined() == self.outline:
            return any(parameter.requires_grad for parameter in self.frozen)
        self.parts, self.outline = list(self.root.modules()), self.outlined()
        new = self.new()
        if any(not isinstance(p, torch.nn.Parameter) for p in new):
            raise refusals.no_parameter()
        return bool(new)

    def new(self) -> list[torch.nn.Parameter]:
        return [p for p in parameters_of(self.root) if p.requires_grad and p not in self.known]

    def refuse_more(self) -> None:
        """In a backward pass, where it is too late to declare."""
        if self.want_more():
            raise refusals.wants_gradient(next(name for name, p in self.root.named_parameters()
                                               if p.requires_grad and p not in self.known))

    def turn_whole(self) -> None:
        """Layers whose gradients keep coming whole on some worker, of which all workers know the same, will go whole. In the
        backward pass, a place that all workers come to in the same step."""
        came = [layer for layer in self.model.products if layer.steps_whole]
        if self.turned or not any(layer.steps_whole >= MOST_WHOLE for layer in came):
            return
        for layer in came:
            if not self.model.core.plan_of(layer).forced:
                self.turned.update(layer.parameters)
                self.say_turned(layer)

    def say_turned(self, layer: Product) -> None:
        self.model.session.options.log(None, c.NOTICE, (
            f"layer '{layer.name}' goes as factors and its gradient came whole in {layer.steps_whole} steps: it "
            "goes whole from the next step on, and the others are planned anew").encode())


def compare_trained(session: Session, root: torch.nn.Module, known: Set[torch.nn.Parameter]) -> None:
    """Raises on all workers where a parameter is trained on one and not on another, or is new there alone. All call it."""
    own = {name: "frozen" if not p.requires_grad else "trained" if p in known else "new" for name, p in root.named_parameters()}
    encoded = json.dumps(own).encode()
    first, *others = (json.loads(session.broadcast_bytes(encoded, rank)) for rank in range(session.workers))
    for rank, other in enumerate(others, 1):
        for name in {**first, **other}:
            here, there = first.get(name, "not there"), other.get(name, "not there")
            if here != there:
                raise refusals.changed_on_one(name, there, rank, here)


def refuse_parted(session: Session, root: torch.nn.Module, known: Set[torch.nn.Parameter]) -> NoReturn:
    """Ends a job some of whose workers have changed what others have not. All call it."""
    compare_trained(session, root, known)
    raise refusals.changed_on_some()
