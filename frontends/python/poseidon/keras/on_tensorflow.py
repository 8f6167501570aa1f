# SPDX-License-Identifier: Apache-2.0
"""poseidon.keras where Keras' backend is TensorFlow."""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import profiling
from .. import tensorflow as _tensorflow
from ..errors import PoseidonError, kind_of
from ..session import Session
from ..tensorflow import busy, init, joined, rank, shutdown, trace, workers
from . import alone, arrays, batches, data, optimizers, training, updates
from .late import LateUpdate, has_own_step, why_not
from .models import check_is_model, like, refuse_compiled, without_seeds
from .profiling_on_tensorflow import Measurement

__all__ = ["busy", "check", "distribute", "init", "plan", "rank", "report", "shard", "shutdown", "trace", "workers"]


def distribute(model: Any) -> Any:
    """Lets `model` train with the models of all other workers, exactly as one model on all their batches; returns it. All
    workers start from rank 0's variables."""
    check_is_model(model)
    if tf.distribute.has_strategy() or getattr(model, "_distribute_strategy", None) is not None:
        raise PoseidonError("the model is made in a scope of tf.distribute, expected none: one of them exchanges "
                            "gradients, not both", "INVALID_ARGUMENT")
    init()
    if workers() == 1:
        alone.watch(model, refuse_xla, measurement)
        optimizers.watch(model)
    elif not optimizers.is_registered(model):
        without_xla(model)
        optimizers.register(model)
        Training(model)
    return model


def shard(dataset: Any) -> Any:
    """This worker's part of a tf.data.Dataset, a PyDataset or a generator of batches, whose order is the same on all workers:
    of every `workers()` batches that of its rank. So workers with batches of b see what one with batches of workers() * b would.
    The samples of the batches that are left over at the end are divided evenly. Fewer samples than workers are left out: a worker
    without any would keep the others waiting. A tf.data.Dataset that is shuffled without a seed, or with seeds that differ between
    workers, is refused. All workers call it. Joins the job where init() has not been called."""
    is_dataset = isinstance(dataset, tf.data.Dataset)
    if not is_dataset and not isinstance(dataset, keras.utils.PyDataset) and not batches.is_generator(dataset):
        raise PoseidonError(f"shard was given {kind_of(dataset)}, expected a "
                            "tf.data.Dataset, a keras.utils.PyDataset or a generator", "INVALID_ARGUMENT")
    init()
    if is_dataset or workers() == 1:
        return _tensorflow.shard(dataset) if is_dataset else dataset
    return batches.shard(dataset, rank(), workers())


def check(model: Any) -> None:
    """Raises PoseidonError where `model` or its optimizer is not the same on all workers, bit for bit. All call it. fit does so
    after its first step and after every epoch."""
    if workers() > 1:
        TensorFlow().check(model)


def plan(model: Any) -> dict[str, tuple[str, str]]:
    """How the gradients of `model` go, by the name of each layer's first variable: the scheme (kv, sfb, ...), and the reason in words. Empty
    before the first step."""
    own = {id(variable) for variable in model.variables}
    return {name: how for exchange in _tensorflow.exchanges() if any(id(variable) in own for variable in exchange.variables)
            for name, how in exchange.plan().items()}


def report() -> str:
    """What Poseidon did, as a table to print: how each layer of the models goes and why, the bytes that it moves per step and the
    time from its push to its mean, planned and measured on this worker; totals beside dense gradients; how much of the communication
    was hidden. On one worker nothing is exchanged, and the text says so."""
    return _tensorflow.report()


def measurement(model: Any, steps: int, ended: Callable[[], None] | None = None) -> profiling.Measurement:
    """Of so many steps; `ended` is called after each, or what the measurement has for it."""
    return Measurement(model, steps, without_xla, ended)


WHY_NO_XLA = "XLA does not know the ops that exchange gradients"


def has_cpus_only() -> bool:
    """Elsewhere Keras' jit_compile="auto" may be what a model is compiled with."""
    return all(device.device_type == "CPU" for device in tf.config.list_physical_devices())


def refuse_xla(model: Any) -> None:
    if has_cpus_only():
        refuse_compiled(model, WHY_NO_XLA)


def without_xla(model: Any) -> None:
    refuse_xla(model)
    if model.compiled and model.jit_compile:
        model.jit_compile = False
        if rank() == 0:
            print(f"poseidon: the model runs with jit_compile=False: {WHY_NO_XLA}", file=sys.stderr)


class TensorFlow(training.Backend):
    def session(self) -> Session:
        return _tensorflow.joined()

    def differing(self, variables: Sequence[Any]) -> list[str]:
        return _tensorflow.differing(variables)

    def broadcast(self, variables: Sequence[Any]) -> None:
        _tensorflow.broadcast(variables)


