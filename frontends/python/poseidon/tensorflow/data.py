# SPDX-License-Identifier: Apache-2.0
"""Which samples of a data set are whose. A batch is any structure of tensors, of ragged and sparse ones, None and scalars too."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import PoseidonError
from ..shares import part_of

# Data sets of one input that have as many elements as it has, in the same order.
KEEP_COUNT = frozenset(("_CacheDataset", "CacheDataset", "_MapDataset", "_OptionsDataset", "_ParallelMapDataset", "_PrefetchDataset"))


# ---- batches

def leaves_of(batch: Any) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(batch) if leaf is not None]


def tensors_of(batch: Any) -> list[tf.Tensor]:
    """Those of ragged and sparse ones too."""
    return leaves_of(tf.nest.flatten(batch, expand_composites=True))


def has_samples(leaf: Any) -> bool:
    """Whether it has a number for each sample: a scalar goes with the batch."""
    return bool(tf.TensorShape(getattr(leaf, "shape", ())).rank != 0)


def samples_in(batch: Any) -> tf.Tensor | int:
    """As int64; 1 where no part of `batch` tells samples apart."""
    leaf = next(filter(has_samples, leaves_of(batch)), None)
    if leaf is None:
        return 1
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows(tf.int64)
    if isinstance(leaf, tf.SparseTensor):
        return tf.cast(leaf.dense_shape[0], tf.int64)
    return tf.shape(leaf, tf.int64)[0]


def cut(batch: Any, first: Any, end: Any) -> Any:
    """Samples `first` to `end`."""
    def cut_one(leaf: Any) -> Any:
        if leaf is None or not has_samples(leaf):
            return leaf
        if isinstance(leaf, tf.SparseTensor):
            others = tf.shape(leaf.dense_shape)[0] - 1
            begin = tf.concat([[tf.cast(first, tf.int64)], tf.zeros([others], tf.int64)], 0)
            return tf.sparse.slice(leaf, begin, tf.concat([[tf.cast(end - first, tf.int64)], leaf.dense_shape[1:]], 0))
        return leaf[first:end]
    return tf.nest.map_structure(cut_one, batch)


# ---- data sets

def shard(dataset: tf.data.Dataset, rank: int, workers: int) -> tf.data.Dataset:
    """See poseidon.tensorflow.shard. One pass over `dataset` gives one of what is returned: a shuffle has one order in it, and
    nothing is read twice."""
    size = int(dataset.cardinality())
    if drops_remainder(dataset) and workers > 1 and size != tf.data.INFINITE_CARDINALITY:
        made = whole_steps(dataset, rank, workers, size)
    elif size == tf.data.INFINITE_CARDINALITY or (size >= 0 and size % workers == 0):
        made = dataset.shard(workers, rank)
    else:
        made = by_steps(dataset, rank, workers, size)
    made.poseidon_divided = True
    return made


def drops_remainder(dataset: tf.data.Dataset) -> bool:
    """Whether its batches were made with drop_remainder=True; False too where TensorFlow does not show it."""
    made = next((one._drop_remainder for one in keeping_count(dataset) if hasattr(one, "_drop_remainder")), None)
    return made is not None and bool(tf.get_static_value(made))


def whole_steps(dataset: tf.data.Dataset, rank: int, workers: int, size: int) -> tf.data.Dataset:
    """Of every `workers` batches that of this rank. Those that are left over are left out, as one process with batches of all workers
    together leaves them out where it drops the remainder."""
    if size >= 0:
        return dataset.take(size // workers * workers).shard(workers, rank)
    return without_none(dataset, lambda plain: plain.window(workers, drop_remainder=True).flat_map(
        lambda *batches: of_window(batches).skip(rank).take(1)))


def of_window(batches: Any) -> tf.data.Dataset:
    """The batches of a window, which has a data set for each part of them."""
    structure = batches if len(batches) > 1 else batches[0]
    return structure if isinstance(structure, tf.data.Dataset) else tf.data.Dataset.zip(structure)


def by_steps(dataset: tf.data.Dataset, rank: int, workers: int, size: int) -> tf.data.Dataset:
    """Of every `workers` batches that of this rank; the samples of those at the end, which are fewer, are one batch more that is
    divided."""
    one_left_over = workers == 2 or size % workers == 1

    def of_step(*batches: Any) -> tf.data.Dataset:
        step = of_window(batches)
        whole = step.cardinality() == workers
        rest = step.take(tf.where(whole, tf.constant(0, tf.int64), workers))
        if not one_left_over:
            rest = rest.unbatch().batch(np.iinfo(np.int32).max)
        rest = rest.filter(lambda *batch: samples_in(batch) >= workers).map(
            lambda *batch: share(batch if len(batch) > 1 else batch[0]))
        return step.skip(rank).take(tf.where(whole, tf.constant(1, tf.int64), 0)).concatenate(rest)

    def share(batch: Any) -> Any:
        return cut(batch, *part_of(samples_in(batch), rank, workers))
    made = without_none(dataset, lambda plain: plain.window(workers).flat_map(of_step))
    steps = steps_of(dataset, size, workers)
    return made if steps is None else made.apply(tf.data.experimental.assert_cardinality(steps))


def without_none(dataset: tf.data.Dataset, change: Callable[[tf.data.Dataset], tf.data.Dataset]) -> tf.data.Dataset:
    """What `change` makes of batches, also where a part of them is None, of which TensorFlow has no windows."""
    spec = dataset.element_spec
    kept = [type(leaf).__name__ != "NoneTensorSpec" for leaf in tf.nest.flatten(spec)]
    if all(kept):
        return change(dataset)

    def with_none(*leaves: Any) -> Any:
        given = iter(leaves)
        return tf.nest.pack_sequence_as(spec, [next(given) if is_kept else None for is_kept in kept])
    return change(dataset.map(lambda *batch: tuple(leaves_of(batch)))).map(with_none)


def steps_of(dataset: tf.data.Dataset, size: int, workers: int) -> int | None:
    """How many there are in a pass over `size` batches; None where only the batches show whether those at the end are enough for
    a step."""
    batched = next((one for one in keeping_count(dataset) if hasattr(one, "_batch_size")), None)
    if size < 0 or batched is None:
        return None
    try:
        batch_size, samples = int(batched._batch_size), int(batched._input_dataset.cardinality())
    except (AttributeError, TypeError, ValueError):  # no names that TensorFlow promises
        return None
    left_over = min(samples, size * batch_size) - (size - size % workers) * batch_size
    return None if samples < 0 else size // workers + (left_over >= workers)


def keeping_count(dataset: tf.data.Dataset) -> Iterator[Any]:
    """`dataset` and what it is made of, as far as it has the same number of elements."""
    yield dataset
    while type(dataset).__name__ in KEEP_COUNT and hasattr(dataset, "_input_dataset"):
        dataset = dataset._input_dataset
        yield dataset


def check_even(dataset: tf.data.Dataset) -> None:
    """Refuses a data set of unknown length that the workers have not divided by shard: one of them may end before the others,
    who would wait for it."""
    if int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY and \
            not any(getattr(one, "poseidon_divided", False) for one in keeping_count(dataset)):
        raise PoseidonError("the number of batches of the data set is not known on every worker before it ends, expected one that "
                            "shard divides, after which it is not filtered, or dataset.apply(tf.data.experimental."
                            "assert_cardinality(n))", "INVALID_ARGUMENT")
