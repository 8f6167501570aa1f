# SPDX-License-Identifier: Apache-2.0
"""Which batches of torch's loaders are whose: P workers with batches of b see, step for step, what one with batches of P * b
would."""
from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler, get_worker_info

from ..errors import PoseidonError
from ..shares import divided, part_of, turns
from . import random_numbers, refusals
from .places import Numbers, Place, ResumableLoader, behind, length_of, resumable, samplers_of

if TYPE_CHECKING:
    from .states import Step


class Trains(Protocol):
    """A module whose gradients are exchanged."""

    root: torch.nn.Module
    now: Step


class Turns(Sampler[Any]):
    """Of every `workers` of what a sampler gives that of a rank. What is left over at the end is left out."""

    counts = "batches"
    begin_at = 0

    def __init__(self, sampler: Any, rank: int, workers: int) -> None:
        self.sampler, self.rank, self.workers = sampler, rank, workers

    @property
    def at_once(self) -> int:
        return self.workers

    @property
    def total(self) -> int | None:
        return length_of(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self.of_rank(behind(self.sampler, self.begin_at))

    def of_rank(self, sampler: Iterable[Any]) -> Iterator[Any]:
        given = iter(sampler)
        for one_each in zip(*[given] * self.workers):
            yield one_each[self.rank]

    def __len__(self) -> int:
        return len(self.sampler) // self.workers


class BatchTurns(Sampler[list[Any]]):
    """Of every `workers` batches of a sampler that of a rank. The samples of the batches that are left over at the end are
    divided evenly; fewer than workers are left out, and with drop_last all of them, as one process with batches of all workers
    together leaves them out. With `weights`, by rank, every step's samples are divided by them."""

    counts = "samples"
    begin_at = 0

    def __init__(self, batches: BatchSampler, rank: int, workers: int, weights: Sequence[float] | None = None) -> None:
        self.batches, self.rank, self.workers, self.weights = batches, rank, workers, weights

    @property
    def at_once(self) -> int:
        return self.batches.batch_size * self.workers

    def part_of(self, samples: int) -> tuple[int, int]:
        """The first of this worker's samples of a step that has so many, and the first behind them."""
        if self.weights is None:
            first, end = part_of(samples, self.rank, self.workers)
            return int(first), int(end)
        counts = divided(samples, self.weights)
        return sum(counts[:self.rank]), sum(counts[:self.rank + 1])

    def __iter__(self) -> Iterator[list[Any]]:
        def share(rest: list[list[Any]], first: int, end: int) -> list[Any]:
            return list(itertools.chain(*rest))[first:end]
        batches = copy.copy(self.batches)
        batches.sampler = behind(batches.sampler, self.begin_at)
        if self.weights is not None:
            return self.weighted(batches)
        return turns(batches, self.rank, self.workers, len, share, self.batches.drop_last)

    def weighted(self, batches: Iterable[list[Any]]) -> Iterator[list[Any]]:
        given = iter(batches)
        while step := list(itertools.chain(*itertools.islice(given, self.workers))):
            if len(step) == self.at_once or not self.batches.drop_last and len(step) >= self.workers:
                first, end = self.part_of(len(step))
                yield step[first:end]

    @property
    def total(self) -> int | None:
        """The samples of one epoch, over all workers."""
        return None if length_of(self.batches.sampler) is None else self.samples

    @property
    def samples(self) -> int:
        """Of one epoch, over all workers."""
        samples = len(self.batches.sampler)  # type: ignore[arg-type]  # every sampler of a loader that has a length
        return samples - (samples - self.begin_at) % self.at_once if self.batches.drop_last else samples

    def samples_in(self, step: int) -> int | None:
        """This worker's samples in that step of a pass, None where all workers have the same number."""
        rest = self.samples - self.begin_at - step * self.at_once
        if self.weights is None:
            if rest >= self.at_once:
                return None
            if rest > (size := self.batches.batch_size) * (self.workers - 1):  # a batch for each, of which the last is smaller
                return min(size, rest - size * self.rank)
        first, end = self.part_of(min(rest, self.at_once))
        return end - first

    def __len__(self) -> int:
        whole, left_over = divmod(len(self.batches), self.workers)
        rest = self.samples - whole * self.at_once
        return whole + (not self.batches.drop_last and left_over > 0 and rest >= self.workers)


class Loader(ResumableLoader):
    """One that says of how many samples a batch is, where workers have different numbers of them, while its user has that batch."""

    uneven: Uneven

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # see above
        batches = super().__iter__()  # from where turns knows in which place it begins
        turns = vars(self)["batch_sampler"]
        use = Use(self.uneven)
        for step, batch in enumerate(batches):
            use.next(step)
            count = turns.samples_in(step) if isinstance(turns, BatchTurns) else None
            if count is None:
                yield batch
                continue
            with use.of(step, count):
                yield batch


class Uneven:
    """What all Loaders of a process share: of how many samples the gradients are means that come now.

    That belongs to a batch, and a gradient does not say of which it is: it counts while the loop has the batch. Loops that read
    batches ahead of their use are refused; they are found by the backward passes between one batch and the next."""

    def __init__(self, exchanges: Callable[[], Sequence[Trains]]) -> None:
        self.exchanges = exchanges
        self.counts: list[int] = []  # of those batches that loops have now

    def passes(self) -> int:
        """Backward passes so far."""
        return max((exchange.now.passes for exchange in self.exchanges()), default=0)

    def trains(self) -> bool:
        return torch.is_grad_enabled() and any(exchange.root.training for exchange in self.exchanges())

    def note(self) -> None:
        for exchange in self.exchanges():
            if exchange.now.joining is None:  # which says itself how they count
                exchange.now.samples = self.counts[0] if self.counts else 0

    def note_ahead(self, ahead: bool) -> None:
        for exchange in self.exchanges():
            exchange.now.read_ahead = ahead

    @contextlib.contextmanager
    def of(self, count: int) -> Iterator[None]:
        """While a loop has a batch of so many samples."""
        if self.counts and count != self.counts[0]:
            raise PoseidonError(f"two loaders give batches of {self.counts[0]} and {count} samples for one step, in which other workers "
                                "have other numbers, expected data sets of one size, or drop_last=True", "UNIMPLEMENTED")
        self.counts.append(count)
        self.note()
        try:
            yield
        finally:
            self.counts.remove(count)
            self.note()


class Use:
    """One loop over a Loader: whether its batches are used in their turns."""

    def __init__(self, uneven: Uneven) -> None:
        self.uneven = uneven
        self.began = uneven.passes()
        self.read = 0  # batches before the first backward pass

    def next(self, step: int) -> None:
        """The loop reads the batch of that number."""
        self.uneven.note_ahead(False)
        if self.read == 0 and self.uneven.passes() > self.began:
            self.read = step

    @contextlib.contextmanager
    def of(self, step: int, count: int) -> Iterator[None]:
        """While the loop has a batch of so many samples."""
        before = self.uneven.passes()
        if self.read > 1 and before - self.began == step - self.read + 1:  # one for each batch, and some are behind
            raise refusals.read_ahead()
        with self.uneven.of(count):
            yield
        # Where nobody evaluates, a batch for which there was no backward pass is used later.
        if self.uneven.trains() and (self.uneven.passes() == before or step > 0 and self.read == 0):
            self.uneven.note_ahead(True)


def check_is_whole(loader: object, what: str, package: str) -> None:
    """Refuses a loader of ours where a package divides data itself. It reads a batch ahead, whose samples would count in the step
    before."""
    if isinstance(loader, ResumableLoader):
        raise PoseidonError(f"{what} was given a loader of poseidon.torch.loader or shard, expected a DataLoader of the whole data "
                            f"set: {package} divides it", "INVALID_ARGUMENT")


def check_can_shard(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise PoseidonError("the data set of the loader is an IterableDataset, which has no batch for a number, expected one "
                            "with __getitem__ and __len__", "INVALID_ARGUMENT")
    samplers = list(samplers_of(loader))
    if any(isinstance(sampler, (Turns, BatchTurns)) for sampler in samplers):
        raise PoseidonError("the loader is one that loader or shard of poseidon has given, with this worker's part of the batches, "
                            "expected one that gives the batches of all workers: dividing it again would leave out most samples",
                            "INVALID_ARGUMENT")
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
        raise PoseidonError("the loader has a DistributedSampler, expected one that gives the samples of all workers, which "
                            "are divided here", "INVALID_ARGUMENT")


def check_shares(shares: Sequence[float], workers: int) -> list[float]:
    """One of each worker, the same on all."""
    weights = [float(one) for one in shares]
    if len(weights) != workers or not all(0 < weight < float("inf") for weight in weights):
        raise PoseidonError(f"the shares of the batches are {weights}, expected {workers} numbers above 0, one for each worker",
                            "INVALID_ARGUMENT")
    return weights


def shard(given: DataLoader[Any], rank: int, workers: int, seed: int, kind: type[ResumableLoader] = ResumableLoader,
          weights: Sequence[float] | None = None) -> ResumableLoader:
    """The loader of this worker's batches, of class `kind`. `seed` and `weights` are the same on all workers."""
    part = copy.copy(given)
    where = "sampler" if given.batch_sampler is None else "batch_sampler"  # without: the data set has whole batches
    numbers = Numbers(seed)
    numbers.note(given.generator)
    for one in samplers_of(given):
        numbers.note(getattr(one, "generator", None))
    sampler = in_one_order(getattr(given, where), numbers)
    # Of other samplers of batches nobody knows how many samples the last ones have.
    counted = type(sampler) is BatchSampler
    if weights is not None and not counted:
        raise PoseidonError("the loader's batches are of a sampler or a data set of the program's own, expected a batch_size where shares are "
                            "given: whole batches cannot be divided", "INVALID_ARGUMENT")
    turns = BatchTurns(sampler, rank, workers, weights) if counted else Turns(sampler, rank, workers)
    if workers > 1 and len(turns) == 0:
        raise PoseidonError(f"the data set has {len(sampler)} batches, expected at least one for each of {workers} workers",
                            "INVALID_ARGUMENT")
    # A loader refuses to be given another one, and has more options than could be handed to a new one.
    vars(part).update({where: turns, "_iterator": None, "worker_init_fn": OwnNumbers(rank, given.worker_init_fn),
                       "place": Place(turns, numbers)})
    part.__class__ = resumable(kind, type(given))
    return part  # type: ignore[return-value]  # now it is


class OwnNumbers:
    """What a loader's process does first, before the program's own `then`: it draws other random numbers than those of other ranks,
    whose programs have often seeded torch alike. Torch has seeded it by the loader's process."""

    def __init__(self, rank: int, then: Callable[[int], None] | None) -> None:
        self.rank, self.then = rank, then

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if self.rank and info is not None:
            object.__setattr__(info, "seed", random_numbers.of_rank(info.seed, self.rank))  # which its own class refuses
            random_numbers.seed_all(info.seed)
        if self.then is not None:
            self.then(worker)


def in_one_order(sampler: Any, numbers: Numbers) -> Any:
    """The sampler, with random numbers that are the same on all workers where it has no generator of its own."""
    if not type(sampler).__module__.startswith("torch."):
        return SameNumbers(sampler, numbers)
    if isinstance(sampler, BatchSampler):
        sampler = copy.copy(sampler)
        sampler.sampler = in_one_order(sampler.sampler, numbers)
    elif getattr(sampler, "generator", sampler) is None:
        sampler = copy.copy(sampler)
        sampler.generator = numbers.generator()
    return sampler


class SameNumbers(Sampler[Any]):
    """A program's own sampler, which draws the same numbers on all workers from Python's random, numpy's and torch's."""

    def __init__(self, sampler: Any, numbers: Numbers) -> None:
        self.sampler = sampler
        numbers.seeded.append(self.reseed)
        self.reseed(numbers.seed)

    def reseed(self, seed: int) -> None:
        self.states = random_numbers.seeded(seed)

    def __iter__(self) -> Iterator[Any]:
        with self.shared():
            given = iter(self.sampler)
        while True:
            with self.shared():
                try:
                    one = next(given)
                except StopIteration:
                    return
            yield one

    def __len__(self) -> int:
        return len(self.sampler)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        own = random_numbers.states()
        random_numbers.restore(self.states)
        try:
            yield
        finally:
            self.states = random_numbers.states()
            random_numbers.restore(own)
