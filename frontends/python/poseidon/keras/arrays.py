# SPDX-License-Identifier: Apache-2.0
"""Arrays given to fit, whatever the backend. What they are packed into, split into and weighted by is Keras' own work, so that a
step is given what it is given without Poseidon; here is which samples are whose."""
from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.array_slicing import can_slice_array

from ..errors import PoseidonError
from . import leaves


def are_arrays(*given: Any) -> bool:
    """Whether they are what fit cuts into batches itself: arrays, or structures of them."""
    flat = [leaf for leaf in keras.tree.flatten(given) if leaf is not None]
    return bool(flat) and all(can_slice_array(leaf) for leaf in flat)


def packed(x: Any, y: Any = None, sample_weight: Any = None, class_weight: dict[int, float] | None = None) -> Any:
    """The structure of arrays that Keras makes batches of: `x`, `(x, y)` or `(x, y, sample_weight)`. Raises what Keras raises where
    they do not go together."""
    return ArrayDataAdapter(x, y, sample_weight=sample_weight, class_weight=class_weight, batch_size=1)._inputs


def length_of(arrays: Any) -> int:
    return int(next(leaf.shape[0] for leaf in keras.tree.flatten(arrays) if leaf is not None))


def order_of(samples: int, seed: int | None, epoch: int, at_once: int | None = None) -> np.ndarray[Any, Any]:
    """The numbers of the samples in the order of an epoch: as they are, or with a seed another order in each, the same on all
    workers. Of every `at_once` the numbers stay together."""
    numbers = np.arange(samples)
    if seed is None:
        return numbers
    source = np.random.default_rng([seed, epoch])
    if at_once is None:
        return source.permutation(samples)
    return np.concatenate([source.permutation(numbers[begin:begin + at_once]) for begin in range(0, samples, at_once)])


def too_few(samples: int, workers: int) -> PoseidonError:
    return PoseidonError(f"{samples} samples were given, expected at least one for each of {workers} workers",
                         "INVALID_ARGUMENT")


SAMPLES_COMPARED = 64


def described(arrays: Any) -> list[str]:
    """Each array in a line that is the same on all workers where some of its samples are."""
    lines = []
    for number, leaf in enumerate(leaf for leaf in keras.tree.flatten(arrays) if leaf is not None):
        samples = leaf.shape[0]
        digest = hashlib.blake2b(digest_size=4)
        sliceable = leaves.sliceable(leaf)
        for at in sorted({samples * part // SAMPLES_COMPARED for part in range(SAMPLES_COMPARED)}) if samples else ():
            digest.update(leaves.content(leaves.cut(sliceable, at, at + 1)))
        shape = "x".join("?" if size is None else str(size) for size in leaf.shape)
        lines.append(f"an array {number} of {shape} with the samples {digest.hexdigest()}")
    return lines
