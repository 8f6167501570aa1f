# SPDX-License-Identifier: Apache-2.0
"""`fit` of a distributed model: what the workers do together besides the gradients.

Before the first step: the same weights, the same number of steps. At the end of an epoch, and of its validation: metrics are
those of all workers' samples, so that callbacks decide alike; moving statistics are averaged; weights are compared.
"""
from __future__ import annotations

import array
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from .. import tensorflow as _tensorflow
from ..errors import PoseidonError
from ..session import view_of
from ..tensorflow import rank, workers
from . import data
from .late import LateUpdate, has_own_step, why_not
from .optimizers import trace, without_seeds

# What they write, rank 0 writes for all.
WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


def refuse_xla(model: Any) -> None:
    if getattr(model, "jit_compile", False) is True:
        raise PoseidonError("the model is compiled with jit_compile=True, expected False: XLA does not know the ops that "
                            "exchange gradients", "UNIMPLEMENTED")


def state_of(model: Any) -> list[Any]:
    """What has to be the same on all workers whenever a step has ended."""
    optimizer = getattr(model, "optimizer", None)
    return without_seeds([*model.trainable_variables, *(optimizer.variables if optimizer is not None else [])])


def check(model: Any, expected: str = "") -> None:
    """Raises PoseidonError where the state of `model` is not the same on all workers; all call it."""
    parted = _tensorflow.differing(state_of(model))
    if parted:
        which = f"variable '{parted[0]}' is" if len(parted) == 1 else \
            f"variable '{parted[0]}' and {len(parted) - 1} more are"
        raise PoseidonError(f"{which} not the same on all workers{expected}", "FAILED_PRECONDITION")


def sum_over_workers(variables: list[Any], divide_by: int = 1) -> None:
    """Leaves the sum over all workers, divided, in numeric variables, the same bits everywhere."""
    for whole in False, True:
        chosen = [one for one in variables if keras.backend.is_int_dtype(one.dtype) == whole]
        numbers = np.concatenate([np.zeros(0), *(np.asarray(one, "float64").reshape(-1) for one in chosen)])
        numbers = np.ascontiguousarray(numbers.astype("int64" if whole else "float64"))
        if numbers.size:
            _tensorflow.joined().sum(view_of(numbers.data))
            at = 0
            for one in chosen:
                size = int(np.prod(one.shape, dtype=int))
                part = numbers[at:at + size].reshape(one.shape)
                one.assign(part if divide_by == 1 else part / divide_by)
                at += size


def of_rank_0(number: int) -> int:
    """Rank 0's, everywhere."""
    told = array.array("q", [number])
    _tensorflow.joined().broadcast(told)
    return told[0]


