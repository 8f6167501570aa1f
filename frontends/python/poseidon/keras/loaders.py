# SPDX-License-Identifier: Apache-2.0
"""Which samples of torch's loaders and of arrays given to fit are whose: P workers with batches of b see, step for step, what
one with batches of P * b would."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_slicing import convert_to_sliceable
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

from ..errors import PoseidonError, kind_of
from ..shares import part_of
from ..torch import data
from ..torch.places import length_of
from . import arrays as of_fit
from . import batches, leaves


def check_can_shard(given: Any) -> None:
    if isinstance(given, DataLoader):
        data.check_can_shard(given)
    elif not isinstance(given, keras.utils.PyDataset) and not batches.is_generator(given):
        raise PoseidonError(f"shard was given {kind_of(given)}, expected a "
                            "torch.utils.data.DataLoader, a keras.utils.PyDataset or a generator", "INVALID_ARGUMENT")


def is_divided(given: Any) -> bool:
    """Whether each worker has its own batches of a loader: by shard, by torch's way, or of a data set that only the worker's
    own code can divide."""
    samplers = data.Turns, data.BatchTurns, DistributedSampler
    return isinstance(given, DataLoader) and (isinstance(given.dataset, IterableDataset) or
                                              isinstance(given.sampler, samplers) or
                                              isinstance(given.batch_sampler, samplers))


def check_even(given: Any) -> None:
    """Refuses a loader without a length: one worker may end before the others, who would wait for it."""
    if isinstance(given, DataLoader) and length_of(given) is None:
        raise PoseidonError("the number of batches of the loader is not known on every worker before it ends, expected a data set with "
                            "__len__, or fit(steps_per_epoch=...)", "INVALID_ARGUMENT")


class Order(Sampler[Any]):
    """The numbers of a worker's samples, batch by batch; `order` gives those of the epoch that begins, the same on all workers."""

    def __init__(self, samples: int, at_once: int, rank: int, workers: int, order: Callable[[], Any]) -> None:
        self.samples, self.at_once, self.rank, self.workers, self.order = samples, at_once, rank, workers, order

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        order = self.order()
        for begin in range(0, len(self) * self.at_once, self.at_once):
            first, end = part_of(min(self.at_once, self.samples - begin), self.rank, self.workers)
            yield order[begin + first:begin + end]

    def __len__(self) -> int:
        whole, rest = divmod(self.samples, self.at_once)
        return whole + (rest >= self.workers)


class Rows(Dataset[Any]):
    """Arrays by the numbers of their samples, as Keras takes them out of each kind of array."""

    def __init__(self, arrays: Any) -> None:
        self.arrays, self.samples = convert_to_sliceable(arrays, target_backend="torch"), of_fit.length_of(arrays)

    def __getitem__(self, chosen: np.ndarray[Any, Any]) -> Any:
        return keras.tree.map_structure(lambda leaf: None if leaf is None else keras.ops.convert_to_tensor(
            leaf.convert_to_torch_compatible(leaf[chosen])), self.arrays)

    def __len__(self) -> int:
        return self.samples


def batches_of(arrays: Any, at_once: int, rank: int, workers: int, order: Callable[[], Any]) -> DataLoader[Any]:
    """This worker's batches of what arrays.packed gives. Every `at_once` samples are one step of all workers, the last ones too, and
    are divided evenly; less than one for each worker are left out."""
    rows = Rows(arrays)
    if min(len(rows), at_once) < workers:
        raise of_fit.too_few(min(len(rows), at_once), workers)
    return DataLoader(rows, batch_size=None, sampler=Order(len(rows), at_once, rank, workers, order), collate_fn=as_it_is)


def as_it_is(batch: Any) -> Any:
    return batch


def samples_of(arrays: Any, rank: int, workers: int) -> Any:
    """This worker's: shares differ by one at most. All of them where there are too few for all."""
    samples = of_fit.length_of(arrays)
    first, end = part_of(samples, rank, workers) if samples >= workers else (0, samples)
    return keras.tree.map_structure(lambda leaf: leaves.cut(leaf, first, end), arrays)
