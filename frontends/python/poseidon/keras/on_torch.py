# SPDX-License-Identifier: Apache-2.0
"""poseidon.keras where Keras' backend is torch.

A variable of Keras is a parameter of torch there, and the optimizer of Keras is given what backward() leaves at it. That is the
mean over all workers where poseidon.torch has wrapped the variables: before clipping, accumulation and decay.
"""
from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import keras
import numpy as np
import torch
from keras.src.optimizers.base_optimizer import BaseOptimizer
from torch.utils.data import DataLoader

from .. import declared, profiling
from .. import torch as _torch
from ..errors import PoseidonError
from ..session import Session
from ..torch import busy, data, job, rank, workers
from ..torch.places import ResumableLoader
from ..torch.replicas import broadcast
from . import alone, arrays, batches, leaves, loaders, training
from .models import check_is_model, refuse_compiled, without_seeds
from .profiling_on_torch import Measurement

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..session import Joining

__all__ = ["busy", "check", "distribute", "init", "plan", "rank", "report", "shard", "shutdown", "trace", "workers"]

_trainings: dict[Any, Training] = {}  # by model
_unused: list[Training] = []  # those whose gradients have not been exchanged yet


def init(**words: Unpack[Joining]) -> None:
    """Joins the job; returns when all workers are there. Arguments: those of poseidon.torch.init. A second call does nothing."""
    if not job.is_joined():
        # Keras runs its layers past torch's hooks, so nobody could time their forward passes: the first plan stays.
        words.setdefault("final_plan_step", None)
        _torch.init(**words)


def shutdown() -> None:
    """Leaves the job in order; blocks until all workers have come here. Models are as they were before distribute, with their
    last weights. Implied at the end of the process. While an exception is under way the job ends for everybody: the others wait
    for gradients that will not come."""
    while _trainings:
        _trainings.popitem()[1].release()
    _unused.clear()
    alone.release()
    _torch.shutdown()


def distribute(model: Any) -> Any:
    """Lets `model` train with the models of all other workers, exactly as one model on all their batches; returns it. All
    workers start from rank 0's variables, here or, where the model is not built, before its first step in fit."""
    check_is_model(model)
    init()
    if workers() == 1:
        alone.watch(model, refuse_compiled_whole, measurement)
    elif model not in _trainings:
        refuse_compiled_whole(model)
        _guard_optimizers()
        _trainings[model] = Training(model)
    return model


def shard(dataset: Any) -> Any:
    """This worker's part of a DataLoader, a PyDataset or a generator of batches: of every `workers()` batches that of its rank.
    So workers with batches of b see what one with batches of workers() * b would. The samples of the batches that are left over
    at the end are divided evenly; left out are fewer than workers, and of a loader what is left over where a data set or a
    sampler of your own makes the batches. A loader that shuffles does so alike on all workers, which all call this; a generator
    or a sampler of your own has to give the same order on all. Joins the job where init() has not been called."""
    loaders.check_can_shard(dataset)
    init()
    if workers() == 1:
        return dataset
    if isinstance(dataset, DataLoader):
        return data.shard(dataset, rank(), workers(), job.joined().broadcast_number(np.random.randint(2 ** 31)))
    return batches.shard(dataset, rank(), workers())


def check(model: Any) -> None:
    """Raises PoseidonError where `model` or its optimizer is not the same on all workers, bit for bit. All call it. fit does so
    after its first step and after every epoch."""
    if workers() > 1:
        Torch().check(model)


def plan(model: Any) -> dict[str, tuple[str, str]]:
    """How the gradients of `model` go, by the name of each layer: kv, and the reason in words. Empty before the model is
    built."""
    exchange = _trainings[model].exchange if model in _trainings else None
    return {} if exchange is None else exchange.plan()


def report() -> str:
    """What Poseidon did, as a table to print: how each layer of the models goes and why, the bytes that it moves per step and the
    time from its push to its mean, planned and measured on this worker; totals beside dense gradients; how much of the communication
    was hidden. On one worker nothing is exchanged, and the text says so."""
    return _torch.report()


def measurement(model: Any, steps: int, ended: Callable[[], None] | None = None) -> profiling.Measurement:
    """Of so many steps; `ended` is called after each, or what the measurement has for it."""
    return Measurement(model, steps, modules_of, ended)


def trace(path: str | os.PathLike[str]) -> NoReturn:
    """Of TensorFlow's ops; torch has a profiler of its own."""
    raise PoseidonError("poseidon.keras.trace shows TensorFlow's ops and Keras' backend is torch, expected torch.profiler",
                        "UNIMPLEMENTED")


def refuse_compiled_whole(model: Any) -> None:
    refuse_compiled(model, "a step that torch compiles whole has no backward pass of its own to exchange gradients in")


