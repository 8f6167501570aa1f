# SPDX-License-Identifier: Apache-2.0
"""One model's gradients on their way through the core, step by step.

Backward hands every layer over as soon as its gradient exists. When the backward pass ends, what no
gradient reached is handed over as absent; then either everything is waited for (the default: `.grad` is
the mean when `backward()` returns), or, with overlap, nothing is: every layer is waited for, and updated by
the user's own optimizer, right before its module runs in the next forward pass.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.autograd import Variable

from .. import library as c
from ..errors import PoseidonError
from . import others
from .layers import Layer, Usage, broadcast, layers_of, view_of
from .linear import Linear
from .measure import Stopwatch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from ..session import Session

    Group = dict[str, Any]  # of an optimizer

# Optimizers that update every parameter by itself, so that layers may be updated one at a time.
BY_PARAMETER = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


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


class ZeroGrad:
    """zero_grad of a model or an optimizer, for which torch has no hook. Copies get the plain one."""

    def __init__(self, exchange: Exchange, keeper: Any) -> None:
        self.exchange, self.keeper = exchange, keeper
        self.plain = functools.partial(type(keeper).zero_grad, keeper)

    def __call__(self, set_to_none: bool = True) -> None:
        self.exchange.drop()
        self.plain(set_to_none)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (type(self.keeper).zero_grad, self.keeper)


class Exchange:
    """What `poseidon.torch.wrap` returns. Belongs to the thread that trains."""

    def __init__(self, session: Session, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None,
                 overlap: bool = False, factors: bool = True) -> None:
        if overlap and type(optimizer) not in BY_PARAMETER:
            raise PoseidonError(f"overlap is not possible with {type(optimizer).__name__}, expected one of "
                                + ", ".join(kind.__name__ for kind in BY_PARAMETER), "INVALID_ARGUMENT")
        others.check_inside(model)
        self.session, self.root, self.optimizer, self.overlap = session, model, optimizer, overlap
        self.c = session.c
        self.step = 0
        # Of this worker's batch, whose mean its gradient is: by them it counts in the mean over all workers. 0 on all: one
        # worker counts as much as another.
        self.samples = 0
        self.begun = False
        self.in_backward = False
        self.compiled = False  # some module was, in its last forward pass
        # The optimizer's groups as step() found them; None: no step() since backward.
        self.updating: list[Group] | None = None
        self.layers, self.users = layers_of(model, session, factors)
        self.known = {parameter for layer in self.layers for parameter in layer.parameters}
        broadcast(session, model)
        self.declare()
        self.stopwatch = None if session.final_plan_step == c.NEVER else \
            Stopwatch(session, self.model, self.layers)
        self.attach(model)

    def declare(self) -> None:
        self.usage = Usage(self.layers)
        declared: list[Layer | Usage] = [*self.layers]
        if self.session.workers > 1:
            declared.append(self.usage)
        self.model, numbers = self.session.declare([each.declaration(at) for at, each in enumerate(declared)])
        for each, number in zip(declared, numbers):
            each.id = number
        for layer in self.layers:
            layer.exchange = self

    def attach(self, model: torch.nn.Module) -> None:
        hooks: list[RemovableHandle] = []
        self.hooks = hooks
        self.permit_others = others.forbid(model)
        for module, layers in self.users.items():
            if layers[0].factors:
                module.__class__ = Linear
                vars(module)["poseidon_layer"] = layers[0]
            # Before hooks that compute a weight of parameters whose update is under way.
            hooks.append(module.register_forward_pre_hook(Hook(self.before_module), prepend=True))
        hooks.append(model.register_forward_pre_hook(Hook(self.before_forward), prepend=True))
        hooks.append(model.register_forward_hook(Hook(self.after_forward)))
        for layer in self.layers:
            hooks += [parameter.register_post_accumulate_grad_hook(self.hook(layer))
                      for parameter in layer.parameters]
            if layer.table:
                hooks.append(layer.parameters[0].register_hook(self.set_aside(layer)))
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
            self.hooks.append(keeper.register_load_state_dict_pre_hook(Hook(lambda *_: self.synchronize())))
            keeper.zero_grad = ZeroGrad(self, keeper)

    def detach(self) -> None:
        """Waits for what is under way and leaves the model to itself, with its last weights."""
        for layer in self.layers:
            self.finish(layer)
        for hook in self.hooks:
            hook.remove()
        self.permit_others()
        for module in self.users:
            if type(module) is Linear:
                module.__class__ = torch.nn.Linear  # type: ignore[assignment]  # what it was before
                vars(module).pop("poseidon_layer", None)
        for keeper in (self.root, self.optimizer) if self.overlap else ():
            vars(keeper).pop("zero_grad", None)

    def abandon(self) -> None:
        """As detach, once the session is closed: what was under way will not come, and nobody reads what was lent."""
        self.unguard()
        for layer in self.layers:
            layer.flying, layer.lent, layer.pending = False, (), []
        self.usage.flying = False
        self.detach()

    # ---- forward

    def before_forward(self, model: torch.nn.Module, arguments: object) -> None:
        others.check_around(model)
        self.note_compiler()
        self.unguard()
        if torch.is_grad_enabled():
            self.in_backward = False  # of a backward pass that failed
            self.begin()
        for layer in self.layers:  # used by someone else than their own modules: nobody will wait later
            if layer.flying and layer.uncalled:
                self.finish(layer)
        if self.stopwatch:
            self.stopwatch.restart()

    def before_module(self, module: torch.nn.Module, arguments: object) -> None:
        layers = self.users[module]
        self.note_compiler()
        stopwatch = self.stopwatch if self.begun else None  # an evaluation counts for nobody
        if stopwatch:
            stopwatch.charge()
        for layer in layers:
            layer.uncalled.discard(module)
            self.finish(layer)
        if stopwatch and layers[0].first is module:  # else time runs on for the layer before
            stopwatch.charge(c.FORWARD, layers[0])

    def note_compiler(self) -> None:
        if not self.compiled and torch.compiler.is_compiling():
            self.compiled = True

    def unguard(self) -> None:
        """Gradients under way are None again, for those who look at them on purpose."""
        if self.overlap and not self.compiled:
            for layer in self.layers:
                if layer.flying:
                    layer.forget()

    def after_forward(self, model: torch.nn.Module, arguments: object, result: object) -> None:
        if self.stopwatch:
            self.stopwatch.charge()

    def begin(self) -> None:
        if not self.begun:
            self.check_parameters()
            self.c.begin_step(self.model, self.step)
            self.begun = True
            if self.step >= self.session.final_plan_step:
                self.stopwatch = None
            if self.stopwatch:
                self.stopwatch.step = self.step

    def check_parameters(self) -> None:
        """What began to want a gradient after wrap is in no layer: every worker would go its own way."""
        for name, parameter in self.root.named_parameters():
            if parameter.requires_grad and parameter not in self.known:
                raise PoseidonError(f"parameter '{name}' requires a gradient and did not when the model was wrapped, "
                                    "expected wrap after the last change of requires_grad and of modules")

    # ---- backward

    def hook(self, layer: Layer) -> Callable[[torch.Tensor], None]:
        def arrived(parameter: torch.Tensor) -> None:
            self.enter_backward()
            if layer.emitted:
                if parameter.grad is not None:
                    raise PoseidonError(f"layer '{layer.name}' is used both as a module and by its tensors, "
                                        "expected factors=False in wrap for such a model")
                if not layer.flying:
                    self.push(layer)
            elif parameter.grad is not None:
                if layer.flying:
                    self.refuse(layer)
                self.accept(layer, parameter.grad)
        return arrived

    def set_aside(self, layer: Layer) -> Callable[[torch.Tensor], None]:
        """Before a table's rows are added to its gradient: what it holds of backward passes before is a mean already."""
        def comes(gradient: torch.Tensor) -> None:
            self.enter_backward()
            if not layer.flying:
                layer.before, layer.parameters[0].grad = layer.parameters[0].grad, None
        return comes

    def accept(self, layer: Layer, gradient: torch.Tensor) -> None:
        if gradient.is_sparse != layer.table:
            raise PoseidonError(f"the gradient of layer '{layer.name}' is " +
                                ("dense, expected a weight of Embedding(sparse=True) that nothing else uses, or sparse=False"
                                 if layer.table else "sparse, expected Embedding(sparse=False) where something else uses its "
                                 "weight"), "UNIMPLEMENTED")
        if layer.table:
            return self.push(layer)
        layer.whole = True
        layer.waiting_for -= 1
        if layer.waiting_for == 0:
            layer.gather()
            self.push(layer)

    def emit(self, layer: Layer, dy: torch.Tensor, x: torch.Tensor) -> None:
        """One use's factors of a Linear's gradient, from its backward pass."""
        self.enter_backward()
        if layer.flying:
            self.refuse(layer)
        memory = layer.memory()
        if not layer.emitted:
            layer.emitted, layer.rows = True, 0
        layer.rows += len(dy)
        accumulates = layer.gather()
        if self.scheme(layer) == c.FACTOR_BROADCAST:
            if accumulates:  # the mean will land over it
                layer.before = memory.clone()
            # Lent until the next forward pass: the caller's own batch may not live as long.
            layer.pending.append((dy, x.clone() if self.overlap and not x.requires_grad else x))
        else:
            self.add_product(layer, dy, x, fresh=not accumulates and not layer.whole)
            layer.whole = True
        layer.forget()
        if layer.uses == 1:
            self.push(layer)

    @staticmethod
    def add_product(layer: Layer, dy: torch.Tensor, x: torch.Tensor, fresh: bool) -> None:
        weight, *bias = layer.views
        if fresh:
            torch.mm(dy.t(), x, out=weight)
        else:
            weight.addmm_(dy.t(), x)
        for view in bias:
            if fresh:
                torch.sum(dy, 0, out=view)
            else:
                view.add_(dy.sum(0))

    def enter_backward(self) -> None:
        if self.in_backward:
            return
        self.in_backward = True
        for layer in self.layers:  # of the step before: those that this forward pass did not run
            if layer.flying:
                if not self.begun or any(p.grad is not None for p in layer.parameters):
                    self.refuse(layer)
                self.finish(layer)
        self.begin()
        self.updating = None
        Variable._execution_engine.queue_callback(self.end_backward)

    @staticmethod
    def refuse(layer: Layer) -> NoReturn:
        raise PoseidonError(f"the gradient of layer '{layer.name}' came again before its mean, expected one "
                            "backward pass per forward pass of the wrapped model and no reentrant "
                            "checkpointing")

    def scheme(self, layer: Layer) -> int:
        if not layer.factors:
            return c.KEY_VALUE
        scheme = ctypes.c_int32()
        self.c.scheme_of(self.model, layer.id, self.step, ctypes.byref(scheme))
        return scheme.value

    def push(self, layer: Layer) -> None:
        if self.stopwatch:
            self.stopwatch.charge(c.BACKWARD, layer)
        if layer.table:
            self.push_rows(layer, layer.parameters[0].grad)
        elif self.scheme(layer) == c.FACTOR_BROADCAST:
            self.push_factors(layer)
        else:
            self.push_dense(layer)

    def push_rows(self, layer: Layer, gradient: torch.Tensor | None) -> None:
        """None: this worker has no rows."""
        rows = c.Rows()
        if gradient is not None and gradient._nnz() > 0:
            indices, values = gradient._indices().contiguous(), gradient._values().contiguous()
            view = view_of(values)
            rows.indices, rows.values, rows.count = indices.data_ptr(), ctypes.pointer(view), len(values)
            layer.lent = indices, values, view
        self.c.push_rows(self.model, layer.id, self.step, ctypes.byref(rows), None)
        layer.flying = True

    def push_dense(self, layer: Layer, absent: bool = False) -> None:
        layer.lent = layer.flat
        more = layer.more
        more.absent, more.weight = absent, self.samples
        if layer.factors:  # one whose gradient came whole has none to send: as many rows as numbers keep it whole
            more.rows = layer.rows or min(layer.elements, 2 ** 32 - 1)
        self.c.push_dense(self.model, layer.id, self.step, ctypes.byref(layer.view), ctypes.byref(more))
        layer.flying = True

    def push_factors(self, layer: Layer) -> None:
        if layer.whole:
            raise PoseidonError(f"layer '{layer.name}' goes as factors but its gradient came whole, expected "
                                f"schemes '{layer.name}=kv' where it runs compiled, under autocast or by its tensors")
        factors = c.Factors()
        if layer.pending:
            u, v = (pieces[0] if len(pieces) == 1 else torch.cat(pieces) for pieces in zip(*layer.pending))
            views = view_of(u), view_of(v)
            factors.u, factors.v = map(ctypes.pointer, views)
            factors.rows = len(u)
            layer.lent = u, v, views
        layer.more.absent, layer.more.weight = False, self.samples
        self.c.push_factors(self.model, layer.id, self.step, ctypes.byref(factors), ctypes.byref(layer.view),
                            ctypes.byref(layer.more))
        layer.flying = True
        layer.pending = []

    def end_backward(self) -> None:
        """Runs when autograd has nothing left: the layers that it did not reach go now."""
        if self.stopwatch:
            self.stopwatch.charge()
        self.land_usage()  # of the step before, where nobody had to ask
        self.usage.note()
        for layer in self.layers:
            if not layer.flying:
                self.push_rest(layer)
        if self.usage.id is not None:
            self.c.push_dense(self.model, self.usage.id, self.step, ctypes.byref(self.usage.view), None)
            self.usage.flying = True
        self.step += 1
        self.begun = self.in_backward = False
        for layer in self.layers:
            layer.next_backward()
            if self.overlap:
                layer.forget()
                if not self.compiled:  # a compiler wants to know every tensor that it sees
                    layer.guard()
        if not self.overlap:
            for layer in self.layers:
                self.land(layer)
            self.land_usage()
            for layer in self.layers:
                layer.give()
                layer.release()
        if self.stopwatch:
            self.stopwatch.restart()

    def push_rest(self, layer: Layer) -> None:
        if layer.table:
            layer.before = layer.parameters[0].grad
            self.push_rows(layer, None)
        elif layer.emitted:  # a use is missing, not the layer
            self.push(layer)
        elif layer.gather():  # some of its tensors' gradients, or those of a backward pass before
            if self.scheme(layer) == c.FACTOR_BROADCAST:
                layer.before = layer.memory().clone()
            self.push(layer)
        else:
            memory = layer.memory()
            if self.scheme(layer) == c.FACTOR_BROADCAST:
                self.push(layer)
            elif self.samples:  # an absent one would not count in the divisor, and its samples do
                memory.zero_()
                self.push_dense(layer)
            else:
                self.push_dense(layer, absent=True)

    # ---- landing and updating

    def land(self, layer: Layer) -> None:
        if layer.flying:
            self.c.wait(self.model, layer.id)
            layer.lent = ()
            layer.flying = False
            if layer.table:
                gathered = c.Gathered()
                self.c.get_gathered(self.model, layer.id, ctypes.byref(gathered))
                layer.take_rows(gathered)
            elif layer.before is not None:
                layer.memory().add_(layer.before)
                layer.before = None

    def land_usage(self) -> None:
        if self.usage.flying:
            self.c.wait(self.model, self.usage.id)
            self.usage.flying = False
            self.usage.tell()

    def finish(self, layer: Layer) -> None:
        """With overlap: waits for the layer's mean, and updates its parameters if step() has been called; so
        it does meanwhile for other layers whose means are there."""
        while layer.flying:
            self.finish_landed(self.first_landed(layer) if self.updating is not None else layer)

    def first_landed(self, wanted: Layer) -> Layer:
        flying = [wanted] + [layer for layer in self.layers if layer.flying and layer is not wanted]
        ids = (ctypes.c_uint32 * len(flying))(*(layer.id for layer in flying))
        landed = ctypes.c_uint32()
        self.c.wait_any(self.model, ids, len(flying), ctypes.byref(landed))
        return next(layer for layer in flying if layer.id == landed.value)

    def finish_landed(self, layer: Layer) -> None:
        self.land(layer)
        if not all(layer.used):
            self.land_usage()
        if self.stopwatch:
            self.stopwatch.restart(c.FORWARD, layer)
        if not layer.dropped:
            layer.give()
        if self.updating is not None:
            self.update_layer(layer)
            layer.forget()
        if self.stopwatch:
            self.stopwatch.charge()
        layer.dropped = False
        layer.release()

    def update_layer(self, layer: Layer) -> None:
        assert self.optimizer is not None and self.updating is not None  # step() was called
        whole = self.optimizer.param_groups
        self.optimizer.param_groups = [{**self.updating[number], "params": parameters}
                                       for number, parameters in self.groups[layer]]
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
                      words: dict[str, Any]) -> None:
        """With overlap optimizer.step() itself has nothing to do, because the gradients under way are None
        meanwhile: what it would do now is done layer by layer later, with the learning rates of now."""
        if self.overlap:
            if any(argument is not None for argument in (*arguments[1:], *words.values())):
                raise PoseidonError("optimizer.step was given a closure, expected none with overlap",
                                    "INVALID_ARGUMENT")
            self.unguard()
            if self.grouped != self.optimized(optimizer):
                self.groups = self.groups_by_layer(optimizer)
            self.updating = [{key: value.clone() if torch.is_tensor(value) else value
                              for key, value in group.items()} for group in optimizer.param_groups]
        elif self.stopwatch:
            self.stopwatch.restart()

    def after_update(self, optimizer: object, arguments: object, words: object) -> None:
        if self.stopwatch and not self.overlap:
            self.stopwatch.share()

    def drop(self) -> None:
        """zero_grad was called: gradients under way that no step() has asked for are not wanted."""
        if self.updating is None:
            self.unguard()
            for layer in self.layers:
                layer.dropped = layer.flying

    def synchronize(self) -> None:
        """Every parameter is what it will be before the next forward pass: needed with overlap before
        parameters are read other than by the model's own forward pass or state_dict()."""
        if self.overlap:
            for layer in self.layers:
                self.finish(layer)

    # ---- the plan

    def plan(self) -> dict[str, tuple[str, str]]:
        """name -> (kv or sfb, the reason in words), of the newest plan."""
        return {layer.name: self.session.plan_of(self.model, layer.id) for layer in self.layers}

    def plan_text(self) -> str:
        """The newest plan as lines of name=scheme, for init(plan_pin=...)."""
        length: int = self.c.plan_text(self.model, None, 0)
        text = ctypes.create_string_buffer(length + 1)
        self.c.plan_text(self.model, text, len(text))
        return text.value.decode()
