# SPDX-License-Identifier: Apache-2.0
"""Whether what an exchange delivers is what plain autograd and an all-reduce give, and whether workers' parameters stay equal.

Replicas may be equal and wrong, so gradients are compared in the first steps of each plan, in two parts.

On each worker: the forward pass runs once more with plain nn.Linear modules, with the random numbers, the buffers and the
autocast of the first time, and torch.autograd.grad takes the gradients of its outputs, which hooks on the outputs kept, back to
the parameters. No hook and no module of the exchange is in that path, so it also has gradients that the exchange never heard
of. It says only which parameters have to have a gradient where the loss reaches parameters otherwise than through the outputs (a
penalty on weights, a gradient of a gradient, a loss that a module keeps to itself), which the graph behind the roots of the
backward pass shows, or where the second run rounds otherwise; and nothing where that gives other outputs, or fails. Then, as the
log says once, only the second part is done.

Over all workers: what autograd left at each parameter, copied before the exchange has it, with the plain product of each
Linear's factors, is summed by a collective, and the mean is compared with what landed.

The alternative, a twin of every parameter in the first graph, would share that graph's faults; to train a step twice would need
the user's loop.

Tolerances. Two orders of adding N products or numbers, each rounded to a relative `eps` or less, differ by at most N * eps
times the sum of the terms' sizes: N is the rows of the products of all workers, one number per worker, and a few for the
scaling, the gradient that was there and the last rounding (FEW). Between the two runs on one worker errors of the layers behind
come on top: half of the digits of the gradient, and MANY eps of the model's largest gradient where terms cancel.
"""
from __future__ import annotations

import array
import contextlib
import functools
import hashlib
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import library as c
from ..errors import PoseidonError
from .exchange import Hook, tensors_in
from .layers import Layer, UnderWay, bytes_of, parameters_of, view_of
from .linear import Linear

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .exchange import Exchange

    Gradients = dict[torch.nn.Parameter, torch.Tensor]

STEPS = 3  # from the beginning, and from the final plan's switch, whose gradients are compared
FEW, MANY = 4, 2 ** 10  # roundings; see above
MOST_RECORDS = 8  # forward passes whose backward pass has not come
WARNING = 2  # of the log
OTHERS = "the forward pass does not return the same when it runs again"


class Record:
    """A forward pass of the model, to be run again."""

    def __init__(self, model: torch.nn.Module, arguments: tuple[Any, ...], words: dict[str, Any]) -> None:
        self.arguments, self.words = arguments, words
        self.inputs = [(tensor, tensor._version) for tensor in tensors_in([arguments, words])]
        self.buffers = {(module, name): buffer.clone() for module in model.modules()
                        for name, buffer in module._buffers.items() if buffer is not None}
        self.random = torch.get_rng_state(), random.getstate()
        self.on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self.autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                         for device in ("cpu", "cuda")]
        self.outputs: list[tuple[torch.Tensor, int]] = []  # without their graph, each with its version
        self.nodes: set[Any] = set()  # that made them
        self.gradients: dict[int, dict[int, torch.Tensor]] = {}  # of the outputs, by graph task and number
        self.spent = False  # a step has ended that came through it

    def is_changed(self) -> bool:
        return any(tensor._version != version for tensor, version in (*self.inputs, *self.outputs))

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """Random numbers, buffers and autocast are those of the pass. Buffers are others meanwhile: graphs may hold them."""
        now = {(module, name): module._buffers[name] for module, name in self.buffers}
        at, of_python = torch.get_rng_state(), random.getstate()
        of_devices = torch.cuda.get_rng_state_all() if self.on_devices else []
        try:
            torch.set_rng_state(self.random[0])
            random.setstate(self.random[1])
            if self.on_devices:
                torch.cuda.set_rng_state_all(self.on_devices)
            for (module, name), buffer in self.buffers.items():
                module._buffers[name] = buffer.clone()
            with contextlib.ExitStack() as stack:
                for device, enabled, dtype in self.autocast:
                    if enabled or device == "cpu":
                        stack.enter_context(torch.autocast(device, dtype, enabled))
                yield
        finally:
            for (module, name), replaced in now.items():
                module._buffers[name] = replaced
            torch.set_rng_state(at)
            random.setstate(of_python)
            if of_devices:
                torch.cuda.set_rng_state_all(of_devices)


