# SPDX-License-Identifier: Apache-2.0
"""Which batches of torch's loaders are whose: P workers with batches of b see, step for step, what one with batches of P * b
would."""
from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from ..errors import PoseidonError
from ..shares import turns


class Turns(Sampler[Any]):
    """Of every `workers` of what a sampler gives that of a rank. What is left over at the end is left out."""

    def __init__(self, sampler: Any, rank: int, workers: int) -> None:
        self.sampler, self.rank, self.workers = sampler, rank, workers

    def __iter__(self) -> Iterator[Any]:
        given = iter(self.sampler)
        for one_each in zip(*[given] * self.workers):
            yield one_each[self.rank]

    def __len__(self) -> int:
        return len(self.sampler) // self.workers


class BatchTurns(Sampler[list[Any]]):
    """Of every `workers` batches of a sampler that of a rank. The samples of the batches that are left over at the end are
    divided evenly; fewer than workers are left out."""

    def __init__(self, batches: BatchSampler, rank: int, workers: int) -> None:
        self.batches, self.rank, self.workers = batches, rank, workers

    def __iter__(self) -> Iterator[list[Any]]:
        def share(rest: list[list[Any]], first: int, end: int) -> list[Any]:
            return list(itertools.chain(*rest))[first:end]
        return turns(self.batches, self.rank, self.workers, len, share)

    @property
    def samples(self) -> int:
        """Of one epoch, over all workers."""
        samples = len(self.batches.sampler)  # type: ignore[arg-type]  # every sampler of a loader that has a length
        return samples - samples % self.batches.batch_size if self.batches.drop_last else samples

    @property
    def even(self) -> int:
        """The steps in which all workers have the same number of samples; at most one more comes behind them."""
        return self.samples // (self.batches.batch_size * self.workers)

    def __len__(self) -> int:
        whole, left_over = divmod(len(self.batches), self.workers)
        rest = self.samples - whole * self.workers * self.batches.batch_size
        return whole + (left_over > 0 and rest >= self.workers)


class Loader(DataLoader[Any]):
    """A DataLoader that says of how many samples its batches are where workers have different numbers of them."""

    note: Callable[[int], int]  # how many samples the gradients that come now are means of; returns what was noted before

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch's iterator type has no more than this to offer
        turns = vars(self)["batch_sampler"]
        even = turns.even if isinstance(turns, BatchTurns) else None
        for step, batch in enumerate(super().__iter__()):
            if even is None or step < even:
                yield batch
                continue
            before = self.note(samples_in(batch))
            try:
                yield batch
            finally:
                self.note(before)


def samples_in(batch: Any) -> int:
    """The length of the first tensor of a batch, or of the batch itself where there is none."""
    if isinstance(batch, torch.Tensor):
        return len(batch)
    parts = list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, (list, tuple)) else []
    return samples_in(parts[0]) if parts and isinstance(parts[0], (torch.Tensor, dict, list, tuple)) else len(batch)


def check_is_whole(loader: object, what: str, package: str) -> None:
    """Refuses a Loader where a package divides data itself. It reads a batch ahead, whose samples would count in the step before."""
    if isinstance(loader, Loader):
        raise PoseidonError(f"{what} was given a loader of poseidon.torch.loader or shard, expected a DataLoader of the whole data "
                            f"set: {package} divides it", "INVALID_ARGUMENT")


def check_can_shard(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise PoseidonError("the data set of the loader is an IterableDataset, which has no batch for a number, expected one "
                            "with __getitem__ and __len__", "INVALID_ARGUMENT")
    if isinstance(loader.sampler, DistributedSampler):
        raise PoseidonError("the loader has a DistributedSampler, expected one that gives the samples of all workers, which "
                            "are divided here", "INVALID_ARGUMENT")


def shard(given: DataLoader[Any], rank: int, workers: int, seed: int,
          kind: type[DataLoader[Any]] = DataLoader) -> DataLoader[Any]:
    """The loader of this worker's batches, of class `kind`. `seed` is the same on all workers."""
    part = copy.copy(given)
    where = "sampler" if given.batch_sampler is None else "batch_sampler"  # without: the data set has whole batches
    sampler = in_one_order(getattr(given, where), seed)
    # Of other samplers of batches nobody knows how many samples the last ones have.
    turns = BatchTurns(sampler, rank, workers) if type(sampler) is BatchSampler else Turns(sampler, rank, workers)
    if len(turns) == 0:
        raise PoseidonError(f"the data set has {len(sampler)} batches, expected at least one for each of {workers} workers",
                            "INVALID_ARGUMENT")
    # A loader refuses to be given another one, and has more options than could be handed to a new one.
    vars(part).update({where: turns, "_iterator": None})
    part.__class__ = kind
    return part


def in_one_order(sampler: Any, seed: int) -> Any:
    """The sampler, with random numbers that are the same on all workers where it has no generator of its own."""
    if isinstance(sampler, BatchSampler):
        sampler = copy.copy(sampler)
        sampler.sampler = in_one_order(sampler.sampler, seed)
    elif getattr(sampler, "generator", sampler) is None:
        sampler = copy.copy(sampler)
        sampler.generator = torch.Generator().manual_seed(seed)
    return sampler
