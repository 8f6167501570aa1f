# SPDX-License-Identifier: Apache-2.0
"""Who else synchronises gradients: DistributedDataParallel and fully sharded models, which are refused by name.

Nobody puts two of them around one model on purpose: Accelerate, the Hugging Face Trainer and Lightning do it by
themselves where they see several processes and nothing of poseidon.accelerate, .transformers or .lightning.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import PoseidonError

IGNORED = "_ddp_params_and_buffers_to_ignore"  # of a module: DDP iterates over it when it is made


def refused(other: str, where: str) -> PoseidonError:
    return PoseidonError(f"{other} is {where} a model that poseidon.torch.distribute synchronises, expected the plain model: "
                         "one of them averages gradients, not both (Accelerate, Trainer and Lightning add it themselves, but "
                         "not with poseidon.accelerate, poseidon.transformers and poseidon.lightning)", "INVALID_ARGUMENT")


class Refusal:
    """The attribute that DistributedDataParallel reads of a module first; it refuses. Copies of the module are free again."""

    def __iter__(self) -> Iterator[str]:
        raise refused("DistributedDataParallel", "put around")

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, ()  # which torch.load(weights_only=True) knows


def check_inside(model: torch.nn.Module) -> None:
    """Refuses a model that holds one already."""
    for module in model.modules():
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            raise refused("DistributedDataParallel", "inside")
        check_sharded(module, "inside")


def check_sharded(module: torch.nn.Module, where: str) -> None:
    if vars(module).get("_is_fsdp_managed_module"):
        raise refused("FullyShardedDataParallel", where)


def check_around(model: torch.nn.Module) -> None:
    """Refuses, in the forward pass of `model`, what was put around it or around a model that holds it."""
    if torch.nn.parallel.DistributedDataParallel._active_ddp_module is not None:
        raise refused("DistributedDataParallel", "around")
    check_sharded(model, "around")


def forbid(model: torch.nn.Module) -> Callable[[], None]:
    """Makes DistributedDataParallel refuse the model and its parts; returns what undoes it."""
    before = {module: vars(module).get(IGNORED) for module in model.modules()}
    for module in before:
        setattr(module, IGNORED, Refusal())

    def permit() -> None:
        for module, was in before.items():
            vars(module).pop(IGNORED, None)
            if was is not None:
                setattr(module, IGNORED, was)
    return permit