class Training(training.Training):
    """Updates are late where they can be: see late.py."""

    takes = "arrays, a PyDataset, a generator, or a tf.data.Dataset that poseidon.keras.shard or Dataset.shard divides"

    def __init__(self, model: Any) -> None:
        self.own_step = has_own_step(model)
        super().__init__(model, TensorFlow())
        self.plain["_maybe_symbolic_build"] = model._maybe_symbolic_build
        model._maybe_symbolic_build = self.build
        self.late: LateUpdate | None = None  # in a fit that allows it
        self.late_made: LateUpdate | None = None
        self.at_once_because: str | None = None  # why updates of this fit are not late
        self.said: set[str | None] = set()

    def make_train_function(self, force: bool = False) -> Any:
        """An eager step would otherwise begin with each worker's own variables."""
        without_xla(self.model)
        kept = self.model.train_function is not None and not force
        self.plain["make_train_function"](force)
        _tensorflow.start(without_seeds(self.model, self.model.variables))
        if not kept:
            self.late_made = None  # has functions of its own, of the model as it was
            self.at_once = self.model.train_function
            self.model.train_function = like(self.at_once, self.run)

    def new_function(self) -> Callable[[Any], Any]:
        """Another one than the model's, for traces of their own."""
        kept, self.model.train_function = self.model.train_function, None
        self.plain["make_train_function"](True)
        made, self.model.train_function = self.model.train_function, kept
        return made  # type: ignore[no-any-return]  # Keras has no annotations

    def run(self, iterator: Any) -> Any:
        """The model's train_function."""
        logs = self.late.run(iterator) if self.fitting and self.late is not None else self.at_once(iterator)
        self.compare_once()
        return logs

    def train_step(self, batch: Any) -> Any:
        """Is traced, or runs eagerly."""
        late = self.late if self.fitting else None
        if late is not None:
            late.before_step(batch)
        logs = optimizers.trace(self.plain["train_step"], batch, None if late is None else late.push)
        if not tf.executing_eagerly():
            self.kinds = updates.kinds_in(tf.compat.v1.get_default_graph(), counted_in(self.model))
        return logs

    def build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """In place of what Keras does before it makes a function: variables that a first step would make have to be there, since all
        workers begin with rank 0's."""
        self.plain["_maybe_symbolic_build"](iterator=iterator, data_batch=data_batch)
        if self.fitting and not self.evaluating and iterator is not None and is_unbuilt(self.model):
            try:
                optimizers.build(self.plain["train_step"], iterator._get_iterator().element_spec)
            except Exception:
                if not self.model.run_eagerly:  # a step that only runs eagerly cannot be traced
                    raise

    def flush(self) -> None:
        if self.late is not None:
            self.late.flush()

    def fit(self, *arguments: Any, **words: Any) -> Any:
        try:
            return super().fit(*arguments, **words)
        finally:
            self.late = None

    def plan_fit(self, asked: dict[str, Any]) -> None:
        """Keeps why the updates of this fit must not be late; None where they may be."""
        self.at_once_because = why_not(self.model, asked["callbacks"], self.own_step)
        if joined().waits_for_all:
            self.at_once_because = "the strategy has it so"

    def begin_steps(self) -> None:
        if self.at_once_because is None:
            self.late = self.late_made = self.late_made or LateUpdate(self.model, self.new_function)
        self.say_overlap()

    def say_overlap(self) -> None:
        """On rank 0, once for each reason: what of a step hides the exchange."""
        if rank() == 0 and self.at_once_because not in self.said:
            self.said.add(self.at_once_because)
            print("poseidon: the exchange overlaps with the backward pass" +
                  (" and the next forward pass" if self.at_once_because is None else f" alone: {self.at_once_because}"),
                  file=sys.stderr)

    def check_even(self, given: Any) -> None:
        _tensorflow.data.check_even(given)

    def training_batches(self, given: Any, at_once: int, order: Callable[[], Any]) -> tf.data.Dataset:
        return data.batches_of(given, at_once, rank(), workers(), order, whole=True)

    def validation_batches(self, given: Any, at_once: int) -> tf.data.Dataset:
        samples = arrays.length_of(given)
        return data.batches_of(given, at_once, rank(), workers(), lambda: np.arange(samples), whole=False)


def counted_in(model: Any) -> list[Any]:
    """The variables of metrics and layers that a step changes, but for those that an optimizer updates."""
    return [*(variable for metric in model.metrics for variable in metric.variables), *model.non_trainable_variables]


def is_unbuilt(model: Any) -> bool:
    """Whether layers that have no others in them, of which some may hold variables, are not built."""
    return any(not layer.built for layer in model._flatten_layers(include_self=False)
               if not layer._flatten_layers(include_self=False, recursive=False))
