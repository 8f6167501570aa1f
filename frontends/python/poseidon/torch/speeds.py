# SPDX-License-Identifier: Apache-2.0
"""How fast each worker computes, for batches by its speed."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..errors import PoseidonError
from . import collectives, job
from .devices import accelerator, module_of

UNTIMED = 2  # first steps, which load kernels and make memory


def speeds(step: Callable[[], object], seconds: float = 1.0) -> list[float]:
    """How many steps a second each worker makes, by rank, the same on all: for `loader(..., shares=...)`. All workers call it, before
    distribute, and measure at the same time, as they will train.

    `step`: a forward and backward pass of the model on a batch like those to come, the same amount of work on all workers; what it leaves in
    `.grad` is the caller's. `seconds`: about how long it is repeated, three times at least. A device is waited for.

    Raises PoseidonError where a model is distributed already: its gradients would be exchanged, of other numbers of steps on each worker."""
    if not 0 < seconds < float("inf"):
        raise PoseidonError(f"speeds was given {seconds} seconds, expected more than 0", "INVALID_ARGUMENT")
    job.init()
    if job.exchanges():
        raise PoseidonError("speeds was called behind distribute, expected before: what the steps compute would be exchanged",
                            "FAILED_PRECONDITION")
    for _ in range(UNTIMED):
        step()
    finish()
    collectives.barrier()
    made, began = 0, time.perf_counter()
    while made < 3 or time.perf_counter() - began < seconds:
        step()
        finish()
        made += 1
    own = made / (time.perf_counter() - began)
    found = collectives.gather(job.joined(), torch.tensor(own, dtype=torch.float64, device="cpu"))
    return [float(rate) for rate in found]


def finish() -> None:
    """Waits for the current device, and for others on which this process has memory: a model need not be on the current one, and CUDA takes
    memory of a device that is waited for."""
    kind = accelerator()
    if kind is None:
        return
    module = module_of(kind)
    wait = torch.accelerator.synchronize if hasattr(torch, "accelerator") else module.synchronize  # that of torch.mps takes no number
    wait()
    for number in range(module.device_count()):
        if has_memory(module, number):
            wait(number)


def has_memory(module: Any, number: int) -> bool:
    """Whether torch has memory of this device. True where the kind of device does not count it."""
    if not hasattr(module, "memory_allocated"):
        return True
    try:
        return bool(module.memory_allocated(number))
    except RuntimeError:  # another allocator than torch's counts none
        return False
