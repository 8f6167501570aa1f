# SPDX-License-Identifier: Apache-2.0
"""Collectives for what a script shares besides gradients: metrics, flags, names. Every call blocks until all workers have
made it, in the same order."""
from __future__ import annotations

import array
import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import torch

from ..errors import PoseidonError
from .job import exchanges, init, joined
from .tensors import DTYPES, as_integers, view_of

if TYPE_CHECKING:
    from ..session import Session

EXACT = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int32: torch.int64, torch.int16: torch.int64,
         torch.int8: torch.int64, torch.uint8: torch.int64, torch.bool: torch.int64}  # as what they are summed

OPS = ("mean", "sum", "max", "min")
IN_PLACE = {"AVG": "mean", "SUM": "sum", "MAX": "max", "MIN": "min"}  # torch.distributed.ReduceOp's, by their names
NOTHING = object()  # that was not given
EXTREMES = {"max": torch.amax, "min": torch.amin}


def all_reduce(tensor: torch.Tensor | float, op: Any = "mean") -> torch.Tensor:
    """What `op` says of all workers' `tensor`; the same bits everywhere.

    `op` "mean", "sum", "max" or "min": a new tensor. `tensor`: of any shape, the same on all, on any device, where the result is too, or
    a number, which is taken as float64. Sums of 16-bit floats are made in float32, those of whole numbers in int64; a mean of whole
    numbers is float64.

    `op` AVG, SUM, MAX or MIN of torch.distributed.ReduceOp: `tensor` itself, changed in place, as torch.distributed has it.

    Complex numbers, and AVG of whole ones, are refused."""
    named_op = op if isinstance(op, str) else IN_PLACE.get(getattr(op, "name", ""))
    if named_op not in OPS:
        raise PoseidonError(f"all_reduce was given op '{op}', expected mean, sum, max or min, or AVG, SUM, MAX or MIN of torch's ReduceOp",
                            "INVALID_ARGUMENT")
    if isinstance(op, str):
        return reduced(tensor, op)
    if not isinstance(tensor, torch.Tensor) or named_op == "mean" and not tensor.is_floating_point():
        raise PoseidonError(f"all_reduce with {op} was given {tensor.dtype if isinstance(tensor, torch.Tensor) else 'a number'}, expected a "
                            f"tensor{' of real numbers' if named_op == 'mean' else ''}, which it changes in place", "INVALID_ARGUMENT")
    with torch.no_grad():
        tensor.copy_(reduced(tensor, named_op))
    return tensor


def reduced(tensor: torch.Tensor | float, op: str) -> torch.Tensor:
    init()
    own = tensor.detach() if isinstance(tensor, torch.Tensor) else torch.tensor(tensor, dtype=torch.float64, device="cpu")
    if own.dtype not in DTYPES and own.dtype not in EXACT:
        raise PoseidonError(f"all_reduce was given {own.dtype}, expected real numbers", "INVALID_ARGUMENT")
    if op in EXTREMES:
        with named("all_reduce", [own]):
            return EXTREMES[op](gather(joined(), own.cpu()), 0).to(own.device)
    total = own.to("cpu", EXACT.get(own.dtype, own.dtype), copy=True).contiguous()
    if total.numel():
        with named("all_reduce", [own]):
            joined().sum(view_of(total))
    if op == "mean":
        total = total / joined().workers
    return total.to(own.device, own.dtype if own.is_floating_point() else total.dtype)


def gather(session: Session, tensor: torch.Tensor) -> torch.Tensor:
    """All workers' tensors, of one shape and dtype, behind one another: [workers, *shape], bit for bit. On the CPU."""
    own = as_integers(tensor.contiguous().reshape(-1))
    rows = own.new_zeros(session.workers, own.numel())
    rows[session.rank] = own
    if rows.numel():
        session.sum(view_of(rows))  # a number and zeros
    size = tensor.numel() * tensor.element_size()
    return rows.view(torch.uint8)[:, :size].contiguous().view(tensor.dtype).view(session.workers, *tensor.shape)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's own
