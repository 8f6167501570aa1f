# SPDX-License-Identifier: Apache-2.0
"""Arrays given to fit, whatever the backend."""
from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_slicing import can_slice_array
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from ..errors import PoseidonError


def are_arrays(x: Any) -> bool:
    """Whether `x` is what fit cuts into batches itself: arrays, or a structure of them."""
    leaves = [leaf for leaf in keras.tree.flatten(x) if leaf is not None]
    return bool(leaves) and all(can_slice_array(leaf) for leaf in leaves)


def length_of(arrays: Any) -> int:
    lengths = {len(leaf) for leaf in keras.tree.flatten(arrays) if leaf is not None}
    if len(lengths) != 1:
        raise PoseidonError(f"arrays of {', '.join(map(str, sorted(lengths)))} samples were given, expected as many in all",
                            "INVALID_ARGUMENT")
    return lengths.pop()


def split_off(arrays: Any, share: float) -> tuple[Any, Any]:
    """The last `share` of the samples apart from the others, as fit's validation_split has it."""
    at = int(length_of(arrays) * (1 - share))
    return (keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[:at], arrays),
            keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[at:], arrays))


def with_class_weights(given: tuple[Any, Any, Any], weights: dict[int, float]) -> tuple[Any, Any, Any]:
    """(x, y, sample_weight) with the weights of each sample's class."""
    x, y, sample_weight = given
    if sample_weight is not None:
        raise PoseidonError("class_weight and sample_weight were both given to fit, expected one of them", "INVALID_ARGUMENT")
    return x, y, class_weight_to_sample_weights(y, weights)


def given(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of (x, y, sample_weight), of which those at the end may be None, those before."""
    while arrays[-1] is None:
        arrays = arrays[:-1]
    return arrays


def order_of(samples: int, seed: int | None, epoch: int) -> np.ndarray[Any, Any]:
    """The numbers of the samples in the order of an epoch: as they are, or with a seed another one in each, the same on all
    workers."""
    return np.arange(samples) if seed is None else np.random.default_rng([seed, epoch]).permutation(samples)


def too_few(samples: int, workers: int) -> PoseidonError:
    return PoseidonError(f"{samples} samples were given, expected at least one for each of {workers} workers",
                         "INVALID_ARGUMENT")
