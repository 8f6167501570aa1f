# SPDX-License-Identifier: Apache-2.0
"""A forward pass of a model runs once more, on plain modules, and gives the gradients that plain autograd has for it."""
from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import torch

from . import random_numbers
from .linear import Linear
from .tensors import tensors_in

Gradients = dict[torch.nn.Parameter, torch.Tensor]

OTHERS = ("the forward pass does not return the same when it runs again; where it draws random numbers from a generator that is neither "
          "torch's, Python's or numpy's own nor held by a module, or keeps what it has seen, the second run has changed that, and check_every "
          "changes this training")
SIMPLE = (bool, int, float, str)  # attributes of modules that are restored, as counters


class Record:
    """A forward pass of the model, to be run again."""

    def __init__(self, model: torch.nn.Module, arguments: tuple[Any, ...], words: dict[str, Any]) -> None:
        self.arguments, self.words = arguments, words
        self.inputs = [(tensor, tensor._version) for tensor in tensors_in([arguments, words])]
        self.buffers = {(module, name): buffer.clone() for module in model.modules()
                        for name, buffer in module._buffers.items() if buffer is not None}
        self.modules = list(model.modules())
        self.attributes = self.simple_attributes()
        self.random = random_numbers.snapshot(self.holders())
        self.autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                         for device in ("cpu", "cuda")]
        self.outputs: list[tuple[torch.Tensor, int]] = []  # without their graph, each with its version
        self.nodes: set[Any] = set()  # that made them
        self.gradients: dict[int, dict[int, torch.Tensor]] = {}  # of the outputs, by graph task and number
        self.spent = False  # a step has ended that came through it

    def is_changed(self) -> bool:
        return any(tensor._version != version for tensor, version in (*self.inputs, *self.outputs))

    def simple_attributes(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in vars(module).items() if type(value) in SIMPLE} for module in self.modules]

    def holders(self) -> Iterator[object]:
        """What modules and the pass's arguments hold, in lists and dictionaries too, where generators may be."""
        for some in (self.arguments, self.words.values(), *(vars(module).values() for module in self.modules)):
            for one in some:
                if type(one) in (list, tuple):
                    yield from one
                elif type(one) is dict:
                    yield from one.values()
                else:
                    yield one

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """Random numbers, buffers, simple attributes and autocast are those of the pass. Buffers are others meanwhile: graphs may hold
        them."""
        now = {(module, name): module._buffers[name] for module, name in self.buffers}
        attributes, numbers = self.simple_attributes(), random_numbers.snapshot(self.holders())
        try:
            for restore in self.random:
                restore()
            for module, simple in zip(self.modules, self.attributes):
                vars(module).update(simple)
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
            for module, simple in zip(self.modules, attributes):
                vars(module).update(simple)
            for restore in numbers:
                restore()


class Replay(NamedTuple):
    """The result of a second run: gradients by parameter, or None if nothing can be said, and why their numbers are not those
    of the first run; empty if they are."""

    gradients: Gradients | None
    why: str


def run_again(record: Record, gradients: dict[int, torch.Tensor], run: Callable[[], object], modules: Iterable[torch.nn.Module],
              wanted: Sequence[torch.nn.Parameter]) -> Replay:
    """The gradients of `wanted` for those of the pass's outputs, which are given by number. `run`: runs the forward pass and returns
    what it returns; `modules`: those of the model that may be of our class."""
    if record.is_changed():
        return Replay(None, "what the model was given, or returned, was changed before the end of the backward pass")
    try:
        with record.as_it_was(), plain_modules(modules), torch.enable_grad(), eager():  # a checkpoint runs modules in backward
            outputs = [tensor for tensor in tensors_in(run()) if tensor.grad_fn is not None]
            why = compare_outputs([tensor for tensor, _ in record.outputs], outputs)
            if why == OTHERS:
                return Replay(None, why)
            own = own_gradients(outputs, gradients)
            made = torch.autograd.grad([outputs[number] for number in own], wanted, list(own.values()), allow_unused=True)
    except Exception as failure:  # of the user's model, which may run once per step and no more
        return Replay(None, f"it does not run again ({type(failure).__name__}: {(str(failure).splitlines() or [''])[0]})")
    return Replay({parameter: gradient for parameter, gradient in zip(wanted, made) if gradient is not None}, why)


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


def compare_outputs(first: list[torch.Tensor], again: list[torch.Tensor]) -> str:
    """How the second run differs from the first, in words; empty where it does not."""
    if len(first) != len(again) or any(one.shape != other.shape for one, other in zip(first, again)):
        return OTHERS
    if all(torch.equal(one, other) for one, other in zip(first, again)):
        return ""
    for one, other in zip(first, again):
        half = math.sqrt(torch.finfo(one.dtype).eps)
        if not torch.allclose(one, other, rtol=half, atol=half * largest(one), equal_nan=True):
            return OTHERS
    return "the forward pass rounds otherwise when it runs again"


def largest(tensor: torch.Tensor | None) -> float:
    """The largest size of a finite number in it."""
    if tensor is None:
        return 0.0
    numbers = tensor._values() if tensor.is_sparse else tensor
    return float(torch.nan_to_num(numbers.detach(), 0.0, 0.0, 0.0).abs().max()) if numbers.numel() else 0.0


@contextlib.contextmanager
def plain_modules(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Those of our class are torch's inside."""
    ours = [module for module in modules if type(module) is Linear]
    for module in ours:
        module.__class__ = torch.nn.Linear  # type: ignore[assignment]  # it is one
    try:
        yield
    finally:
        for module in ours:
            module.__class__ = Linear


def eager() -> contextlib.AbstractContextManager[Any]:
    """Parts of the model that are compiled run as they are written; before torch 2.6 they run compiled."""
    stance: Callable[[str], contextlib.AbstractContextManager[Any]] | None = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")


def reach_of_backward(thread: int, outputs: Set[Any], parameters: Set[torch.nn.Parameter]) -> Replay:
    """What a second run can say of the gradients of the backward pass under way, which `thread` has called. `outputs`: the nodes
    that made what the model returned."""
    frame = sys._current_frames().get(thread)
    while frame is not None and "t_outputs" not in frame.f_locals:
        frame = frame.f_back
    if frame is None:
        return Replay({}, "what backward() was called of is not known")
    more = frame.f_locals.get("args", ())
    if len(more) > 3 and more[3]:
        return Replay(None, "backward() was given inputs")
    roots = [root.grad_fn if isinstance(root, torch.Tensor) else root.node for root in frame.f_locals["t_outputs"]]
    if has_side_path(roots, outputs, parameters):
        return Replay({}, "the loss reaches parameters otherwise than through what the model's forward pass returned")
    return Replay({}, "")


def has_side_path(roots: Sequence[Any], outputs: Set[Any], parameters: Set[torch.nn.Parameter]) -> bool:
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
