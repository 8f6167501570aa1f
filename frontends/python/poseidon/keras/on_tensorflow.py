# SPDX-License-Identifier: Apache-2.0
"""poseidon.keras where Keras' backend is TensorFlow."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from .. import tensorflow as _tensorflow
from ..errors import PoseidonError
from ..tensorflow import init, rank, shard, shutdown, trace, workers
from . import optimizers, training

__all__ = ["check", "distribute", "init", "plan", "rank", "shard", "shutdown", "trace", "workers"]


def distribute(model: Any) -> Any:
    """Lets `model` train with the models of all other workers, exactly as one model on all their batches; returns it. All
    workers start from rank 0's variables."""
    if tf.distribute.has_strategy():
        raise PoseidonError("the model is made in a scope of tf.distribute, expected none: one of them exchanges "
                            "gradients, not both", "INVALID_ARGUMENT")
    init()
    if workers() > 1:
        training.refuse_xla(model)
        optimizers.register(model)
        training.Training(model)
    return model


def check(model: Any) -> None:
    """Raises PoseidonError where `model` or its optimizer is not the same on all workers, bit for bit. All call it. fit does so
    after its first step and after every epoch."""
    if workers() > 1:
        training.check(model)


def plan(model: Any) -> dict[str, tuple[str, str]]:
    """How the gradients of `model` go, by the name of each layer's first variable: kv or sfb, and the reason in words. Empty
    before the first step."""
    own = {id(variable) for variable in model.variables}
    return {name: how for exchange in _tensorflow.exchanges() if any(id(variable) in own for variable in exchange.variables)
            for name, how in exchange.plan().items()}
