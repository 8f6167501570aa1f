# SPDX-License-Identifier: Apache-2.0
"""Which samples of a data set are whose."""
from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import PoseidonError
from ..shares import part_of


def shard(dataset: tf.data.Dataset, rank: int, workers: int) -> tf.data.Dataset:
    """See poseidon.tensorflow.shard."""
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(workers, rank)
    if size == tf.data.UNKNOWN_CARDINALITY:
        raise PoseidonError("the number of batches of the data set is not known, expected it to be said with "
                            "dataset.apply(tf.data.experimental.assert_cardinality(n))", "INVALID_ARGUMENT")
    left_over = size % workers
    whole = dataset.take(size - left_over).shard(workers, rank)
    if left_over == 0:
        return whole

    def samples_of(batch: Any) -> Any:
        return tf.shape(tf.nest.flatten(batch)[0])[0]

    def share(batch: Any) -> Any:
        first, end = part_of(samples_of(batch), rank, workers)
        return tf.nest.map_structure(lambda tensor: tensor[first:end], batch)
    # All samples of the last batches, which are too few for every worker to have one, as one batch that is divided.
    rest = dataset.skip(size - left_over).unbatch().batch(np.iinfo(np.int32).max)
    return whole.concatenate(rest.filter(lambda *batch: samples_of(batch) >= workers).map(
        lambda *batch: share(batch if len(batch) > 1 else batch[0])))
