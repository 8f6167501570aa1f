# SPDX-License-Identifier: Apache-2.0
"""Poseidon under Lightning (the package lightning).

    import poseidon.lightning
    trainer = lightning.Trainer(strategy="poseidon", accelerator="cpu", devices=2)

and the script as it was, started by `poseidon run`, torchrun, mpirun or srun. `devices` are the workers of one host, and
devices * num_nodes all of the job. One worker trains as always.
"""
from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import ParallelStrategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only
from torchmetrics import Metric

from . import torch as poseidon
from .errors import PoseidonError
from .torch import job, profiling
from .torch.data import check_is_whole
from .torch.replicas import broadcast

if TYPE_CHECKING:
    from collections.abc import Callable

    Restore = Callable[[], None]

__all__ = ["Strategy"]


class Environment(ClusterEnvironment):  # type: ignore[misc]  # Lightning is read as one without annotations
    """Who is where, as poseidon.torch has it, whatever the launcher. Joins the job at the first question."""

    creates_processes_externally = True
    main_address, main_port = "", 0  # nobody needs them: all communication is Poseidon's

    @staticmethod
    def detect() -> bool:
        return False

    def global_rank(self) -> int:
        return poseidon.rank()

    def world_size(self) -> int:
        return poseidon.workers()

    def local_rank(self) -> int:
        return poseidon.local_rank()

    def node_rank(self) -> int:
        hosts = job.joined().hosts
        return list(dict.fromkeys(hosts)).index(hosts[self.global_rank()])

    def set_global_rank(self, rank: int) -> None:
        """The job says it."""

    def set_world_size(self, size: int) -> None:
        """The job says it."""


