# SPDX-License-Identifier: Apache-2.0
"""The face of torch.nn.parallel.DistributedDataParallel, for scripts that have it: another import is all that changes, or,
where DDP's own object has to stay, one call behind it."""
from __future__ import annotations

import contextlib
import copyreg
from typing import Any, NoReturn

import torch
from torch.nn import parallel

from ..errors import PoseidonError, kind_of
from . import job, profiling
from .joining import Joining

# Arguments that say how DDP sends; nothing here depends on them. Unused parameters are always found.
WITHOUT_EFFECT = frozenset(("device_ids", "output_device", "dim", "bucket_cap_mb", "find_unused_parameters", "check_reduction",
                            "gradient_as_bucket_view", "static_graph", "init_sync"))


class Face(torch.nn.Module):
    """DDP's methods that both classes have."""

    module: torch.nn.Module

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> contextlib.AbstractContextManager[None]:
        """Workers inside may have different numbers of steps: one that leaves its loop goes on in the others' steps, with
        nothing to contribute, until nobody trains. Gradients are divided by the number of workers, or, with
        `divide_by_initial_world_size=False`, by how many still train; all have the same weights afterwards. With
        `throw_on_early_termination` all raise PoseidonError as soon as one has left its loop. `enable=False`: nothing of all
        this. Costs one small sum per step. The optimizer of a worker that has left is not stepped, as with DDP."""
        exchange = job.exchange_of(self.module)
        if exchange is None or not enable:
            return contextlib.nullcontext()
        return Joining(exchange, divide_by_initial_world_size, throw_on_early_termination)

    def register_comm_hook(self, *_: Any, **__: Any) -> NoReturn:
        """Raises PoseidonError: what is sent is the exact gradient."""
        raise PoseidonError("register_comm_hook is not there, expected none: what is sent is the exact gradient, as the plan has "
                            "it (poseidon.torch.plan)", "UNIMPLEMENTED")


class DistributedDataParallel(Face):
    """A model around `module`, whose gradients are the mean over all workers when backward() returns. Keys of state_dict()
    begin with "module.", as DDP's do. All workers make it. One worker trains as always. `broadcast_buffers=False` leaves each
    worker its own buffers; else they are rank 0's on all workers after every backward pass. `factors`, `check_every`: as of
    distribute. What else DDP takes is taken and has no effect, but process_group and mixed_precision, which are refused."""

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
        else:
            profiling.measure_asked(module, None, factors)

    def forward(self, *arguments: Any, **words: Any) -> Any:
        return self.module(*arguments, **words)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Backward passes inside leave their gradients to add up on each worker; the first one behind it exchanges all."""
        return job.no_sync(self.module)


class Attached(Face, parallel.DistributedDataParallel):
    """DDP's object, whose gradients go through Poseidon. Copies and pickles are DDP's own again."""

    def forward(self, *arguments: Any, **words: Any) -> Any:
        if torch.is_grad_enabled():
            for exchange in job.exchanges():
                if exchange.root is self.module:
                    exchange.pause(not self.require_backward_grad_sync)
        return self.module(*arguments, **words)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        state = self.__getstate__()  # type: ignore[no-untyped-call]
        return copyreg.__newobj__, (parallel.DistributedDataParallel,), state  # type: ignore[attr-defined]


def attach(ddp: parallel.DistributedDataParallel, factors: bool = True) -> parallel.DistributedDataParallel:
    """Lets Poseidon average the gradients of `ddp`, a torch.nn.parallel.DistributedDataParallel of whatever backend, and returns
    it. `factors=False` sends all gradients whole. DDP's buckets are not used any more; everything else stays: `module`, the keys
    of state_dict(), no_sync() and require_backward_grad_sync, find_unused_parameters (always). `.grad` is the mean
    over all workers when backward() returns. All workers call it, before the first step. Buffers are
    rank 0's after every backward pass instead of before every forward pass, unless DDP was made with broadcast_buffers=False. One
    worker trains as always. After shutdown() the object trains alone."""
    if type(ddp) is not parallel.DistributedDataParallel:
        raise PoseidonError(f"attach was given {kind_of(ddp)}, expected a "
                            "torch.nn.parallel.DistributedDataParallel that has not been attached", "INVALID_ARGUMENT")
    if job.workers() == 1:
        return ddp
    if ddp.process_group.size() != job.workers():
        raise PoseidonError(f"attach was given a DistributedDataParallel of {ddp.process_group.size()} processes, expected all "
                            f"{job.workers()} workers of the job", "UNIMPLEMENTED")
    for name, there in (("mixed_precision", ddp.mixed_precision is not None), ("a communication hook", ddp._comm_hooks),
                        ("parameters to ignore", ddp.parameters_to_ignore)):
        if there:
            raise PoseidonError(f"attach was given a DistributedDataParallel with {name}, expected none: all gradients are "
                                "exchanged, exactly, in the precision of the parameters", "UNIMPLEMENTED")
    job.wrap(ddp.module, factors=factors, buffers=ddp.broadcast_buffers)
    ddp._remove_autograd_hooks()
    ddp.__class__ = Attached
    return ddp
