# SPDX-License-Identifier: Apache-2.0
"""Means land: they are waited for, brought to where gradients are, and shown as `.grad`.

Here without overlap: at the end of backward() everything is waited for. late.py is the other way.
"""
from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import library as c
from . import refusals
from .core import range_of
from .states import IDLE, LANDED, UNWANTED, Phase

if TYPE_CHECKING:
    from .layer import Layer
    from .model import Model
    from .states import Step

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Lander:
    """Of one model. Belongs to the thread that trains.

    `refuse_parted`: raises on all workers once some of them have frozen, thawed or added what others have not."""

    def __init__(self, model: Model, now: Step, refuse_parted: Callable[[], None]) -> None:
        self.model, self.core, self.now, self.refuse_parted = model, model.core, now, refuse_parted

    @property
    def land(self) -> Callable[[Layer], None]:
        """What waits for the mean of a layer in flight, and makes the layer's memory hold it."""
        return self.land_in_range if self.core.profiled else self.land_now

    def land_now(self, layer: Layer) -> None:
        self.core.wait_for(layer)
        layer.becomes(LANDED)
        layer.take(self.core)

    def land_in_range(self, layer: Layer) -> None:
        with range_of("land", layer):
            self.land_now(layer)

    def land_shared(self, only_needed: bool = False) -> None:
        """What travels beside gradients; `only_needed`: before the next forward pass."""
        for one in self.model.shared:
            if one.flying and (one.needed or not only_needed):
                self.core.wait_for(one)
                one.flying = False
                one.tell()
        if self.model.usage.parted:
            self.model.usage.parted = False
            self.refuse_parted()

    def finish(self, layer: Layer) -> None:
        """Waits for the layer's mean and shows it."""
        if layer.flying:
            self.finish_landed([layer])

    def finish_landed(self, layers: Sequence[Layer]) -> None:
        """Of layers whose means are there, or the first of them is waited for."""
        land, wanted = self.land, [layer for layer in layers if layer.state is not UNWANTED]
        for layer in layers:
            layer.show()
            land(layer)
            if not all(layer.used):
                self.land_shared()
        if self.model.stopwatch:
            self.model.stopwatch.restart(c.FORWARD, layers[0])
        for layer in wanted:
            layer.give()
        for layer in layers:
            layer.becomes(IDLE)  # before the program's optimizer runs, which may raise
        self.update(layers)
        if self.model.stopwatch:
            self.model.stopwatch.charge()
        for layer in layers:
            layer.release()

    def update(self, layers: Sequence[Layer]) -> None:
        """Does what optimizer.step() has left for later: nothing here."""

    def synchronize(self) -> None:
        """Waits for all gradients under way and for the updates that step() has asked for: for nothing here."""

    # ---- moments of a step

    def begin_forward(self) -> None:
        """Before a forward pass of the model."""

    def begin_backward(self) -> None:
        """Before the first gradient of a backward pass: finishes what the forward pass before it did not run."""
        self.land_shared()
        for layer in self.model.layers:
            if layer.flying:
                if self.now.phase is Phase.IDLE or any(p.grad is not None for p in layer.parameters):
                    raise refusals.came_again(layer)
                self.finish(layer)

    def end_backward(self) -> None:
        """After the last layer has left: `.grad` of all is the mean when this returns."""
        land = self.land
        for layer in self.model.layers:
            land(layer)
            layer.next_pass()
        self.land_shared()
        for layer in self.model.layers:
            layer.give()
            layer.release()
            layer.becomes(IDLE)

    def look(self) -> None:
        """Before gradients are looked at on purpose."""

    def forget_step(self) -> None:
        """No update is left to do: step() has not been called for what is under way."""

    # ---- hooks of the optimizer, where distribute was given one

    def attach(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        """Returns handles of hooks, to be removed."""
        return [optimizer.register_step_pre_hook(self.before_update), optimizer.register_step_post_hook(self.after_update)]

    def detach(self) -> None:
        """Leaves model and optimizer as they were before attach, beside hooks."""

    def before_update(self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], words: dict[str, Any]) -> Arguments | None:
        if self.model.stopwatch:
            self.model.stopwatch.restart()
        if isinstance(optimizer, torch.optim.LBFGS):
            closure, *rest = [*arguments[1:], *words.values()]
            return (optimizer, self.mean_of(closure), *rest), {}
        return None

    def after_update(self, optimizer: object, arguments: object, words: object) -> None:
        if self.model.stopwatch:
            self.model.stopwatch.share()

    def mean_of(self, closure: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """A closure of which all workers hear the same loss: what LBFGS does next depends on it."""
        def closure_of_all() -> torch.Tensor:
            loss = closure()
            weight = self.now.samples or 1
            sums = array.array("d", [weight * float(torch.as_tensor(loss).detach()), weight])
            self.model.session.sum(sums)
            return torch.as_tensor(loss).new_tensor(sums[0] / sums[1])
        return closure_of_all
