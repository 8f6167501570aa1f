# SPDX-License-Identifier: Apache-2.0
"""Whether what an exchange delivers is what plain autograd and an all-reduce give, and whether workers' parameters stay equal.

Replicas may be equal and wrong, so gradients are compared in the first steps of each plan, in two parts.

On each worker: the forward pass runs once more with plain nn.Linear modules, with the random numbers, the buffers and the
autocast of the first time, and torch.autograd.grad takes the gradients of its outputs, which hooks on the outputs kept, back to
the parameters (replay.py). No hook and no module of the exchange is in that path, so it also has gradients that the exchange never
heard of. It says only which parameters have to have a gradient where the loss reaches parameters otherwise than through the
outputs (a penalty on weights, a gradient of a gradient, a loss that a module keeps to itself), which the graph behind the roots of
the backward pass shows, or where the second run rounds otherwise; and nothing where that gives other outputs, or fails. Then, as
the log says once, only the second part is done.

Over all workers: what autograd left at each parameter, copied before the exchange has it (watching.py), with the plain product of
each Linear's factors, is summed by a collective, and the mean is compared with what landed (comparing.py).

The alternative, a twin of every parameter in the first graph, would share that graph's faults; to train a step twice would need
the user's loop.
"""
from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import library as c
from .comparing import AllReduce, Fault, compare_with_plain, eps_of, refuse
from .hooks import Hook
from .replay import Record, Replay, reach_of_backward, run_again
from .replica_checks import Compared, ReplicaChecks
from .tensors import tensors_in
from .watching import Pass, Watch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .landing import Lander
    from .layer import Layer
    from .product import Product
    from .replay import Gradients
    from .watching import Local

STEPS = 3  # from the beginning, and from the final plan's switch, whose gradients are compared
MOST_RECORDS = 8  # forward passes whose backward pass has not come


class Checked(Compared, Protocol):
    """The exchange whose steps are checked. `lander` too is another once its layers have been declared anew."""

    lander: Lander


