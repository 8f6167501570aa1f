# SPDX-License-Identifier: Apache-2.0
"""Collectives for what a script shares besides gradients: metrics, flags, names. Every call blocks until all workers have
made it, in the same order."""
from __future__ import annotations

import json
from typing import Any

import torch

from ..errors import PoseidonError
from .job import init, joined
from .tensors import DTYPES, as_integers, view_of

EXACT = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int32: torch.int64, torch.int16: torch.int64,
         torch.int8: torch.int64, torch.uint8: torch.int64, torch.bool: torch.int64}  # as what they are summed


def all_reduce(tensor: torch.Tensor | float, op: str = "mean") -> torch.Tensor:
    """A new tensor with what `op` says: the "mean" over all workers, or the "sum"; the same bits everywhere. `tensor`: of any
    shape, the same on all, on any device, where the result is too, or a number, which is taken as float64. Complex numbers are
    refused. Sums of 16-bit floats are made in
    float32, those of whole numbers in int64; a mean of whole numbers is float64."""
    if op not in ("mean", "sum"):
        raise PoseidonError(f"all_reduce was given op '{op}', expected mean or sum", "INVALID_ARGUMENT")
    init()
    own = tensor.detach() if isinstance(tensor, torch.Tensor) else torch.tensor(tensor, dtype=torch.float64, device="cpu")
    if own.dtype not in DTYPES and own.dtype not in EXACT:
        raise PoseidonError(f"all_reduce was given {own.dtype}, expected real numbers", "INVALID_ARGUMENT")
    total = own.to("cpu", EXACT.get(own.dtype, own.dtype), copy=True).contiguous()
    if total.numel():
        joined().sum(view_of(total))
    if op == "mean":
        total = total / joined().workers
    return total.to(own.device, own.dtype if own.is_floating_point() else total.dtype)


def broadcast(tensor: torch.Tensor, root: int = 0) -> torch.Tensor:
    """`tensor`, whose numbers are rank `root`'s now, bit for bit. Of any dtype, of one shape on all."""
    init()
    numbers = as_integers(tensor.detach().cpu().contiguous().reshape(-1))
    if numbers.numel():
        joined().broadcast(view_of(numbers), root)
    with torch.no_grad():
        size = tensor.numel() * tensor.element_size()
        tensor.copy_(numbers.view(torch.uint8)[:size].view(tensor.dtype).view(tensor.shape))
    return tensor


def all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """New tensors, every worker's `tensor` by rank, bit for bit. Of any shape and dtype, which may differ, on any device."""
    init()
    session, own = joined(), tensor.detach().contiguous()
    known = all_gather_object([str(own.dtype).removeprefix("torch."), *own.shape])
    return [broadcast(own.clone() if at == session.rank else own.new_empty(shape, dtype=getattr(torch, dtype)), at)
            for at, (dtype, *shape) in enumerate(known)]


def barrier() -> None:
    """Returns when all workers have called it."""
    init()
    joined().barrier()


def all_gather_object(thing: Any) -> list[Any]:
    """Every worker's `thing`, by rank. What JSON holds: numbers, strings, lists, dictionaries; nothing is unpickled."""
    init()
    session = joined()
    own = encoded(thing, "all_gather_object")
    return [json.loads(session.broadcast_bytes(own, rank)) for rank in range(session.workers)]


def broadcast_object(thing: Any, root: int = 0) -> Any:
    """Rank `root`'s `thing`, itself there and equal to it on the others. What JSON holds and gives back as it was: numbers,
    strings, booleans, None, lists, and dictionaries whose keys are strings; nothing is unpickled. What others give is not
    looked at."""
    init()
    session = joined()
    if session.rank != root:
        return json.loads(session.broadcast_bytes(b"", root))
    own = encoded(thing, "broadcast_object")
    if repr(json.loads(own)) != repr(thing):  # a tuple would come as a list, a key that is a number as a string
        raise PoseidonError(f"broadcast_object was given a {type(thing).__qualname__} that JSON gives back as something else, "
                            "expected numbers, strings, lists, and dictionaries whose keys are strings", "INVALID_ARGUMENT")
    session.broadcast_bytes(own, root)
    return thing


def encoded(thing: Any, call: str) -> bytes:
    try:
        return json.dumps(thing).encode()
    except (TypeError, ValueError) as reason:
        raise PoseidonError(f"{call} was given what JSON does not hold ({reason}), expected numbers, strings, lists "
                            "and dictionaries", "INVALID_ARGUMENT") from None