class Strategy(ParallelStrategy):  # type: ignore[misc]  # see above
    """`Trainer(strategy="poseidon")`, or an object of it: the module's gradients are the mean over all workers of the job, and
    what Lightning and torchmetrics share goes through poseidon.torch's collectives. No process group of torch is made.
    `factors=False` sends all gradients whole. `accelerator`, `parallel_devices`, `checkpoint_io` and `precision_plugin` are those
    of Lightning's strategies, and the Trainer gives the first two. Belongs to the thread that trains."""

    strategy_name = "poseidon"

    def __init__(self, accelerator: Any = None, parallel_devices: list[torch.device] | None = None, checkpoint_io: Any = None,
                 precision_plugin: Any = None, factors: bool = True) -> None:
        super().__init__(accelerator, parallel_devices, Environment(), checkpoint_io, precision_plugin)
        self.num_nodes = 1
        self.device = torch.device("cpu")
        self.factors = factors
        self.layer_sync: Any = None  # of sync_batchnorm=True
        self.undo: list[Restore] = []  # at teardown

    # ---- where this process is

    def set_world_ranks(self) -> None:
        """Lightning calls it when the Trainer is made, on all workers."""
        if self.num_processes * self.num_nodes != self.world_size or self.local_rank >= self.num_processes:
            raise PoseidonError(f"the Trainer has devices={self.num_processes} and num_nodes={self.num_nodes} and the job "
                                f"{self.world_size} workers, expected their product to be as many (poseidon run -n), and as many "
                                "on each host", "INVALID_ARGUMENT")
        rank_zero_only.rank = self.global_rank
        self.device = self.parallel_devices[self.local_rank]  # asked for here, where all workers ask

    @property
    def num_processes(self) -> int:
        return len(self.parallel_devices or ())

    @property
    def root_device(self) -> torch.device:
        return self.device

    @property
    def is_distributed(self) -> bool:
        return bool(self.world_size > 1)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    # ---- the model

    def model_to_device(self) -> None:
        self.lightning_module.to(self.device)

    def process_dataloader(self, dataloader: object) -> object:
        check_is_whole(dataloader, "the Trainer", "Lightning")
        return dataloader

    def setup(self, trainer: Any) -> None:
        self.layer_sync = self._layer_sync if trainer.state.fn == TrainerFn.FITTING else None
        if self.layer_sync is not None:
            self.model = self.layer_sync.apply(self.model)  # type: ignore[has-type]  # see above
        super().setup(trainer)
        module = self.lightning_module
        if not self.is_distributed:
            if trainer.state.fn == TrainerFn.FITTING:
                profiling.measure_asked(module, self.lone_optimizer(), self.factors)
            return
        if trainer.state.fn == TrainerFn.FITTING:
            job.wrap(module, self.lone_optimizer(), factors=self.factors)
        else:
            broadcast(job.joined(), module)
        self.undo += [share(part) for part in module.modules() if isinstance(part, Metric)]

    def lone_optimizer(self) -> torch.optim.Optimizer | None:
        """None where there are several."""
        if len(self.optimizers) > 1 and any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in self.optimizers):
            raise PoseidonError("LBFGS is one of several optimizers, expected it alone: it decides by the loss of all workers",
                                "UNIMPLEMENTED")
        return self.optimizers[0] if len(self.optimizers) == 1 else None

    def training_step(self, *arguments: Any, **words: Any) -> Any:
        """Called as the module's forward pass, in which a step begins."""
        with self.precision_plugin.train_step_context():
            module = self.lightning_module
            return self._forward_redirection(module, module, "training_step", *arguments, **words)

    def block_backward_sync(self) -> contextlib.AbstractContextManager[None]:
        """Gradients of backward passes inside add up on each worker; the first one behind it exchanges all."""
        return job.no_sync(self.lightning_module)

    def teardown(self) -> None:
        """The module is plain again, with its last weights; the job goes on until the process ends."""
        while self.undo:
            self.undo.pop()()
        if self.lightning_module is not None:
            poseidon.release(self.lightning_module)
            if self.layer_sync is not None:
                self.model = self.layer_sync.revert(self.model)
        super().teardown()

    # ---- what workers share besides gradients

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Of a `tensor`: what `reduce_op` says, the mean, sum, max or min over all workers, a new tensor of its shape; a mean of
        whole numbers is float64. Anything else comes back as it is. A `group` is refused but for torch's WORLD. All call it."""
        check_group(group)
        if not isinstance(tensor, torch.Tensor) or not self.is_distributed:
            return tensor
        op = str(getattr(reduce_op, "name", reduce_op)).lower()
        if op in ("mean", "avg"):
            return poseidon.all_reduce(tensor)
        if op == "sum":
            return poseidon.all_reduce(tensor, "sum").to(tensor.dtype)
        if op in ("max", "min"):
            every = torch.stack(poseidon.all_gather(tensor))
            return every.amax(0) if op == "max" else every.amin(0)
        raise PoseidonError(f"reduce was given the operation '{op}', expected mean, sum, max or min", "INVALID_ARGUMENT")

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """Every worker's `tensor`, of one shape on all, stacked by rank; the tensor itself on one worker. `sync_grads`: a
        gradient comes back as the sum of those that all workers have for this worker's part. A `group` is refused as by
        reduce. All call it."""
        check_group(group)
        if not self.is_distributed:
            return tensor
        if not sync_grads:
            return torch.stack(poseidon.all_gather(tensor))
        gathered: torch.Tensor = Gathered.apply(tensor)  # type: ignore[no-untyped-call]  # as torch leaves it
        return gathered

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Rank `src`'s `obj`, which JSON can hold, by poseidon.torch.broadcast_object: nothing is unpickled."""
        return poseidon.broadcast_object(obj, src) if self.is_distributed else obj

    def barrier(self, name: str | None = None) -> None:
        """Returns when all workers have called it; `name` has no effect."""
        poseidon.barrier()


class Gathered(torch.autograd.Function):
    """All workers' tensors, by rank, with gradients."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack(poseidon.all_gather(tensor))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return poseidon.all_reduce(gradient, "sum")[poseidon.rank()]


def check_group(group: Any) -> None:
    if group is not None and group is not torch.distributed.group.WORLD:
        raise PoseidonError("a process group of torch was given, expected none: all workers of the job take part",
                            "UNIMPLEMENTED")


def share(metric: Metric) -> Restore:
    """torchmetrics asks Poseidon for other workers' states, where the user has named nobody else. Returns what undoes it."""
    before = metric.dist_sync_fn, metric.distributed_available_fn
    if metric.dist_sync_fn is None:
        metric.dist_sync_fn, metric.distributed_available_fn = gather_all, is_shared

    def restore() -> None:
        metric.dist_sync_fn, metric.distributed_available_fn = before
    return restore


def gather_all(tensor: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
    check_group(group)
    return poseidon.all_gather(tensor)


def is_shared() -> bool:
    return True


StrategyRegistry.register(Strategy.strategy_name, Strategy, "data-parallel training by Poseidon", override=True)
