# SPDX-License-Identifier: Apache-2.0
"""Poseidon under a PyTorch training script.

    import poseidon.torch as poseidon
    model, optimizer = poseidon.distribute(model, optimizer)
    loader = poseidon.loader(dataset, batch_size=64, shuffle=True)

and the training loop as it was. One process trains as always; `poseidon run`, torchrun, mpirun and srun start several.

Rules for every function. Only the thread that trains calls it. Where all workers call a function they wait for each other, so
that all call such functions in the same order. A wrong argument, models that differ between workers, and a lost worker raise
`PoseidonError`; once the job has failed, every further call raises that failure.
"""
from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import torch
from torch.utils.data import DataLoader, Dataset

from .. import profiling as _profiling
from .. import report as _report
from ..errors import PoseidonError, check_same
from ..profiling import Profile as _Profile
from ..session import make_token_file
from . import data, job, profiling, random_numbers, refusals
from .collectives import all_gather, all_gather_object, all_reduce, barrier, broadcast, broadcast_object, normalize
from .ddp import DistributedDataParallel, attach
from .exchange import Exchange
from .job import busy, init, joined, local_rank, no_sync, rank, record, release, shutdown, workers, wrap
from .places import ResumableLoader
from .replicas import compare_optimizers
from .speeds import speeds
from .tensors import bytes_of

__all__ = ["DistributedDataParallel", "Exchange", "PoseidonError", "all_gather", "all_gather_object", "all_reduce", "attach", "barrier",
           "broadcast", "broadcast_object", "busy", "check", "distribute", "init", "loader", "local_rank", "make_token_file",
           "no_sync", "normalize", "plan", "profile", "rank", "record", "release", "report", "scalars", "seed", "shard", "shutdown",
           "speeds", "synchronize", "workers", "wrap"]


if torch.distributed.is_available():
    from . import process_group

    process_group.register()