class Replay(NamedTuple):
    """The result of a second run: gradients by parameter, or None if nothing can be said, and why their numbers are not those
    of the first run; empty if they are."""

    gradients: Gradients | None
    why: str


class Local(NamedTuple):
    """A gradient of this worker's backward pass, before any exchange."""

    gradient: torch.Tensor | None
    size: float  # no sum of the sizes of the terms of one number is larger
    terms: int


class Fault(NamedTuple):
    """The first difference on a worker: in words, and the number of the parameter."""

    parameter: int
    kind: int  # of KINDS
    off: float
    allowed: float


KINDS = ("", "there is none, and plain autograd has one", "there is one, and plain autograd has none",
         "it is off by {off:.2g} from plain autograd's, expected at most {allowed:.2g}",
         "there is none, and the all-reduce has one", "there is one, and the all-reduce has none",
         "it is off by {off:.2g} from the all-reduce, expected at most {allowed:.2g}",
         "it is off by {off:.2g} from the all-reduce, as if this rank had sent nothing, expected at most {allowed:.2g}")
NONE_HERE, NONE_PLAIN, OFF_PLAIN, NONE_LANDED, NONE_SUMMED, OFF_SUM, OFF_MISSING = range(1, 8)


def largest(tensor: torch.Tensor | None) -> float:
    """The largest size of a finite number in it."""
    if tensor is None:
        return 0.0
    numbers = tensor._values() if tensor.is_sparse else tensor
    return float(torch.nan_to_num(numbers.detach(), 0.0, 0.0, 0.0).abs().max()) if numbers.numel() else 0.0


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two finite numbers at one place; infinite where one is finite and the other is not."""
    if not one.numel():
        return 0.0
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)):
        return math.inf
    return float(torch.where(finite, one - other, 0).abs().max())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()


def has_side_path(roots: Sequence[Any], outputs: set[Any], parameters: set[torch.nn.Parameter]) -> bool:
    """Whether the graph behind `roots` reaches a parameter otherwise than through the nodes that made the model's outputs."""
    seen, to_see = set(outputs), [node for node in roots if node is not None]
    while to_see:
        node = to_see.pop()
        if node in seen:
            continue
        seen.add(node)
        if getattr(node, "variable", None) in parameters:
            return True
        to_see += [further for further, _ in node.next_functions if further is not None]
    return False


class Pass:
    """The gradients of a backward pass so far."""

    def __init__(self) -> None:
        self.task = -1  # its graph task
        self.nested = False  # gradients came in a backward pass inside it
        self.before: Gradients = {}  # what parameters held when it began
        self.own: Gradients = {}  # what autograd added
        self.products: dict[Layer, list[tuple[torch.Tensor, torch.Tensor]]] = {}  # factors that were handed over instead
        self.by_the_side: dict[int, Replay] = {}  # by graph task: what can be said before a second run