def normalize(loss: torch.Tensor, count: torch.Tensor | float) -> torch.Tensor:
    """The loss to call backward() on where a mean is over something else than samples, whose number differs between workers: tokens
    that are not ignored, pixels that are not masked, weights of samples. The gradients that all workers end with are those of the sum
    of all workers' `loss`, divided by the sum of their `count`: what one process would compute. All workers call it, in every backward
    pass, also one that has nothing to count.

    `loss`: the sum over this worker's terms (`reduction="sum"`), of any shape. `count`: by what it is divided, from 0, a number or a
    tensor of one element; where all have 0, the loss is 0. Several micro-batches of one step each pass the count of all of them.

    Returns loss * workers / sum of counts, whose mean over workers is the loss of all (`all_reduce`). It waits for all workers, once.
    Raises PoseidonError for another count, and inside join, where other workers may have no batch."""
    init()
    own, training = float(count), exchanges()
    if not 0 <= own < float("inf"):
        raise PoseidonError(f"normalize was given a count of {own}, expected a finite number from 0", "INVALID_ARGUMENT")
    if any(exchange.now.joining is not None for exchange in training):
        raise PoseidonError("normalize was called inside join, expected as many steps on all workers", "UNIMPLEMENTED")
    # In a step whose batches differ in size gradients count by the samples (data.Uneven); here they shall not.
    samples = next((exchange.now.samples for exchange in training if exchange.now.samples), 1)
    sums = array.array("d", [own, samples])
    joined().sum(sums)
    counted, weights = sums
    return loss * (weights / samples) / counted if counted else loss * 0.0


def broadcast(tensor: torch.Tensor, root: int = 0, *, src: int | None = None) -> torch.Tensor:
    """`tensor`, whose numbers are rank `root`'s now, bit for bit. Of any dtype, of one shape on all. `src`: torch's word for `root`."""
    init()
    numbers = as_integers(tensor.detach().cpu().contiguous().reshape(-1))
    if numbers.numel():
        with named("broadcast", [tensor]):
            joined().broadcast(view_of(numbers), root if src is None else src)
    with torch.no_grad():
        size = tensor.numel() * tensor.element_size()
        tensor.copy_(numbers.view(torch.uint8)[:size].view(tensor.dtype).view(tensor.shape))
    return tensor


@overload
def all_gather(tensor: torch.Tensor) -> list[torch.Tensor]: ...


@overload
def all_gather(tensor: list[torch.Tensor], own: torch.Tensor) -> list[torch.Tensor]: ...


