# SPDX-License-Identifier: Apache-2.0
"""Late updates, as overlap="forward" has them: backward() and optimizer.step() return at once. Each layer is waited for, and
updated by the program's own optimizer with the settings of step(), right before its module runs in the next forward pass, or
earlier, while the layer of another module is waited for.
"""
from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .. import library as c
from . import refusals, transforms
from .aliases import Owned
from .hooks import Hook
from .landing import Lander
from .states import FLYING, GUARDED, UNWANTED
from .under_way import awaited_by

if TYPE_CHECKING:
    from .landing import Arguments
    from .layer import Layer

    Group = dict[str, Any]  # of an optimizer

# Numbers of layers that are updated by one call of the optimizer: what is updated stays in a core's cache. On a device a call
# takes longer than what it launches, so that whatever has landed goes in one.
MOST_UPDATED_AT_ONCE = 2 ** 16


NOTHING = contextlib.nullcontext()  # may be entered as often as one likes


class ZeroGrad:
    """zero_grad of a model or an optimizer, for which torch has no hook. Copies get the plain one."""

    def __init__(self, updates: LateUpdates, keeper: Any) -> None:
        self.updates, self.keeper = updates, keeper
        self.plain = functools.partial(type(keeper).zero_grad, keeper)

    def __call__(self, set_to_none: bool = True) -> None:
        with self.updates.drop():
            self.plain(set_to_none)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (type(self.keeper).zero_grad, self.keeper)


