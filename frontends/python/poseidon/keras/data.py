# SPDX-License-Identifier: Apache-2.0
"""Arrays given to fit, as each worker's batches of them: P workers with batches of b see, step for step, what one with batches
of P * b would."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_slicing import (TensorflowSparseWrapper, convert_to_sliceable,
                                                            slice_tensorflow_sparse_wrapper)

from ..shares import part_of
from . import arrays as of_fit


AHEAD = 2  # batches that are made before they are asked for


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Without the thread that tunes buffers. It sleeps longer and longer, up to a minute, and whoever drops an iterator, as fit
    does in every epoch, waits for it: TensorFlow wakes it before it says that it shall end, so that it may sleep on. Meanwhile
    all other workers would wait too."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def batches_of(arrays: Any, at_once: int, rank: int, workers: int, order: Callable[[], Any], whole: bool) -> tf.data.Dataset:
    """This worker's batches of what arrays.packed gives.

    Every `at_once` samples are one step of all workers, the last ones too, and are divided evenly. `order`: the numbers of the
    samples in the epoch that begins, the same on all workers. Where the last step has less samples than there are workers, it is left out
    (`whole`: training, where a worker without a sample would keep the others waiting), or some workers have one step less."""
    samples = of_fit.length_of(arrays)
    steps, rest = divmod(samples, at_once)
    mine = part_of(rest, rank, workers)
    if rest >= workers or (not whole and mine[0] < mine[1]):
        steps += 1
    if steps == 0 or at_once < workers:
        raise of_fit.too_few(min(samples, at_once), workers)
    # As Keras has them: static sizes where all batches are of one.
    first, end = part_of(at_once, rank, workers)
    size = end - first if at_once * steps <= samples else None

    def batch(number: tuple[tf.Tensor, tf.Tensor], inputs: Any) -> Any:
        order, step = number
        begin = step * at_once
        first, end = part_of(tf.minimum(samples - begin, at_once), rank, workers)
        return chosen(inputs, tf.ensure_shape(order[begin + first:begin + end], [size]))
    # TensorFlow's own shuffle depends on the global seed, which may differ between workers.
    epoch = tf.data.Dataset.range(1).map(lambda _: tf.ensure_shape(
        tf.numpy_function(order, [], tf.int64), [samples]))
    numbers = epoch.flat_map(lambda order: tf.data.Dataset.range(steps).map(lambda step: (order, step)))
    inputs = tf.data.Dataset.from_tensors(
        keras.tree.lists_to_tuples(convert_to_sliceable(arrays, target_backend="tensorflow"))).repeat()
    made = tf.data.Dataset.zip((numbers, inputs)).map(batch)
    return untuned(made.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(AHEAD))


def chosen(inputs: Any, numbers: tf.Tensor) -> Any:
    """The samples of these numbers, as Keras takes them out of each kind of array."""
    def choose(leaf: Any) -> Any:
        if isinstance(leaf, TensorflowSparseWrapper):
            return slice_tensorflow_sparse_wrapper(leaf, numbers)
        if isinstance(leaf, (list, tuple, dict)):
            return None  # go on within
        return tf.gather(leaf, numbers) if tf.is_tensor(leaf) else leaf
    return keras.tree.traverse(choose, inputs)
