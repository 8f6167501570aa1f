# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step against plain autograd's on this worker, and against an all-reduce over all workers.

Tolerances. Two orders of adding N products or numbers, each rounded to a relative `eps` or less, differ by at most N * eps
times the sum of the terms' sizes: N is the rows of the products of all workers, one number per worker, and a few for the
scaling, the gradient that was there and the last rounding (FEW). Between the two runs on one worker errors of the layers behind
come on top: half of the digits of the gradient, and MANY eps of the model's largest gradient where terms cancel.
"""
from __future__ import annotations

import array
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..errors import PoseidonError
from .product import Product
from .replay import largest
from .tensors import view_of

if TYPE_CHECKING:
    from ..session import Session
    from .layer import Layer
    from .replay import Gradients, Replay
    from .watching import Local

    Owned = Sequence[tuple[Layer, torch.nn.Parameter]]  # all parameters of a model, in the order of their numbers

FEW, MANY = 4, 2 ** 10  # roundings; see above


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


def products_are_rounded() -> bool:
    """Whether products of float32 may be made in fewer digits."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # of a program that has set torch.backends' fp32_precision, from torch 2.9 on
        return True


def eps_of(dtype: torch.dtype) -> float:
    fast = dtype == torch.float32 and products_are_rounded()
    return torch.finfo(torch.bfloat16 if fast else dtype).eps


# ---- on this worker

def compare_with_plain(owned: Owned, local: dict[torch.nn.Parameter, Local], replay: Replay,
                       eps_behind: Callable[[torch.nn.Parameter], float]) -> Fault | None:
    """`eps_behind`: the coarsest rounding on the way to a parameter's gradient."""
    plain, why = replay
    if plain is None:
        return None
    top = max((largest(gradient) for gradient in plain.values()), default=0.0)
    for number, (_, parameter) in enumerate(owned):
        here, expected = local[parameter].gradient, plain.get(parameter)
        if here is None and expected is None:
            continue
        if here is None:
            return Fault(number, NONE_HERE, 0.0, 0.0)
        if why:
            continue
        if expected is None:
            return Fault(number, NONE_PLAIN, 0.0, 0.0)
        eps = eps_behind(parameter)
        allowed = math.sqrt(eps) * max(largest(here), largest(expected)) + min(MANY * eps, 0.125) * top
        off = distance(dense(here), dense(expected).to(here.dtype))
        if not off <= allowed:
            return Fault(number, OFF_PLAIN, off, allowed)
    return None


# ---- over all workers

class AllReduce:
    """Means over all workers by a collective, of what autograd left at each parameter, and what has landed beside them. All workers
    make the same calls. `samples`: of this worker's batch, 0 where they do not count."""

    def __init__(self, session: Session, samples: int) -> None:
        self.session, self.weight = session, samples or 1

    def compare(self, owned: Owned, local: dict[torch.nn.Parameter, Local], before: Gradients,
                landed: Callable[[Layer, torch.nn.Parameter], torch.Tensor | None]) -> Fault | None:
        """The first difference. `before`: what parameters held when the backward pass began."""
        known = [(local[parameter], before.get(parameter)) for _, parameter in owned]
        sums = array.array("d", [float(self.weight)])
        for one, held in known:
            present = one.gradient is not None or held is not None
            sums.extend((float(present), self.weight * (one.size + largest(held)), one.terms))
        self.session.sum(sums)
        found = None
        for number, ((layer, parameter), (one, held)) in enumerate(zip(owned, known)):
            workers, size, terms = sums[1 + 3 * number:4 + 3 * number]
            came = landed(layer, parameter)
            if (came is None) != (workers == 0):
                found = found or Fault(number, NONE_LANDED if came is None else NONE_SUMMED, 0.0, 0.0)
            if workers:
                allowed = self.allowed(layer, parameter, size, terms, sums[0])
                kind, off = self.compare_one(layer, parameter, came, one.gradient, held, sums[0], allowed)
                if kind:
                    found = found or Fault(number, kind, off, allowed)
        return found

    def allowed(self, layer: Layer, parameter: torch.nn.Parameter, size: float, terms: float, weights: float) -> float:
        eps = max(eps_of(parameter.dtype), eps_of(layer.dtype))
        if isinstance(layer, Product) and layer.gathered and layer.tf32:
            eps = max(eps, torch.finfo(torch.bfloat16).eps)
        return eps * (terms + self.session.workers + FEW) * size / weights + torch.finfo(layer.dtype).tiny

    def compare_one(self, layer: Layer, parameter: torch.nn.Parameter, landed: torch.Tensor | None, gradient: torch.Tensor | None,
                    before: torch.Tensor | None, weights: float, allowed: float) -> tuple[int, float]:
        """The kind of a difference, 0 where there is none, and its size."""
        landed = None if landed is None else landed.cpu()
        if layer.table:
            landed, own = self.as_rows(layer, landed, gradient, before)
        else:
            own = torch.zeros(parameter.shape, dtype=layer.dtype, device="cpu")
            for part in (gradient, before):
                if part is not None:
                    own += part.cpu()
        own = (own * self.weight).contiguous()
        mean = own.clone()
        if mean.numel():
            self.session.sum(view_of(mean))
        mean /= weights
        if landed is None:
            return 0, 0.0
        off = distance(landed.to(layer.dtype), mean)
        if off <= allowed:
            return 0, off
        without = distance(landed.to(layer.dtype), mean - own / weights)
        return OFF_MISSING if without <= allowed else OFF_SUM, off

    def as_rows(self, layer: Layer, landed: torch.Tensor | None, own: torch.Tensor | None,
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
        self.session.sum(view_of(has))
        place = (has > 0).cumsum(0) - 1

        def compact(rows: torch.Tensor) -> torch.Tensor:
            made = torch.zeros((int((has > 0).sum()), width), dtype=layer.dtype, device="cpu")
            made[place[rows.indices()[0]]] = rows.values().to(layer.dtype)
            return made
        return None if landed is None else compact(landed), compact(own_rows)


def refuse(session: Session, fault: Fault | None, step: int, name_of: Callable[[int], str]) -> None:
    """Raises on all workers where one has found a fault: the first parameter, and whose it is."""
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
    raise PoseidonError(f"the gradient of parameter '{name_of(first)}' is wrong on {where} in step {step}: "
                        + KINDS[worst.kind].format(off=worst.off, allowed=worst.allowed), "INTERNAL")
