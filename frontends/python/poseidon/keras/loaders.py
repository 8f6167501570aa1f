# SPDX-License-Identifier: Apache-2.0
"""Which samples of torch's loaders and of arrays given to fit are whose: P workers with batches of b see, step for step, what
one with batches of P * b would."""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

from ..errors import PoseidonError
from ..shares import part_of
from ..torch import data
from . import arrays as of_fit
from . import batches


def check_can_shard(given: Any) -> None:
    if isinstance(given, DataLoader):
        data.check_can_shard(given)
    elif not isinstance(given, keras.utils.PyDataset) and not batches.is_generator(given):
        raise PoseidonError(f"shard was given a {type(given).__module__}.{type(given).__qualname__}, expected a "
                            "torch.utils.data.DataLoader, a keras.utils.PyDataset or a generator", "INVALID_ARGUMENT")


def is_divided(given: Any) -> bool:
    """Whether each worker has its own batches of a loader: by shard, by torch's way, or of a data set that only the worker's
    own code can divide."""
    samplers = data.Turns, data.BatchTurns, DistributedSampler
    return isinstance(given, DataLoader) and (isinstance(given.dataset, IterableDataset) or
                                              isinstance(given.sampler, samplers) or
                                              isinstance(given.batch_sampler, samplers))


class Order(Sampler[Any]):
    """The numbers of a worker's samples, batch by batch. With a seed every epoch has another order, the same on all workers."""

    def __init__(self, samples: int, batch_size: int, rank: int, workers: int, seed: int | None) -> None:
        self.samples, self.at_once, self.rank, self.workers, self.seed = samples, batch_size * workers, rank, workers, seed
        self.epochs = itertools.count()

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        order = of_fit.order_of(self.samples, self.seed, next(self.epochs))
        for begin in range(0, len(self) * self.at_once, self.at_once):
            first, end = part_of(min(self.at_once, self.samples - begin), self.rank, self.workers)
            yield order[begin + first:begin + end]

    def __len__(self) -> int:
        whole, rest = divmod(self.samples, self.at_once)
        return whole + (rest >= self.workers)


class Rows(Dataset[Any]):
    """Arrays by the numbers of their samples, in the type that fit gives arrays."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self.arrays = keras.tree.map_structure(lambda leaf: None if leaf is None else tensor_of(leaf), arrays)

    def __getitem__(self, chosen: np.ndarray[Any, Any]) -> Any:
        return keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[chosen], self.arrays)

    def __len__(self) -> int:
        return of_fit.length_of(self.arrays)


def tensor_of(array: Any) -> Any:
    tensor = keras.ops.convert_to_tensor(array if torch.is_tensor(array) else np.asarray(array))
    return keras.ops.cast(tensor, keras.config.floatx()) if tensor.is_floating_point() else tensor


def batches_of(arrays: tuple[Any, ...], batch_size: int, rank: int, workers: int, seed: int | None) -> DataLoader[Any]:
    """This worker's batches of (x, y, sample_weight), of which those at the end may be None. Every `batch_size` * `workers`
    samples are one step, the last ones too, and are divided evenly; less than one for each worker are left out."""
    rows = Rows(of_fit.given(arrays))
    if len(rows) < workers:
        raise of_fit.too_few(len(rows), workers)
    return DataLoader(rows, batch_size=None, sampler=Order(len(rows), batch_size, rank, workers, seed))


def samples_of(arrays: tuple[Any, ...], rank: int, workers: int) -> tuple[Any, ...]:
    """This worker's of (x, y, sample_weight): shares differ by one at most. All of them where there are too few for all."""
    samples = of_fit.length_of(arrays)
    first, end = part_of(samples, rank, workers) if samples >= workers else (0, samples)
    return tuple(keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[first:end], arrays))