class Checker:
    """Of one exchange, whose end of each step it waits for; belongs to the same thread. All workers have one, or none."""

    def __init__(self, exchange: Exchange, every: int) -> None:
        if every < 1:
            raise PoseidonError(f"check_every is {every}, expected a number of steps from 1, or None", "INVALID_ARGUMENT")
        self.exchange, self.every = exchange, every
        self.thread = threading.get_ident()
        self.said: set[str] = set()
        self.records: list[Record] = []
        self.opened: Record | None = None  # a forward pass is under way
        self.replaying = False
        self.replayed: object = None
        self.watched: dict[torch.nn.Parameter, tuple[Any, RemovableHandle]] = {}
        self.now = Pass()

    def attach(self, model: torch.nn.Module) -> list[RemovableHandle]:
        """Hooks to be removed with the exchange's: ours is the first to see what the model is given, and the last to see what
        it returns."""
        self.unwatch()
        self.watch()
        before, after = map(torch.compiler.disable, (self.before_forward, self.after_forward))
        return [model.register_forward_pre_hook(Hook(before), prepend=True, with_kwargs=True),
                model.register_forward_hook(Hook(after))]

    def is_checked(self, step: int) -> bool:
        """Whether gradients of a step of the model, counted from its declaration, are compared."""
        final = self.exchange.session.final_plan_step
        return step < STEPS or final <= step < final + STEPS

    def parameters(self) -> list[tuple[Layer, torch.nn.Parameter]]:
        return [(layer, parameter) for layer in self.exchange.layers for parameter in layer.parameters]

    # ---- what a step does

    def before_forward(self, model: torch.nn.Module, arguments: tuple[Any, ...], words: dict[str, Any]) -> None:
        if self.replaying or not torch.is_grad_enabled() or torch._C._current_graph_task_id() >= 0:
            return
        self.now = Pass()  # one that failed
        self.opened = None
        self.drop([record for record in self.records if record.spent])
        if not self.is_checked(self.exchange.step - self.exchange.since):
            return
        self.thread = threading.get_ident()
        self.watch()
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

    def watch(self) -> None:
        """From here on it is seen what autograd adds to parameters: by the node that does, before it does. A hook of the
        parameter itself would make its Linear's gradient come whole."""
        for _, parameter in self.parameters():
            if parameter.requires_grad and parameter not in self.watched:
                with torch.enable_grad():
                    made: Any = parameter.view_as(parameter).grad_fn
                node = made.next_functions[0][0]
                self.watched[parameter] = node, node.register_prehook(functools.partial(self.adds, parameter))

    def unwatch(self) -> None:
        for _, handle in self.watched.values():
            handle.remove()
        self.watched.clear()

    def comes(self, record: Record, number: int, gradient: torch.Tensor) -> None:
        """A backward pass has come to an output of the model."""
        if self.replaying or self.exchange.paused:
            return
        self.open_pass()
        task = torch._C._current_graph_task_id()
        gradients = record.gradients.setdefault(task, {})
        gradients[number] = gradient.detach().clone() + (gradients[number] if number in gradients else 0)
        if task not in self.now.by_the_side:
            self.now.by_the_side[task] = self.looks_aside()

    def looks_aside(self) -> Replay:
        """Whether a second run would have the gradients of this backward pass."""
        frame = sys._current_frames().get(self.thread)
        while frame is not None and "t_outputs" not in frame.f_locals:
            frame = frame.f_back
        if frame is None:
            return Replay({}, "what backward() was called of is not known")
        more = frame.f_locals.get("args", ())
        if len(more) > 3 and more[3]:
            return Replay(None, "backward() was given inputs")
        roots = [root.grad_fn if isinstance(root, torch.Tensor) else root.node for root in frame.f_locals["t_outputs"]]
        outputs = set().union(*(record.nodes for record in self.records))
        if has_side_path(roots, outputs, {parameter for _, parameter in self.parameters()}):
            return Replay({}, "the loss reaches parameters otherwise than through what the model's forward pass returned")
        return Replay({}, "")

    def open_pass(self) -> None:
        """Of gradients that are there already, as this pass finds them."""
        task = torch._C._current_graph_task_id()
        if self.now.own or self.now.products:
            self.now.nested = self.now.nested or task != self.now.task
        elif task != self.now.task:
            self.now.task = task
            self.now.before = {}
            for layer, parameter in self.parameters():
                held = layer.before if layer.table and parameter.grad is None else parameter.grad
                if held is not None and not isinstance(held, UnderWay):
                    self.now.before[parameter] = held.detach().clone()

    def adds(self, parameter: torch.nn.Parameter, gradients: Sequence[torch.Tensor | None]) -> None:
        if self.replaying or self.exchange.paused:
            return
        self.open_pass()
        gradient = gradients[0]
        if gradient is not None:
            own = gradient.detach().clone()
            self.now.own[parameter] = self.now.own[parameter] + own if parameter in self.now.own else own

    def emitted(self, layer: Layer, dy: torch.Tensor, x: torch.Tensor) -> None:
        """Factors of a Linear's gradient are handed over instead of it."""
        if layer.parameters[0] in self.watched:
            self.open_pass()
            self.now.products.setdefault(layer, []).append((dy.detach(), x.detach()))

    def end_step(self) -> None:
        """Every gradient of a backward pass is handed over, and has landed unless the next forward pass waits for it."""
        exchange = self.exchange
        step = exchange.step - 1
        try:
            if self.is_checked(step - exchange.since) and self.watched:
                self.check_gradients(step)
            if exchange.step % self.every == 0:
                self.check_parameters(step)
        finally:
            for record in self.records:  # other gradients of it may come, of a graph that is retained
                record.spent = record.spent or torch._C._current_graph_task_id() in record.gradients
            self.now = Pass()
            if not self.is_checked(exchange.step - exchange.since):
                self.unwatch()
                self.drop(self.records)

    # ---- gradients

    def check_gradients(self, step: int) -> None:
        exchange = self.exchange
        with self.quiet():
            local = {parameter: self.local(layer, parameter) for layer, parameter in self.parameters()}
            self.refuse(self.compare_with_plain(step, local), step)
            if exchange.overlap:
                for layer in exchange.layers:
                    exchange.wait_for(layer)
                exchange.land_shared()
            self.refuse(self.compare_with_sum(local), step)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Hooks of the exchange and of this checker do nothing."""
        before, self.exchange.paused, self.replaying = self.exchange.paused, True, True
        try:
            yield
        finally:
            self.exchange.paused, self.replaying = before, False

    def local(self, layer: Layer, parameter: torch.nn.Parameter) -> Local:
        gradient = self.now.own.get(parameter)
        size, terms = largest(gradient), 0
        if gradient is not None:
            gradient = gradient.to(layer.dtype)
        for dy, x in self.now.products.get(layer, ()):
            is_weight = parameter is layer.parameters[0]
            product = dy.t().mm(x) if is_weight else dy.sum(0)
            size += largest(dy.abs().t().mm(x.abs()) if is_weight else dy.abs().sum(0))
            terms += len(dy)
            gradient = product if gradient is None else gradient + product
        return Local(gradient, size, terms)

    def compare_with_plain(self, step: int, local: dict[torch.nn.Parameter, Local]) -> Fault | None:
        plain, why = self.plain_gradients()
        if why and why not in self.said:
            self.said.add(why)
            self.say(f"gradients of step {step} are compared with an all-reduce of what autograd left on each worker, and not "
                     f"with a second forward and backward pass on plain modules: {why}")
        if plain is None:
            return None
        top = max((largest(gradient) for gradient in plain.values()), default=0.0)
        for number, (_, parameter) in enumerate(self.parameters()):
            here, expected = local[parameter].gradient, plain.get(parameter)
            if here is None and expected is None:
                continue
            if here is None:
                return Fault(number, NONE_HERE, 0.0, 0.0)
            if why:
                continue
            if expected is None:
                return Fault(number, NONE_PLAIN, 0.0, 0.0)
            eps = self.eps_behind(parameter)
            allowed = math.sqrt(eps) * max(largest(here), largest(expected)) + min(MANY * eps, 0.125) * top
            off = distance(dense(here), dense(expected).to(here.dtype))
            if not off <= allowed:
                return Fault(number, OFF_PLAIN, off, allowed)
        return None

    def eps_behind(self, parameter: torch.nn.Parameter) -> float:
        """The coarsest rounding on the way to a gradient."""
        dtypes = {parameter.dtype} | {dtype for record in self.records for _, enabled, dtype in record.autocast if enabled}
        return max(self.eps(dtype) for dtype in dtypes)

    @staticmethod
    def eps(dtype: torch.dtype) -> float:
        fast = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"  # products in fewer digits
        return torch.finfo(torch.bfloat16 if fast else dtype).eps

    def plain_gradients(self) -> Replay:
        """Of a second run of all forward passes that this backward pass came through."""
        if self.exchange.renewing:  # a step without a backward pass
            return Replay(None, "")
        task = torch._C._current_graph_task_id()
        records = [record for record in self.records if task in record.gradients]
        if not records:
            return Replay(None, "backward did not come through what the model's forward pass returned")
        if self.now.nested or task != self.now.task:
            return Replay(None, "parts of the backward pass ran inside another one, as those of a reentrant checkpoint do")
        total, why = self.now.by_the_side[task]
        for record in records:
            if total is not None:
                total, other = self.run_again(record, record.gradients[task], total)
                why = why or other
        return Replay(total, why)

    def run_again(self, record: Record, gradients: dict[int, torch.Tensor], total: Gradients) -> Replay:
        """Adds to `total`."""
        if record.is_changed():
            return Replay(None, "what the model was given, or returned, was changed before the end of the backward pass")
        try:
            with record.as_it_was(), self.plain_modules(), torch.enable_grad(), eager():
                self.exchange.root._call_impl(*record.arguments, **record.words)
                outputs = [tensor for tensor in tensors_in(self.replayed) if tensor.grad_fn is not None]
                self.replayed = None
                why = self.compare_outputs([tensor for tensor, _ in record.outputs], outputs)
                if why == OTHERS:
                    return Replay(None, why)
                wanted = [parameter for _, parameter in self.parameters() if parameter.requires_grad]
                own = self.own_gradients(outputs, gradients)
                made = torch.autograd.grad([outputs[number] for number in own], wanted, list(own.values()), allow_unused=True)
        except Exception as failure:  # of the user's model, which may run once per step and no more
            return Replay(None, f"it does not run again ({type(failure).__name__}: {(str(failure).splitlines() or [''])[0]})")
        for parameter, gradient in zip(wanted, made):
            if gradient is not None:
                total[parameter] = total[parameter] + gradient if parameter in total else gradient
        return Replay(total, why)

    @staticmethod
    def own_gradients(outputs: list[torch.Tensor], gradients: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Of what came to each output, what did not come through another output that is made of it, as a reconstruction is of
        the code that is returned beside it: that comes again from the other one."""
        own: dict[int, torch.Tensor] = {}
        for number in sorted(gradients, key=lambda number: -outputs[number].grad_fn._sequence_nr()):  # type: ignore[union-attr]
            own[number] = gradients[number]
            if len(own) > 1:
                later = [(output, of) for output, of in own.items() if output != number]
                through, = torch.autograd.grad([outputs[output] for output, _ in later], outputs[number],
                                               [of for _, of in later], retain_graph=True, allow_unused=True)
                if through is not None:
                    own[number] = gradients[number] - through
        return own

    @staticmethod
    def compare_outputs(first: list[torch.Tensor], again: list[torch.Tensor]) -> str:
        if len(first) != len(again) or any(one.shape != other.shape for one, other in zip(first, again)):
            return OTHERS
        if all(torch.equal(one, other) for one, other in zip(first, again)):
            return ""
        for one, other in zip(first, again):
            half = math.sqrt(torch.finfo(one.dtype).eps)
            if not torch.allclose(one, other, rtol=half, atol=half * largest(one), equal_nan=True):
                return OTHERS
        return "the forward pass rounds otherwise when it runs again"

    @contextlib.contextmanager
    def plain_modules(self) -> Iterator[None]:
        ours = [module for module in self.exchange.users if type(module) is Linear]
        for module in ours:
            module.__class__ = torch.nn.Linear  # type: ignore[assignment]  # it is one
        try:
            yield
        finally:
            for module in ours:
                module.__class__ = Linear

    # ---- over all workers

    def compare_with_sum(self, local: dict[torch.nn.Parameter, Local]) -> Fault | None:
        session, found = self.exchange.session, None
        weight = self.exchange.samples or 1
        known = [(local[parameter], self.now.before.get(parameter)) for _, parameter in self.parameters()]
        sums = array.array("d", [float(weight)])
        for one, before in known:
            present = one.gradient is not None or before is not None
            sums.extend((float(present), weight * (one.size + largest(before)), one.terms))
        session.sum(sums)
        weights = sums[0]
        for number, ((layer, parameter), (one, before)) in enumerate(zip(self.parameters(), known)):
            workers, size, terms = sums[1 + 3 * number:4 + 3 * number]
            landed = self.landed(layer, parameter)
            fault = None
            if (landed is None) != (workers == 0):
                fault = Fault(number, NONE_LANDED if landed is None else NONE_SUMMED, 0.0, 0.0)
            landed = None if landed is None else landed.cpu()
            if workers and layer.table:
                landed, own = self.as_rows(session, layer, landed, one.gradient, before)
            elif workers:
                own = torch.zeros(parameter.shape, dtype=layer.dtype, device="cpu")
                for part in (one.gradient, before):
                    if part is not None:
                        own += part.cpu()
            if workers:
                own = (own * weight).contiguous()
                mean = own.clone()
                if mean.numel():
                    session.sum(view_of(mean))
                mean /= weights
                if landed is not None and fault is None:
                    eps = max(self.eps(parameter.dtype), self.eps(layer.dtype))
                    if layer.gathered and self.exchange.tf32:
                        eps = max(eps, torch.finfo(torch.bfloat16).eps)
                    allowed = eps * (terms + session.workers + FEW) * size / weights + torch.finfo(layer.dtype).tiny
                    off = distance(landed.to(layer.dtype), mean)
                    if not off <= allowed:
                        without = distance(landed.to(layer.dtype), mean - own / weights)
                        fault = Fault(number, OFF_MISSING if without <= allowed else OFF_SUM, off, allowed)
            found = found or fault
        return found

    def landed(self, layer: Layer, parameter: torch.nn.Parameter) -> torch.Tensor | None:
        """The mean that the exchange delivers: the user sees it, or will once the layer is updated."""
        if not self.exchange.overlap:
            return None if parameter.grad is None else parameter.grad.detach()
        at = next(at for at, one in enumerate(layer.parameters) if one is parameter)
        if not layer.used[at]:
            return None
        if layer.table:
            before = layer.before
            layer.take_rows(self.exchange.gathered(layer))
            layer.before = before
            return layer.mean
        whole = layer.host  # of a device: the mean has yet to be brought there
        if layer.gathered:
            self.exchange.multiply(layer)
            whole = layer.flat
        elif whole is None:
            whole = layer.flat if layer.own is None else layer.own.detach().view(-1)
        assert whole is not None  # the mean is in it
        if layer.before is not None:
            whole = whole + layer.before.to(whole.device)
        begin = sum(layer.sizes[:at])
        return whole[begin:begin + layer.sizes[at]].view(parameter.shape)

    @staticmethod
    def as_rows(session: Any, layer: Layer, landed: torch.Tensor | None, own: torch.Tensor | None,
                before: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor]:
        """A table's gradients, landed and own, as rows of those entries that any worker has."""
        entries, width = layer.parameters[0].shape
        nothing = (torch.zeros((1, 0), dtype=torch.int64, device="cpu"),
                   torch.zeros((0, width), dtype=layer.dtype, device="cpu"))
        own_rows = torch.sparse_coo_tensor(*nothing, (entries, width))
        for part in (own, before):
            if part is not None:
                own_rows = own_rows + part.detach().cpu().to(layer.dtype)
        own_rows = own_rows.coalesce()
        has = torch.zeros(entries, device="cpu")
        has[own_rows.indices()[0]] = 1
        if landed is not None:
            landed = landed.coalesce()
            has[landed.indices()[0]] = 1
        session.sum(view_of(has))
        place = (has > 0).cumsum(0) - 1

        def compact(rows: torch.Tensor) -> torch.Tensor:
            made = torch.zeros((int((has > 0).sum()), width), dtype=layer.dtype, device="cpu")
            made[place[rows.indices()[0]]] = rows.values().to(layer.dtype)
            return made
        return None if landed is None else compact(landed), compact(own_rows)

    def refuse(self, fault: Fault | None, step: int) -> None:
        """Raises on all workers where one has found a fault: the first parameter, and whose it is."""
        session = self.exchange.session
        width = len(Fault._fields)
        told = array.array("d", bytes(8 * width * session.workers))
        if fault is not None:
            told[width * session.rank:width * (session.rank + 1)] = array.array("d", (fault.parameter + 1, *fault[1:]))
        session.sum(told)
        faults = {rank: Fault(int(told[at]) - 1, int(told[at + 1]), told[at + 2], told[at + 3])
                  for rank, at in enumerate(range(0, len(told), width)) if told[at]}
        if not faults:
            return
        first = min(one.parameter for one in faults.values())
        ranks = [rank for rank, one in faults.items() if one.parameter == first]
        silent = [rank for rank in ranks if faults[rank].kind == OFF_MISSING]
        worst = faults[(silent or ranks)[0]]
        where = f"rank {(silent or ranks)[0]}" if silent or len(ranks) < session.workers or len(ranks) == 1 else "all ranks"
        name = self.names()[first]
        raise PoseidonError(f"the gradient of parameter '{name}' is wrong on {where} in step {step}: "
                            + KINDS[worst.kind].format(off=worst.off, allowed=worst.allowed), "INTERNAL")

    def names(self) -> list[str]:
        known = {parameter: name for name, parameter in self.exchange.root.named_parameters()}
        return [known.get(parameter, layer.name) for layer, parameter in self.parameters()]

    def say(self, line: str) -> None:
        session = self.exchange.session
        session.options.log(None, WARNING, f"rank {session.rank}: {line}".encode())

    # ---- parameters

    def check_parameters(self, step: int) -> None:
        """Raises on all workers where a parameter is not the same on all, bit for bit."""
        session = self.exchange.session
        own = [hash_of(parameter) for parameter in parameters_of(self.exchange.root)]
        told = array.array("q", bytes(8 * len(own) * session.workers))
        told[len(own) * session.rank:len(own) * (session.rank + 1)] = array.array("q", own)
        session.sum(told)
        for at, (name, _) in enumerate(self.exchange.root.named_parameters()):
            hashes = told[at::len(own)].tolist()
            common = max(hashes, key=hashes.count)  # rank 0's where no other is commoner
            for rank, one in enumerate(hashes):
                if one != common:
                    other = hashes.index(common)
                    raise PoseidonError(f"parameter '{name}' on rank {rank} is not what it is on rank {other} in step {step}, "
                                        "expected no update that depends on the worker", "FAILED_PRECONDITION")


def hash_of(tensor: torch.Tensor) -> int:
    """Of 56 bits, of the numbers' own bits."""
    return int.from_bytes(hashlib.blake2b(bytes_of(tensor), digest_size=7).digest(), "big")


def eager() -> contextlib.AbstractContextManager[Any]:
    """Parts of the model that are compiled run as they are written; before torch 2.6 they run compiled."""
    stance: Callable[[str], contextlib.AbstractContextManager[Any]] | None = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")
