# SPDX-License-Identifier: Apache-2.0
"""Gradients leave: hooks of parameters and of Linears' backward passes hand each layer over as soon as its gradient is complete.

A gradient that arrives in a backward pass inside another one (a reentrant checkpoint) may get more, so its layer leaves with the
rest, at the end of the pass around it.
"""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch

from .. import library as c
from . import devices, refusals
from .product import Product
from .states import COMING, FLYING, IDLE, Phase

if TYPE_CHECKING:
    from .dense import Dense
    from .layer import Layer
    from .model import Model
    from .states import Step
    from .table import Table


class Watches(Protocol):
    """Wants to see the factors of gradients (checks.py)."""

    def emitted(self, layer: Product, dy: torch.Tensor, x: torch.Tensor) -> None: ...


class Sender:
    """Of one model. Belongs to the threads of a backward pass: autograd has one for every device.

    `enter`: called before the first gradient of a backward pass; it leaves the step in BACKWARD or raises. `keeps_factors`: they
    are lent beyond the end of the pass, when the program may have changed its batch. `watching`: sees all factors."""

    def __init__(self, model: Model, now: Step, enter: Callable[[], None], keeps_factors: bool, watching: Watches | None) -> None:
        self.model, self.core, self.now = model, model.core, now
        self.enter, self.entering = enter, threading.Lock()
        self.keeps_factors, self.watching = keeps_factors, watching
        self.said: set[str] = set()   # names of layers of which the log has heard
        for layer in model.products:
            layer.emits = self

    # ---- gradients come

    def enter_backward(self) -> None:
        with self.entering:
            if self.now.phase is not Phase.BACKWARD:
                self.enter()

    def hook(self, layer: Layer) -> Callable[[torch.Tensor], None]:
        """Of a parameter, when all its gradients of this backward pass are there, or none."""
        task, now, table = torch._C._current_graph_task_id, self.now, layer.table

        def arrived(parameter: torch.Tensor) -> None:
            if now.paused:
                return
            if now.phase is not Phase.BACKWARD:
                self.enter_backward()
            gradient = parameter.grad
            if gradient is not None:
                if layer.flying:
                    raise refusals.came_again(layer)
                if gradient.is_sparse or table:
                    refusals.check_form(layer, gradient)
            elif layer.flying:
                return
            if layer.state is IDLE:
                layer.becomes(COMING)
            layer.waiting_for -= 1
            if task() != now.task:  # more may come: it leaves when the pass around this one ends
                layer.nested = True
            elif layer.waiting_for == 0 and not layer.nested:
                self.send(layer)
        return arrived

    def rows_come(self, layer: Table) -> Callable[[torch.Tensor], None]:
        """Before a table's rows are added to its gradient."""
        def comes(gradient: torch.Tensor) -> None:
            if self.now.paused or layer.local:
                return
            if self.now.phase is not Phase.BACKWARD:
                self.enter_backward()
            layer.rows_come()
        return comes

    @property
    def paused(self) -> bool:
        return self.now.paused

    def emit(self, layer: Product, dy: torch.Tensor, x: torch.Tensor) -> None:
        """One use's factors of a Linear's gradient, from its backward pass."""
        if self.now.phase is not Phase.BACKWARD:
            self.enter_backward()
        if layer.flying:
            raise refusals.came_again(layer)
        if self.watching is not None:
            self.watching.emitted(layer, dy, x)
        if layer.state is IDLE:
            layer.becomes(COMING)
        if self.keeps_factors and layer.takes_factors and not x.requires_grad:
            x = x.clone()  # lent until the next forward pass: the caller's own batch may not live as long
        layer.emit(dy, x)

    # ---- layers leave

    def send(self, layer: Layer) -> bool:
        """Hands over what this backward pass left of the layer's gradient; False where it left nothing."""
        if torch.is_grad_enabled():  # create_graph: what autograd recorded of gradients does not leave with them
            with torch.no_grad():
                return layer.leave(self)
        return layer.leave(self)

    def send_rest(self) -> None:
        """At the end of a step: the layers that no gradient has completed, and what travels beside layers."""
        for layer in self.model.layers:
            if not layer.flying and not self.send(layer):
                layer.leave_nothing(self)
        self.send_shared()

    def send_nothing(self) -> None:
        """A step for which this worker has no batch."""
        for layer in self.model.layers:
            layer.leave_nothing(self)
        self.send_shared()

    def send_shared(self) -> None:
        core = self.core
        for one in self.model.shared:
            moves = one.note(self.now)
            if one.staged:
                core.carry(core.c.push_dense, one, moves, one.to_view, one.to_more)
            else:
                core.push_whole(core.model, one.id, core.step, one.to_view, one.to_more)
            one.flying = True

    # ---- pushes, as layer.Out has them

    @property
    def samples(self) -> int:
        return self.now.samples

    def flies(self, layer: Layer) -> None:
        if self.model.stopwatch:
            self.model.stopwatch.charge(c.BACKWARD, layer)
        layer.becomes(FLYING)

    def push_dense(self, layer: Dense, absent: bool = False) -> None:
        core, more, samples = self.core, layer.more, self.now.samples
        if more.absent != absent:
            more.absent = absent
        if more.weight != samples:
            more.weight = samples
        if self.model.stopwatch:
            if isinstance(layer, Product):
                layer.tell_rows()
            self.model.stopwatch.charge(c.BACKWARD, layer)
        layer.becomes(FLYING)
        if not layer.staged:
            core.push(core.push_whole, layer, layer.to_view, layer.to_more)
            return
        lands_in = layer.staging(core)
        moves = [] if absent else devices.parts_of(layer.memory.whole(), lands_in)
        more.in_parts = len(moves) > 1
        core.carry(core.c.push_dense, layer, moves, layer.to_view, layer.to_more, in_parts=len(moves) > 1)

    def push_factors(self, layer: Product) -> None:
        core = self.core
        layer.memory.ready(layer.adds)  # where the mean will land
        moves = layer.lend_factors()
        layer.more.absent, layer.more.weight = False, self.now.samples
        self.flies(layer)
        if not layer.staged:
            core.push(core.push_product, layer, layer.to_factors, layer.to_view, layer.to_more)
            return
        layer.more.in_parts = False
        lands_in = layer.staging_of_product(core)
        core.carry(core.c.push_factors, layer, moves, layer.to_factors, lands_in, layer.to_more)

    def push_whole_as_factors(self, layer: Product) -> None:
        """All workers send this layer's factors in this step, and here its gradient came whole or in part."""
        layer.came_whole = True
        if layer.name not in self.said:
            self.said.add(layer.name)
            session = self.model.session
            session.options.log(None, c.NOTICE, (
                f"layer '{layer.name}' goes as factors and its gradient came whole on rank {session.rank}: it is "
                f"{'rounded to TF32' if layer.gathers and layer.tf32 else 'exact'} and more bytes; schemes '{layer.name}=kv' "
                "would send it whole from the first step").encode())
        layer.become_factors()
        self.push_factors(layer)

    def push_rows(self, layer: Table, gradient: torch.Tensor | None) -> None:
        core = self.core
        rows, moves = layer.lend_rows(gradient)
        layer.more.absent, layer.more.weight = False, self.now.samples
        self.flies(layer)
        if not layer.staged:
            core.push(core.c.push_rows, layer, ctypes.byref(rows), layer.to_more)
        else:
            core.carry(core.c.push_rows, layer, moves, ctypes.byref(rows), layer.to_more)
