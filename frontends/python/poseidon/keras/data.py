# SPDX-License-Identifier: Apache-2.0
"""Arrays given to fit, as each worker's batches of them: P workers with batches of b see, step for step, what one with batches
of P * b would."""
from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..shares import part_of
from . import arrays as of_fit


def tensor_of(array: Any) -> tf.Tensor:
    """In the type that fit gives arrays."""
    tensor = tf.convert_to_tensor(array if isinstance(array, tf.Tensor) else np.asarray(array))
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor


AHEAD = 2  # batches that are made before they are asked for


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Without the thread that tunes buffers. It sleeps longer and longer, up to a minute, and whoever drops an iterator, as fit
    does in every epoch, waits for it: TensorFlow wakes it before it says that it shall end, so that it may sleep on. Meanwhile
    all other workers would wait too."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def batches_of(arrays: Any, batch_size: int, rank: int, workers: int, seed: int | None, whole: bool) -> tf.data.Dataset:
    """This worker's batches of (x, y, sample_weight), of which those at the end may be None.

    Every `batch_size` * `workers` samples are one step, the last ones too, and are divided evenly. With a seed every epoch has
    another order, the same on all workers. Where the last step has less samples than there are workers, it is left out
    (`whole`: training, where a worker without a sample would keep the others waiting), or some workers have one step less."""
    arrays = of_fit.given(arrays)
    samples, at_once = of_fit.length_of(arrays), batch_size * workers
    steps, rest = divmod(samples, at_once)
    mine = part_of(rest, rank, workers)
    if rest >= workers or (not whole and mine[0] < mine[1]):
        steps += 1
    if steps == 0:
        raise of_fit.too_few(samples, workers)
    tensors = keras.tree.map_structure(lambda leaf: None if leaf is None else tensor_of(leaf), arrays)
    epochs = itertools.count()

    def order() -> np.ndarray[Any, Any]:
        # TensorFlow's own shuffle depends on the global seed, which may differ between workers.
        return of_fit.order_of(samples, seed, next(epochs))

    def batch(order: tf.Tensor, step: tf.Tensor) -> Any:
        begin = step * at_once
        first, end = part_of(tf.minimum(samples - begin, at_once), rank, workers)
        chosen = order[begin + first:begin + end]
        return keras.tree.map_structure(lambda leaf: None if leaf is None else tf.gather(leaf, chosen), tensors)
    epoch = tf.data.Dataset.range(1).map(lambda _: tf.ensure_shape(tf.numpy_function(order, [], tf.int64), [samples]))
    made = epoch.flat_map(lambda order: tf.data.Dataset.range(steps).map(lambda step: batch(order, step)))
    return untuned(made.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(AHEAD))
