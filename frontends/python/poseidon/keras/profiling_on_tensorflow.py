# SPDX-License-Identifier: Apache-2.0
"""A model of Keras on TensorFlow, measured into a profile: gradients go through ops of the core where they enter the optimizer, to
nobody, in a session of its own."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .. import library as c
from .. import load, profiling
from ..errors import PoseidonError
from ..tensorflow import blas_of_numpy
from ..tensorflow.data import samples_in
from ..tensorflow.exchange import Exchange, Layer, path_of, resource_of
from ..tensorflow.factors import kind_of, product_of
from .models import like


class Measurement(profiling.Measurement):
    """`prepare`: called with the model before its function is made; `ended`: after every execution of that."""

    def __init__(self, model: Any, steps: int, prepare: Callable[[Any], None], ended: Callable[[], None] | None = None) -> None:
        super().__init__(model.name, steps, tf.config.threading.get_intra_op_parallelism_threads() or load.cores(),
                         blas_of_numpy())
        self.model, self.prepare, self.ended = model, prepare, ended or self.note_step
        self.exchange: Exchange | None = None
        self.optimizer: Any = None
        self.samples = tf.Variable(0, dtype=tf.int64, trainable=False, name="poseidon_samples")
        self.plain = {name: getattr(model, name) for name in ("make_train_function", "train_step")}
        model.train_step = like(model.train_step, self.train_step)
        model.make_train_function = self.make_train_function
        model.train_function = None  # of a fit before

    def make_train_function(self, force: bool = False) -> Any:
        self.prepare(self.model)
        if self.optimizer is not self.model.optimizer:
            self.optimizer = self.model.optimizer
            self.apply = self.optimizer.apply
            self.optimizer.apply = like(self.apply, self.exchange_and_apply)
        kept = self.model.train_function is not None and not force
        self.plain["make_train_function"](force)
        if not kept:
            function = self.model.train_function

            def run(iterator: Any) -> Any:
                logs = function(iterator)
                self.ended()
                return logs
            self.model.train_function = like(function, run)
        return self.model.train_function

    def train_step(self, batch: Any) -> Any:
        self.samples.assign(tf.cast(samples_in(batch), tf.int64))
        return self.plain["train_step"](batch)

    def exchange_and_apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        variables = list(self.optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        gradients = list(grads)
        if self.exchange is None:
            kinds = [kind_of(gradient, resource_of(variable)) for gradient, variable in zip(gradients, variables)]
            with tf.init_scope():
                self.exchange = Exchange(self.session, variables, kinds)
                self.rows = tf.Variable([0] * len(self.exchange.layers), dtype=tf.int64, trainable=False, name="poseidon_rows")
        elif [id(one) for one in variables] != [id(one) for one in self.exchange.variables]:
            raise PoseidonError("the model's trainable variables have changed while it is measured, expected the same in all steps")
        self.rows.assign(tf.stack([rows_of(layer, gradients) for layer in self.exchange.layers]))
        return self.apply(self.exchange.reduce(gradients), trainable_variables)

    def steps(self) -> int:
        return 0 if self.exchange is None else int(self.exchange.steps.numpy()) + 1

    def layers(self) -> list[profiling.Layer]:
        assert self.exchange is not None, "a step has been made"
        return [profiling.Layer(layer.declaration(at), layer.id, [(path_of(one), tuple(map(int, one.shape))) for one in layer.variables],
                                int(rows)) for at, (layer, rows) in enumerate(zip(self.exchange.layers, self.rows.numpy()))]

    def time_product(self, layer: c.Layer, rows: int) -> float:
        u, v = np.ones((rows, int(layer.outputs)), "float32"), np.ones((rows, int(layer.inputs)), "float32")
        return profiling.fastest(lambda: u.T @ v)

    def place(self) -> str:
        devices = tf.config.list_logical_devices("GPU")
        return devices[0].name if devices else super().place()

    def document(self) -> dict[str, Any]:
        self.batch = int(self.samples.numpy())
        return super().document()

    def detach(self) -> None:
        for name in self.plain:
            vars(self.model).pop(name, None)
        if self.optimizer is not None:
            vars(self.optimizer).pop("apply", None)
        self.model.train_function = None  # which has ops of the exchange
        if self.exchange is not None:
            self.exchange.detach()


def rows_of(layer: Layer, gradients: Sequence[Any]) -> tf.Tensor:
    """Of this step's factors, or of its table; 0 where the gradient is neither in this graph."""
    gradient, none = gradients[layer.places[0]], tf.constant(0, tf.int64)
    if layer.table:
        return tf.shape(gradient.indices, tf.int64)[0] if isinstance(gradient, tf.IndexedSlices) else none
    found = product_of(gradient, resource_of(layer.variables[0])) if layer.factors else None
    return none if found is None else tf.shape(found.factors.u, tf.int64)[0]
