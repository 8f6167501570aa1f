# SPDX-License-Identifier: Apache-2.0
"""Tensors as the core has them: contiguous numbers of a dtype at an address."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping

import torch

from .. import library as c

DTYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.int64: c.I64}
HALVES = (torch.float16, torch.bfloat16)


def exchanged(dtype: torch.dtype) -> torch.dtype:
    """In which gradients of `dtype` travel: halves are summed in single precision, and rounded once at the end."""
    return torch.float32 if dtype in HALVES else dtype


def view_of(tensor: torch.Tensor) -> c.View:
    """The header's view of a contiguous tensor, which has to outlive it."""
    return c.View(memory=tensor.data_ptr(), elements=tensor.numel(), dtype=DTYPES[tensor.dtype])


def at(address: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The numbers at an address, where they are."""
    if not math.prod(shape):
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = (ctypes.c_char * (dtype.itemsize * math.prod(shape))).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    host = tensor.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())


def as_integers(flat: torch.Tensor) -> torch.Tensor:
    """The bytes of any dtype as whole int64 numbers, which a broadcast leaves as they are."""
    raw = flat.view(torch.uint8)
    padded = torch.zeros(-(-raw.numel() // 8) * 8, dtype=torch.uint8, device="cpu")
    padded[:raw.numel()] = raw
    return padded.view(torch.int64)


def tensors_in(result: object) -> Iterator[torch.Tensor]:
    """Those in what a forward pass returned."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from tensors_in(value)
    elif isinstance(result, (list, tuple, set)):
        for value in result:
            yield from tensors_in(value)
    elif result is not None and hasattr(result, "__dict__"):
        for value in vars(result).values():
            if isinstance(value, (torch.Tensor, Mapping, list, tuple)):
                yield from tensors_in(value)


def parameters_of(module: torch.nn.Module, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
    """Also of a class that has another method of that name."""
    return torch.nn.Module.parameters(module, recurse)
