# SPDX-License-Identifier: Apache-2.0
"""The gradients of one set of variables on their way through the core, as ops of TensorFlow's graph.

A layer of the core is one variable's gradient, or those of small variables that share a message, one behind the other. Its op
starts when TensorFlow has made the gradient, while the layers below still compute. An op names its layer: the order in which
ops start may differ between workers.
"""
from __future__ import annotations

import array
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from .. import library as c
from ..errors import PoseidonError
from ..session import Session, view_of
from . import ops

if TYPE_CHECKING:
    Variable = Any  # of TensorFlow, or of Keras around one
    Gradient = Any  # a tensor, IndexedSlices, or None

# Of which gradients are summed; narrower ones go as F32.
SUMMED = {tf.float32: c.F32, tf.float64: c.F64}


def path_of(variable: Variable) -> str:
    """What names a variable on every worker: Keras' path, else TensorFlow's name."""
    return str(getattr(variable, "path", None) or variable.name)


def resource_of(variable: Variable) -> tf.Variable:
    """TensorFlow's variable in Keras'."""
    return getattr(variable, "value", variable) if not isinstance(variable, tf.Variable) else variable


def travels_as(variable: Variable) -> tf.DType:
    dtype = tf.as_dtype(variable.dtype)
    if not dtype.is_floating:
        raise PoseidonError(f"variable '{path_of(variable)}' is of {dtype.name}, expected one of a floating type",
                            "UNIMPLEMENTED")
    return dtype if dtype in SUMMED else tf.float32


class Layer:
    """What is pushed as one: variables of one dtype, by their places among all of the exchange."""

    def __init__(self, name: str, place: int, variable: Variable) -> None:
        self.name = name
        self.places = [place]
        self.variables = [variable]
        self.dtype = travels_as(variable)

    def join(self, other: Layer) -> None:
        """Takes in a layer that is not declared."""
        self.places += other.places
        self.variables += other.variables

    def declaration(self, position: int) -> c.Layer:
        one = len(self.variables) == 1
        shape = ("x".join(map(str, self.variables[0].shape)) or "1") if one else f"{len(self.variables)} tensors"
        return c.Layer(name=self.name.encode(), shape=shape.encode(), elements=sum(map(elements_of, self.variables)),
                       dtype=SUMMED[self.dtype], forward_position=position)


def elements_of(variable: Variable) -> int:
    count = 1
    for size in variable.shape:
        count *= int(size)
    return count