class LateUpdates(Lander):
    optimizer: torch.optim.Optimizer  # from attach on

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The optimizer's groups as step() found them; None: no step() since backward.
        self.updating: list[Group] | None = None
        self.kind, self.kind_of_buffers = awaited_by(self)  # what parameters and buffers are meanwhile
        self.memory = {layer: Owned(layer.parameters) for layer in self.model.layers}
        self.said: set[Layer] = set()  # of which the log has heard that they are updated at once
        self.zeroing = False  # zero_grad looks at gradients
        self.zeroed = False   # it was called since step()
        self.cleared: list[torch.nn.Parameter] = []  # since then, whose gradients were set to None
        self.keeping = False  # gradients are kept behind their update, for a program that looks at them

    # ---- landing

    def finish(self, layer: Layer) -> None:
        """Waits for the layer's mean and updates its parameters if step() has been called; so it does meanwhile for other layers
        whose means are there."""
        with transforms.outside() if transforms.is_inside() else NOTHING:
            while layer.flying:
                self.finish_landed([layer] if self.updating is None else self.landed(layer))

    def landed(self, wanted: Layer) -> list[Layer]:
        """Layers whose means are there: the wanted one or else the first of the others, and small ones in the order of the
        forward pass, whose updates cost one call together."""
        first = wanted if self.core.has_landed(wanted) else self.first_landed(wanted)
        most = MOST_UPDATED_AT_ONCE if self.core.carrier is None else math.inf
        found, elements = [first], first.elements
        if elements < most:
            for layer in self.model.layers:
                if layer.flying and layer is not first and self.core.has_landed(layer):
                    elements += layer.elements
                    if elements > most:
                        break
                    found.append(layer)
        return found

    def first_landed(self, wanted: Layer) -> Layer:
        if wanted.sent is not None:
            wanted.sent.result()
        flying = [wanted] + [layer for layer in self.model.layers if layer.flying and layer is not wanted and layer.has_been_pushed()]
        return self.core.first_landed(flying)

    def update(self, layers: Sequence[Layer]) -> None:
        if self.updating is None:
            return
        with self.core.range("update", *layers):
            self.update_layers(layers)
        for layer in layers:
            if not self.keeping:
                layer.forget()

    def update_layers(self, layers: Sequence[Layer]) -> None:
        assert self.updating is not None  # step() was called
        parameters: dict[int, list[torch.Tensor]] = {}
        for layer in layers:
            for number, some in self.groups[layer]:
                parameters.setdefault(number, []).extend(some)
        whole = self.optimizer.param_groups
        self.optimizer.param_groups = [{**self.updating[number], "params": some} for number, some in parameters.items()]
        try:
            with torch.no_grad():
                self.step(self.optimizer)
        finally:
            self.optimizer.param_groups = whole

    def synchronize(self) -> None:
        """Waits for all gradients under way and for the updates that step() has asked for."""
        for layer in self.model.layers:
            self.finish(layer)
        self.land_shared()

    def catch_up(self) -> None:
        """Does what optimizer.step() has left for later, and leaves the gradients where they would be without overlap."""
        if self.updating is not None:
            self.keeping = not self.zeroed
            try:
                self.synchronize()
            finally:
                self.keeping = False
            for parameter in self.cleared:
                parameter.grad = None
            self.cleared = []

    # ---- moments of a step

    def begin_forward(self) -> None:
        self.land_shared(only_needed=True)
        for layer in self.model.layers:  # used by someone else than their own modules: nobody will wait later
            if layer.flying and layer.uncalled:
                self.finish(layer)

    def begin_backward(self) -> None:
        super().begin_backward()
        self.forget_step()

    def end_backward(self) -> None:
        if self.now.compiled:  # a compiler wants to know every tensor that it sees, and what is under way is of classes of ours
            super().end_backward()
            return
        for layer in self.model.layers:
            layer.next_pass()
            layer.forget()
            layer.guard()
        for one in self.model.buffers:
            if not (one.mine or one.hide(self.kind_of_buffers)):
                self.land_shared()

    def look(self) -> None:
        for layer in self.model.layers:
            cleared = layer.state is GUARDED and self.is_cleared(layer)
            layer.unguard()
            if cleared:
                layer.becomes(UNWANTED)

    @staticmethod
    def is_cleared(layer: Layer) -> bool:
        """Whether the program has set the layer's gradients to None, so that it does not want them. Raises where it has set others."""
        shown = [p.grad for p in layer.parameters]
        if all(gradient is guard for gradient, guard in zip(shown, layer.guarded)):
            return False
        if any(gradient is not None for gradient in shown):
            raise refusals.set_under_way(layer)
        return True

    def forget_step(self) -> None:
        self.updating = None

    # ---- hooks of the optimizer

    def attach(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        self.optimizer = optimizer
        self.groups = self.groups_by_layer()
        kind = type(optimizer)
        self.step = getattr(kind.step, "__wrapped__", kind.step)  # without step()'s own hooks
        handles = super().attach(optimizer)
        keeper: Any  # of hooks that a module and an optimizer both have
        for keeper in (self.model.root, optimizer):
            handles.append(keeper.register_state_dict_pre_hook(Hook(lambda *_: self.synchronize())))
            watch_loads = getattr(keeper, "register_load_state_dict_pre_hook", None) or keeper._register_load_state_dict_pre_hook
            handles.append(watch_loads(Hook(lambda *_: self.synchronize())))  # a module's has no underscore from torch 2.5
            keeper.zero_grad = ZeroGrad(self, keeper)
        return handles

    def detach(self) -> None:
        for keeper in (self.model.root, self.optimizer):
            vars(keeper).pop("zero_grad", None)

    def groups_by_layer(self) -> dict[Layer, list[tuple[int, list[torch.Tensor]]]]:
        """By layer: the numbers of the optimizer's groups that have parameters of it, and those parameters."""
        number_of = {p: number for number, group in enumerate(self.optimizer.param_groups) for p in group["params"]}
        groups: dict[Layer, list[tuple[int, list[torch.Tensor]]]] = {}
        for layer in self.model.layers:
            parts: dict[int, list[torch.Tensor]] = {}
            for parameter in layer.parameters:
                if parameter in number_of:
                    parts.setdefault(number_of[parameter], []).append(parameter)
            groups[layer] = list(parts.items())
        self.grouped = refusals.optimized(self.optimizer)
        return groups

    def before_update(self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], words: dict[str, Any]) -> Arguments | None:
        """optimizer.step() itself has nothing to do, because the gradients under way are None meanwhile: what it would do now is
        done layer by layer later, with the learning rates of now."""
        if any(argument is not None for argument in (*arguments[1:], *words.values())):
            raise refusals.given_closure()
        self.catch_up()  # with a step() before this one
        self.look()
        if self.grouped != refusals.optimized(optimizer):
            self.groups = self.groups_by_layer()
        self.zeroed, self.cleared = False, []
        self.updating = [{key: value.clone() if torch.is_tensor(value) else value
                          for key, value in group.items()} for group in optimizer.param_groups]
        return None

    def after_update(self, optimizer: object, arguments: object, words: object) -> None:
        now = []
        for layer in self.model.layers:
            if layer.state is FLYING:
                if self.memory[layer].is_shared() or not layer.hide(self.kind):
                    now.append(layer)
        if now:
            self.update_now(now)

    def update_now(self, layers: Sequence[Layer]) -> None:
        """Of parameters that the program reaches otherwise, where nobody would see that it does."""
        for layer in layers:
            if layer not in self.said:
                self.said.add(layer)
                self.model.session.options.log(None, c.NOTICE, (
                    f"layer '{layer.name}' is updated in step() and not with the next forward pass: something else has the memory of a "
                    "parameter (as detach(), .data and numpy() give it), or a parameter has a class of its own").encode())
        self.keeping = True
        try:
            for layer in layers:
                self.finish(layer)
        finally:
            self.keeping = False

    @contextmanager
    def drop(self) -> Iterator[None]:
        """Around zero_grad: gradients under way that no step() has asked for are not wanted, and those of others not after it."""
        if self.updating is None:
            for layer in self.model.layers:
                layer.unguard()
                if layer.state is FLYING:
                    layer.becomes(UNWANTED)
        self.zeroing = self.zeroed = True
        try:
            yield
        finally:
            self.zeroing = False
