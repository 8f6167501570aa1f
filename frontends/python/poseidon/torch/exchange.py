# SPDX-License-Identifier: Apache-2.0
"""One model's gradients on their way through the core, step by step.

Backward hands every layer over as soon as its gradient exists. When the backward pass ends, what no
gradient reached is handed over as absent; then either everything is waited for (the default: `.grad` is
the mean when `backward()` returns), or, with overlap, nothing is: every layer is waited for, and updated by
the user's own optimizer, right before its module runs in the next forward pass.
"""
from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import functools
import json
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch.autograd import Variable
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .. import interruption
from .. import library as c
from ..errors import PoseidonError
from . import batch_norm, data, devices, others
from .awaited import awaited_by
from .devices import Carrier
from .layers import (Buffers, Layer, Usage, broadcast, compare, dimensions, exchanged, layers_of, parameters_of, view_of,
                     whole_as_factors)
from .linear import Linear
from .measure import stopwatch_of
from .ranges import Ranges
from .reporting import Moved, moved_by_layer, sentence_of_plan

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from ..session import Session
    from .checks import Checker
    from .devices import Moves
    from .joining import Joining

    Group = dict[str, Any]  # of an optimizer

# Optimizers that update every parameter by itself, so that layers may be updated one at a time.
BY_PARAMETER = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)

# Numbers of a Linear's gradient, a quarter of a MiB, from which copying them takes longer than the Python code that makes
# backward multiply into the layer's memory.
LEAST_MULTIPLIED_IN_PLACE = 2 ** 16
# Numbers of layers that are updated by one call of the optimizer: what is updated stays in a core's cache. On a device a call
# takes longer than what it launches, so that whatever has landed goes in one.
MOST_UPDATED_AT_ONCE = 2 ** 16
# Steps in which a layer's gradient came whole on some worker, though all send its factors, after which it goes whole.
MOST_WHOLE = 10


class Hook:
    """A module's hook, which copies and pickles of the module leave behind."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (nothing,)


def nothing(*_: object) -> None:
    pass


class Hooks(collections.OrderedDict[int, Any]):
    """A module's hooks. Copies and pickles have those that are not ours, in what torch has for them: a file with a class of ours
    could not be read with weights_only=True."""

    def __reduce__(self) -> tuple[Any, ...]:
        kept = [(number, hook) for number, hook in self.items() if not isinstance(hook, Hook)]
        return collections.OrderedDict, (), None, None, iter(kept)


def keep_hooks_out_of_pickles(module: torch.nn.Module) -> None:
    """Where there is none yet: the handles of those that are there lead to the dictionary that they are in."""
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        if not getattr(module, name):
            setattr(module, name, Hooks())


class ZeroGrad:
    """zero_grad of a model or an optimizer, for which torch has no hook. Copies get the plain one."""

    def __init__(self, exchange: Exchange, keeper: Any) -> None:
        self.exchange, self.keeper = exchange, keeper
        self.plain = functools.partial(type(keeper).zero_grad, keeper)

    def __call__(self, set_to_none: bool = True) -> None:
        with self.exchange.drop():
            self.plain(set_to_none)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (type(self.keeper).zero_grad, self.keeper)


def tensors_in(result: object) -> Iterator[torch.Tensor]:
    """Those in what a forward pass returned."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from tensors_in(value)
    elif isinstance(result, (list, tuple, set)):
        for value in result:
            yield from tensors_in(value)
    elif result is not None and hasattr(result, "__dict__"):
        for value in vars(result).values():
            if isinstance(value, (torch.Tensor, Mapping, list, tuple)):
                yield from tensors_in(value)


