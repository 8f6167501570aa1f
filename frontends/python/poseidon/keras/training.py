# SPDX-License-Identifier: Apache-2.0
"""`fit` of a distributed model: what the workers do together besides the gradients, whatever the backend.

Before the first step: the same weights, the same number of steps. At the end of an epoch, and of its validation: metrics are
those of all workers' samples, so that callbacks decide alike; moving statistics are averaged; weights are compared.
"""
from __future__ import annotations

import array
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from .. import shuffles
from ..errors import PoseidonError, check_same
from ..session import view_of
from . import arrays, batches
from .models import floats_of_each_worker, like, state_of, whole_state_of

if TYPE_CHECKING:
    from ..session import Session

# Callbacks that write files; rank 0's write for all workers.
WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


class Backend:
    """How the workers of one of Keras' backends share numbers. All workers make all calls."""

    def session(self) -> Session:
        raise NotImplementedError

    def differing(self, variables: Sequence[Any]) -> list[str]:
        """The paths of those variables that are not the same on all workers, bit for bit."""
        raise NotImplementedError

    def broadcast(self, variables: Sequence[Any]) -> None:
        """Leaves rank 0's numbers in everybody's variables."""
        raise NotImplementedError

    def check(self, model: Any, expected: str = "") -> None:
        """Raises PoseidonError where the state of `model` is not the same on all workers."""
        check_same("variable", self.differing(state_of(model)), expected)

    def sum(self, variables: Sequence[Any], divide_by: int = 1) -> None:
        """Leaves the sum over all workers, divided, in numeric variables, the same bits everywhere."""
        for whole in False, True:
            chosen = [one for one in variables if keras.backend.is_int_dtype(one.dtype) == whole]
            numbers = np.concatenate([np.zeros(0), *(np.asarray(one, "float64").reshape(-1) for one in chosen)])
            numbers = np.ascontiguousarray(numbers.astype("int64" if whole else "float64"))
            if numbers.size:
                self.session().sum(view_of(numbers.data))
                at = 0
                for one in chosen:
                    size = int(np.prod(one.shape, dtype=int))
                    part = numbers[at:at + size].reshape(one.shape)
                    one.assign(part if divide_by == 1 else part / divide_by)
                    at += size

    def check_steps(self, steps: int | None) -> None:
        """Refuses data of different lengths: the worker with fewer batches would keep the others waiting."""
        session = self.session()
        counts = array.array("q", [0] * session.workers)
        counts[session.rank] = -1 if steps is None else steps
        session.sum(counts)
        if len(set(counts)) > 1:
            said = ", ".join(f"rank {at} has {'an unknown number' if count < 0 else count}" for at, count in enumerate(counts))
            raise PoseidonError(f"the workers' data sets differ in their batches: {said}, expected as many on all "
                                "(poseidon.keras.shard)", "INVALID_ARGUMENT")


