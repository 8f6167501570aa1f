# SPDX-License-Identifier: Apache-2.0
"""A model of the session: what of a program's module travels, from one declaration to the next.

Layers that are thawed, added or that send no factors any more make a new one (renewal.py).
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import library as c
from ..errors import PoseidonError
from ..report import Account
from . import linear
from .core import Core
from .measure import stopwatch_of
from .partition import Wishes, partition
from .product import Product
from .shared import Buffers, Shared, Usage
from .tensors import exchanged

if TYPE_CHECKING:
    from ..session import Session
    from ..stopwatch import Stopwatch
    from .core import Pushed
    from .layer import Layer

# Numbers of a Linear's gradient, a quarter of a MiB, from which copying them takes longer than the Python code that makes
# backward multiply into the layer's memory.
LEAST_MULTIPLIED_IN_PLACE = 2 ** 16


class Model:
    """Belongs to the thread that trains."""

    def __init__(self, session: Session, root: torch.nn.Module, wishes: Wishes, buffers: bool, since: int) -> None:
        """All workers make it in the same step. `buffers`: whether those of rank 0 are shared. `since`: how many steps the program
        has made before."""
        self.session, self.root, self.since = session, root, since
        self.layers, self.users = partition(root, session, wishes)
        self.products = [layer for layer in self.layers if isinstance(layer, Product)]
        self.usage = Usage(self.layers, session.workers)
        self.buffers = self.shared_buffers() if buffers and session.workers > 1 else []
        self.shared: list[Shared] = [self.usage, *self.buffers] if session.workers > 1 else []
        declared: list[Pushed] = [*self.layers, *self.shared]
        declarations = [one.declaration(at) for at, one in enumerate(declared)]
        for layer, declaration in zip(self.layers, declarations):
            if isinstance(layer, Product) and layer.staged:
                layer.test_product(declaration, session.workers)
        self.core = Core(session, declared, declarations)
        if any(one.staged for one in declared):
            self.core.stage()
        self.device = self.layers[0].device
        self.stopwatch: Stopwatch | None = None
        if session.final_plan_step != c.NEVER:
            self.stopwatch = stopwatch_of(session, self.core.model, self.layers)
        self.account = Account(session, self.core.model, type(root).__name__, self.layers, lambda: self.core.step, self.shared, since)
        self.settled = False  # the plan will not change, and modules have been told so

    def shared_buffers(self) -> list[Buffers]:
        """None, where the module has none."""
        own = Buffers(self.root, self.session.rank)
        return [own] if own.places else []

    def take_modules(self) -> None:
        """Linears whose gradients are products hand over factors from here on."""
        for module, layers in self.users.items():
            if isinstance(layers[0], Product):
                linear.take(module, layers[0])

    def give_modules_back(self) -> None:
        for module in self.users:
            linear.make_plain(module)

    def check_as_declared(self) -> None:
        """Refuses parameters that have moved or been converted since."""
        now = self.layers[0].parameters[0].device
        if now != self.device:
            raise PoseidonError(f"the model has moved from {self.device} to {now}, expected that it moves before distribute")
        for layer in self.layers:
            if not layer.awaited and exchanged(layer.parameters[0].dtype) is not layer.dtype:
                raise PoseidonError(f"parameters of layer '{layer.name}' have become {layer.parameters[0].dtype}, expected that the "
                                    "model is converted before distribute")

    def begin_step(self) -> None:
        """Begins it in the core, and follows the plan that holds from it on."""
        self.session.settle()
        step = self.core.step
        if self.stopwatch:
            self.stopwatch.tell()
        self.core.begin()
        if step == 0 or step == self.session.final_plan_step:
            self.take_plan(step)
        if self.stopwatch:
            self.stopwatch.step = step

    def take_plan(self, step: int) -> None:
        for layer in self.products:
            layer.follow(self.core.takes(layer))
        if step >= self.session.final_plan_step:
            self.stopwatch = None
            said = self.account.begin_plan(step)
            if self.session.rank == 0:
                self.session.options.log(None, c.NOTICE, said.encode())

    def is_final(self) -> bool:
        """Whether the plan of this step will not change."""
        final = self.session.final_plan_step
        return final == c.NEVER or self.core.step >= final

    def settle(self) -> None:
        """The plan will not change: Linears whose gradient goes whole and costs less to copy than Python code to run are plain
        again."""
        self.settled = True
        for module, layers in self.users.items():
            first = layers[0]
            if not (isinstance(first, Product) and first.takes_factors) and first.elements < LEAST_MULTIPLIED_IN_PLACE:
                linear.make_plain(module)
