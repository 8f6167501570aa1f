# SPDX-License-Identifier: Apache-2.0
"""Poseidon under Hugging Face Accelerate.

    from poseidon.accelerate import Accelerator

and the script as it was, started by `poseidon run`, torchrun or mpirun. The model that prepare() returns is the one that it was
given, whose gradients are the mean over all workers; what Accelerate gathers, reduces and broadcasts itself goes through
torch's gloo, beside Poseidon. One worker trains as always.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import accelerate
import torch
from accelerate.utils import DDPCommunicationHookType, DistributedType, send_to_device

from . import torch as poseidon
from .errors import PoseidonError
from .torch import job, profiling
from .torch.data import check_is_whole
from .torch.devices import accelerator, can_stage, module_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Accelerator"]

SHARDED = ("FSDP", "DEEPSPEED", "MEGATRON_LM")  # which Accelerate silently turns into plain training where cpu=True
DEVICE = "ACCELERATE_TORCH_DEVICE"
PREPARED = "_is_accelerate_prepared"  # Accelerate's mark of what it has prepared


class Accelerator(accelerate.Accelerator):  # type: ignore[misc]  # Accelerate has no annotations
    """accelerate.Accelerator, with its arguments by name, in which Poseidon takes DistributedDataParallel's place. `device`
    ("cuda:1") is where models and batches go: by default the accelerator (GPU) with the worker's number on its host, by turns
    where there are fewer, and the CPU where there is none or `cpu=True` says so. Of DistributedDataParallelKwargs broadcast_buffers counts, hooks are refused, and
    the rest has no effect. All workers make one. Belongs to the thread that trains."""

    def __init__(self, device: str | torch.device | None = None, cpu: bool = False, **options: Any) -> None:
        if poseidon.workers() > 1:
            made = accelerate.state.is_initialized()  # with a device it takes it once
            if device is None and not cpu and not made:
                device = own_accelerator()
            cpu = not made  # how Accelerate is asked for gloo, wherever models are
        with on(device):
            super().__init__(cpu=cpu, **options)
        self.check()
        if device is not None and self.device != torch.device(device):
            raise PoseidonError(f"Accelerator was given the device {device} and Accelerate's state was made with {self.device}, "
                                "expected that the Accelerator is made first", "INVALID_ARGUMENT")

    def check(self) -> None:
        """Raises PoseidonError where Accelerate has other processes than the job, or averages gradients its own way."""
        if (self.process_index, self.num_processes) != (poseidon.rank(), poseidon.workers()):
            raise PoseidonError(f"Accelerate has this process as {self.process_index} of {self.num_processes} and the job as "
                                f"{poseidon.rank()} of {poseidon.workers()}, expected cpu=True where Accelerate's state is made "
                                "first, and TrainingArguments of poseidon.transformers", "INVALID_ARGUMENT")
        if poseidon.workers() == 1:
            return
        sharded = [name for name in SHARDED if os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true"]
        if sharded or self.distributed_type != DistributedType.MULTI_CPU:
            raise PoseidonError(f"Accelerate is asked for {', '.join(sharded) or self.distributed_type}, expected "
                                f"{DistributedType.MULTI_CPU}, where the model is whole on every worker, and TrainingArguments of "
                                "poseidon.transformers", "UNIMPLEMENTED")
        hooks = self.ddp_handler and {self.ddp_handler.comm_hook, self.ddp_handler.comm_wrapper} - {DDPCommunicationHookType.NO}
        if hooks:
            raise PoseidonError("DistributedDataParallelKwargs has a comm_hook, expected none: what is sent is the exact "
                                "gradient", "UNIMPLEMENTED")

    def prepare_model(self, model: torch.nn.Module, device_placement: bool | None = None,
                      evaluation_mode: bool = False) -> torch.nn.Module:
        """The `model` itself, or torch.compile's of it, exchanged where a parameter requires a gradient, unless `evaluation_mode`
        says that it will not train. `device_placement`: whether it goes to the device, by default as the Accelerator has it."""
        known, parameters = hasattr(model, PREPARED), list(model.parameters())
        prepared: torch.nn.Module = super().prepare_model(model, device_placement, evaluation_mode=True)  # without DDP
        if any(one is not other for one, other in zip(parameters, model.parameters())):
            raise PoseidonError(f"the model has other parameters on {self.device} than an optimizer that was made before knows, "
                                "expected model.to(accelerator.device) before the optimizer is made", "INVALID_ARGUMENT")
        if poseidon.workers() > 1 and not known and not evaluation_mode and any(p.requires_grad for p in model.parameters()):
            buffers = self.ddp_handler is None or self.ddp_handler.broadcast_buffers
            job.wrap(self.unwrap_model(model, keep_torch_compile=False), buffers=buffers)
        elif not known and not evaluation_mode:
            profiling.measure_asked(self.unwrap_model(model, keep_torch_compile=False), None)
        return prepared

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        if poseidon.workers() > 1 and isinstance(optimizer, torch.optim.LBFGS):
            raise PoseidonError("prepare was given LBFGS, which decides by each worker's own loss, so that workers would part, "
                                "expected poseidon.torch.distribute(model, optimizer), which gives it the mean",
                                "UNIMPLEMENTED")
        return super().prepare_optimizer(optimizer, device_placement)

    def prepare_data_loader(self, data_loader: Any, *arguments: Any, **words: Any) -> Any:
        check_is_whole(data_loader, "prepare", "Accelerate")
        return super().prepare_data_loader(data_loader, *arguments, **words)

    def wait_for_everyone(self) -> None:
        poseidon.barrier()  # torch's asks for a backend of the device

    def gather(self, tensor: Any) -> Any:
        return self.by_host(super().gather, tensor)

    def reduce(self, tensor: Any, *arguments: Any, **words: Any) -> Any:
        return self.by_host(super().reduce, tensor, *arguments, **words)

    def pad_across_processes(self, tensor: Any, *arguments: Any, **words: Any) -> Any:
        return self.by_host(super().pad_across_processes, tensor, *arguments, **words)

    @property
    def gathers_by_host(self) -> bool:
        """Whether what Accelerate's own collectives are given is not where gloo takes it."""
        return self.device.type != "cpu" and poseidon.workers() > 1

    def by_host(self, call: Callable[..., Any], tensor: Any, *arguments: Any, **words: Any) -> Any:
        """The call with what gloo takes: tensors of the host."""
        if not self.gathers_by_host:
            return call(tensor, *arguments, **words)
        return send_to_device(call(send_to_device(tensor, "cpu"), *arguments, **words), self.device)

    def no_sync(self, model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
        """Gradients of `model`'s backward passes inside add up on each worker; the first one behind it exchanges all."""
        return job.no_sync(model)

    def free_memory(self, *objects: Any) -> Any:
        """Models among `objects` are plain again; those that are not named stay exchanged."""
        for each in objects:
            if isinstance(each, torch.nn.Module):
                poseidon.release(each)
                vars(each).pop(PREPARED, None)
        return super().free_memory(*objects)


def own_accelerator() -> torch.device | None:
    """The one with this worker's number on its host, by turns where there are fewer devices than workers; None where torch has none with
    streams here, or where ACCELERATE_TORCH_DEVICE names another. All workers call it."""
    number = poseidon.local_rank()
    if DEVICE in os.environ:  # Accelerate reads it
        return None
    kind = accelerator()
    return None if kind is None or not can_stage(kind) else torch.device(kind.type, number % module_of(kind).device_count())


@contextlib.contextmanager
def on(device: str | torch.device | None) -> Iterator[None]:
    """Accelerate's state, where it is made inside, has this device."""
    before = os.environ.get(DEVICE)
    if device is not None:
        os.environ[DEVICE] = str(device)
    try:
        yield
    finally:
        if before is not None:
            os.environ[DEVICE] = before
        elif device is not None:
            del os.environ[DEVICE]