class Checker:
    """Of one exchange, whose end of each step it waits for; belongs to the same thread. All workers have one, or none."""

    def __init__(self, exchange: Checked, every: int) -> None:
        self.exchange = exchange
        self.thread = threading.get_ident()
        self.said: set[str] = set()
        self.records: list[Record] = []
        self.opened: Record | None = None  # a forward pass is under way
        self.replaying = False
        self.replayed: object = None
        self.watch = Watch(self.adds)
        self.now = Pass()
        self.replicas = ReplicaChecks(exchange, every)

    def attach(self, root: torch.nn.Module) -> list[RemovableHandle]:
        """Hooks to be removed with the exchange's: ours is the first to see what the model is given, and the last to see what
        it returns."""
        self.unwatch()
        self.exchange.model.usage.checked = True
        self.watch.over(self.exchange.model.layers)
        before, after = map(torch.compiler.disable, (self.before_forward, self.after_forward))
        return [root.register_forward_pre_hook(Hook(before), prepend=True, with_kwargs=True),
                root.register_forward_hook(Hook(after))]

    def unwatch(self) -> None:
        self.watch.ends()

    def compares(self, step: int) -> bool:
        """Whether gradients of a step of the model are compared."""
        final = self.exchange.session.final_plan_step
        return step < STEPS or final <= step < final + STEPS

    def owned(self) -> list[tuple[Layer, torch.nn.Parameter]]:
        return [(layer, parameter) for layer in self.exchange.model.layers for parameter in layer.parameters]

    # ---- what a step does

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer of the model's parameters is about to make a step."""
        self.replicas.before_update(optimizer)

    def begin_backward(self) -> None:
        """The first gradient of a backward pass has come: all updates have been made, and all has landed."""
        self.replicas.begin_backward()

    def before_forward(self, model: torch.nn.Module, arguments: tuple[Any, ...], words: dict[str, Any]) -> None:
        if self.replaying or not torch.is_grad_enabled() or torch._C._current_graph_task_id() >= 0:
            return
        self.now = Pass()  # one that failed
        self.opened = None
        self.drop([record for record in self.records if record.spent])
        if not self.compares(self.exchange.model.core.step):
            return
        self.thread = threading.get_ident()
        self.watch.over(self.exchange.model.layers)
        self.drop(self.records[:-MOST_RECORDS])
        self.opened = Record(model, arguments, words)
        self.records.append(self.opened)

    def after_forward(self, model: torch.nn.Module, arguments: object, result: object) -> None:
        if self.replaying:
            self.replayed = result
        record, self.opened = self.opened, None
        if record is not None:
            for number, tensor in enumerate(tensor for tensor in tensors_in(result) if tensor.grad_fn is not None):
                record.outputs.append((tensor.detach(), tensor._version))
                record.nodes.add(tensor.grad_fn)
                tensor.register_hook(functools.partial(self.comes, record, number))

    def drop(self, records: list[Record]) -> None:
        for record in records:
            record.nodes.clear()  # which hold hooks that hold the record
        self.records = [record for record in self.records if record not in records]

    def comes(self, record: Record, number: int, gradient: torch.Tensor) -> None:
        """A backward pass has come to an output of the model."""
        if self.replaying or self.exchange.now.paused:
            return
        self.now.open(self.exchange.model.layers)
        task = torch._C._current_graph_task_id()
        gradients = record.gradients.setdefault(task, {})
        gradients[number] = gradient.detach().clone() + (gradients[number] if number in gradients else 0)
        if task not in self.now.by_the_side:
            outputs = set().union(*(record.nodes for record in self.records))
            self.now.by_the_side[task] = reach_of_backward(self.thread, outputs, {parameter for _, parameter in self.owned()})

    def adds(self, parameter: torch.nn.Parameter, gradient: torch.Tensor | None) -> None:
        if self.replaying or self.exchange.now.paused:
            return
        self.now.open(self.exchange.model.layers)
        if gradient is not None:
            self.now.add(parameter, gradient)

    def emitted(self, layer: Product, dy: torch.Tensor, x: torch.Tensor) -> None:
        """Factors of a Linear's gradient are handed over instead of it."""
        if self.watch.sees(layer):
            self.now.open(self.exchange.model.layers)
            self.now.products.setdefault(layer, []).append((dy.detach(), x.detach()))

    def end_step(self) -> None:
        """Every gradient of a backward pass is handed over, and has landed unless the next forward pass waits for it."""
        ended, coming = self.exchange.now.number - 1, self.exchange.model.core.step
        try:
            if self.compares(coming - 1) and self.watch.watched:
                self.check_gradients(ended)
            self.replicas.count_pass()
        finally:
            for record in self.records:  # other gradients of it may come, of a graph that is retained
                record.spent = record.spent or torch._C._current_graph_task_id() in record.gradients
            self.now = Pass()
            if not self.compares(coming):
                self.unwatch()
                self.drop(self.records)

    # ---- gradients

    def check_gradients(self, step: int) -> None:
        session, model, owned = self.exchange.session, self.exchange.model, self.owned()
        names = {parameter: name for name, parameter in self.exchange.root.named_parameters()}

        def name_of(number: int) -> str:
            layer, parameter = owned[number]
            return names.get(parameter, layer.name)
        with self.quiet():
            local = {parameter: self.now.local(layer, parameter) for layer, parameter in owned}
            refuse(session, self.compare_with_plain(step, local), step, name_of)
            if self.exchange.overlap:
                for layer in model.layers:
                    model.core.wait_for(layer)
                self.exchange.lander.land_shared()
            fault = AllReduce(session, self.exchange.now.samples).compare(owned, local, self.now.before, self.landed)
            refuse(session, fault, step, name_of)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Hooks of the exchange and of this checker do nothing."""
        before, self.exchange.now.paused, self.replaying = self.exchange.now.paused, True, True
        try:
            yield
        finally:
            self.exchange.now.paused, self.replaying = before, False

    def landed(self, layer: Layer, parameter: torch.nn.Parameter) -> torch.Tensor | None:
        """The mean that the exchange delivers: the user sees it, or will once the layer is updated."""
        if not self.exchange.overlap:
            return None if parameter.grad is None else parameter.grad.detach()
        return layer.peek(next(at for at, one in enumerate(layer.parameters) if one is parameter), self.exchange.model.core)

    def compare_with_plain(self, step: int, local: dict[torch.nn.Parameter, Local]) -> Fault | None:
        replay = self.plain_gradients()
        if replay.why and replay.why not in self.said:
            self.said.add(replay.why)
            session = self.exchange.session
            session.options.log(None, c.WARNING, (
                f"rank {session.rank}: gradients of step {step} are compared with an all-reduce of what autograd left on each worker, "
                f"and not with a second forward and backward pass on plain modules: {replay.why}").encode())
        return compare_with_plain(self.owned(), local, replay, self.eps_behind)

    def eps_behind(self, parameter: torch.nn.Parameter) -> float:
        dtypes = {parameter.dtype} | {dtype for record in self.records for _, enabled, dtype in record.autocast if enabled}
        return max(eps_of(dtype) for dtype in dtypes)

    def plain_gradients(self) -> Replay:
        """Of a second run of all forward passes that this backward pass came through."""
        if self.exchange.now.renewing:  # a step without a backward pass
            return Replay(None, "")
        task = torch._C._current_graph_task_id()
        records = [record for record in self.records if task in record.gradients]
        if not records:
            return Replay(None, "backward did not come through what the model's forward pass returned")
        if self.now.nested or task != self.now.task:
            return Replay(None, "parts of the backward pass ran inside another one, as those of a reentrant checkpoint do")
        wanted = [parameter for _, parameter in self.owned() if parameter.requires_grad]
        total, why = self.now.by_the_side[task]
        for record in records:
            if total is not None:
                run = functools.partial(self.run, record)
                made, other = run_again(record, record.gradients[task], run, self.exchange.model.users, wanted)
                total, why = self.added(total, made), why or other
        return Replay(total, why)

    @staticmethod
    def added(total: Gradients, made: Gradients | None) -> Gradients | None:
        if made is None:
            return None
        return {**total, **{parameter: total[parameter] + gradient if parameter in total else gradient
                            for parameter, gradient in made.items()}}

    def run(self, record: Record) -> object:
        """The forward pass of a record; after_forward sees what it returns before hooks of the program change it."""
        self.exchange.root._call_impl(*record.arguments, **record.words)
        replayed, self.replayed = self.replayed, None
        return replayed
