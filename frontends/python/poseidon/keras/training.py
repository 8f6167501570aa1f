# SPDX-License-Identifier: Apache-2.0
"""`fit` of a distributed model: what the workers do together besides the gradients, whatever the backend.

Before the first step: the same weights, the same number of steps. At the end of an epoch, and of its validation: metrics are
those of all workers' samples, so that callbacks decide alike; moving statistics are averaged; weights are compared.
"""
from __future__ import annotations

import array
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_slicing import train_validation_split

from .. import library as c
from .. import shuffles
from ..errors import PoseidonError, check_same, kind_of
from ..session import view_of
from . import arrays, batches, callbacks, means, metrics, saving
from .models import like, state_of, whole_state_of
from .statistics import Statistics

if TYPE_CHECKING:
    from ..session import Session

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
                    one.assign(part if divide_by == 1 else part // divide_by if whole else part / divide_by)
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
        self.epoch = 0  # of the fit, the one under way
        self.batches: Any = None  # of the fit, this worker's
        self.said_of_means = ""  # of the means that the model trains on
        self.repeated = self.validation_repeated = False  # every worker evaluates the same samples, all of them
        self.kinds: dict[int, str] = {}  # of updates, by the ids of metrics' and layers' variables
        self.statistics = Statistics(model, backend)
        self.plain = {name: getattr(model, name) for name in ("fit", "evaluate", "save", "save_weights", "summary", "make_train_function",
                                                              "train_step", "_get_metrics_result_or_logs")}
        model.fit = like(model.fit, self.fit)
        model.evaluate = like(model.evaluate, self.evaluate)
        model.train_step = like(model.train_step, self.train_step)
        model.make_train_function = self.make_train_function
        model._get_metrics_result_or_logs = self.metrics_of_all
        model.summary = like(model.summary, self.summary)
        for name in "save", "save_weights":
            setattr(model, name, like(self.plain[name], saving.whole(self.plain[name])))
        model.train_function = None  # of a fit before, which knows nothing of other workers

    def release(self) -> None:
        """The model has its own methods again."""
        for name in self.plain:
            vars(self.model).pop(name, None)

    # ---- what a backend does its own way

    takes: str  # what fit can be given, in words

    def is_divided(self, given: Any) -> bool:
        """Whether `given`, no arrays, is only this worker's."""
        return batches.is_divided(given)

    def check_even(self, given: Any) -> None:
        """Refuses divided data that may end on one worker before they do on others."""

    def make_train_function(self, force: bool = False) -> Any:
        """fit and train_on_batch build the model before they ask for the function that trains it."""
        raise NotImplementedError

    def train_step(self, batch: Any) -> Any:
        """The model's, whose gradients are exchanged."""
        raise NotImplementedError

    def training_batches(self, given: Any, at_once: int, order: Callable[[], Any]) -> Any:
        """This worker's batches of what arrays.packed gives, whose samples have that order in the epoch that begins. All workers take `at_once`."""
        raise NotImplementedError

    def validation_batches(self, given: Any, at_once: int) -> Any:
        """This worker's part of them, every sample of which is on one worker."""
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
        self.say_of_means(asked)
        self.share_data(asked)
        self.batches = asked["x"]
        session = self.backend.session()
        given = callbacks.given(asked["callbacks"])
        together = callbacks.TogetherInBatches if any_of(session, any(map(callbacks.may_stop, given))) else callbacks.Together
        asked["callbacks"] = [*callbacks.here(given, session.rank), together(self)]
        if session.rank > 0 and asked["verbose"] == "auto":
            asked["verbose"] = 0
        self.plan_fit(asked)
        self.fitting = True
        try:
            history = self.plain["fit"](*bound.args, **bound.kwargs)
            self.flush()
            callbacks.share_best(session, given)
            return history
        finally:
            self.fitting, self.batches = False, None

    def record(self, logs: Mapping[str, Any]) -> None:
        """What an epoch's end says, for `poseidon report`."""
        optimizer = self.model.optimizer
        step = None if optimizer is None else int(keras.ops.convert_to_numpy(optimizer.iterations))
        trained = {name: value for name, value in logs.items() if not name.startswith("val_")}
        tested = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
        for test, numbers in (False, trained), (True, tested):
            if numbers:
                self.backend.session().record(numbers, step, test)

    def summary(self, *arguments: Any, **words: Any) -> Any:
        """Printed once: by rank 0, where the program does not print it by a function of its own."""
        asked = inspect.signature(self.plain["summary"]).bind(*arguments, **words).arguments
        if self.backend.session().rank == 0 or asked.get("print_fn") is not None:
            self.plain["summary"](*arguments, **words)

    def evaluate(self, *arguments: Any, **words: Any) -> Any:
        asked = inspect.signature(self.plain["evaluate"]).bind(*arguments, **words).arguments
        of_fit = bool(asked.get("kwargs", {}).get("_use_cached_eval_dataset"))
        self.repeated = self.validation_repeated if of_fit else not self.is_divided(asked.get("x"))
        self.evaluating = True
        try:
            return self.plain["evaluate"](*arguments, **words)
        finally:
            self.evaluating = self.repeated = False

    def metrics_of_all(self, logs: Any) -> Any:
        """An epoch's or a validation's metrics over all workers' samples."""
        if not self.fitting:
            return self.plain["_get_metrics_result_or_logs"](logs)
        if not self.evaluating:
            self.flush()
            self.end_epoch()
        return metrics.of_all(self.model, self.backend, logs, self.kinds, self.repeated)

    # ---- what they do together

    def say_of_means(self, asked: dict[str, Any]) -> None:
        """Once, where the loss of the fit shows that one process would train on another mean."""
        weighted = asked["sample_weight"] is not None or bool(asked["class_weight"]) or not arrays.are_arrays(asked["x"])
        said, session = means.why_another(self.model, weighted) or "", self.backend.session()
        if said and said != self.said_of_means and session.rank == 0:
            session.options.log(None, c.WARNING, said.encode())
        self.said_of_means = said

    def share_data(self, asked: dict[str, Any]) -> None:
        """Divides the data given to fit for all workers into this worker's batches; data that nobody has divided is refused."""
        x, session = asked["x"], self.backend.session()
        are_arrays = arrays.are_arrays(x, asked["y"], asked["sample_weight"])
        shuffled = bool(asked["shuffle"]) and (are_arrays or isinstance(x, keras.utils.PyDataset))
        seed = session.broadcast_number(np.random.randint(2 ** 31)) if shuffled else None
        if are_arrays:
            self.share_arrays(asked, seed)
        elif isinstance(x, keras.utils.PyDataset):
            whole = x.whole if isinstance(x, batches.Part) else x
            endless = bool(asked["steps_per_epoch"]) and whole.num_batches is not None
            asked.update(x=batches.Part(whole, session.rank, session.workers, seed, endless, of_fit=True), shuffle=False)
        elif batches.is_generator(x):
            asked["x"] = batches.divided(x, session.rank, session.workers)
        elif batches.is_sharded_dataset(x):
            shuffles.check_order_before_shards(x, session)
            if not asked["steps_per_epoch"]:
                self.check_even(x)
        elif not self.is_divided(x):
            raise PoseidonError(f"fit was given {kind_of(x)} that nobody has divided among the "
                                f"workers, expected {self.takes}", "INVALID_ARGUMENT")
        elif not asked["steps_per_epoch"]:
            self.check_even(x)
        self.share_validation(asked)

    def share_arrays(self, asked: dict[str, Any], seed: int | None) -> None:
        session, given = self.backend.session(), (asked["x"], asked["y"], asked["sample_weight"])
        if asked["validation_split"] and asked["validation_data"] is None:
            given, asked["validation_data"] = train_validation_split(given, validation_split=asked["validation_split"])
        inputs = arrays.packed(*given, class_weight=asked["class_weight"])
        compare_arrays(session, "arrays", inputs)
        samples = arrays.length_of(inputs)
        at_once = step_of(asked["batch_size"], asked["steps_per_epoch"], samples, session.workers)
        together = at_once if asked["shuffle"] == "batch" else None
        order = lambda: arrays.order_of(samples, seed, self.epoch, together)
        asked["x"] = self.training_batches(inputs, at_once, order)
        asked.update(y=None, sample_weight=None, class_weight=None, shuffle=False, validation_split=0.0)

    def share_validation(self, asked: dict[str, Any]) -> None:
        """Arrays; other data every worker evaluates as they are, each sample counted once where all have the same."""
        validation, session = asked["validation_data"], self.backend.session()
        batch_size, asked["batch_size"] = asked["batch_size"], None
        self.validation_repeated = False
        if validation is None:
            return
        parts = keras.utils.unpack_x_y_sample_weight(validation)
        if arrays.are_arrays(parts):
            inputs = arrays.packed(*parts)
            compare_arrays(session, "validation arrays", inputs)
            at_once = step_of(asked["validation_batch_size"] or batch_size, asked["validation_steps"], arrays.length_of(inputs),
                              session.workers)
            asked.update(validation_data=self.validation_batches(inputs, at_once), validation_batch_size=None)
        elif batches.is_sharded_dataset(validation):
            shuffles.check_order_before_shards(validation, session)
        else:
            self.validation_repeated = not self.is_divided(validation)

    def begin(self, steps: int | None) -> None:
        """After the callbacks' own begin, in which rank 0 may have restored what it wrote."""
        self.backend.check_steps(steps)
        state = whole_state_of(self.model)
        if self.backend.differing(state):
            self.backend.broadcast(state)
        self.model._initial_epoch = self.backend.session().broadcast_number(self.model._initial_epoch or 0) or None
        self.statistics.remember()
        self.begin_steps()

    def begin_epoch(self, epoch: int) -> None:
        """Before Keras asks for the batches of it, whose order follows from its number: so does a fit that goes on with it."""
        self.epoch = epoch
        if isinstance(self.batches, batches.Part):
            self.batches.begin_epoch(epoch)

    def end_epoch(self) -> None:
        """Moving statistics become those of all workers, whose batches they are of."""
        self.statistics.unite(self.kinds)
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
        self.model.stop_training = any_of(self.backend.session(), bool(self.model.stop_training))


def any_of(session: Session, own: bool) -> bool:
    """Whether it is so on any worker. All call it."""
    count = array.array("q", [int(own)])
    session.sum(count)
    return count[0] > 0


def step_of(batch_size: int | None, steps: int | None, samples: int, workers: int) -> int:
    """How many samples of arrays the workers take at once. `batch_size` is each worker's; without one, as many `steps` as Keras
    would make of them."""
    return -(-samples // steps) if steps and not batch_size else (batch_size or 32) * workers


def compare_arrays(session: Session, what: str, inputs: Any) -> None:
    """Every worker takes its samples of the same arrays, or some are seen twice, and some are validated on that others train on."""
    session.compare(what, arrays.described(inputs), "no array", ", expected the same on all workers (a split with a seed; a worker's "
                    "own samples as a tf.data.Dataset through shard(1, 0))")
