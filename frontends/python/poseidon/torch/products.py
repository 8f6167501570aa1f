# SPDX-License-Identifier: Apache-2.0
"""Products of all workers' factors on a device, for layers whose parameters are there: dW = u^T v, and the sums of u's columns.

Replicas stay equal only where every worker's device makes the same bits. So each makes a test product of fixed numbers, and the
core compares their hashes: where they differ, the layer's gradient goes whole.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from .devices import module_of

TEST_ROWS = 64  # of each worker, in the test product


@contextlib.contextmanager
def rounding(device: torch.device, tf32: bool) -> Iterator[None]:
    """Inside, CUDA's products of float32 numbers are rounded to TF32 or not, whatever the program has chosen for its own; of
    another kind of device they are as the program has them. The setting is the process's: products that another thread
    launches meanwhile follow it too."""
    matmul = getattr(getattr(torch.backends, device.type, None), "matmul", None)
    if matmul is None:
        yield
        return
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on; the older switch cannot be set back to what it was
        before, wanted = matmul.fp32_precision, "tf32" if tf32 else "ieee"
        switch: Callable[[str], None] = functools.partial(setattr, matmul, "fp32_precision")
    else:
        before, wanted = torch.get_float32_matmul_precision(), "high" if tf32 else "highest"
        switch = torch.set_float32_matmul_precision
    switch(wanted)
    try:
        yield
    finally:
        switch(before)


def multiply(u: torch.Tensor, v: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, tf32: bool) -> None:
    """u: [rows, outputs] and v: [rows, inputs] on the device of `weight`, [outputs, inputs], which gets u^T v; `bias`, [outputs],
    gets the sums of u's columns. Launches, and does not wait."""
    with rounding(weight.device, tf32):
        torch.mm(u.t(), v, out=weight)
    if bias is not None:
        torch.sum(u, 0, out=bias)


class Test(NamedTuple):
    """A test product, as poseidon_layer has it."""

    rows: int
    hash: int  # of its bits and of the device's kind, 64 bits
    seconds: float


def numbers(seed: int, rows: int, width: int, device: torch.device) -> torch.Tensor:
    """In [-1, 1), the same on every worker."""
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(rows, width, generator=draw, dtype=torch.float32, device="cpu").mul_(2).sub_(1).to(device)


def kind_of(device: torch.device) -> str:
    """What a product's bits may depend on, beside its operands."""
    module = module_of(device)
    said: list[object] = [torch.__version__, os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")]
    if device.type == "cuda":
        known = module.get_device_properties(device)
        said += [known.name, known.multi_processor_count, torch.version.cuda, torch.backends.cuda.preferred_blas_library()]
    return " ".join(map(str, [device.type, *said]))


@functools.lru_cache(maxsize=None)
def test(device: torch.device, outputs: int, inputs: int, bias: bool, workers: int, tf32: bool) -> Test:
    """Of one layer's shape. Made once: models are declared again when layers are thawed."""
    rows, module = TEST_ROWS * workers, module_of(device)
    u, v = numbers(1, rows, outputs, device), numbers(2, rows, inputs, device)
    flat = torch.empty(outputs * inputs + outputs * bias, dtype=torch.float32, device=device)
    weight = flat[:outputs * inputs].view(outputs, inputs)
    took = []
    for _ in range(3):
        module.synchronize(device)
        began = time.perf_counter()
        multiply(u, v, weight, flat[outputs * inputs:] if bias else None, tf32)
        module.synchronize(device)
        took.append(time.perf_counter() - began)
    # Two kinds of device may agree on this product and not on one of other rows.
    made = hashlib.blake2b(kind_of(device).encode(), digest_size=8)
    host = flat.cpu()
    made.update((ctypes.c_char * (4 * host.numel())).from_address(host.data_ptr()))
    return Test(rows, int.from_bytes(made.digest(), "little"), min(took))