class Torch(training.Backend):
    def session(self) -> Session:
        return job.joined()

    def differing(self, variables: Sequence[Any]) -> list[str]:
        differs = job.joined().differing([np.asarray(variable).tobytes() for variable in variables])
        return [variable.path for variable, differing in zip(variables, differs) if differing]

    def broadcast(self, variables: Sequence[Any]) -> None:
        broadcast(job.joined(), torch.nn.ParameterList([variable.value for variable in variables]))


class Training(training.Training):
    takes = "arrays, a PyDataset, a generator, or a DataLoader that poseidon.keras.shard or a DistributedSampler divides"

    def __init__(self, model: Any) -> None:
        super().__init__(model, Torch())
        self.exchange: _torch.Exchange | None = None
        _unused.append(self)
        if model.built:
            self.start()

    def start(self) -> None:
        """Variables are rank 0's and their gradients are exchanged, from here on; anew where others are trained than before."""
        trained = {variable.value for variable in self.model.trainable_variables}
        if trained and (self.exchange is None or trained != self.exchange.known):
            if self.exchange is not None:
                self.exchange.detach()
            job.joined().compare_models([declared.variable(variable.path, variable.shape, variable.dtype)
                                         for variable in without_seeds(self.model, self.model.variables)])
            self.exchange, self.compared = _torch.wrap(modules_of(self.model), factors=False), False

    def has_exchanged(self) -> bool:
        return self.exchange is not None and self.exchange.step > 0

    def make_train_function(self, force: bool = False) -> Any:
        refuse_compiled_whole(self.model)
        made = self.plain["make_train_function"](force)
        self.start()
        return made

    def plan_fit(self, asked: dict[str, Any]) -> None:
        """Keras takes a batch away to build what is not built. Threads that fetch ahead have more than that one then, and hand
        it out before the first one comes anew: as many as they had, which differs between workers."""
        part = asked["x"]
        if isinstance(part, batches.Part) and (part.workers > 1 or part.use_multiprocessing):
            self.model._symbolic_build(data_batch=part[0])

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        if isinstance(self.batches, ResumableLoader):
            self.batches.set_epoch(epoch)

    def train_step(self, batch: Any) -> Any:
        """Gradients count by the samples of the batch: workers' batches may differ in size."""
        if self.exchange is None:
            logs = self.plain["train_step"](batch)
        else:
            self.exchange.now.samples = leaves.samples_in(batch)
            try:
                logs = self.plain["train_step"](batch)
            finally:
                self.exchange.now.samples = 0
        known = set() if self.exchange is None else self.exchange.known
        if {variable.value for variable in self.model.trainable_variables} != known:
            raise PoseidonError("the model's trainable variables have changed in a training step, expected a model that is "
                                "built before it (an Input layer, or one call) and layers that stay as they are",
                                "FAILED_PRECONDITION")
        self.compare_once()
        return logs

    def is_divided(self, given: Any) -> bool:
        return super().is_divided(given) or loaders.is_divided(given)

    def check_even(self, given: Any) -> None:
        loaders.check_even(given)

    def training_batches(self, given: Any, at_once: int, order: Callable[[], Any]) -> Any:
        return loaders.batches_of(given, at_once, rank(), workers(), order)

    def validation_batches(self, given: Any, at_once: int) -> Any:
        samples = arrays.length_of(given)
        self.validation_repeated = samples < workers()
        share = loaders.samples_of(given, rank(), workers())
        return loaders.batches_of(share, max(1, at_once // workers()), 0, 1, lambda: np.arange(arrays.length_of(share)))


def modules_of(model: Any) -> torch.nn.Module:
    """The variables of `model` as modules of torch, one for each layer that owns some. A model of Keras itself holds all of
    them a second time, as if they were one layer, and its random seeds too."""
    owned: dict[str, list[Any]] = {}
    for variable in without_seeds(model, model.variables):
        owned.setdefault(variable.path.rpartition("/")[0] or model.name, []).append(variable.value)
    modules = torch.nn.Module()
    for owner, parameters in owned.items():
        modules.add_module(owner.replace(".", "_"), torch.nn.ParameterList(parameters))
    return modules


def _guard_optimizers() -> None:
    """Gradients of a distributed model that did not come through its exchange are refused at the first step."""
    plain = BaseOptimizer.apply
    if hasattr(plain, "poseidon"):
        return

    @functools.wraps(plain)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        _unused[:] = [training for training in _unused if not training.has_exchanged()]
        if _unused:
            trainable_variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
            updated = {id(variable) for variable in trainable_variables}
            for training in _unused:
                for variable in training.model.trainable_variables:
                    if id(variable) in updated:
                        raise PoseidonError(f"the gradient of variable '{variable.path}' comes to the optimizer without having "
                                            "been exchanged, expected one that backward() leaves, of a model that fit trains "
                                            "or that is built before distribute", "UNIMPLEMENTED")
        return plain(self, grads, trainable_variables)
    apply.poseidon = True  # type: ignore[attr-defined]
    BaseOptimizer.apply = apply
