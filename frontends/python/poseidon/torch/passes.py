# SPDX-License-Identifier: Apache-2.0
"""The moments of a step: before and after a forward pass of the model, before each of its modules, at the first gradient of a
backward pass, and at its end."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch
from torch.autograd import Variable

from .. import library as c
from . import others, refusals
from .devices import is_captured
from .hooks import Hook, keep_hooks_out_of_pickles, watch
from .states import Phase
from .table import Table
from .tensors import tensors_in

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .landing import Lander
    from .model import Model
    from .renewal import Changes
    from .sending import Sender
    from .states import Step


class Checks(Protocol):
    """Looks at every step (checks.py)."""

    def begin_backward(self) -> None: ...

    def end_step(self) -> None: ...


class Passes:
    """Of one exchange, of the newest of its models. Belongs to the thread that trains; a backward pass enters and ends on a thread of
    autograd's."""

    def __init__(self, now: Step, checker: Checks | None) -> None:
        self.now, self.checker = now, checker
        self.reached: int | None = None  # the graph task of the newest backward pass
        self.by_module: dict[torch.nn.Module, RemovableHandle] = {}
        self.hooks: list[RemovableHandle] = []

    def attach(self, model: Model, sender: Sender, lander: Lander, changes: Changes, keeps_modules: bool) -> None:
        """From here on steps are of that model. `keeps_modules`: every module waits for its layers in each forward pass."""
        self.model, self.sender, self.lander, self.changes, self.keeps_modules = model, sender, lander, changes, keeps_modules
        for module in model.users:
            keep_hooks_out_of_pickles(module)
            # Before hooks that compute a weight of parameters whose update is under way.
            self.by_module[module] = module.register_forward_pre_hook(Hook(self.before_module), prepend=True)
        for layer in model.layers:
            self.hooks += [watch(parameter, sender.hook(layer)) for parameter in layer.parameters]
            if isinstance(layer, Table):
                self.hooks.append(layer.parameters[0].register_hook(sender.rows_come(layer)))

    def detach(self) -> None:
        for hook in (*self.hooks, *self.by_module.values()):
            hook.remove()
        self.hooks.clear()
        self.by_module.clear()

    # ---- forward

    def before_forward(self, model: torch.nn.Module, renew: Callable[[], None]) -> None:
        """`renew`: makes a new model of the session and attaches it here."""
        others.check_around(model)
        self.note_compiler()
        self.lander.look()
        if torch.is_grad_enabled():
            self.refuse_capture()
            self.drop_failed()
            if self.changes.are_due():
                renew()
            self.begin()
        self.lander.begin_forward()
        if self.model.stopwatch:
            self.model.stopwatch.restart()

    def refuse_capture(self) -> None:
        if self.model.device.type != "cpu" and is_captured(self.model.device):
            raise refusals.captured()

    def drop_failed(self) -> None:
        """Of a backward pass that failed before it handed over anything, nothing is left."""
        if self.now.phase is Phase.BACKWARD:
            refusals.check_none_left(self.model.layers)
            for layer in self.model.layers:
                layer.fail_pass()
            self.now.enters(Phase.FORWARD)
        self.now.task = None

    def before_module(self, module: torch.nn.Module, arguments: object) -> None:
        if torch._C._current_graph_task_id() >= 0:  # a checkpoint computes it again, in the backward pass
            return
        layers = self.model.users[module]
        self.note_compiler()
        stopwatch = self.model.stopwatch if self.now.phase is not Phase.IDLE else None  # an evaluation counts for nobody
        if stopwatch:
            stopwatch.charge()
        for layer in layers:
            if layer.uncalled:
                layer.uncalled.discard(module)
            if layer.flying:
                self.lander.finish(layer)
        if stopwatch and layers[0].first is module:  # else time runs on for the layer before
            stopwatch.charge(c.FORWARD, layers[0])

    def note_compiler(self) -> None:
        if not self.now.compiled and torch.compiler.is_compiling():
            self.now.compiled = True

    def after_forward(self, model: torch.nn.Module, arguments: object, result: object) -> None:
        if self.model.stopwatch:
            self.model.stopwatch.charge()
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            for tensor in tensors_in(result):
                if tensor.grad_fn is not None:
                    tensor.grad_fn.register_prehook(self.reach)

    def begin(self) -> None:
        """The step, in the core, unless it has begun."""
        if self.now.phase is not Phase.IDLE:
            return
        self.model.check_as_declared()
        if self.now.joining is not None:
            self.now.joining.begin()
        self.model.begin_step()
        self.now.enters(Phase.FORWARD)
        if self.model.is_final() and not (self.model.settled or self.now.compiled):  # a compiler would begin anew
            self.settle()

    def settle(self) -> None:
        """The plan will not change: modules that need no hook have none."""
        if not self.keeps_modules:
            while self.by_module:
                self.by_module.popitem()[1].remove()
        self.model.settle()

    # ---- backward

    def reach(self, gradients: object) -> None:
        """The backward pass has come to what the model's forward pass returned. None is around this one."""
        task = torch._C._current_graph_task_id()
        if self.reached != task:
            self.reached = task
            self.now.passes += 1
        if self.now.task != task and not self.now.paused:
            self.now.task = task
            Variable._execution_engine.queue_callback(self.end_backward)

    def enter(self) -> None:
        """The first gradient of a backward pass has come."""
        self.refuse_capture()
        if self.now.read_ahead:
            raise refusals.read_ahead()
        self.lander.begin_backward()
        if self.checker is not None:
            self.checker.begin_backward()
        if self.now.joining is None:
            self.changes.turn_whole()
        if self.now.phase is Phase.IDLE:
            self.changes.refuse_more()
            self.begin()
        self.now.enters(Phase.BACKWARD)
        if self.now.task is None:
            self.reach(None)

    def end_backward(self) -> None:
        """Runs when autograd has nothing left: the layers that it did not reach go now."""
        self.now.task = None
        if self.now.phase is not Phase.BACKWARD:  # gradients of something else
            return
        if torch._C._current_autograd_node() is not None:
            self.now.enters(Phase.FORWARD)
            raise refusals.began_unseen()
        try:
            with torch.no_grad():
                if self.model.stopwatch:
                    self.model.stopwatch.charge()
                self.sender.send_rest()
                self.end_step()
        except KeyboardInterrupt:
            if threading.current_thread() is threading.main_thread():
                raise
            # On a thread of a device: the main thread, which waits for this one, raises it itself, and has to do so once.

    def sit_out(self) -> None:
        """One step in which this worker has no batch: it contributes nothing, and has no gradients afterwards."""
        self.begin()
        with torch.no_grad():
            self.sender.send_nothing()
            self.end_step()
        for layer in self.model.layers:
            layer.forget()

    def end_step(self) -> None:
        """All layers have left."""
        self.now.number += 1
        self.model.core.step += 1
        self.now.enters(Phase.IDLE)
        self.lander.end_backward()
        if self.checker is not None:
            self.checker.end_step()
        if self.model.stopwatch:
            self.model.stopwatch.restart()
