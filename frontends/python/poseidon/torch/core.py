# SPDX-License-Identifier: Apache-2.0
"""One model of the session, as the exchange calls it: a step's begin, pushes, waits and plans, and ranges of torch.profiler
around them.

What is on a device is pushed by the carrier's thread, once it has been copied to the host (devices.py).

While torch.profiler runs on the thread that trains, its trace has "poseidon::push fc1", "poseidon::wait fc1", "poseidon::land fc1"
(the wait and what follows it) and, with overlap, "poseidon::update fc1". Whether one runs is asked once per step, so that a
profiler sees the ranges of the steps that begin while it runs, and other steps pay for the question alone.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .. import interruption
from .. import library as c
from .devices import Carrier, pinned
from .tensors import at

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..session import Session
    from .devices import Moves


PAGE = 4096  # bytes, of which the session's own memory has whole ones


class Pushed:
    """What the core is lent in every step: a layer's gradient, or what travels beside gradients."""

    name: str
    id: int  # in the core's model, from its declaration
    device: torch.device | None  # None: made on the host, whatever the parameters are on
    to_view: Any  # references to structs of the header, made once
    to_more: Any

    flying = False  # handed over, its memory is lent
    staged = False  # is on a device, and pushed from pinned memory of the host
    sent: Future[None] | None = None  # where it is staged: the push of this step

    def declaration(self, position: int) -> c.Layer:
        raise NotImplementedError

    def has_been_pushed(self) -> bool:
        """Whether the core has it; what is staged may still be on its way to the host."""
        return self.sent is None or self.sent.done()


One = TypeVar("One", bound=Pushed)


class Core:
    """Belongs to the thread that trains. A call that fails raises PoseidonError."""

    def __init__(self, session: Session, declared: Sequence[Pushed], declarations: Sequence[c.Layer]) -> None:
        """Blocks until all workers have declared the same."""
        self.session, self.c = session, session.c
        self.model, numbers = session.declare(declarations)
        for one, number in zip(declared, numbers):
            one.id = number
        self.step = 0  # of the model: the one that is under way, or comes next
        self.profiled = False
        self.carrier: Carrier | None = None
        self.begin_step, self.push_whole, self.push_product, self.wait = map(
            self.c.often, ("begin_step", "push_dense", "push_factors", "wait"))

    def stage(self) -> None:
        """From here on what is staged can be sent."""
        interruption.listen()
        self.carrier = Carrier()

    def stop(self) -> None:
        """No push is made any more when this returns."""
        if self.carrier is not None:
            self.carrier.stop()

    def begin(self) -> None:
        self.profiled = torch._C._autograd._profiler_enabled()
        if self.carrier is not None:
            interruption.forget()
        self.begin_step(self.model, self.step)

    def takes(self, layer: Pushed) -> int:
        """What the plan wants of a layer in this step: the header's GRADIENT, FACTORS or GATHERED."""
        takes = ctypes.c_int32()
        self.c.takes(self.model, layer.id, self.step, ctypes.byref(takes))
        return takes.value

    def range(self, verb: str, *layers: Pushed) -> contextlib.AbstractContextManager[Any]:
        """A range of torch.profiler, where one runs. What every layer does asks `profiled` itself: a context costs more than a call."""
        return range_of(verb, *layers) if self.profiled else contextlib.nullcontext()

    def host_memory(self, one: Pushed, elements: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Memory of the host that copies of the layer's device reach: for its gradient, and where the mean of that lands. Of the
        session's own, which the workers of a host share, where there is any and the device takes it."""
        assert self.carrier is not None and one.device is not None
        own, size = c.Memory(), elements * dtype.itemsize
        self.c.get_memory(self.model, one.id, ctypes.byref(own))
        pages = -(-size // PAGE) * PAGE
        if own.brought and all(self.carrier.register(one.device, address, pages) for address in (own.brought, own.mean)):
            return at(own.brought, (elements,), dtype), at(own.mean, (elements,), dtype)
        both = pinned(elements, dtype)
        return both, both

    # ---- pushes: each lends memory until the mean has landed in it

    def push(self, call: Callable[..., None], one: Pushed, *arguments: Any) -> None:
        """`call`: one of the functions that hand a layer over; `arguments`: what it takes behind the step."""
        if self.profiled:
            with range_of("push", one):
                call(self.model, one.id, self.step, *arguments)
        else:
            call(self.model, one.id, self.step, *arguments)

    def carry(self, call: Callable[..., None], one: Pushed, moves: Moves, *arguments: Any, in_parts: bool = False) -> None:
        """As push, of what is staged: when `moves` have been made; in parts, when the first of them has."""
        assert self.carrier is not None and one.device is not None
        arrived = functools.partial(self.c.arrived, self.model, one.id) if in_parts else None
        push = functools.partial(call, self.model, one.id, self.step, *arguments)
        with self.range("push", one):
            one.sent = self.carrier.send(one.device, moves, push, arrived)

    # ---- landing

    def wait_for(self, one: Pushed) -> None:
        """Until the mean is in the memory that was lent."""
        if one.sent is not None:
            one.sent.result()
            one.sent = None
        if self.profiled:
            with range_of("wait", one):
                self.wait(self.model, one.id)
        else:
            self.wait(self.model, one.id)

    def has_landed(self, one: Pushed) -> bool:
        return one.has_been_pushed() and self.c.landed(self.model, one.id) != 0

    def first_landed(self, pushed: Sequence[One]) -> One:
        """Waits for any of those, all of which the core has."""
        ids = (ctypes.c_uint32 * len(pushed))(*(one.id for one in pushed))
        landed = ctypes.c_uint32()
        with self.range("wait", *pushed):
            self.c.wait_any(self.model, ids, len(pushed), ctypes.byref(landed))
        return next(one for one in pushed if one.id == landed.value)

    def gathered(self, layer: Pushed) -> c.Gathered:
        """What all workers brought, valid until the layer's next push."""
        gathered = c.Gathered()
        self.c.get_gathered(self.model, layer.id, ctypes.byref(gathered))
        return gathered

    # ---- the plan

    def plan_of(self, layer: Pushed) -> c.LayerPlan:
        return self.session.layer_plan(self.model, layer.id)

    def plan_text(self) -> str:
        """The newest plan as lines of name=scheme."""
        length: int = self.c.plan_text(self.model, None, 0)
        text = ctypes.create_string_buffer(length + 1)
        self.c.plan_text(self.model, text, len(text))
        return text.value.decode()


def range_of(verb: str, first: Pushed, *others: Pushed) -> Any:
    """A range of torch.profiler around what is done for one layer, or for several."""
    return torch.profiler.record_function(f"poseidon::{verb} {first.name}" + (f" and {len(others)} more" if others else ""))
