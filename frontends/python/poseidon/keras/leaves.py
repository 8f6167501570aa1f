# SPDX-License-Identifier: Apache-2.0
"""The parts of a batch, whatever Keras takes as one: arrays, tensors of any framework, ragged and sparse ones, data frames, None,
and scalars, which go with the batch."""
from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.data_adapter_utils import (is_scipy_sparse, is_tensorflow_ragged, is_tensorflow_sparse,
                                                                 is_tensorflow_tensor)


def of(batch: Any) -> list[Any]:
    return [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]


def has_samples(leaf: Any) -> bool:
    return len(getattr(leaf, "shape", ())) > 0 or isinstance(leaf, list)


def samples_in(batch: Any) -> int:
    """1 where no part of `batch` tells samples apart."""
    leaf = next(filter(has_samples, of(batch)), None)
    if leaf is None:
        return 1
    return int(leaf.shape[0] if hasattr(leaf, "shape") else len(leaf))


def sliceable(leaf: Any) -> Any:
    """The same samples in a form that cut() need not make each time."""
    return leaf.tocsr() if is_scipy_sparse(leaf) else leaf


def cut(leaf: Any, first: int, end: int) -> Any:
    """Its samples `first` to `end`."""
    if leaf is None or not has_samples(leaf):
        return leaf
    if is_tensorflow_sparse(leaf):
        from ..tensorflow import data
        return data.cut(leaf, first, end)
    return sliceable(leaf)[first:end]


def joined(parts: Sequence[Any]) -> Any:
    """The parts of several batches, one behind the other; of those that have no samples, the first."""
    first = parts[0]
    if len(parts) == 1 or first is None or not has_samples(first):
        return first
    if is_scipy_sparse(first):
        return importlib.import_module("scipy.sparse").vstack(parts)
    if is_tensorflow_tensor(first):
        import tensorflow as tf
        return tf.sparse.concat(0, parts) if is_tensorflow_sparse(first) else tf.concat(parts, 0)
    if all(hasattr(part, "iloc") for part in parts):
        return importlib.import_module("pandas").concat(parts)
    return np.concatenate(parts) if all(isinstance(part, np.ndarray) for part in parts) else keras.ops.concatenate(parts)


def content(leaf: Any) -> bytes:
    """Bytes that are equal where its numbers are."""
    if is_tensorflow_sparse(leaf):
        return bytes(np.asarray(leaf.indices).tobytes() + np.asarray(leaf.values).tobytes())
    if is_tensorflow_ragged(leaf):
        return bytes(np.asarray(leaf.flat_values).tobytes() + np.asarray(leaf.row_lengths()).tobytes())
    if is_scipy_sparse(leaf):
        return bytes(leaf.indices.tobytes() + leaf.data.tobytes())
    numbers = np.asarray(keras.ops.convert_to_numpy(leaf) if keras.ops.is_tensor(leaf) else leaf)
    return repr(numbers.tolist()).encode() if numbers.dtype == object else numbers.tobytes()
