# SPDX-License-Identifier: Apache-2.0
"""Workers' models are replicas: of the same parameters and buffers, which begin with the same numbers."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from .. import declared
from ..errors import PoseidonError
from .devices import can_stage
from .tensors import DTYPES, as_integers, exchanged, view_of

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
