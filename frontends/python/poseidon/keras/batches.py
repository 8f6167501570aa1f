# SPDX-License-Identifier: Apache-2.0
"""Whose turn a batch is, of PyDatasets and generators, whatever the backend: P workers with batches of b see, step for step,
what one with batches of P * b would."""
from __future__ import annotations

import types
import weakref
from collections.abc import Generator, Sequence
from typing import Any

import keras
import numpy as np

from .. import shuffles
from ..errors import PoseidonError
from ..shares import part_of, turns
from . import arrays as of_fit
from . import leaves
from .leaves import samples_in

_divided: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()  # generators made here


class Part(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no annotations
    """This worker's of a PyDataset's batches: of every `ranks` that of its rank. The samples of the batches that are left over
    at the end are one step and are divided evenly; fewer than one for each worker are left out. With a seed every pass has
    another order, the same on all workers, in which what is left over stays at the end.

    Thread: any; Keras asks for batches on several, or in processes that have a copy."""

    def __init__(self, whole: Any, rank: int, ranks: int, seed: int | None = None, endless: bool = False, of_fit: bool = False) -> None:
        """`endless`: one pass follows another, for epochs of another length than a pass. `of_fit`: begin_epoch says when one begins."""
        super().__init__(whole.workers, whole.use_multiprocessing, whole.max_queue_size)
        self.whole, self.rank, self.ranks, self.seed, self.endless = whole, rank, ranks, seed, endless
        self.epoch = 0  # by whose number batches are ordered: the one under way, or, where they are endless, the first one
        self.of_fit, self.has_begun = of_fit, False
        self.kept_order: tuple[tuple[int, int], np.ndarray[Any, Any]] | None = None
        self.kept_rest: tuple[int, bool] | None = None
        self.read_ahead: list[Any] = []  # what is left over, read to see how much it is, and used in the first epoch
        if whole.num_batches is not None and self.steps(whole.num_batches) == 0:
            raise PoseidonError(f"the data set has {whole.num_batches} batches, expected at least one sample for each of {ranks} "
                                "workers", "INVALID_ARGUMENT")

    def steps(self, batches: int) -> int:
        """Of a pass over so many."""
        return batches // self.ranks + self.divides_rest(batches)

    def divides_rest(self, batches: int) -> bool:
        """Whether what is left over has a sample for each worker, which only the batches themselves show."""
        if batches % self.ranks == 0:
            return False
        if self.kept_rest is None or self.kept_rest[0] != batches:
            rest = [self.whole[number] for number in range(batches - batches % self.ranks, batches)]
            self.kept_rest = batches, sum(map(samples_in, rest)) >= self.ranks
            self.read_ahead = rest if self.of_fit else []
        return self.kept_rest[1]

    @property
    def num_batches(self) -> int | None:
        batches = self.whole.num_batches
        return None if batches is None or self.endless else self.steps(batches)

    def order(self, batches: int, epoch: int) -> np.ndarray[Any, Any]:
        kept = self.kept_order
        if kept is None or kept[0] != (batches, epoch):
            even = batches - batches % self.ranks
            order = np.concatenate([of_fit.order_of(even, self.seed, epoch), np.arange(even, batches)])
            kept = self.kept_order = (batches, epoch), order
        return kept[1]

    def __getitem__(self, index: int) -> Any:
        batches = self.whole.num_batches
        if batches is None:
            return self.whole[index * self.ranks + self.rank]
        passes, step = divmod(index, self.steps(batches)) if self.endless else (0, index)
        of_step = self.order(batches, self.epoch + passes)[step * self.ranks:(step + 1) * self.ranks]
        if len(of_step) == self.ranks:
            return self.whole[int(of_step[self.rank])]
        rest = self.read_ahead or [self.whole[int(number)] for number in of_step]
        if self.has_begun:  # before, Keras looks at batches to see what they are
            self.read_ahead = []
        return share_of(rest, *part_of(sum(map(samples_in, rest)), self.rank, self.ranks))

    def begin_epoch(self, number: int) -> None:
        """Before Keras asks for its batches."""
        if self.has_begun:
            self.read_ahead = []  # which a process of Keras' has used, with a copy
        if not (self.has_begun and self.endless):
            self.epoch = number
        self.has_begun = True

    def on_epoch_begin(self) -> None:
        if hasattr(self.whole, "on_epoch_begin"):  # not in the oldest Keras
            self.whole.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.whole.on_epoch_end()


def divided(generator: Generator[Any, None, None], rank: int, workers: int) -> Generator[Any, None, None]:
    """A generator of this worker's batches; one that was made here stays as it is."""
    if generator in _divided:
        return generator
    made = turns(generator, rank, workers, samples_in, share_of)
    _divided.add(made)
    return made


def shard(given: Any, rank: int, workers: int) -> Any:
    """This worker's part of a PyDataset or a generator."""
    return divided(given, rank, workers) if is_generator(given) else Part(given, rank, workers)


def is_generator(given: Any) -> bool:
    return isinstance(given, types.GeneratorType)


def share_of(batches: Sequence[Any], first: int, end: int) -> Any:
    """Samples first to end of several batches."""
    return keras.tree.map_structure(lambda *parts: leaves.cut(leaves.joined(parts), first, end), *batches)


def is_sharded_dataset(given: Any) -> bool:
    """Whether `given` is a tf.data.Dataset that has been through Dataset.shard, or poseidon.tensorflow.shard. Where TensorFlow is
    not Keras' backend it need not be there."""
    return is_dataset(given) and any("_ShardDataset" in names_of(one) or getattr(one, "poseidon_divided", False)
                                     for one in shuffles.all_of(given))


def is_dataset(given: Any) -> bool:
    return "DatasetV2" in names_of(given)


def names_of(one: Any) -> set[str]:
    return {kind.__name__ for kind in type(one).__mro__}


def is_divided(given: Any) -> bool:
    """Whether each worker has its own batches of `given`, as far as that shows."""
    return isinstance(given, Part) or (is_generator(given) and given in _divided) or is_sharded_dataset(given)
