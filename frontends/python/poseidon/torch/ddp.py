# SPDX-License-Identifier: Apache-2.0
"""The face of torch.nn.parallel.DistributedDataParallel, for scripts that have it: another import is all that changes."""
from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import torch

from ..errors import PoseidonError
from . import job

# What says how DDP sends; nothing here depends on it. Unused parameters are always found.
WITHOUT_EFFECT = frozenset(("device_ids", "output_device", "dim", "bucket_cap_mb", "find_unused_parameters", "check_reduction",
                            "gradient_as_bucket_view", "static_graph", "init_sync"))


class DistributedDataParallel(torch.nn.Module):
    """A model around `module`, whose gradients are the mean over all workers when backward() returns. Keys of state_dict()
    begin with "module.", as DDP's do. One worker trains as always. broadcast_buffers=False leaves each worker its own buffers;
    else they are rank 0's on all workers after every backward pass. check_every: as of distribute. What else DDP takes is taken
    and has no effect, but process_group and mixed_precision, which are refused."""

    def __init__(self, module: torch.nn.Module, broadcast_buffers: bool = True, factors: bool = True,
                 check_every: int | None = None, **options: Any) -> None:
        for name, value in options.items():
            if name not in WITHOUT_EFFECT and value is not None:
                raise PoseidonError(f"DistributedDataParallel was given {name}, expected none: all workers of the job exchange "
                                    "gradients, in the precision of the parameters", "UNIMPLEMENTED")
        super().__init__()
        self.module = module
        if job.workers() > 1:
            job.wrap(module, factors=factors, buffers=broadcast_buffers, check_every=check_every)

    def forward(self, *arguments: Any, **words: Any) -> Any:
        return self.module(*arguments, **words)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Backward passes inside leave their gradients to add up on each worker; the first one behind it exchanges all."""
        exchange = job.exchange_of(self.module)
        return contextlib.nullcontext() if exchange is None else exchange.no_sync()

    def join(self, *_: Any, **__: Any) -> NoReturn:
        raise PoseidonError("DistributedDataParallel.join is not there, expected loaders that give all workers as many steps "
                            "(poseidon.torch.loader)", "UNIMPLEMENTED")

    def register_comm_hook(self, *_: Any, **__: Any) -> NoReturn:
        raise PoseidonError("register_comm_hook is not there, expected none: what is sent is the exact gradient, as the plan has "
                            "it (poseidon.torch.plan)", "UNIMPLEMENTED")
