# SPDX-License-Identifier: Apache-2.0
"""A layer whose gradient is a product: that of a Linear, dW = dy^T x, of which backward hands over dy and x.

Under a plan that wants factors they are what travels. Under another one they are multiplied straight into the layer's memory.
A gradient may also come whole, late, or in part (autocast, hooks, penalties); where all workers send factors it then goes as a
product of an identity and itself.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import declared
from .. import library as c
from . import products
from .dense import Dense
from .devices import pinned
from .tensors import at

if TYPE_CHECKING:
    from .core import Core
    from .devices import Moves
    from .layer import Out

MOST_ROWS = 2 ** 32 - 1  # that the header's struct can name


class Emits(Protocol):
    """Takes factors from a Linear's backward pass (sending.py)."""

    @property
    def paused(self) -> bool:
        """Whether gradients stay on this worker (no_sync)."""

    def emit(self, layer: Product, dy: torch.Tensor, x: torch.Tensor) -> None:
        """One use's factors: dy of [rows, outputs] and x of [rows, inputs], both contiguous, of float32."""


class Product(Dense):
    """What a backward pass finds and leaves, and how the layer goes then (`takes_factors`: the plan; `local`: no_sync was before):

    | factors came (`emitted`) | a gradient came | it goes as |
    |---|---|---|
    | yes | no | factors, or without `takes_factors` or with `local` their product |
    | yes | yes | the sum of both; with `takes_factors` as factors of an identity and that |
    | no | yes | the gradient; with `takes_factors` as factors of an identity and it |
    | no | no | nothing: no rows, or absent |

    What the passes before left is set aside first (`adds`): products are added to it, or, where factors will land over it, it is
    kept in `before` and added to the mean.
    """

    emits: Emits  # from when it is declared

    def __init__(self, name: str, parameters: Sequence[torch.nn.Parameter], tf32: bool = False) -> None:
        """`tf32`: whether a GPU may round products of other workers' factors so."""
        super().__init__(name, parameters)
        self.is_one = False  # its memory is what is multiplied into
        self.tf32 = tf32
        self.takes_factors = False  # under the plan that holds
        self.gathers = False   # and their product is made on the device that the gradient is on
        self.gathered = False  # as the mean of the last push is
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # (dy, x), one per use
        self.rows = 0  # of what has been multiplied here
        self.retired = False     # others have its parameters now: graphs of before do not hand it factors any more
        self.came_whole = False  # in this step, on this worker, while all send factors
        self.steps_whole = 0     # in which it did on some worker
        self.u, self.v, self.factors = c.View(dtype=c.F32), c.View(dtype=c.F32), c.Factors()
        self.factors.u, self.factors.v = ctypes.pointer(self.u), ctypes.pointer(self.v)
        self.to_factors = ctypes.byref(self.factors)

    def next_pass(self) -> None:
        super().next_pass()
        self.emitted = False  # this backward pass went through WeightGradient
        self.adds = False     # to what the memory holds of backward passes before, which is to stay where it is

    def fail_pass(self) -> None:
        if self.adds:
            self.give()  # what set_aside took
        self.pending, self.before = [], None
        super().fail_pass()

    def may_emit(self) -> bool:
        """Whether a backward pass may hand over factors instead of a gradient."""
        return not self.retired and not self.emits.paused

    def declaration(self, position: int) -> c.Layer:
        outputs, inputs = self.parameters[0].shape
        return declared.matrix(super().declaration(position), outputs, inputs, bias=len(self.parameters) > 1)

    def test_product(self, declaration: c.Layer, workers: int) -> None:
        """Says in the declaration that the layer's device makes its products, and how."""
        test = products.test(self.device, *self.parameters[0].shape, len(self.parameters) > 1, workers, self.tf32)
        declaration.product_rows, declaration.product_hash, declaration.product_seconds = test

    def follow(self, takes: int) -> None:
        """What a plan wants of it: the header's GRADIENT, FACTORS or GATHERED."""
        self.takes_factors, self.gathers = takes != c.GRADIENT, takes == c.GATHERED

    def emit(self, dy: torch.Tensor, x: torch.Tensor) -> None:
        if not self.emitted:
            self.emitted = True
            self.set_aside()
        self.pending.append((dy, x))

    # ---- leaving

    def leave(self, out: Out) -> bool:
        if self.takes_factors and not self.emitted and not self.local and self.waiting_for == len(self.parameters):
            self.set_aside()  # what the backward passes before left
        if self.emitted or self.before is not None:
            if self.emitted:
                self.used = self.all
            if self.takes_factors and not self.local and all(p.grad is None for p in self.parameters):
                out.push_factors(self)
                return True
            self.rows = sum(len(dy) for dy, _ in self.pending)
            self.multiply()
            self.forget()
        elif not self.gather(self.adds):
            return False
        if self.takes_factors:
            out.push_whole_as_factors(self)
        else:
            out.push_dense(self)
        return True

    def leave_nothing(self, out: Out) -> None:
        if self.takes_factors:
            self.used = [False] * len(self.parameters)
            out.push_factors(self)
        else:
            super().leave_nothing(out)

    def set_aside(self) -> None:
        """Keeps what the gradients hold of the backward passes before: products are added to it or, where factors will land
        over it, it is added to the mean."""
        if self.gather(self.adds):
            if self.takes_factors and not self.local:
                self.before = self.memory.whole().clone()
            self.adds = True
            self.forget()

    def multiply(self) -> None:
        """Leaves the gradient itself in the memory where factors of it came, with what autograd left at the parameters."""
        self.memory.ready(self.adds)
        weight, *biases = self.memory.views
        for number, (dy, x) in enumerate(self.pending):
            if number == 0 and not self.adds:
                torch.mm(dy.t(), x, out=weight)
            else:
                weight.addmm_(dy.t(), x)
            for bias in biases:
                if number == 0 and not self.adds:
                    torch.sum(dy, 0, out=bias)
                else:
                    bias.add_(dy.sum(0))
        self.pending = []
        for view, parameter in zip(self.memory.views, self.parameters):
            if parameter.grad is not None:
                view.add_(parameter.grad)

    def become_factors(self) -> None:
        """Makes factors of the gradient that the memory holds."""
        weight, *biases = self.memory.views
        self.pending = [whole_as_factors(weight, biases[0] if biases else None)]

    def tell_rows(self) -> None:
        """Says with the next push, of the gradient itself, how many rows its factors have had. One that came whole has none to
        send: as many rows as numbers keep it whole."""
        self.more.rows = self.rows or self.rows_of_whole
        self.rows = 0

    @property
    def rows_of_whole(self) -> int:
        return min(self.elements, MOST_ROWS)

    def staging(self, core: Core) -> torch.Tensor:
        self.gathered = False
        return super().staging(core)

    def staging_of_product(self, core: Core) -> Any:
        """Where the mean of factors is to land, as a reference to the header's view; None where the device multiplies them."""
        if self.gathers:
            self.gathered = True
            return None
        self.gathered = False
        memory = self.memory
        if memory.host is None or memory.host is not memory.landing:  # the session's is for means of gradients
            own = pinned(memory.elements, memory.dtype)
            memory.stage(own, own)
        return self.to_view

    def lend_factors(self) -> Moves:
        """Lends what is pending, all uses as one, or no rows where nothing is. Returns what has to be copied before it is pushed."""
        pending, self.pending = self.pending, []
        if not pending:
            self.factors.rows = 0
            return []
        dy, x = pending[0] if len(pending) == 1 else (torch.cat(pieces) for pieces in zip(*pending))
        (u, v), moves = self.lendable(dy, x)
        self.u.memory, self.u.elements, self.v.memory, self.v.elements = u.data_ptr(), u.numel(), v.data_ptr(), v.numel()
        self.factors.rows = len(u)
        self.lent = u, v
        return moves

    # ---- landing

    def take(self, core: Core) -> None:
        if self.gathered:
            self.multiply_gathered(core.gathered(self))
        else:
            super().take(core)
        self.lent = ()
        if self.before is not None:
            assert self.memory.flat is not None  # the mean is in it
            self.memory.flat.add_(self.before)
            self.before = None

    def landed(self, core: Core) -> torch.Tensor:
        whole = super().landed(core)
        if self.gathered:
            self.multiply_gathered(core.gathered(self))
            whole = self.memory.whole()
        return whole if self.before is None else whole + self.before.to(whole.device)

    def multiply_gathered(self, gathered: c.Gathered) -> None:
        """Makes the mean of all workers' factors, on the device, in the gradient's memory there. The session's memory is read
        until the current stream has come so far; the next push of this layer comes behind that."""
        flat = self.memory.ready(self.adds)
        if not gathered.count:
            flat.zero_()
            return
        weight, *biases = self.memory.views
        u, v = (at(address, (gathered.count, width), torch.float32).to(self.device, non_blocking=True)
                for address, width in zip((gathered.u, gathered.values), weight.shape))
        products.multiply(u, v, weight, biases[0] if biases else None, self.tf32)


def whole_as_factors(weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors (u, v) whose product u^T v, in full precision, is the gradient `weight`, to the bit, and whose column sum of u is
    `bias`, to rounding: a product of an identity and the gradient, of as many rows as the gradient's shorter side.

    A power of two times the identity, so small that the sum of its column and of the last row is the bias alone.
    """
    outputs, inputs = weight.shape
    short, small = min(outputs, inputs), 1.0 if bias is None else 2.0 ** -60
    rows = short + (bias is not None)
    u, v = weight.new_zeros(rows, outputs), weight.new_zeros(rows, inputs)
    if outputs <= inputs:
        u[:short].fill_diagonal_(small)
        torch.mul(weight, 1 / small, out=v[:short])
    else:
        torch.mul(weight.t(), small, out=u[:short])
        v[:short].fill_diagonal_(1 / small)
    if bias is not None:
        torch.sub(bias, u[:short].sum(0), out=u[short])
    return u, v
