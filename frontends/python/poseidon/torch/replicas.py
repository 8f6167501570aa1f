# SPDX-License-Identifier: Apache-2.0
"""Workers' models are replicas: of the same parameters and buffers, which begin with the same numbers."""
from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .. import declared
from ..errors import PoseidonError
from .devices import can_stage
from .tensors import DTYPES, as_integers, bytes_of, exchanged, view_of

if TYPE_CHECKING:
    from ..session import Session


def check(name: str, tensor: torch.Tensor, requires_sum: bool = True) -> None:
    """Refuses a parameter or buffer that cannot travel."""
    if tensor.device.type != "cpu" and not can_stage(tensor.device):
        raise PoseidonError(f"parameter '{name}' is on {tensor.device}, expected the CPU or a device with streams, as CUDA has "
                            "them", "UNIMPLEMENTED")
    if exchanged(tensor.dtype) not in DTYPES and requires_sum:
        raise PoseidonError(f"parameter '{name}' is {tensor.dtype}, expected float32, float64, bfloat16 or float16",
                            "UNIMPLEMENTED")


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Its parameters and buffers."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def compare(session: Session, model: torch.nn.Module) -> None:
    """Raises PoseidonError on a worker whose parameters and buffers are not named, shaped, typed and frozen as rank 0's, which ends
    the job. The core compares layers, and knows nothing of the tensors in them."""
    lines = []
    for name, tensor in named_tensors(model):
        if torch.nn.parameter.is_lazy(tensor):
            raise PoseidonError(f"'{name}' of a lazy module has no shape yet, expected a forward pass before distribute",
                                "INVALID_ARGUMENT")
        frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
        lines.append(declared.variable(name, tensor.shape, str(tensor.dtype).removeprefix("torch."), frozen))
    session.compare_models(lines)


def hash_of(tensor: torch.Tensor) -> int:
    """Of 56 bits, of the numbers' own bits."""
    return int.from_bytes(hashlib.blake2b(bytes_of(tensor), digest_size=7).digest(), "big")


# Of an optimizer's groups: what changes nothing in what it computes, or is no setting.
HOW = frozenset(("params", "param_names", "foreach", "fused", "capturable", "differentiable"))


def said_of(value: object) -> str | None:
    """A setting or a state in a line that workers compare; None: it may be another object on each."""
    if isinstance(value, torch.Tensor):
        return repr(value.item()) if value.numel() == 1 else f"numbers of hash {hash_of(value):014x}"
    if isinstance(value, (tuple, list)):
        parts = [said_of(each) for each in value]
        return None if None in parts else str(parts)
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else None


Names = Mapping[torch.Tensor, str]  # of the parameters that count


def state_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[Any, Any]:
    """In one order."""
    state = optimizer.state.get(parameter)
    return dict(sorted(state.items(), key=lambda item: str(item[0]))) if isinstance(state, dict) else {}


def settings_of(optimizer: torch.optim.Optimizer, names: Names) -> Iterator[str]:
    """In lines, with how many steps each parameter has had."""
    kind = type(optimizer).__name__
    for number, group in enumerate(optimizer.param_groups):
        if any(parameter in names for parameter in group["params"]):
            for name, value in sorted(group.items()):
                if name not in HOW and (said := said_of(value)) is not None:
                    yield f"{name} {said} in group {number} of {kind}"
    for parameter, name in names.items():
        if (steps := state_of(optimizer, parameter).get("step")) is not None:
            yield f"{said_of(steps)} steps of parameter '{name}' in {kind}"


def states_of(optimizer: torch.optim.Optimizer, names: Names) -> Iterator[str]:
    """In lines, by their hashes."""
    for parameter, name in names.items():
        for key, value in state_of(optimizer, parameter).items():
            if (said := said_of(value)) is not None:
                yield f"{key} of parameter '{name}' in {type(optimizer).__name__}: {said}"


def compare_optimizers(session: Session, lines: Iterable[str], when: str = "") -> None:
    """Raises PoseidonError on all workers where settings or states of their optimizers differ, as after a state was loaded, or a
    schedule stepped, on one of them. All call it."""
    own = "\n".join(lines)
    if not session.differing([own.encode()])[0]:
        return
    first, *others = (session.broadcast_bytes(own.encode(), rank).decode(errors="replace").split("\n") for rank in range(session.workers))
    for rank, theirs in enumerate(others, 1):
        for there, here in itertools.zip_longest(theirs, first, fillvalue=""):
            if here != there:
                raise PoseidonError(f"the optimizers differ{when}: rank {rank} has {there or 'nothing'} where rank 0 has "
                                    f"{here or 'nothing'}, expected settings, states and schedules that are the same on all workers",
                                    "FAILED_PRECONDITION")


def broadcast(session: Session, model: torch.nn.Module, root: int = 0) -> None:
    """Leaves the parameters and buffers of rank `root` on every rank, one message per dtype."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for name, tensor in named_tensors(model):
        check(name, tensor, requires_sum=False)
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())
    for dtype, tensors in by_dtype.items():
        flat = torch.cat([tensor.reshape(-1).cpu() for tensor in tensors])
        numbers = flat if dtype in DTYPES else as_integers(flat)
        session.broadcast(view_of(numbers), root)
        if numbers is not flat:
            flat = numbers.view(torch.uint8)[:flat.numel() * flat.element_size()].view(dtype)
        for tensor, piece in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            # An equal tensor is left alone: a graph may hold it, and counts its changes.
            if not torch.equal(tensor.reshape(-1).cpu().view(torch.uint8), piece.view(torch.uint8)):
                tensor.copy_(piece.view(tensor.shape))