def watch(parameter: torch.nn.Parameter, hook: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Calls `hook` when a backward pass has left the parameter's gradient, also where it is frozen now."""
    wants = parameter.requires_grad
    handle: RemovableHandle = parameter.requires_grad_(True).register_post_accumulate_grad_hook(hook)
    parameter.requires_grad_(wants)
    return handle


def make_plain(module: torch.nn.Module) -> None:
    """A Linear is the one that it was before."""
    if type(module) is Linear:
        module.__class__ = torch.nn.Linear  # type: ignore[assignment]  # see above
        vars(module).pop("poseidon_layer", None)


class Exchange:
    """The object that `poseidon.torch.wrap` returns. Belongs to the thread that trains."""

    all: ClassVar[weakref.WeakSet[Exchange]] = weakref.WeakSet()  # of this process

    def __init__(self, session: Session, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None,
                 overlap: bool = False, factors: bool = True, buffers: bool = True, check_every: int | None = None,
                 tf32: bool = False) -> None:
        if overlap and type(optimizer) not in BY_PARAMETER:
            raise PoseidonError(f"overlap is not possible with {type(optimizer).__name__}, expected one of "
                                + ", ".join(kind.__name__ for kind in BY_PARAMETER), "INVALID_ARGUMENT")
        others.check_inside(model)
        self.all.add(self)
        self.session, self.root, self.optimizer, self.overlap = session, model, optimizer, overlap
        self.factors, self.share_buffers, self.tf32 = factors, buffers, tf32
        self.c = session.c
        self.begin_step, self.push_whole, self.push_product, self.wait = map(
            self.c.often, ("begin_step", "push_dense", "push_factors", "wait"))
        self.carrier: Carrier | None = None  # of gradients on a device
        self.entering = threading.Lock()  # autograd has a thread for every device
        self.step = 0
        # Of this worker's batch, whose mean its gradient is: by them it counts in the mean over all workers. 0 on all: one
        # worker counts as much as another.
        self.samples = 0
        self.begun = False
        self.in_backward = False
        self.paused = False  # gradients stay here
        self.joining: Joining | None = None  # workers may have different numbers of steps
        self.outer: int | None = None  # the graph task of the backward pass, at whose end end_backward will be called
        self.passes = 0  # backward passes, those of no_sync too
        self.reached: int | None = None  # the graph task of the newest of them
        self.read_ahead = False  # a loop has an uneven batch still to come: see data.Use
        self.compiled = False  # some module was, in its last forward pass
        self.said: set[str] = set()  # names of layers of which the log has heard
        # The optimizer's groups as step() found them; None: no step() since backward.
        self.updating: list[Group] | None = None
        self.awaited = awaited_by(self)  # what parameters are meanwhile
        self.zeroing = False  # zero_grad looks at gradients
        self.zeroed = False   # it was called since step()
        self.cleared: list[torch.nn.Parameter] = []  # since then, whose gradients were set to None
        self.checked = 0  # how many parameters the optimizer had when they were looked for in models
        self.strangers: list[tuple[int, torch.Tensor]] = []  # those that were in none, and the numbers of their groups
        self.keeping = False  # gradients are kept behind their update, for a program that looks at them
        self.ranges = Ranges(self)
        self.checker: Checker | None = None
        if check_every is not None:
            from .checks import Checker  # which loads torch's compiler
            self.checker = Checker(self, check_every)
        compare(session, model)
        broadcast(session, model)
        self.known: set[torch.nn.Parameter] = set()
        self.whole: set[torch.nn.Parameter] = set()  # of Linears that send no factors any more
        self.declare()

    def declare(self) -> None:
        """Makes a model of the session of what requires a gradient or did before, on all workers in the same step."""
        self.layers, self.users = layers_of(self.root, self.session, self.factors, self.known, self.whole)
        self.known = {parameter for layer in self.layers for parameter in layer.parameters}
        self.parts = list(self.root.modules())
        self.frozen = [p for p in parameters_of(self.root) if p not in self.known]
        self.outline = self.outlined()
        self.renewing = False  # the layers are about to be declared anew
        self.turning = False   # some of them will send no factors any more, from the next forward pass on
        self.usage = Usage(self)
        self.shared: list[Usage | Buffers] = []  # which travel with every backward pass
        if self.session.workers > 1:
            self.shared.append(self.usage)
            buffers = Buffers(self.root, self.session.rank)
            if self.share_buffers and buffers.places:
                self.shared.append(buffers)
        declared: list[Layer | Usage | Buffers] = [*self.layers, *self.shared]
        declarations = [each.declaration(at) for at, each in enumerate(declared)]
        for layer, declaration in zip(self.layers, declarations):
            if layer.factors and layer.device.type != "cpu":
                layer.test_product(declaration, self.session.workers, self.tf32)
        self.model, numbers = self.session.declare(declarations)
        self.since = self.step  # the model counts its steps from here
        self.number = self.session.models - 1  # of the model, in spans
        self.measured_from, self.moved_before = 0, dict[int, Moved]()  # since when layers are measured under the plan that holds
        self.settled = False
        for each, number in zip(declared, numbers):
            each.id = number
        for layer in self.layers:
            layer.exchange = self
        self.stage()
        self.stopwatch = None if self.session.final_plan_step == c.NEVER else \
            stopwatch_of(self.session, self.model, self.layers)
        self.attach(self.root)

    def stage(self) -> None:
        """Gives a carrier to those layers that are on a device."""
        self.device = self.layers[0].device
        staged = [layer for layer in self.layers if layer.device.type != "cpu"]
        if staged or any(shared.device is not None for shared in self.shared):
            interruption.listen()
            self.carrier = carrier = Carrier()
            for layer in staged:
                layer.stage(carrier)

    def outlined(self) -> list[int]:
        """Identities of modules and parameters, to see whether they are still the same."""
        return [id(part) for module in self.parts for part in (*module._parameters.values(), *module._modules.values())]

    def attach(self, model: torch.nn.Module) -> None:
        hooks: list[RemovableHandle] = []
        self.hooks = hooks
        self.permit_others = others.forbid(model)
        self.by_module: dict[torch.nn.Module, RemovableHandle] = {}
        self.norms = batch_norm.take(model, self)
        for module, layers in self.users.items():
            if layers[0].factors:
                module.__class__ = Linear
                vars(module)["poseidon_layer"] = layers[0]
            keep_hooks_out_of_pickles(module)
            # Before hooks that compute a weight of parameters whose update is under way.
            self.by_module[module] = module.register_forward_pre_hook(Hook(self.before_module), prepend=True)
        keep_hooks_out_of_pickles(model)
        hooks.append(model.register_forward_pre_hook(Hook(self.before_forward), prepend=True))
        hooks.append(model.register_forward_hook(Hook(self.after_forward)))
        if self.checker is not None:
            hooks += self.checker.attach(model)
        for layer in self.layers:
            hooks += [watch(parameter, self.hook(layer)) for parameter in layer.parameters]
            if layer.table:
                hooks.append(layer.parameters[0].register_hook(self.rows_come(layer)))
        hooks.append(register_optimizer_step_pre_hook(self.refuse_inside))
        if self.optimizer is not None:
            hooks.append(self.optimizer.register_step_pre_hook(self.before_update))
            hooks.append(self.optimizer.register_step_post_hook(self.after_update))
            if self.overlap:
                self.attach_overlap(self.optimizer)

    def attach_overlap(self, optimizer: torch.optim.Optimizer) -> None:
        self.groups = self.groups_by_layer(optimizer)
        kind = type(optimizer)
        self.update = getattr(kind.step, "__wrapped__", kind.step)  # without step()'s own hooks
        keeper: Any  # of hooks that a module and an optimizer both have
        for keeper in (self.root, optimizer):
            self.hooks.append(keeper.register_state_dict_pre_hook(Hook(lambda *_: self.synchronize())))
            watch_loads = getattr(keeper, "register_load_state_dict_pre_hook", None) or keeper._register_load_state_dict_pre_hook
            self.hooks.append(watch_loads(Hook(lambda *_: self.synchronize())))  # a module's has no underscore from torch 2.5
            keeper.zero_grad = ZeroGrad(self, keeper)

    def detach(self) -> None:
        """Waits for what is under way and leaves the model to itself, with its last weights."""
        for layer in self.layers:
            self.finish(layer)
        self.land_shared()
        for hook in (*self.hooks, *self.by_module.values()):
            hook.remove()
        if self.checker is not None:
            self.checker.unwatch()
        self.permit_others()
        self.stop()
        for module in self.users:
            make_plain(module)
        for module in self.norms:
            batch_norm.make_plain(module)
        for keeper in (self.root, self.optimizer) if self.overlap else ():
            vars(keeper).pop("zero_grad", None)

    def stop(self) -> None:
        """Nothing is handed over to the core any more."""
        if self.carrier is not None:
            self.carrier.stop()

    def abandon(self) -> None:
        """As detach, once the session is closed: what was under way will not come, and nobody reads what was lent."""
        self.unguard()
        for layer in self.layers:
            layer.show()
            layer.flying, layer.lent, layer.pending = False, (), []
        for shared in self.shared:
            shared.flying = False
        self.detach()

    # ---- forward

    def before_forward(self, model: torch.nn.Module, arguments: object) -> None:
        if torch._C._current_graph_task_id() >= 0:  # a checkpoint computes it again, in the backward pass
            return
        others.check_around(model)
        self.note_compiler()
        self.unguard()
        if torch.is_grad_enabled():
            if self.in_backward:
                self.refuse_broken()
            self.in_backward, self.outer = False, None  # of a backward pass that failed before it handed over anything
            if self.turning or self.wants_more():
                self.renew()
            self.begin()
        if self.overlap:
            self.land_shared(only_needed=True)
            for layer in self.layers:  # used by someone else than their own modules: nobody will wait later
                if layer.flying and layer.uncalled:
                    self.finish(layer)
        if self.stopwatch:
            self.stopwatch.restart()

    def before_module(self, module: torch.nn.Module, arguments: object) -> None:
        if torch._C._current_graph_task_id() >= 0:
            return
        layers = self.users[module]
        self.note_compiler()
        stopwatch = self.stopwatch if self.begun else None  # an evaluation counts for nobody
        if stopwatch:
            stopwatch.charge()
        for layer in layers:
            if layer.uncalled:
                layer.uncalled.discard(module)
            if layer.flying:
                self.finish(layer)
        if stopwatch and layers[0].first is module:  # else time runs on for the layer before
            stopwatch.charge(c.FORWARD, layers[0])

    def note_compiler(self) -> None:
        if not self.compiled and torch.compiler.is_compiling():
            self.compiled = True

    def unguard(self) -> None:
        """Gradients under way are None again, for those who look at them on purpose."""
        if self.overlap:
            for layer in self.layers:
                if layer.flying and not layer.hidden:
                    layer.forget()

    def after_forward(self, model: torch.nn.Module, arguments: object, result: object) -> None:
        if self.stopwatch:
            self.stopwatch.charge()
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            for tensor in tensors_in(result):
                if tensor.grad_fn is not None:
                    tensor.grad_fn.register_prehook(self.reach)

    def begin(self) -> None:
        if self.begun:
            return
        if self.layers[0].parameters[0].device != self.device:
            raise PoseidonError(f"the model has moved from {self.device} to {self.layers[0].parameters[0].device}, expected that "
                                "it moves before distribute")
        for layer in self.layers:
            if not layer.hidden and exchanged(layer.parameters[0].dtype) is not layer.dtype:
                raise PoseidonError(f"parameters of layer '{layer.name}' have become {layer.parameters[0].dtype}, expected that the "
                                    "model is converted before distribute")
        self.ranges.follow_profiler()
        if self.carrier is not None:
            interruption.forget()
        if self.joining is not None:
            self.joining.begin()
        self.session.settle()
        step = self.step - self.since
        if self.stopwatch:
            self.stopwatch.tell()
        self.begin_step(self.model, step)
        self.begun = True
        final = self.session.final_plan_step
        if step == 0 or step == final:
            self.take_plan(step)
        if step >= final or final == c.NEVER:
            if not (self.settled or self.compiled):  # a compiler would begin anew
                self.settle()
        elif self.stopwatch:
            self.stopwatch.step = step

    def refuse_inside(self, optimizer: torch.optim.Optimizer, arguments: object, words: object) -> None:
        """Before any optimizer's step: one that a hook calls inside backward finds this worker's own gradients."""
        if torch._C._current_graph_task_id() >= 0 and any(p in self.known for group in optimizer.param_groups for p in group["params"]):
            raise PoseidonError(f"{type(optimizer).__name__}.step was called inside backward(), where gradients are this worker's own, "
                                "expected it behind backward()", "UNIMPLEMENTED")

    def check_optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuses an update of what no model of the job holds: each worker would train its own."""
        if self.checked != self.optimized(optimizer):
            self.checked = self.optimized(optimizer)
            known = {parameter for exchange in self.all for parameter in parameters_of(exchange.root)}
            self.strangers = [(number, parameter) for number, group in enumerate(optimizer.param_groups)
                              for parameter in group["params"] if parameter not in known]
        for number, parameter in self.strangers:
            if parameter.grad is not None:
                raise PoseidonError(f"a parameter of {dimensions(parameter)} in group {number} of the optimizer is in no "
                                    "model that distribute was given: its gradient is this worker's own, expected one model that holds "
                                    "all that is trained, or distribute for each", "INVALID_ARGUMENT")

    def take_plan(self, step: int) -> None:
        takes = ctypes.c_int32()
        for layer in self.layers:
            if layer.factors:
                self.c.takes(self.model, layer.id, step, ctypes.byref(takes))
                layer.takes_factors, layer.gathers = takes.value != c.GRADIENT, takes.value == c.GATHERED
        if step >= self.session.final_plan_step:
            self.stopwatch = None
            self.measured_from, self.moved_before = step, moved_by_layer(self)
            if self.session.rank == 0:
                self.session.options.log(None, c.NOTICE, sentence_of_plan(self).encode())

    def settle(self) -> None:
        """The plan will not change: modules that need no hook have none, and Linears whose gradient goes whole and costs less
        to copy than Python code to run are plain again."""
        self.settled = True
        if not self.overlap:
            while self.by_module:
                self.by_module.popitem()[1].remove()
        for module, layers in self.users.items():
            if not layers[0].takes_factors and layers[0].elements < LEAST_MULTIPLIED_IN_PLACE:
                make_plain(module)

    def wants_more(self) -> bool:
        """Something wants a gradient that is in no layer."""
        if self.outlined() == self.outline:
            return any(parameter.requires_grad for parameter in self.frozen)
        self.parts, self.outline = list(self.root.modules()), self.outlined()
        new = [p for p in parameters_of(self.root) if p.requires_grad and p not in self.known]
        if any(not isinstance(p, torch.nn.Parameter) for p in new):
            raise PoseidonError("a tensor that is no torch.nn.Parameter is in the place of one in the model and requires a gradient, "
                                "expected the model's own parameters (torch.func.functional_call gives it others)", "UNIMPLEMENTED")
        return bool(new)

    def renew(self) -> None:
        """Layers were thawed or added, or send no factors any more, on all workers in the same step: they and the others are a
        new model of the session. It is measured and planned anew; what is new begins with rank 0's numbers."""
        if self.joining is not None:
            raise PoseidonError("a layer was thawed or added inside join, expected it before: a worker without batches does "
                                "not see it", "UNIMPLEMENTED")
        self.synchronize()
        new = [p for p in parameters_of(self.root) if p.requires_grad and p not in self.known]
        local = any(layer.local for layer in self.layers)
        if self.session.workers > 1:
            self.announce()
        self.detach()
        for layer in self.layers:
            layer.retired = True
        broadcast(self.session, torch.nn.ParameterList(new))
        self.declare()
        for layer in self.layers:
            layer.local = local

    def announce(self) -> None:
        """Takes part in a step with nothing but the mark of who declares anew. A worker that does not is in that step with its
        gradients, finds the mark, and both end in a sentence."""
        held = [(p, p.grad) for p in self.known]
        self.updating = None
        self.forget()
        self.renewing = True
        self.sit_out()
        self.synchronize()
        self.renewing = False
        self.step -= 1  # it was none of the script's
        self.compare_trained()
        for parameter, gradient in held:
            parameter.grad = gradient

    def compare_trained(self) -> None:
        """Raises on all workers where a parameter is trained on one and not on another, or is new there alone. All call it."""
        own = {name: "frozen" if not p.requires_grad else "trained" if p in self.known else "new"
               for name, p in self.root.named_parameters()}
        encoded = json.dumps(own).encode()
        first, *others = (json.loads(self.session.broadcast_bytes(encoded, rank)) for rank in range(self.session.workers))
        for rank, other in enumerate(others, 1):
            for name in {**first, **other}:
                here, there = first.get(name, "not there"), other.get(name, "not there")
                if here != there:
                    raise PoseidonError(f"parameter '{name}' is {there} on rank {rank} and {here} on rank 0, expected that "
                                        "parameters are frozen, thawed and added on all workers in the same step",
                                        "FAILED_PRECONDITION", rank)

    def refuse_parted(self) -> NoReturn:
        self.compare_trained()
        raise PoseidonError("a parameter was frozen, thawed or added in the last step on some workers alone, expected it on all "
                            "workers in the same step", "FAILED_PRECONDITION")

    def turn_whole(self) -> None:
        """Layers whose gradients keep coming whole on some worker, of which all workers know the same, will go whole. In the
        backward pass, a place that all workers come to in the same step."""
        came = [layer for layer in self.usage.with_factors if layer.steps_whole]
        if not any(layer.steps_whole >= MOST_WHOLE for layer in came) or self.joining is not None:
            return
        for layer in came:
            if not self.session.layer_plan(self.model, layer.id).forced:
                self.turning = True
                self.whole.update(layer.parameters)
                self.session.options.log(None, c.NOTICE, (
                    f"layer '{layer.name}' goes as factors and its gradient came whole in {layer.steps_whole} steps: it "
                    "goes whole from the next step on, and the others are planned anew").encode())

    def refuse_broken(self) -> None:
        """After a backward pass that has not come to its end: others have what it handed over, and wait for the rest."""
        if gone := next((layer for layer in self.layers if layer.flying), None):
            raise PoseidonError(f"the backward pass before ended by an exception after the gradient of layer '{gone.name}' had left, "
                                "expected that the program ends: other workers wait for the rest", "FAILED_PRECONDITION")

    # ---- backward

    def hook(self, layer: Layer) -> Callable[[torch.Tensor], None]:
        """Of a parameter, when all its gradients of this backward pass are there, or none."""
        task = torch._C._current_graph_task_id

        def arrived(parameter: torch.Tensor) -> None:
            if self.paused:
                return
            if not self.in_backward:
                self.enter_backward()
            gradient = parameter.grad
            if gradient is not None:
                if layer.flying:
                    self.refuse(layer)
                if gradient.is_sparse or layer.table:
                    self.check_form(layer, gradient)
            elif layer.flying:
                return
            layer.waiting_for -= 1
            if task() != self.outer:  # more may come: it leaves when the pass around this one ends
                layer.nested = True
            elif layer.waiting_for == 0 and not layer.nested:
                self.send(layer)
        return arrived

    def rows_come(self, layer: Layer) -> Callable[[torch.Tensor], None]:
        """Before a table's rows are added to its gradient: what it holds of backward passes before is a mean already."""
        def comes(gradient: torch.Tensor) -> None:
            if self.paused or layer.local:
                return
            if not self.in_backward:
                self.enter_backward()
            if not layer.flying and layer.waiting_for == len(layer.parameters):
                layer.before, layer.parameters[0].grad = layer.parameters[0].grad, None
        return comes

    @staticmethod
    def check_form(layer: Layer, gradient: torch.Tensor) -> None:
        if gradient.is_sparse != layer.table:
            raise PoseidonError(f"the gradient of layer '{layer.name}' is " +
                                ("dense, expected a weight of Embedding(sparse=True) that nothing else uses, or sparse=False"
                                 if layer.table else "sparse, expected Embedding(sparse=False) where something else uses its "
                                 "weight"), "UNIMPLEMENTED")

    def emit(self, layer: Layer, dy: torch.Tensor, x: torch.Tensor) -> None:
        """One use's factors of a Linear's gradient, from its backward pass."""
        if not self.in_backward:
            self.enter_backward()
        if layer.flying:
            self.refuse(layer)
        if self.checker is not None:
            self.checker.emitted(layer, dy, x)
        if not layer.emitted:
            layer.emitted = True
            layer.set_aside()
        if self.overlap and layer.takes_factors and not x.requires_grad:
            x = x.clone()  # lent until the next forward pass: the caller's own batch may not live as long
        layer.pending.append((dy, x))

    def reach(self, gradients: object) -> None:
        """The backward pass has come to what the model's forward pass returned. None is around this one."""
        task = torch._C._current_graph_task_id()
        if self.reached != task:
            self.reached = task
            self.passes += 1
        if self.outer != task and not self.paused:
            self.outer = task
            Variable._execution_engine.queue_callback(self.end_backward)

    def enter_backward(self) -> None:
        with self.entering:
            if not self.in_backward:
                self.enter()

    def enter(self) -> None:
        if self.read_ahead:
            raise data.read_ahead()
        self.in_backward = True
        self.land_shared()  # of the step before, where nobody had to ask
        for layer in self.layers:  # of the step before: those that this forward pass did not run
            if layer.flying:
                if not self.begun or any(p.grad is not None for p in layer.parameters):
                    self.refuse(layer)
                self.finish(layer)
        if not self.turning:
            self.turn_whole()
        if not self.begun:
            if self.wants_more():
                self.refuse_more()
            self.begin()
        self.updating = None
        if self.outer is None:
            self.reach(None)

    @staticmethod
    def refuse(layer: Layer) -> NoReturn:
        raise PoseidonError(f"the gradient of layer '{layer.name}' came again before its mean, expected one "
                            "backward pass per forward pass of the distributed model, which is called itself and not by its forward "
                            "method, and no reentrant checkpointing")

    def refuse_more(self) -> NoReturn:
        name = next(name for name, p in self.root.named_parameters() if p.requires_grad and p not in self.known)
        raise PoseidonError(f"parameter '{name}' requires a gradient and did not when the model was distributed, "
                            "expected a forward pass of the distributed model itself after such a change")

    def send(self, layer: Layer) -> bool:
        """Hands over what this backward pass left of the layer's gradient; False where it left nothing."""
        if torch.is_grad_enabled():  # create_graph: what autograd recorded of gradients does not leave with them
            with torch.no_grad():
                return self.send(layer)
        if layer.table:
            return self.send_rows(layer)
        factors = layer.factors and layer.takes_factors
        if factors and not layer.emitted and not layer.local and layer.waiting_for == len(layer.parameters):
            layer.set_aside()  # what the backward passes before left
        if layer.emitted or layer.before is not None:
            if layer.emitted:
                layer.used = layer.all
            if factors and not layer.local and all(p.grad is None for p in layer.parameters):
                self.push_factors(layer)
                return True
            layer.rows = sum(len(dy) for dy, _ in layer.pending)
            layer.multiply()
            layer.forget()
        elif not layer.gather():
            return False
        if factors:
            self.push_whole_as_factors(layer)
        else:
            self.push_dense(layer)
        return True

    def send_rows(self, layer: Layer) -> bool:
        parameter = layer.parameters[0]
        came = layer.waiting_for < len(layer.parameters) or layer.local
        if not came:
            layer.before = parameter.grad
        layer.used = [came or layer.before is not None]
        self.push_rows(layer, parameter.grad if came else None)
        return True

    def push_rows(self, layer: Layer, gradient: torch.Tensor | None) -> None:
        """None: this worker has no rows."""
        rows = c.Rows()
        moves: Moves = []
        if gradient is not None and gradient._nnz() > 0:
            (indices, values), moves = layer.lendable(gradient._indices().contiguous(),
                                                      gradient._values().to(layer.dtype).contiguous())
            view = view_of(values)
            rows.indices, rows.values, rows.count = indices.data_ptr(), ctypes.pointer(view), len(values)
            layer.lent = indices, values, view, rows
        layer.more.absent, layer.more.weight = False, self.samples
        if self.stopwatch:
            self.stopwatch.charge(c.BACKWARD, layer)
        layer.flying = True
        if layer.carrier is None:
            self.c.push_rows(self.model, layer.id, self.step - self.since, ctypes.byref(rows), layer.to_more)
        else:
            self.carry(layer, moves, self.c.push_rows, ctypes.byref(rows), layer.to_more)

    def push_dense(self, layer: Layer, absent: bool = False) -> None:
        more = layer.more
        if more.absent != absent:
            more.absent = absent
        if more.weight != self.samples:
            more.weight = self.samples
        if self.stopwatch:
            self.stopwatch.charge(c.BACKWARD, layer)
            if layer.factors:  # one whose gradient came whole has none to send: as many rows as numbers keep it whole
                more.rows = layer.rows or min(layer.elements, 2 ** 32 - 1)
                layer.rows = 0
        layer.flying = True
        if layer.carrier is None:
            self.push_whole(self.model, layer.id, self.step - self.since, layer.to_view, layer.to_more)
        else:
            layer.gathered = False
            lands_in = layer.staging()
            moves = [] if absent else devices.parts_of(layer.whole(), lands_in)
            more.in_parts = len(moves) > 1
            self.carry(layer, moves, self.c.push_dense, layer.to_view, layer.to_more, in_parts=len(moves) > 1)

    def carry(self, layer: Layer | Buffers, moves: Moves, push: Callable[..., None], *arguments: Any, in_parts: bool = False) -> None:
        """Pushes what is on a device, when it has come to the host; in parts, when the first of them has."""
        assert self.carrier is not None and layer.device is not None
        layer.sent = self.carrier.send(layer.device, moves,
                                       functools.partial(push, self.model, layer.id, self.step - self.since, *arguments),
                                       functools.partial(self.c.arrived, self.model, layer.id) if in_parts else None)

    def push_factors(self, layer: Layer) -> None:
        layer.memory()
        factors: tuple[torch.Tensor, ...] = ()
        if len(layer.pending) == 1:
            factors = layer.pending[0]
        elif layer.pending:
            factors = tuple(torch.cat(pieces) for pieces in zip(*layer.pending))
        layer.pending = []
        moves = layer.lend_factors(*factors)
        layer.more.absent, layer.more.weight = False, self.samples
        if self.stopwatch:
            self.stopwatch.charge(c.BACKWARD, layer)
        layer.flying = True
        if layer.carrier is None:
            self.push_product(self.model, layer.id, self.step - self.since, layer.to_product, layer.to_view, layer.to_more)
        else:
            layer.gathered, layer.more.in_parts = layer.gathers, False
            if not layer.gathers:
                layer.staging()
            self.carry(layer, moves, self.c.push_factors, layer.to_product, None if layer.gathers else layer.to_view,
                       layer.to_more)

    def push_whole_as_factors(self, layer: Layer) -> None:
        """All workers send this layer's factors in this step, and here its gradient came whole or in part."""
        layer.came_whole = True
        if layer.name not in self.said:
            self.said.add(layer.name)
            self.session.options.log(None, c.NOTICE, (
                f"layer '{layer.name}' goes as factors and its gradient came whole on rank {self.session.rank}: it is "
                f"{'rounded to TF32' if layer.gathers and self.tf32 else 'exact'} and more bytes; schemes '{layer.name}=kv' "
                "would send it whole from the first step").encode())
        layer.memory()
        layer.pending = [whole_as_factors(layer.views[0], layer.views[1] if len(layer.views) > 1 else None)]
        self.push_factors(layer)

    def end_backward(self) -> None:
        """Runs when autograd has nothing left: the layers that it did not reach go now."""
        self.outer = None
        if not self.in_backward:  # gradients of something else
            return
        if torch._C._current_autograd_node() is not None:
            self.in_backward = False
            raise PoseidonError("the backward pass of a checkpoint ended inside one whose beginning the distributed model has not "
                                "seen, expected use_reentrant=False, or that the distributed model itself is called and returns "
                                "tensors, alone or in tuples, lists, dictionaries or objects with attributes")
        try:
            with torch.no_grad():
                self.end_step()
        except KeyboardInterrupt:
            if threading.current_thread() is threading.main_thread():
                raise
            # On a thread of a device: the main thread, which waits for this one, raises it itself, and has to do so once.

    def end_step(self) -> None:
        if self.stopwatch:
            self.stopwatch.charge()
        for layer in self.layers:
            if not layer.flying and not self.send(layer):
                self.push_nothing(layer)
        for shared in self.shared:
            shared.note()
            if isinstance(shared, Buffers) and shared.device is not None:
                self.carry(shared, shared.moves(), self.c.push_dense, shared.to_view, shared.to_more)
            else:
                self.push_whole(self.model, shared.id, self.step - self.since, shared.to_view, shared.to_more)
            shared.flying = True
        self.step += 1
        self.begun = self.in_backward = False
        if self.overlap and not self.compiled:
            for layer in self.layers:
                layer.next_backward()
                layer.forget()
                layer.guard()
        else:  # a compiler wants to know every tensor that it sees, and gradients and weights under way are of classes of ours
            for layer in self.layers:
                self.land(layer)
                layer.next_backward()
            self.land_shared()
            for layer in self.layers:
                layer.give()
                if layer.is_one:
                    layer.release()
        if self.checker is not None:
            self.checker.end_step()
        if self.stopwatch:
            self.stopwatch.restart()

    def push_nothing(self, layer: Layer) -> None:
        layer.used = [False] * len(layer.parameters)
        if layer.takes_factors:
            self.push_factors(layer)
        elif self.samples:  # an absent one would not count in the divisor, and its samples do
            layer.memory().zero_()
            self.push_dense(layer)
        else:
            layer.memory()
            self.push_dense(layer, absent=True)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside leave their gradients to add up here; the first one behind it exchanges what there is."""
        before = self.paused
        self.pause(True)
        try:
            yield
        finally:
            self.pause(before)

    def pause(self, paused: bool) -> None:
        """As at the beginning or the end of no_sync."""
        if self.paused and not paused:
            for layer in self.layers:
                layer.local = True
        self.paused = paused

    def sit_out(self) -> None:
        """One step in which this worker has no batch: it contributes nothing, and has no gradients afterwards."""
        self.begin()
        with torch.no_grad():
            for layer in self.layers:
                if layer.table:
                    layer.used = [False]
                    self.push_rows(layer, None)
                else:
                    self.push_nothing(layer)
            self.end_step()
        self.forget()

    def forget(self) -> None:
        for layer in self.layers:
            layer.forget()

    # ---- landing and updating

    def wait_for(self, one: Layer | Usage | Buffers) -> None:
        """Until the mean is in the memory that was lent; what is on a device has to have been pushed."""
        if one.sent is not None:
            one.sent.result()
            one.sent = None
        self.wait(self.model, one.id)

    def land(self, layer: Layer) -> None:
        if layer.flying:
            if layer.sent is None:
                self.wait(self.model, layer.id)
            else:
                self.wait_for(layer)
            layer.flying = False
            if layer.gathered:
                self.multiply(layer)
            elif layer.carrier is not None and not layer.table:
                layer.carrier.bring(layer.device, [(layer.staging(), layer.whole())])
            if layer.lent:
                layer.lent = ()
            if layer.table:
                layer.take_rows(self.gathered(layer))
            elif layer.before is not None:
                assert layer.flat is not None  # the mean is in it
                layer.flat.add_(layer.before)
                layer.before = None

    def gathered(self, layer: Layer) -> c.Gathered:
        """What all workers brought, valid until the layer's next push."""
        gathered = c.Gathered()
        self.c.get_gathered(self.model, layer.id, ctypes.byref(gathered))
        return gathered

    def multiply(self, layer: Layer) -> None:
        layer.multiply_gathered(self.gathered(layer), self.tf32)

    def land_shared(self, only_needed: bool = False) -> None:
        for shared in self.shared:
            if shared.flying and (shared.needed or not only_needed):
                self.wait_for(shared)
                shared.flying = False
                shared.tell()
        if self.usage.parted:
            self.usage.parted = False
            self.refuse_parted()

    def finish(self, layer: Layer) -> None:
        """With overlap: waits for the layer's mean, and updates its parameters if step() has been called; so
        it does meanwhile for other layers whose means are there."""
        while layer.flying:
            if self.updating is None:
                self.finish_landed([layer])
            else:
                self.finish_landed(self.landed(layer))

    def landed(self, wanted: Layer) -> list[Layer]:
        """Layers whose means are there: the wanted one or else the first of the others, and small ones in the order of the
        forward pass, whose updates cost one call together."""
        first = wanted if self.has_landed(wanted) else self.first_landed(wanted)
        most = MOST_UPDATED_AT_ONCE if self.carrier is None else math.inf
        found, elements = [first], first.elements
        if elements < most:
            for layer in self.layers:
                if layer.flying and layer is not first and self.has_landed(layer):
                    elements += layer.elements
                    if elements > most:
                        break
                    found.append(layer)
        return found

    def has_landed(self, layer: Layer) -> bool:
        return (layer.sent is None or layer.sent.done()) and self.c.landed(self.model, layer.id) != 0

    def first_landed(self, wanted: Layer) -> Layer:
        if wanted.sent is not None:
            wanted.sent.result()
        flying = [wanted] + [layer for layer in self.layers if layer.flying and layer is not wanted
                             and (layer.sent is None or layer.sent.done())]
        ids = (ctypes.c_uint32 * len(flying))(*(layer.id for layer in flying))
        landed = ctypes.c_uint32()
        self.c.wait_any(self.model, ids, len(flying), ctypes.byref(landed))
        return next(layer for layer in flying if layer.id == landed.value)

    def finish_landed(self, layers: list[Layer]) -> None:
        for layer in layers:
            layer.show()
            self.land(layer)
            if not all(layer.used):
                self.land_shared()
        if self.stopwatch:
            self.stopwatch.restart(c.FORWARD, layers[0])
        for layer in layers:
            if not layer.dropped:
                layer.give()
        if self.updating is not None:
            self.update_layers(layers)
            for layer in layers:
                if not self.keeping:
                    layer.forget()
        if self.stopwatch:
            self.stopwatch.charge()
        for layer in layers:
            layer.dropped = False
            layer.release()

    def update_layers(self, layers: list[Layer]) -> None:
        assert self.optimizer is not None and self.updating is not None  # step() was called
        parameters: dict[int, list[torch.Tensor]] = {}
        for layer in layers:
            for number, some in self.groups[layer]:
                parameters.setdefault(number, []).extend(some)
        whole = self.optimizer.param_groups
        self.optimizer.param_groups = [{**self.updating[number], "params": some} for number, some in parameters.items()]
        try:
            with torch.no_grad():
                self.update(self.optimizer)
        finally:
            self.optimizer.param_groups = whole

    def groups_by_layer(self, optimizer: torch.optim.Optimizer) -> dict[Layer, list[tuple[int, list[torch.Tensor]]]]:
        """By layer: the numbers of the optimizer's groups that have parameters of it, and those parameters."""
        number_of = {p: number for number, group in enumerate(optimizer.param_groups)
                     for p in group["params"]}
        groups: dict[Layer, list[tuple[int, list[torch.Tensor]]]] = {}
        for layer in self.layers:
            parts: dict[int, list[torch.Tensor]] = {}
            for parameter in layer.parameters:
                if parameter in number_of:
                    parts.setdefault(number_of[parameter], []).append(parameter)
            groups[layer] = list(parts.items())
        self.grouped = self.optimized(optimizer)
        return groups

    @staticmethod
    def optimized(optimizer: torch.optim.Optimizer) -> int:
        """How many parameters the optimizer has; groups and their parameters are only ever added."""
        return sum(len(group["params"]) for group in optimizer.param_groups)

    def before_update(self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...],
                      words: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """With overlap optimizer.step() itself has nothing to do, because the gradients under way are None
        meanwhile: what it would do now is done layer by layer later, with the learning rates of now."""
        self.check_optimized(optimizer)
        if self.overlap:
            if any(argument is not None for argument in (*arguments[1:], *words.values())):
                raise PoseidonError("optimizer.step was given a closure, expected none with overlap",
                                    "INVALID_ARGUMENT")
            self.catch_up()  # with a step() before this one
            self.unguard()
            if self.grouped != self.optimized(optimizer):
                self.groups = self.groups_by_layer(optimizer)
            self.zeroed, self.cleared = False, []
            self.updating = [{key: value.clone() if torch.is_tensor(value) else value
                              for key, value in group.items()} for group in optimizer.param_groups]
            return None
        if self.stopwatch:
            self.stopwatch.restart()
        if isinstance(optimizer, torch.optim.LBFGS):
            closure, *rest = [*arguments[1:], *words.values()]
            return (optimizer, self.mean_of(closure), *rest), {}
        return None

    def mean_of(self, closure: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """A closure of which all workers hear the same loss: what LBFGS does next depends on it."""
        def closure_of_all() -> torch.Tensor:
            loss = closure()
            weight = self.samples or 1
            sums = array.array("d", [weight * float(torch.as_tensor(loss).detach()), weight])
            self.session.sum(sums)
            return torch.as_tensor(loss).new_tensor(sums[0] / sums[1])
        return closure_of_all

    def after_update(self, optimizer: object, arguments: object, words: object) -> None:
        if self.overlap:
            for layer in self.layers:
                if layer.flying:
                    layer.hide(self.awaited)
        elif self.stopwatch:
            self.stopwatch.share()

    @contextlib.contextmanager
    def drop(self) -> Iterator[None]:
        """Around zero_grad: gradients under way that no step() has asked for are not wanted, and those of others not after it."""
        if self.updating is None:
            self.unguard()
            for layer in self.layers:
                layer.dropped = layer.flying
        self.zeroing = self.zeroed = True
        try:
            yield
        finally:
            self.zeroing = False

    def synchronize(self) -> None:
        """Waits, with overlap, for all gradients under way and for the updates that step() has asked for."""
        if self.overlap:
            for layer in self.layers:
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

    # ---- the plan

    def plan(self) -> dict[str, tuple[str, str]]:
        """name -> (the scheme, the reason in words), of the newest plan."""
        return {layer.name: self.session.plan_of(self.model, layer.id) for layer in self.layers}

    def plan_text(self) -> str:
        """The newest plan as lines of name=scheme, for init(plan_pin=...)."""
        length: int = self.c.plan_text(self.model, None, 0)
        text = ctypes.create_string_buffer(length + 1)
        self.c.plan_text(self.model, text, len(text))
        return text.value.decode()