def all_gather(tensor: torch.Tensor | list[torch.Tensor], own: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Every worker's tensor by rank, bit for bit: of any shape and dtype, which may differ, on any device.

    With one argument, `tensor`, it returns new tensors. With two, as torch.distributed has them, `tensor` is a list of one tensor for
    each worker, of the shapes of what comes, which it fills and returns, and `own` is this worker's."""
    init()
    if isinstance(tensor, list) != (own is not None) or isinstance(tensor, list) and len(tensor) != joined().workers:
        raise PoseidonError(f"all_gather was given {f'{len(tensor)} tensors' if isinstance(tensor, list) else 'a tensor'}, expected a tensor, or a "
                            f"list of {joined().workers} to fill and a tensor", "INVALID_ARGUMENT")
    if isinstance(tensor, list):
        assert own is not None
        gathered = gathered_from(own)
        with torch.no_grad():
            for into, numbers in zip(tensor, gathered):
                if (into.shape, into.dtype) != (numbers.shape, numbers.dtype):  # which copy_ would make fit
                    raise PoseidonError(f"all_gather was given {into.dtype} of shape {list(into.shape)} to fill, expected {numbers.dtype} of shape "
                                        f"{list(numbers.shape)}, as comes", "INVALID_ARGUMENT")
                into.copy_(numbers)
        return tensor
    return gathered_from(tensor)


def gathered_from(tensor: torch.Tensor) -> list[torch.Tensor]:
    session, own = joined(), tensor.detach().contiguous()
    known = all_gather_object([str(own.dtype).removeprefix("torch."), *own.shape])
    return [broadcast(own.clone() if at == session.rank else own.new_empty(shape, dtype=getattr(torch, dtype)), at)
            for at, (dtype, *shape) in enumerate(known)]


def barrier() -> None:
    """Returns when all workers have called it."""
    init()
    joined().barrier()


@contextlib.contextmanager
def named(call: str, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """What the core says of bytes, where workers' calls do not match, is said of the tensors that `call` was given here."""
    try:
        yield
    except PoseidonError as failure:
        if "a collective is called as" not in failure.message or " was given " in failure.message:
            raise
        given = ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}" for tensor in tensors)
        said = PoseidonError(f"{call} was given {given or 'nothing'} on rank {joined().rank}, and another worker gave something else or "
                             "made another call, expected the same call on all workers, with tensors of one shape and dtype "
                             f"({failure.message})", failure.code, failure.culprit)
        PoseidonError.latest = failure.message  # as which the end of the job comes again
        raise said from None


def all_gather_object(thing: Any, own: Any = NOTHING) -> list[Any]:
    """Every worker's `thing`, by rank. What JSON holds and gives back as it was: numbers, strings, booleans, None, lists, and
    dictionaries whose keys are strings; nothing is unpickled. Anything else is refused by name.

    With two arguments, as torch.distributed has them, `thing` is a list with a place for each worker, which it fills and returns, and
    `own` is this worker's."""
    init()
    session = joined()
    into: list[Any] | None = None
    if own is not NOTHING:
        into, thing = thing, own
        if not isinstance(into, list) or len(into) != session.workers:
            given = f"a list with {len(into)} places" if isinstance(into, list) else f"a {type(into).__name__}"
            raise PoseidonError(f"all_gather_object was given {given} to fill, expected a list with {session.workers} places", "INVALID_ARGUMENT")
    words = encoded(thing, "all_gather_object")
    things = [json.loads(session.broadcast_bytes(words, rank)) for rank in range(session.workers)]
    if into is None:
        return things
    into[:] = things
    return into


def broadcast_object(thing: Any, root: int = 0, *, src: int | None = None) -> Any:
    """Rank `root`'s `thing`, itself there and equal to it on the others: what all_gather_object takes. What others give is not
    looked at. `src`: torch's word for `root`."""
    init()
    session = joined()
    root = root if src is None else src
    if session.rank != root:
        return json.loads(session.broadcast_bytes(b"", root))
    session.broadcast_bytes(encoded(thing, "broadcast_object"), root)
    return thing


def encoded(thing: Any, call: str) -> bytes:
    """As JSON, which gives back what it takes: a tuple would come as a list, a key that is a number as a string, numpy's number as
    Python's."""
    try:
        changed = changed_in(thing)
        if not changed:
            return json.dumps(thing).encode()
    except (ValueError, RecursionError) as reason:  # it holds itself
        changed = f"what holds itself ({reason})"
    raise PoseidonError(f"{call} was given {changed}, which JSON does not hold or gives back as something else, expected numbers, "
                        "strings, booleans, None, lists, and dictionaries whose keys are strings", "INVALID_ARGUMENT")


def changed_in(thing: Any, place: str = "") -> str:
    """What of `thing` JSON would change, in words; empty where there is nothing."""
    kind = type(thing)
    if kind is list:
        return next(filter(None, (changed_in(each, f"{place}[{number}]") for number, each in enumerate(thing))), "")
    if kind is dict:
        for key, each in thing.items():
            if type(key) is not str:
                return f"a key of type {type(key).__qualname__}" + (f" at {place}" if place else "")
            if changed := changed_in(each, f"{place}[{key!r}]"):
                return changed
        return ""
    if thing is None or kind in (str, int, float, bool):
        return ""
    module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
    return f"a {module}{kind.__qualname__}" + (f" at {place}" if place else "")
