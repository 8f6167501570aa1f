# SPDX-License-Identifier: Apache-2.0
"""Gradients become means where they enter the outermost optimizer: before loss scales are taken out, before clipping,
accumulation and decay. Every path to an optimizer comes through its `apply`, whoever calls it, so that is what is wrapped, once
per process, and a registry says whose variables are meant.
"""
from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from .. import tensorflow as _tensorflow
from ..errors import PoseidonError
from ..tensorflow.data import samples_in, tensors_of
from ..tensorflow.exchange import path_of
from .models import without_seeds

_models: list[weakref.ref[Any]] = []  # in the order of distribute(), the same on every worker
_watched: list[weakref.ref[Any]] = []  # what one worker trains
_depth = 0  # of applies: a loss scale's optimizer has another one inside
_reduced: set[int] = set()  # variables whose gradients the outermost apply has reduced
Late = Callable[[Any, list[Any], list[Any], "tf.Tensor | int"], None]  # of optimizer, variables, gradients and samples


class Step(NamedTuple):
    """A model's step while it is traced, or runs eagerly."""

    batch: list[tf.Tensor] = []
    samples: tf.Tensor | int = 0  # that its gradients are the mean of; 0: not known
    late: Late | None = None  # takes the gradients in place of the optimizer; None: they are reduced at once


_step = Step()  # outside of a model's own: nothing is known of it
_building = False  # a step is traced for the variables that it makes, and never runs


def is_registered(model: Any, models: list[weakref.ref[Any]] = _models) -> bool:
    return any(reference() is model for reference in models)


def register(model: Any) -> None:
    """From now on gradients of `model`'s variables are exchanged."""
    _models.append(weakref.ref(model))
    _wrap_optimizers()
    if not hasattr(TFOptimizer.assign_add, "poseidon"):
        for name in "assign_add", "assign_sub":
            setattr(TFOptimizer, name, _merging(getattr(TFOptimizer, name)))


def watch(model: Any) -> None:
    """One worker trains `model`, as always; an optimizer that several workers refuse is refused."""
    if not is_registered(model, _watched):
        _watched.append(weakref.ref(model))
        _wrap_optimizers()


def _wrap_optimizers() -> None:
    kind: Any  # Keras has no annotations
    for kind in (BaseOptimizer, LossScaleOptimizer):
        if not hasattr(kind.apply, "poseidon"):
            kind.apply = _wrapped(kind.apply)
    if not hasattr(TFOptimizer._backend_update_step, "poseidon"):
        guard = _guarded(TFOptimizer._backend_update_step)
        guard.poseidon = True  # type: ignore[attr-defined]
        TFOptimizer._backend_update_step = guard


def trace(step: Callable[[Any], Any], data: Any, late: Late | None = None) -> Any:
    """A model's step, whose gradients count by the samples of its batch: workers' batches may differ in size. With `late` they
    go there, and no optimizer is applied."""
    global _step
    _step = Step(tensors_of(data), samples_in(data), late)
    try:
        return step(data)
    finally:
        _step = Step()


def build(step: Callable[[Any], Any], spec: Any) -> None:
    """Makes the variables that a model's step makes of batches of this `spec`, in the order in which Keras would. The step is
    traced and does not run: nothing else changes."""
    global _building

    def run(batch: Any) -> None:
        step(without_optionals(batch))
    _building = True
    try:
        tf.function(run, autograph=False).get_concrete_function(spec)
    finally:
        _building = False


def without_optionals(batch: Any) -> Any:
    """A generator's None has the form of an empty Optional in tf.data; steps are given None."""
    return keras.tree.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, batch)


def update(optimizer: Any, means: list[Any], variables: list[Any]) -> None:
    """Applies what has been reduced."""
    with _inside(variables):
        optimizer.apply(means, variables)


@contextlib.contextmanager
def _inside(variables: list[Any]) -> Iterator[None]:
    """Within an apply, whose variables' gradients are means."""
    global _depth
    _reduced.update(map(id, variables))
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0:
            _reduced.clear()


def _owner(variable: Any, models: list[weakref.ref[Any]] = _models) -> Any | None:
    """Which of the `models` the `variable` belongs to, the first where there are several."""
    for reference in models:
        model = reference()
        if model is not None and any(variable is one for one in model.variables):
            return model
    return None


def _wrapped(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        grads = list(grads)
        if _building:
            with _inside(variables):
                return plain(self, grads, trainable_variables)
        model = next(filter(None, map(_owner, variables)), None) if _depth == 0 else None
        if model is None:
            with _inside([one for one in variables if _owner(one, _watched) is not None]):
                return plain(self, grads, trainable_variables)
        _tensorflow.start(without_seeds(model, [*model.variables, *variables]), in_step=True)
        # No step begins without a batch: at the end of the data a graph fails, on one worker sooner than on another.
        with tf.control_dependencies(_step.batch):
            if _step.late is not None:
                return _step.late(self, variables, grads, _step.samples)
            means = _tensorflow.exchange_of(variables, grads).reduce(grads, _step.samples)
        with _inside(variables):
            return plain(self, means, trainable_variables)
    apply.poseidon = True  # type: ignore[attr-defined]
    return apply


def _guarded(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def update(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        """Refuses gradients that have not been reduced, as those of an optimizer that overrides `apply`."""
        for variable in trainable_variables:
            if id(variable) not in _reduced and any(_owner(variable, models) is not None for models in (_models, _watched)):
                raise PoseidonError(f"the gradient of variable '{path_of(variable)}' comes to {type(self).__name__} on a way "
                                    "that is not exchanged, expected an optimizer that leaves `apply` as Keras has it",
                                    "UNIMPLEMENTED")
        return plain(self, grads, trainable_variables, learning_rate)
    return update


def _merging(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Keras' optimizers add rows so: what has been reduced ends with the same bits on all workers. Clips and moments have seen the
    rows unmerged, as in one process."""
    @functools.wraps(plain)
    def assign(self: Any, variable: Any, value: Any) -> Any:
        if _reduced and isinstance(value, tf.IndexedSlices):
            value = _tensorflow.merged(value)
        return plain(self, variable, value)
    assign.poseidon = True  # type: ignore[attr-defined]
    return assign
