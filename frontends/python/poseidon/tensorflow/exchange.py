# SPDX-License-Identifier: Apache-2.0
"""The gradients of one set of variables on their way through the core, as ops of TensorFlow's graph.

A layer of the core is one variable's gradient, or those of small variables that share a message, one behind the other. Its op
starts when TensorFlow has made the gradient, while the layers below still compute. An op names its layer: the order in which
ops start may differ between workers.
"""
from __future__ import annotations

import array
import ctypes
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
    """What is pushed as one: variables of one dtype."""

    def __init__(self, name: str, variables: list[Variable]) -> None:
        self.name = name
        self.variables = variables
        self.id = -1
        self.dtype = travels_as(variables[0])

    def declaration(self, position: int) -> c.Layer:
        shapes = "x".join(map(str, self.variables[0].shape)) or "1"
        return c.Layer(name=self.name.encode(), shape=(shapes if len(self.variables) == 1 else
                                                  f"{len(self.variables)} tensors").encode(),
                       elements=sum(elements_of(variable) for variable in self.variables), dtype=SUMMED[self.dtype],
                       forward_position=position)


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
        self.layer_of = {id(variable): layer for layer in self.layers for variable in layer.variables}
        self.model = ctypes.c_void_p()
        session.c.model_new(session.handle, ctypes.byref(self.model))
        for position, layer in enumerate(self.layers):
            number = ctypes.c_uint32()
            session.c.declare(self.model, ctypes.byref(layer.declaration(position)), ctypes.byref(number))
            layer.id = number.value
        session.c.commit(self.model)
        self.functions = ops.load()
        self.place = Exchange.places
        Exchange.places += 1
        ops.set_model(self.place, self.model)
        with tf.init_scope():
            self.steps = tf.Variable(-1, dtype=tf.int64, trainable=False, name="poseidon_steps")
        self.means: list[tuple[Any, tf.Tensor]] = []  # of the last reduce, with the graph it is in

    def joined(self) -> list[Layer]:
        """Layers in forward order, small variables together as the session says."""
        seen: dict[str, int] = {}
        alone = []
        for variable in self.variables:
            path = path_of(variable)
            seen[path] = seen.get(path, 0) + 1
            alone.append(Layer(path if seen[path] == 1 else f"{path}#{seen[path]}", [variable]))
        declared = [layer.declaration(position) for position, layer in enumerate(alone)]
        array = (ctypes.POINTER(c.Layer) * len(declared))(*map(ctypes.pointer, declared))
        first = (ctypes.c_uint32 * len(declared))()
        self.session.c.join_small(self.session.handle, array, len(declared), first)
        for number, goes_with in enumerate(first):
            if goes_with != number:
                alone[goes_with].variables.append(alone[number].variables[0])
        return [layer for number, layer in enumerate(alone) if first[number] == number]

    def detach(self) -> None:
        """Before the session is closed."""
        ops.set_model(self.place, None)

    def reduce(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> list[Gradient]:
        """The mean of each gradient over all workers, in place of it. Variables without a gradient stay so: they have to on
        every worker. IndexedSlices become dense."""
        begun = self.begin()
        self.means = []
        reduced = dict.fromkeys(range(len(variables)))
        numbers: dict[int, list[int]] = {}
        for number, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is not None:
                numbers.setdefault(id(self.layer_of[id(variable)]), []).append(number)
        for layer in self.layers:
            there = {id(variables[number]): number for number in numbers.get(id(layer), ())}
            if there:
                self.reduce_layer(layer, gradients, there, begun, reduced)
        return [reduced[number] for number in range(len(variables))]

    def begin(self) -> tf.Tensor:
        """The step's number, once it has begun: after all of the step before has landed, also where one graph has both."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        before = [mean for graph_of, mean in self.means if graph_of is graph and graph is not None]
        with tf.control_dependencies(before):
            return self.functions.poseidon_begin(step=self.steps.assign_add(1), model=self.place)

    def reduce_layer(self, layer: Layer, gradients: Sequence[Gradient], there: dict[int, int], begun: tf.Tensor,
                     reduced: dict[int, Any]) -> None:
        parts, dtypes = [], []
        for variable in layer.variables:
            number = there.get(id(variable))
            gradient = None if number is None else tf.convert_to_tensor(gradients[number])
            dtypes.append(None if gradient is None else gradient.dtype)
            part = tf.zeros(variable.shape, layer.dtype) if gradient is None else tf.cast(gradient, layer.dtype)
            parts.append(part)
        flat = parts[0] if len(parts) == 1 else tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
        mean = self.functions.poseidon_reduce(gradient=flat, step=begun, model=self.place, layer=layer.id)
        self.means.append((None if tf.executing_eagerly() else mean.graph, mean))
        means = [mean] if len(parts) == 1 else tf.split(mean, [elements_of(variable) for variable in layer.variables])
        for variable, one, dtype in zip(layer.variables, means, dtypes, strict=True):
            if dtype is not None:
                shaped = tf.ensure_shape(one, variable.shape) if len(parts) == 1 else tf.reshape(one, variable.shape)
                reduced[there[id(variable)]] = tf.cast(shaped, dtype)

    def plan(self) -> dict[str, str]:
        """How each layer goes, by its name: its first variable's path."""
        result = {}
        for layer in self.layers:
            plan = c.LayerPlan()
            self.session.c.get_layer_plan(self.model, layer.id, ctypes.byref(plan))
            result[layer.name] = "sfb" if plan.scheme == c.FACTOR_BROADCAST else "kv"
        return result


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
