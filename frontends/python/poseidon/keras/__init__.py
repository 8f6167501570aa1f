# SPDX-License-Identifier: Apache-2.0
"""Poseidon under Keras 3 on TensorFlow.

  import poseidon.keras as poseidon
  model = poseidon.distribute(model)               # before or after compile(); one worker trains as always
  model.fit(poseidon.shard(dataset), epochs=5)

Gradients become means over all workers where they enter the outermost optimizer: before loss scales are taken out, before
clipping, accumulation and decay. Every path to an optimizer comes through its `apply`, whoever calls it, so that is what is
wrapped, once per process, and a registry says whose variables are meant.
"""
from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from .. import tensorflow as _tensorflow
from ..errors import PoseidonError
from ..tensorflow import init, rank, shutdown, workers
from ..tensorflow.exchange import path_of

__all__ = ["PoseidonError", "distribute", "init", "rank", "shard", "shutdown", "workers"]

_models: list[weakref.ref[Any]] = []  # in the order of distribute(), the same on every worker
_depth = 0  # of applies: a loss scale's optimizer has another one inside
_reduced: set[int] = set()  # variables whose gradients the outermost apply has reduced


def distribute(model: Any) -> Any:
    """Lets `model` train with the models of all other workers, exactly as one model on all their batches; returns it. All
    workers start from rank 0's variables. Keras' backend has to be TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        raise PoseidonError(f"Keras' backend is {keras.backend.backend()}, expected tensorflow (poseidon.torch serves "
                            "models on torch)", "UNIMPLEMENTED")
    if tf.distribute.has_strategy():
        raise PoseidonError("the model is made in a scope of tf.distribute, expected none: one of them exchanges "
                            "gradients, not both", "INVALID_ARGUMENT")
    init()
    if workers() > 1:
        _refuse_xla(model)
        _models.append(weakref.ref(model))
        _wrap_optimizers()
        _wrap_training(model)
    return model


def shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """This worker's part of a data set of batches, whose order is the same on all workers: of every `workers()` batches that
    of its rank. So workers with batches of b see what one with batches of workers() * b would. What is left over at the end
    is left out: a worker without a batch would keep the others waiting."""
    init()
    if workers() == 1:
        return dataset
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(workers(), rank())
    if size == tf.data.UNKNOWN_CARDINALITY:
        raise PoseidonError("the number of batches of the data set is not known, expected it to be said with "
                            "dataset.apply(tf.data.experimental.assert_cardinality(n))", "INVALID_ARGUMENT")
    if size < workers():
        raise PoseidonError(f"the data set has {size} batches, expected at least one for each of {workers()} workers",
                            "INVALID_ARGUMENT")
    return dataset.take(size - size % workers()).shard(workers(), rank())


def _refuse_xla(model: Any) -> None:
    if getattr(model, "jit_compile", False) is True:
        raise PoseidonError("the model is compiled with jit_compile=True, expected False: XLA does not know the ops that "
                            "exchange gradients", "UNIMPLEMENTED")


def _owner(variable: Any) -> Any | None:
    """The distributed model that `variable` belongs to, the first where there are several."""
    for reference in _models:
        model = reference()
        if model is not None and any(variable is one for one in model.variables):
            return model
    return None


def _without_seeds(variables: list[Any]) -> list[Any]:
    """Random seeds stay each worker's own."""
    return [variable for variable in variables if "seed" not in path_of(variable)]


def _wrap_training(model: Any) -> None:
    """fit and train_on_batch build the model before they ask for the function that trains it, and an eager step would
    otherwise begin with each worker's own variables."""
    make, fit = model.make_train_function, model.fit

    def make_train_function(force: bool = False) -> Any:
        _refuse_xla(model)
        made = make(force)
        _tensorflow.start(_without_seeds(model.variables))
        return made

    @functools.wraps(fit)
    def checked_fit(*arguments: Any, **words: Any) -> Any:
        for callback in inspect.signature(fit).bind(*arguments, **words).arguments.get("callbacks") or []:
            if isinstance(callback, (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau)):
                raise PoseidonError(f"{type(callback).__name__} decides by each worker's own metrics, so that workers would "
                                    "part, expected none", "UNIMPLEMENTED")
        return fit(*arguments, **words)
    model.make_train_function, model.fit = make_train_function, checked_fit


def _wrapped(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        global _depth
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        grads = list(grads)
        model = next(filter(None, map(_owner, variables)), None) if _depth == 0 else None
        if model is not None:
            _tensorflow.start(_without_seeds([*model.variables, *variables]), in_step=True)
            grads = _tensorflow.exchange_of(variables, grads).reduce(grads)
            _reduced.update(map(id, variables))
        _depth += 1
        try:
            return plain(self, grads, trainable_variables)
        finally:
            _depth -= 1
            if _depth == 0:
                _reduced.clear()
    apply.poseidon = True  # type: ignore[attr-defined]
    return apply


def _guarded(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def update(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        """No gradient reaches an update without having been reduced: an optimizer that overrides `apply` would."""
        for variable in trainable_variables:
            if id(variable) not in _reduced and _owner(variable) is not None:
                raise PoseidonError(f"the gradient of variable '{path_of(variable)}' comes to {type(self).__name__} on a way "
                                    "that is not exchanged, expected an optimizer that leaves `apply` as Keras has it",
                                    "UNIMPLEMENTED")
        return plain(self, grads, trainable_variables, learning_rate)
    return update


def _wrap_optimizers() -> None:
    kind: Any  # Keras has no annotations
    for kind in (BaseOptimizer, LossScaleOptimizer):
        if not hasattr(kind.apply, "poseidon"):
            kind.apply = _wrapped(kind.apply)
    if not hasattr(TFOptimizer._backend_update_step, "poseidon"):
        guard = _guarded(TFOptimizer._backend_update_step)
        guard.poseidon = True  # type: ignore[attr-defined]
        TFOptimizer._backend_update_step = guard