class Training:
    """Takes the place of some of a model's methods. A model that is made from its configuration has none of it."""

    def __init__(self, model: Any, backend: Backend) -> None:
        if not hasattr(model, "_get_metrics_result_or_logs"):
            raise PoseidonError(f"Keras {keras.__version__} has another loop in fit than is known, expected one of 3.5 to 3.15",
                                "UNIMPLEMENTED")
        self.model, self.backend = model, backend
        self.fitting = self.evaluating = False
        self.compared = False  # the weights, after the first step
        self.plain = {name: getattr(model, name) for name in ("fit", "evaluate", "make_train_function", "train_step",
                                                              "_get_metrics_result_or_logs")}
        model.fit = like(model.fit, self.fit)
        model.evaluate = like(model.evaluate, self.evaluate)
        model.train_step = like(model.train_step, self.train_step)
        model.make_train_function = self.make_train_function
        model._get_metrics_result_or_logs = self.metrics_of_all

    def release(self) -> None:
        """The model has its own methods again."""
        for name in self.plain:
            vars(self.model).pop(name, None)

    # ---- what a backend does its own way

    takes: str  # what fit can be given, in words

    def is_divided(self, given: Any) -> bool:
        """Whether `given`, neither arrays nor what batches.py divides, is only this worker's."""
        return False

    def make_train_function(self, force: bool = False) -> Any:
        """fit and train_on_batch build the model before they ask for the function that trains it."""
        raise NotImplementedError

    def train_step(self, batch: Any) -> Any:
        """The model's, whose gradients are exchanged."""
        raise NotImplementedError

    def training_batches(self, given: tuple[Any, ...], batch_size: int, seed: int | None) -> Any:
        """This worker's batches of arrays (x, y, sample_weight), in another order in every epoch where there is a seed."""
        raise NotImplementedError

    def validation_batches(self, given: tuple[Any, ...], batch_size: int) -> Any:
        """This worker's part of arrays, every sample of which is on one worker."""
        raise NotImplementedError

    def plan_fit(self, asked: dict[str, Any]) -> None:
        """`asked`: the arguments of a fit that begins."""

    def begin_steps(self) -> None:
        """Prepares for the first step of a fit, in which all workers have the same state."""

    def flush(self) -> None:
        """Leaves weights and optimizer as they are after the last step."""

    # ---- in place of the model's methods

    def fit(self, *arguments: Any, **words: Any) -> Any:
        bound = inspect.signature(self.plain["fit"]).bind(*arguments, **words)
        bound.apply_defaults()
        asked = bound.arguments
        self.share_data(asked)
        rank = self.backend.session().rank
        asked["callbacks"] = [*callbacks_here(asked["callbacks"], rank), Together(self)]
        if rank > 0 and asked["verbose"] == "auto":
            asked["verbose"] = 0
        self.plan_fit(asked)
        self.fitting = True
        try:
            history = self.plain["fit"](*bound.args, **bound.kwargs)
            self.flush()
            return history
        finally:
            self.fitting = False

    def evaluate(self, *arguments: Any, **words: Any) -> Any:
        self.evaluating = True
        try:
            return self.plain["evaluate"](*arguments, **words)
        finally:
            self.evaluating = False

    def metrics_of_all(self, logs: Any) -> Any:
        """An epoch's or a validation's metrics over all workers' samples. A metric's variables are sums over samples, so
        they are summed over the workers. Values that a model's own step returns beside metrics are averaged."""
        if not self.fitting:
            return self.plain["_get_metrics_result_or_logs"](logs)
        if not self.evaluating:
            self.flush()
            self.end_epoch()
        variables = [variable for metric in self.model.metrics for variable in metric.variables]
        own = [np.array(variable) for variable in variables]
        self.backend.sum(variables)
        known = dict(self.model.get_metrics_result())
        for variable, before in zip(variables, own):
            variable.assign(before)
        if not isinstance(logs, dict) or set(logs) == set(known):
            return known
        values = np.array([float(np.mean(keras.ops.convert_to_numpy(value))) for value in logs.values()])
        session = self.backend.session()
        session.sum(view_of(values.data))
        return {name: value / session.workers for name, value in zip(logs, values)}

    # ---- what they do together

    def share_data(self, asked: dict[str, Any]) -> None:
        """Divides the data given to fit for all workers into this worker's batches; data that nobody has divided is refused."""
        x, batch_size, session = asked["x"], asked["batch_size"] or 32, self.backend.session()
        shuffled = asked["shuffle"] and (arrays.are_arrays(x) or isinstance(x, keras.utils.PyDataset))
        seed = session.broadcast_number(np.random.randint(2 ** 31)) if shuffled else None
        if arrays.are_arrays(x):
            self.share_arrays(asked, batch_size, seed)
        elif isinstance(x, keras.utils.PyDataset):
            whole = x.whole if isinstance(x, batches.Part) else x
            endless = bool(asked["steps_per_epoch"]) and whole.num_batches is not None
            asked.update(x=batches.Part(whole, session.rank, session.workers, seed, endless), shuffle=False)
        elif batches.is_generator(x):
            asked["x"] = batches.divided(x, session.rank, session.workers)
        elif batches.is_sharded_dataset(x):
            shuffles.check_order_before_shards(x, session)
        elif not self.is_divided(x):
            raise PoseidonError(f"fit was given a {type(x).__module__}.{type(x).__qualname__} that nobody has divided among the "
                                f"workers, expected {self.takes}", "INVALID_ARGUMENT")
        self.share_validation(asked, batch_size)

    def share_arrays(self, asked: dict[str, Any], batch_size: int, seed: int | None) -> None:
        given = (asked["x"], asked["y"], asked["sample_weight"])
        if asked["validation_split"] and asked["validation_data"] is None:
            given, asked["validation_data"] = arrays.split_off(given, asked["validation_split"])
        if asked["class_weight"] is not None:
            given = arrays.with_class_weights(given, asked["class_weight"])
        asked["x"] = self.training_batches(given, batch_size, seed)
        asked.update(y=None, sample_weight=None, class_weight=None, batch_size=None, shuffle=False, validation_split=0.0)

    def share_validation(self, asked: dict[str, Any], batch_size: int) -> None:
        """Arrays; other data every worker evaluates as they are, which counts all samples alike."""
        validation = asked["validation_data"]
        if isinstance(validation, (tuple, list)) and arrays.are_arrays(validation):
            asked["validation_data"] = self.validation_batches(tuple(validation), asked["validation_batch_size"] or batch_size)
            asked["validation_batch_size"] = None
        elif batches.is_sharded_dataset(validation):
            shuffles.check_order_before_shards(validation, self.backend.session())

    def begin(self, steps: int | None) -> None:
        """After the callbacks' own begin, in which rank 0 may have restored what it wrote."""
        self.backend.check_steps(steps)
        state = whole_state_of(self.model)
        if self.backend.differing(state):
            self.backend.broadcast(state)
        self.model._initial_epoch = self.backend.session().broadcast_number(self.model._initial_epoch or 0) or None
        self.begin_steps()

    def end_epoch(self) -> None:
        """Moving statistics become their means over all workers, whose batches they are of."""
        local = floats_of_each_worker(self.model)
        if self.backend.differing(local):
            self.backend.sum(local, divide_by=self.backend.session().workers)
        self.compare("an epoch")

    def compare_once(self) -> None:
        """After a step."""
        if not self.compared:
            self.compared = True
            self.flush()
            self.compare("the first step")

    def compare(self, after: str) -> None:
        self.backend.check(self.model, f" after {after}, expected no update that depends on the worker")

    def agree_to_stop(self) -> None:
        wish = array.array("q", [int(bool(self.model.stop_training))])
        self.backend.session().sum(wish)
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


def callbacks_here(callbacks: Any, rank: int) -> list[Any]:
    """Those of the user's that run on this worker."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise PoseidonError("a CallbackList was given, expected a list of callbacks", "INVALID_ARGUMENT")
    given = keras.tree.flatten(callbacks) if callbacks else []
    for callback in given:
        if isinstance(callback, keras.callbacks.TerminateOnNaN):
            raise PoseidonError("TerminateOnNaN decides after every batch by each worker's own loss, so that workers would "
                                "part, expected none", "UNIMPLEMENTED")
    kinds = tuple(getattr(keras.callbacks, name) for name in WRITERS if hasattr(keras.callbacks, name))
    return [callback for callback in given if rank == 0 or not isinstance(callback, kinds)]