def like(plain: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the name, the signature and the text of `plain`."""
    @functools.wraps(plain)
    def named(*arguments: Any, **words: Any) -> Any:
        return call(*arguments, **words)
    return named


class Training:
    """Takes the place of some of a model's methods. A model that is made from its configuration has none of it."""

    def __init__(self, model: Any) -> None:
        if not hasattr(model, "_get_metrics_result_or_logs"):
            raise PoseidonError(f"Keras {keras.__version__} has another loop in fit than is known, expected one of 3.5 to 3.15",
                                "UNIMPLEMENTED")
        self.model = model
        self.fitting = self.evaluating = False
        self.compared = False  # the weights, after the first step
        self.late: LateUpdate | None = None  # in a fit that allows it
        self.late_made: LateUpdate | None = None
        self.at_once_because: str | None = None  # why updates of this fit are not late
        self.said: set[str | None] = set()
        self.own_step = has_own_step(model)
        self.plain = {name: getattr(model, name) for name in ("fit", "evaluate", "make_train_function",
                                                              "_get_metrics_result_or_logs")}
        self.plain_step = model.train_step
        model.train_step = like(model.train_step, self.step)
        model.fit = like(model.fit, self.fit)
        model.evaluate = like(model.evaluate, self.evaluate)
        model.make_train_function = self.make_train_function
        model._get_metrics_result_or_logs = self.metrics_of_all

    # ---- in place of the model's methods

    def make_train_function(self, force: bool = False) -> Any:
        """fit and train_on_batch build the model before they ask for the function that trains it, and an eager step would
        otherwise begin with each worker's own variables."""
        refuse_xla(self.model)
        kept = self.model.train_function is not None and not force
        self.plain["make_train_function"](force)
        _tensorflow.start(without_seeds(self.model.variables))
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
        if not self.compared:
            self.compared = True
            self.flush()
            self.compare("the first step")
        return logs

    def step(self, batch: Any) -> Any:
        """The model's train_step, which is traced or runs eagerly."""
        late = self.late if self.fitting else None
        if late is None:
            return trace(self.plain_step, batch)
        late.before_step(batch)
        return trace(self.plain_step, batch, late.push)

    def flush(self) -> None:
        if self.late is not None:
            self.late.flush()

    def fit(self, *arguments: Any, **words: Any) -> Any:
        bound = inspect.signature(self.plain["fit"]).bind(*arguments, **words)
        bound.apply_defaults()
        asked = bound.arguments
        self.share_arrays(asked)
        asked["callbacks"] = [*self.callbacks_here(asked["callbacks"]), Together(self)]
        if rank() > 0 and asked["verbose"] == "auto":
            asked["verbose"] = 0
        self.at_once_because = why_not(self.model, asked["callbacks"], self.own_step)
        self.fitting = True
        try:
            history = self.plain["fit"](*bound.args, **bound.kwargs)
            self.flush()
            return history
        finally:
            self.fitting, self.late = False, None

    def evaluate(self, *arguments: Any, **words: Any) -> Any:
        self.evaluating = True
        try:
            return self.plain["evaluate"](*arguments, **words)
        finally:
            self.evaluating = False

    def metrics_of_all(self, logs: Any) -> Any:
        """What an epoch's or a validation's metrics are over all workers' samples: their variables are sums, over samples, and
        are summed. Values that a model's own step returns beside metrics are averaged."""
        if not self.fitting:
            return self.plain["_get_metrics_result_or_logs"](logs)
        if not self.evaluating:
            self.flush()
            self.end_epoch()
        variables = [variable for metric in self.model.metrics for variable in metric.variables]
        own = [np.array(variable) for variable in variables]
        sum_over_workers(variables)
        known = dict(self.model.get_metrics_result())
        for variable, before in zip(variables, own):
            variable.assign(before)
        if not isinstance(logs, dict) or set(logs) == set(known):
            return known
        values = np.array([float(np.mean(value)) for value in logs.values()])
        _tensorflow.joined().sum(view_of(values.data))
        return {name: value / workers() for name, value in zip(logs, values)}

    # ---- what they do together

    def share_arrays(self, asked: dict[str, Any]) -> None:
        """Arrays given to fit become this worker's batches of them, as data sets."""
        x, batch_size = asked["x"], asked["batch_size"] or 32
        training = (x, asked["y"], asked["sample_weight"])
        if data.are_arrays(x):
            if asked["validation_split"] and asked["validation_data"] is None:
                training, asked["validation_data"] = data.split_off(training, asked["validation_split"])
            seed = of_rank_0(np.random.randint(2 ** 31)) if asked["shuffle"] else None  # a generator that may be seeded
            asked["x"] = data.batches_of(training, batch_size, rank(), workers(), seed, whole=True)
            asked.update(y=None, sample_weight=None, batch_size=None, shuffle=False, validation_split=0.0)
        validation = asked["validation_data"]
        if isinstance(validation, (tuple, list)) and data.are_arrays(validation):
            at_once = asked["validation_batch_size"] or batch_size
            asked["validation_data"] = data.batches_of(tuple(validation), at_once, rank(), workers(), None, whole=False)
            asked["validation_batch_size"] = None

    def callbacks_here(self, callbacks: Any) -> list[Any]:
        """Those of the user's that run on this worker."""
        if isinstance(callbacks, keras.callbacks.CallbackList):
            raise PoseidonError("a CallbackList was given, expected a list of callbacks", "INVALID_ARGUMENT")
        given = keras.tree.flatten(callbacks) if callbacks else []
        for callback in given:
            if isinstance(callback, keras.callbacks.TerminateOnNaN):
                raise PoseidonError("TerminateOnNaN decides after every batch by each worker's own loss, so that workers would "
                                    "part, expected none", "UNIMPLEMENTED")
        kinds = tuple(getattr(keras.callbacks, name) for name in WRITERS if hasattr(keras.callbacks, name))
        return [callback for callback in given if rank() == 0 or not isinstance(callback, kinds)]

    def begin(self, steps: int | None) -> None:
        """After the callbacks' own begin, in which rank 0 may have restored what it wrote."""
        counts = array.array("q", [0] * workers())
        counts[rank()] = -1 if steps is None else steps
        _tensorflow.joined().sum(counts)
        if len(set(counts)) > 1:
            said = ", ".join(f"rank {at} has {'an unknown number' if count < 0 else count}" for at, count in enumerate(counts))
            raise PoseidonError(f"the workers' data sets differ in their batches: {said}, expected as many on all "
                                "(poseidon.keras.shard)", "INVALID_ARGUMENT")
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built and self.model.trainable_variables:
            optimizer.build(self.model.trainable_variables)  # rank 0's is, where it has been restored
        state = without_seeds([*self.model.variables, *(optimizer.variables if optimizer is not None else [])])
        if _tensorflow.differing(state):
            _tensorflow.broadcast(state)
        self.model._initial_epoch = of_rank_0(self.model._initial_epoch or 0) or None
        if self.at_once_because is None:
            self.late = self.late_made = self.late_made or LateUpdate(self.model, self.new_function)
        self.say_when_updates_are()

    def say_when_updates_are(self) -> None:
        if rank() == 0 and self.at_once_because not in self.said:
            self.said.add(self.at_once_because)
            print("poseidon: the exchange overlaps with the backward pass" +
                  (" and the next forward pass" if self.at_once_because is None else f" alone: {self.at_once_because}"),
                  file=sys.stderr)

    def end_epoch(self) -> None:
        """Moving statistics become their means over all workers, whose batches they are of."""
        local = [variable for variable in without_seeds(self.model.non_trainable_variables)
                 if keras.backend.is_float_dtype(variable.dtype)]
        if _tensorflow.differing(local):
            sum_over_workers(local, divide_by=workers())
        self.compare("an epoch")

    def compare(self, after: str) -> None:
        check(self.model, f" after {after}, expected no update that depends on the worker")

    def agree_to_stop(self) -> None:
        wish = array.array("q", [int(bool(self.model.stop_training))])
        _tensorflow.joined().sum(wish)
        self.model.stop_training = wish[0] > 0


class Together(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no annotations
    """The last callback of a fit."""

    async_safe = True  # has nothing to do with batches

    def __init__(self, training: Training) -> None:
        super().__init__()
        self.training = training

    def on_train_begin(self, logs: Any = None) -> None:
        self.training.begin(self.params.get("steps"))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.training.agree_to_stop()
