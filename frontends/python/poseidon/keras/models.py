# SPDX-License-Identifier: Apache-2.0
"""A model of Keras 3, whatever its backend."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from ..errors import PoseidonError, kind_of


def check_is_model(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise PoseidonError(f"distribute was given {kind_of(model)}, expected a keras.Model of Keras 3 (tf_keras is Keras 2; "
                            "poseidon.torch and poseidon.tensorflow serve models without Keras)", "INVALID_ARGUMENT")


def refuse_compiled(model: Any, why: str) -> None:
    if getattr(model, "jit_compile", False) is True:
        raise PoseidonError(f"the model is compiled with jit_compile=True, expected False: {why}", "UNIMPLEMENTED")


def without_seeds(model: Any, variables: list[Any]) -> list[Any]:
    """Random seeds stay each worker's own: the states of the generators in the layers of `model`."""
    states = {id(generator.state) for layer in model._flatten_layers() for generator in layer._seed_generators}
    return [variable for variable in variables if id(variable) not in states]


def own_of_each_worker(model: Any) -> list[Any]:
    """The variables that no optimizer updates, as moving statistics: each worker has them of its own batches."""
    return without_seeds(model, model.non_trainable_variables)


def optimizer_variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return list(optimizer.variables) if optimizer is not None else []


def state_of(model: Any) -> list[Any]:
    """The variables that have to be the same on all workers whenever a step has ended."""
    return without_seeds(model, [*model.trainable_variables, *optimizer_variables(model)])


def whole_state_of(model: Any) -> list[Any]:
    """The variables that have to be the same on all workers when a fit begins. Makes the optimizer's where it has none yet."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built and model.trainable_variables:
        optimizer.build(model.trainable_variables)  # rank 0's is, where it has been restored
    return without_seeds(model, [*model.variables, *optimizer_variables(model)])


def like(plain: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the name, the signature and the text of `plain`."""
    @functools.wraps(plain)
    def named(*arguments: Any, **words: Any) -> Any:
        return call(*arguments, **words)
    return named