Model = TypeVar("Model", bound=torch.nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


@overload
def distribute(model: Model, optimizer: None = None, *, overlap: Literal["backward", "forward"] = "backward", factors: bool = True,
               check_every: int | None = None, tf32: bool = False) -> Model: ...


@overload
def distribute(model: Model, optimizer: Optimizer, *, overlap: Literal["backward", "forward"] = "backward", factors: bool = True,
               check_every: int | None = None, tf32: bool = False) -> tuple[Model, Optimizer]: ...


def distribute(model: Model, optimizer: Optimizer | None = None, *, overlap: Literal["backward", "forward"] = "backward",
               factors: bool = True, check_every: int | None = None, tf32: bool = False) -> Model | tuple[Model, Optimizer]:
    """Lets `model` train with the models of all other workers, exactly as one model on all their batches. Returns model and
    optimizer, the same objects, or the model alone where no optimizer is given. All workers call it, and start from rank 0's
    parameters and buffers. One worker trains as always.

    `model`: its trained parameters are float32, float64, bfloat16 or float16, on the CPU or on devices with streams (CUDA),
    where they stay. It may be compiled before or after.

    `optimizer`: the one that steps the model. `overlap="forward"` needs it; LBFGS gets from its closure the mean of all workers'
    losses where it is given here.

    `overlap`: with "backward" gradients leave while backward() still computes those of the layers below; when it returns, `.grad`
    is the mean over all workers, for whatever looks at it: clipping, scalers, any optimizer. With "forward" backward() returns at
    once, and each layer is updated right before it runs in the next forward pass (SGD, Adam, AdamW; one backward pass per step; a
    look at `.grad` before step() raises; one at weights or `.grad` behind it waits until all are updated; compiled models are
    waited for).

    `factors`: False sends all gradients whole.

    `tf32`: True lets a GPU round the products of other workers' factors as it does for the program's own where TF32 is allowed.

    `check_every`: every so many steps of its optimizers, with the backward pass behind them, the parameters of all workers are
    compared, and with them the settings and states of those optimizers. In the first three backward passes, and the first three of
    the final plan, every gradient is compared with what plain autograd and an all-reduce give (checks.py has how, and the
    tolerance). What differs is raised on all workers, as PoseidonError with rank, parameter and step, from 0: of an optimizer, or for
    a gradient a backward pass. A compared gradient costs a second forward and backward pass, the memory of both, and an all-reduce
    of all gradients; other steps nothing. The forward pass has to be one that may run again: the random numbers of torch,
    Python, numpy, and of generators that modules hold are brought back, and their buffers and numbers. The same on all workers."""
    refusals.check_distributed(model, optimizer, overlap, factors, check_every, tf32)
    if workers() > 1:
        wrap(model, optimizer, overlap == "forward", factors, check_every=check_every, tf32=tf32)
    else:
        # What is refused where there are several workers is refused here too: the exchange is made, and given up.
        Exchange(joined(), model, optimizer, overlap == "forward", factors, tf32=tf32).detach()
        profiling.measure_asked(model, optimizer, factors, tf32)
    return model if optimizer is None else (model, optimizer)


def loader(dataset: Dataset[Any], batch_size: int | None = 1, shuffle: bool | None = None, *, shares: Sequence[float] | None = None,
           **options: Any) -> ResumableLoader:
    """A DataLoader of this worker's part of `dataset`: P workers with batches of b see, step for step, what one with batches of
    P * b would. All workers call it. `batch_size`: samples of one worker's batch. `shuffle` and the other options are those of
    torch.utils.data.DataLoader. An IterableDataset is refused. Samples are shuffled alike everywhere, in
    another order in every epoch, which depends on torch.manual_seed and not on the number of workers; the last ones, too few for a
    whole batch each, are divided evenly, and gradients of that step count by them; fewer than workers are left out, with
    drop_last=True all of them.

    `shares`: of the samples of each step, by rank, as `speeds` measures them, the same on all workers; they need not add up to 1. A worker gets
    one sample at least, and its gradients count by its samples. None: all have the same.

    It has an epoch and a place, for checkpoints: `state_dict()`, `load_state_dict(state)`, `set_epoch(number)` and `epoch`."""
    return shard(DataLoader(dataset, batch_size, shuffle, **options), shares)


def shard(whole: DataLoader[Any], shares: Sequence[float] | None = None) -> ResumableLoader:
    """This worker's part of `whole`, a loader that gives the batches of all, as loader has it, and `shares` as there. All workers call it.
    What is left over at the end is left out where a data set or a sampler of your own makes the batches. An IterableDataset, and a loader with
    a DistributedSampler, are refused."""
    data.check_can_shard(whole)
    weights = None if shares is None else data.check_shares(shares, workers())
    # From numbers of its own: what the program draws afterwards is what it draws alone.
    source = torch.Generator().manual_seed((torch.initial_seed() + next(_sharded)) % 2 ** 63)
    seed = int(torch.randint(2 ** 62, (1,), device="cpu", generator=source))
    if workers() == 1:
        return data.shard(whole, 0, 1, seed)
    joined().compare("shares of the batches", [] if weights is None else [repr(weight) for weight in weights], "none")
    part = data.shard(whole, rank(), workers(), joined().broadcast_number(seed), data.Loader, weights)
    part.uneven = _uneven
    return part


_sharded = itertools.count()  # loaders so far: each has an order of its own
_uneven = data.Uneven(job.exchanges)


def seed(number: int, per_rank: bool = True) -> None:
    """Seeds the random numbers of torch on all devices, of Python and of numpy with `number`, from 0 and below 2 ** 63. With `per_rank`
    every rank draws numbers of its own, as dropout and augmentation should, and rank 0 those of `number`; without, all draw
    the same. distribute starts all workers from rank 0's weights either way, and loader shuffles alike on all. Joins the job where
    init has not been called; workers do not wait for each other otherwise."""
    if not 0 <= number < 2 ** 63:
        raise PoseidonError(f"seed was given {number}, expected a number from 0, and below 2 ** 63", "INVALID_ARGUMENT")
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401  # which may come later, and would draw from the system
    random_numbers.seed_all(random_numbers.of_rank(number, rank()) if per_rank else number)


def plan(model: torch.nn.Module) -> dict[str, tuple[str, str]]:
    """How the gradients of `model` go, by the name of each layer: the scheme (kv, sfb, ...), and the reason in words. Layers that
    share a message are one, under the name of the first. Empty on one worker."""
    exchange = job.exchange_of(model)
    return {} if exchange is None else exchange.plan()


def report(model: torch.nn.Module | None = None, trace: str | os.PathLike[str] | None = None) -> str:
    """What Poseidon did, as a table to print: how each layer of `model` (None: of every distributed model) goes and why, the
    bytes that it moves per step and the time from its push to its mean, planned and measured on this worker since the newest
    plan; totals beside dense gradients; how much of the communication was hidden. Counted in every job, without an option.

    `trace`: a file that gets what the core did since the last such call, as JSON for Perfetto or chrome://tracing. That needs
    init(trace_spans=100_000), which keeps so many sends, receives, sums and waits at most, 64 bytes each: the first three steps
    and as many of the last as fit; default 0, none.
    On one worker nothing is exchanged, and the text says so."""
    if workers() == 1 and not job.exchanges():
        return _report.NOTHING_EXCHANGED
    known = job.exchanges() if model is None else [exchange for exchange in (job.exchange_of(model),) if exchange is not None]
    if trace is not None:
        _report.write_trace(joined(), [exchange.model.account for exchange in job.exchanges()], trace)
    return _report.report(joined(), [exchange.model.account for exchange in known])


def profile(model: torch.nn.Module, file: str | os.PathLike[str], optimizer: torch.optim.Optimizer | None = None, *, steps: int = 20,
            factors: bool = True) -> _Profile:
    """Measures the training steps of `model` in a `with` block into `file`, a profile from which `poseidon plan` predicts the step on
    a cluster that need not exist. On one worker; distribute need not be called.

        with poseidon.profile(model, "net.json", optimizer):
            train(some_batches)
        $ poseidon plan net.json --workers 8 --rate 10G

    The first 5 steps of the block are left out; of the others the last `steps` (3 or more) count, and a block of fewer than 9 steps
    raises PoseidonError at its end. A step is a forward and a backward pass with an update. The profile has, for each layer of a job,
    the median seconds of its forward and backward pass, the shapes of its tensors, the rows of a Linear's factors or of a sparse
    embedding, and `batch`, the length of the first tensor that the model was given. `optimizer`: its update counts as forward time,
    as in a job that has it. `factors`: that of distribute. At the end of the block the model is as it was, with its last weights;
    what was measured is printed, with a line where other programs used the machine. Where the block raises, nothing is written."""
    _profiling.check_steps(steps)
    _profiling.check_alone(workers())
    return _Profile(lambda: profiling.Measurement(model, optimizer, steps, factors), file)


def scalars(model: torch.nn.Module) -> dict[str, float]:
    """Numbers for a plot (SummaryWriter.add_scalar, Lightning's log_dict, W&B's log), of this worker since the last call for
    `model`: bytes sent and received per step (all of the job's, with headers and encryption), seconds waited per step, of them
    for workers that computed longer, the share of communication hidden behind computing (0 to 1), and the step so far. Empty
    on one worker."""
    exchange = job.exchange_of(model)
    return {} if exchange is None else exchange.scalars.take(exchange.step)


def synchronize(model: torch.nn.Module) -> None:
    """Waits for all gradients of `model` under way, and for the updates that step() has asked for: with overlap="forward" before
    gradients are read between backward() and step(). Who reads weights waits by himself."""
    exchange = job.exchange_of(model)
    if exchange is not None:
        exchange.synchronize()


def check(model: torch.nn.Module) -> None:
    """Raises PoseidonError where a parameter of `model`, or of the optimizer that distribute was given with it a setting or a state, is
    not the same on all workers, bit for bit. All call it."""
    if workers() == 1:
        return
    synchronize(model)
    named = list(model.named_parameters())
    contents = [bytes_of(parameter) for _, parameter in named]
    check_same("parameter", [name for (name, _), differs in zip(named, joined().differing(contents)) if differs],
               ", expected no update that depends on the worker")
    exchange = job.exchange_of(model)
    compare_optimizers(joined(), [] if exchange is None else exchange.optimizer_lines())