class Exchange:
    """Every worker makes the same, in the same order. Blocks until all have."""

    places = 0  # in the ops' table

    def __init__(self, session: Session, variables: Iterable[Variable]) -> None:
        self.session = session
        self.variables = list(variables)
        if not self.variables:
            raise PoseidonError("there is no variable to train, expected at least one", "INVALID_ARGUMENT")
        self.layers = self.joined()
        self.model, self.numbers = session.declare([layer.declaration(at) for at, layer in enumerate(self.layers)])
        self.functions = ops.load()
        self.place = Exchange.places
        Exchange.places += 1
        ops.set_model(self.place, self.model)
        with tf.init_scope():
            self.steps = tf.Variable(-1, dtype=tf.int64, trainable=False, name="poseidon_steps")
        self.means: list[tf.Tensor] = []  # of the last reduce in a graph

    def joined(self) -> list[Layer]:
        """Layers in forward order, small variables together as the session says."""
        seen: dict[str, int] = {}
        alone = []
        for place, variable in enumerate(self.variables):
            path = path_of(variable)
            seen[path] = seen.get(path, 0) + 1
            alone.append(Layer(path if seen[path] == 1 else f"{path}#{seen[path]}", place, variable))
        first = self.session.join_small([layer.declaration(at) for at, layer in enumerate(alone)])
        for layer, goes_with in zip(alone, first):
            if alone[goes_with] is not layer:
                alone[goes_with].join(layer)
        return [layer for number, layer in enumerate(alone) if first[number] == number]

    def detach(self) -> None:
        """Before the session is closed."""
        ops.set_model(self.place, None)

    def reduce(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The mean of each variable's gradient over all workers, in place of it. Variables without a gradient stay so: they have
        to on every worker. IndexedSlices become dense."""
        begun = self.begin()
        self.means = []
        reduced: list[Gradient] = [None] * len(gradients)
        for layer, number in zip(self.layers, self.numbers):
            own = [gradients[place] for place in layer.places]
            if any(gradient is not None for gradient in own):
                for place, mean in zip(layer.places, self.reduce_layer(layer, number, own, begun)):
                    reduced[place] = mean
        return reduced

    def begin(self) -> tf.Tensor:
        """The step's number, once it has begun: after all of the step before has landed, also where one graph has both."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        with tf.control_dependencies([mean for mean in self.means if mean.graph is graph]):
            return self.functions.poseidon_begin(step=self.steps.assign_add(1), model=self.place)

    def reduce_layer(self, layer: Layer, number: int, gradients: Sequence[Gradient], begun: tf.Tensor) -> list[Gradient]:
        """Those of the layer's variables; zeros go where one of several has none."""
        own = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        parts = [tf.zeros(variable.shape, layer.dtype) if gradient is None else tf.cast(gradient, layer.dtype)
                 for gradient, variable in zip(own, layer.variables)]
        flat = parts[0] if len(parts) == 1 else tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
        mean = self.functions.poseidon_reduce(gradient=flat, step=begun, model=self.place, layer=number)
        if not tf.executing_eagerly():
            self.means.append(mean)
        if len(parts) == 1:
            means = [tf.ensure_shape(mean, layer.variables[0].shape)]
        else:
            pieces = tf.split(mean, [elements_of(variable) for variable in layer.variables])
            means = [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, layer.variables)]
        return [None if gradient is None else tf.cast(one, gradient.dtype) for gradient, one in zip(own, means)]

    def plan(self) -> dict[str, str]:
        """How each layer goes, by its name: its first variable's path."""
        return {layer.name: self.session.plan_of(self.model, number)[0] for layer, number in zip(self.layers, self.numbers)}


def compare(session: Session, variables: Iterable[Variable]) -> None:
    """Raises PoseidonError on a worker whose variables are not named, shaped and typed as rank 0's, which ends the job."""
    own = "\n".join(f"{path_of(variable)} {'x'.join(map(str, variable.shape))} {tf.as_dtype(variable.dtype).name}"
                    for variable in variables)
    size = array.array("q", [len(own.encode())])
    session.broadcast(size)
    letters = array.array("q", list(own.encode().ljust(size[0])[:size[0]]))
    session.broadcast(letters)
    first = bytes(list(letters)).decode(errors="replace")
    if first != own:
        pairs = itertools.zip_longest(own.split("\n"), first.split("\n"), fillvalue="no variable")
        here, there = next((here, there) for here, there in pairs if here != there)
        raise PoseidonError(f"the models differ: rank {session.rank} has {here} where rank 0 has {there}",
                            "INVALID_ARGUMENT")


def broadcast(session: Session, variables: Iterable[Variable], root: int = 0) -> bool:
    """Leaves rank `root`'s numbers in everybody's variables, as far as they are of a floating type or int64; whether that
    changed a worker's. Eagerly, also while a function is traced."""
    variables = list(variables)
    for variable in variables:
        # TensorFlow gives it its first value after the trace, on each worker its own.
        if not tf.executing_eagerly() and type(resource_of(variable)).__name__ == "UnliftedInitializerVariable":
            raise PoseidonError(f"variable '{path_of(variable)}' is made in the first training step, expected a model that is "
                                "built before it (an Input layer, or one call)", "FAILED_PRECONDITION")
    compare(session, variables)
    changed = array.array("q", [0])
    with tf.init_scope():
        for variable in variables:
            resource = resource_of(variable)
            if resource.dtype not in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int64):
                continue
            narrow = resource.dtype in (tf.float16, tf.bfloat16)
            wide = tf.cast(resource, tf.float32) if narrow else tf.convert_to_tensor(resource)
            numbers = np.array(wide.numpy()).reshape(-1)  # of a scalar too, which numpy() does not give as an array
            before = numbers.tobytes()
            session.broadcast(view_of(numbers.data), root)
            if numbers.tobytes() != before:
                changed[0] += 1
                resource.assign(tf.cast(tf.reshape(numbers, resource.shape), resource.dtype))
    session.sum(changed)
    return changed[0] > 0
