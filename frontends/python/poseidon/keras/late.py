# SPDX-License-Identifier: Apache-2.0
"""The update of a step at the top of the next one, so that the exchange overlaps with the next forward pass.

A step pushes its gradients and returns. The next one begins with the means and the optimizer's update of each variable; its
forward pass waits, layer by layer, for the update of the layer's own variables alone. Weights are one update old in between,
so whoever reads them outside of the steps has `flush` called before.

Three functions are traced: a step with nothing to update before it, a step with, and the update alone.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from .. import tensorflow as _tensorflow
from ..tensorflow.data import tensors_of
from ..tensorflow.exchange import form_of
from . import optimizers
from .callbacks import acts_on_batches


def why_not(model: Any, callbacks: Sequence[Any], own_step: bool) -> str | None:
    """Why updates of `model` cannot be late; None where they can. `own_step`: its class has another train_step than Keras'."""
    optimizer = model.optimizer
    if own_step:
        return "the model has a train_step of its own, which may use the weights after their update"
    if model.run_eagerly:
        return "the model runs eagerly"
    if not type(optimizer).__module__.startswith("keras.src.optimizers") or not isinstance(optimizer, BaseOptimizer):
        return f"{type(optimizer).__name__} is none of Keras' own optimizers, of which it is known that they update each variable " \
               "by itself"
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return "a loss scale depends on all gradients"
    if optimizer.global_clipnorm is not None:
        return "global_clipnorm depends on all gradients"
    if optimizer.gradient_accumulation_steps is not None:
        return "gradients are accumulated"
    if optimizer.use_ema and optimizer.ema_overwrite_frequency is not None:
        return "ema_overwrite_frequency changes weights between steps"
    for callback in callbacks:
        if acts_on_batches(callback):
            return f"{type(callback).__name__} acts on batches, where it could read weights or set the rate"
    return None


def has_own_step(model: Any) -> bool:
    return type(model).train_step is not TensorFlowTrainer.train_step


class LateUpdate:
    """One model's. The thread that trains."""

    def __init__(self, model: Any, make: Callable[[], Callable[[Any], Any]]) -> None:
        """`make` gives a new function of an iterator that runs the model's steps, traced when it is first called."""
        self.model = model
        self.pending = False  # a step has pushed what no update has taken
        self.takes = False  # the function that is called now, and may be traced, begins with an update
        self.begun: tf.Tensor | None = None
        self.steps = 0
        with self.single_steps():
            self.first = make()
        self.rest = make()
        self.update = tf.function(lambda: self.take(begins=False))

    @contextlib.contextmanager
    def single_steps(self) -> Iterator[None]:
        """Keras reads how many steps an execution has where it makes a function, or where it traces it."""
        execution, self.model.steps_per_execution = self.model.steps_per_execution, 1
        try:
            yield
        finally:
            self.model.steps_per_execution = execution

    def run(self, iterator: Any) -> Any:
        """The model's steps of one execution. Until the final plan is there each one ends with its update: a forward pass that
        waits for the network would count as slow."""
        at_once = self.model.steps_per_execution
        if self.pending and self.steps >= _tensorflow.joined().final_plan_step:
            self.takes = True
            try:
                logs = self.rest(iterator)
            finally:
                self.takes = False
            self.steps += at_once
            return logs
        logs = None
        for done in range(at_once):
            self.flush()
            try:
                with self.single_steps():
                    logs = self.first(iterator)
            except StopIteration:
                if done == 0:
                    raise
                break
            self.pending = True
            self.steps += 1
        return logs

    def flush(self) -> None:
        """Afterwards weights and optimizer are those after the last step."""
        if self.pending:
            self.pending = False
            self.update()

    # ---- while a step is traced

    def before_step(self, batch: Any) -> None:
        self.begun = None
        if self.takes:
            # Not without a batch: at the end of the data the step fails, and must have changed nothing.
            with tf.control_dependencies(tensors_of(batch)):
                self.take(begins=True)

    def push(self, optimizer: Any, variables: Sequence[Any], gradients: Sequence[Any], samples: tf.Tensor | int) -> None:
        """In place of optimizer.apply."""
        self.exchange = _tensorflow.exchange_of(variables, gradients)
        self.optimizer, self.variables = optimizer, list(variables)
        self.forms = list(map(form_of, gradients))
        pushed = self.exchange.push(gradients, samples, self.begun)
        self.numbers = list(pushed)
        self.exchange.keep(pushed)

    def take(self, begins: bool) -> None:
        """The update of the step that was pushed last; `begins` the next step, whose number is another then."""
        step = self.exchange.steps.read_value()
        if begins:
            self.begun = self.exchange.begin()
        means = self.exchange.means(dict.fromkeys(self.numbers, step), self.forms)
        with tf.name_scope("poseidon/update"):
            optimizers.update(self.optimizer, means, self.variables)
