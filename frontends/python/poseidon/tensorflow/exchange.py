# SPDX-License-Identifier: Apache-2.0
"""The gradients of one set of variables on their way through the core, as ops of TensorFlow's graph.

A layer of the core is one variable's gradient, or those of small variables that share a message, one behind the other. Its op
starts when TensorFlow has made the gradient, while the layers below still compute. An op names its layer: the order in which
ops start may differ between workers.
"""
from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from .. import declared
from .. import library as c
from ..errors import PoseidonError
from ..report import Account
from ..session import Session, view_of
from . import ops
from .factors import Kind, Own, product_of

if TYPE_CHECKING:
    Variable = Any  # of TensorFlow, or of Keras around one
    Gradient = Any  # a tensor, IndexedSlices, or None

# Of which gradients are summed; narrower ones go as F32.
SUMMED = {tf.float32: c.F32, tf.float64: c.F64}
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def path_of(variable: Variable) -> str:
    """A variable's name, the same on every worker: Keras' path, else TensorFlow's name."""
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


class Form(NamedTuple):
    """The kind of a gradient; its mean has to be of the same kind."""

    dtype: tf.DType
    indices: tf.DType | None  # of IndexedSlices


def form_of(gradient: Gradient) -> Form | None:
    if gradient is None:
        return None
    return Form(gradient.dtype, gradient.indices.dtype if isinstance(gradient, tf.IndexedSlices) else None)


class Layer:
    """Variables of one dtype that are pushed as one, by their places among all of the exchange. A layer with factors is one
    kernel, whose gradient is a product in the step that was traced first; a table is one variable, whose gradient is
    IndexedSlices there: rows for some of its entries."""

    id: int  # in the core's model, from its declaration

    def __init__(self, name: str, place: int, variable: Variable, kind: Kind) -> None:
        self.name = name
        self.places = [place]
        self.variables = [variable]
        self.dtype = travels_as(variable)
        self.factors = kind is Kind.PRODUCT
        self.table = kind is Kind.TABLE

    def join(self, other: Layer) -> None:
        """Takes in a layer that is not declared."""
        self.places += other.places
        self.variables += other.variables

    def declaration(self, position: int) -> c.Layer:
        made = declared.declaration(self.name, [tuple(map(int, variable.shape)) for variable in self.variables],
                                    SUMMED[self.dtype], position)
        if self.factors:  # a kernel is [in, out], and its gradient x^T dy
            inputs, outputs = map(int, self.variables[0].shape)
            return declared.matrix(made, inputs, outputs)
        return declared.table(made, int(self.variables[0].shape[0]), self.width) if self.table else made

    @property
    def width(self) -> int:
        """Numbers of one of a table's entries."""
        return elements_of(self.variables[0]) // int(self.variables[0].shape[0])


def elements_of(variable: Variable) -> int:
    count = 1
    for size in variable.shape:
        count *= int(size)
    return count


class Exchange:
    """Every worker makes the same, in the same order. Blocks until all have.

    reduce() gives the means of one step. push() and means() are its halves, for those who take the means in the next step.
    """

    places = 0  # in the ops' table

    def __init__(self, session: Session, variables: Iterable[Variable], kinds: Sequence[Kind]) -> None:
        """`kinds`: of the variables' gradients (factors.kind_of)."""
        self.session = session
        self.variables = list(variables)
        if not self.variables:
            raise PoseidonError("there is no variable to train, expected at least one", "INVALID_ARGUMENT")
        self.layers = self.joined(kinds)
        self.number = session.models
        self.model, self.numbers = session.declare([layer.declaration(at) for at, layer in enumerate(self.layers)])
        for layer, number in zip(self.layers, self.numbers):
            layer.id = number
        self.functions = ops.load()
        self.place = Exchange.places
        Exchange.places += 1
        ops.set_model(self.place, session, self.model, self.number, len(self.layers))
        with tf.init_scope():
            self.steps = tf.Variable(-1, dtype=tf.int64, trainable=False, name="poseidon_steps")
            self.kept = tf.Variable(-1, dtype=tf.int64, trainable=False, name="poseidon_kept")
        self.account = Account(session, self.model, f"{len(self.variables)} variables", self.layers,
                               steps=lambda: int(self.steps.numpy()) + 1)
        self.taken: dict[int, tf.Tensor] = {}  # by layer: its last mean in the graph that is traced
        self.own: dict[int, Own] = {}  # by layer: what its last product lacks of the gradient

    def joined(self, kinds: Sequence[Kind]) -> list[Layer]:
        """Layers in forward order, small variables together as the session says."""
        seen: dict[str, int] = {}
        alone = []
        for place, (variable, kind) in enumerate(zip(self.variables, kinds, strict=True)):
            path = path_of(variable)
            seen[path] = seen.get(path, 0) + 1
            alone.append(Layer(path if seen[path] == 1 else f"{path}#{seen[path]}", place, variable, kind))
        first = self.session.join_small([layer.declaration(at) for at, layer in enumerate(alone)])
        for layer, goes_with in zip(alone, first):
            if alone[goes_with] is not layer:
                alone[goes_with].join(layer)
        return [layer for number, layer in enumerate(alone) if first[number] == number]

    def detach(self) -> None:
        """Before the session is closed."""
        ops.set_model(self.place, self.session, None, 0, 0)

    def reduce(self, gradients: Sequence[Gradient], weight: tf.Tensor | int = 0) -> list[Gradient]:
        """The mean of each variable's gradient over all workers, in place of it. Variables without a gradient stay so: they have
        to on every worker. The mean of IndexedSlices is IndexedSlices of all workers' rows, unmerged, in the order of ranks.
        `weight`, of this worker's gradients in the mean: how many samples they are the mean of; 0 on all workers where that is
        everywhere the same."""
        return self.means(self.push(gradients, weight), list(map(form_of, gradients)))

    def push(self, gradients: Sequence[Gradient], weight: tf.Tensor | int = 0,
             begun: tf.Tensor | None = None) -> dict[int, tf.Tensor]:
        """Hands a step's gradients over, of the step that begin() gave or of a new one; the step's number by layer, once its
        gradient has been pushed."""
        taken = self.taken_here()
        if begun is None:
            with tf.control_dependencies(taken.values()):
                begun = self.begin()
        weight = tf.cast(weight, tf.int64)
        pushed = {}
        for layer, number in zip(self.layers, self.numbers):
            own = [gradients[place] for place in layer.places]
            if any(gradient is not None for gradient in own):
                with tf.control_dependencies([taken[number]] if number in taken else []):
                    pushed[number] = self.push_layer(layer, number, own, begun, weight)
        return pushed

    def keep(self, pushed: dict[int, tf.Tensor]) -> None:
        """Of a step whose means are taken in another function: TensorFlow leaves out what nobody reads."""
        self.kept.assign(tf.reduce_max(tf.stack(list(pushed.values()))))

    def begin(self) -> tf.Tensor:
        """The next step's number, once it has begun."""
        return self.functions.poseidon_begin(step=self.steps.assign_add(1), model=self.place, timed=not tf.executing_eagerly())

    def taken_here(self) -> dict[int, tf.Tensor]:
        """The means that the graph which is traced has taken, by layer."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self.taken = {number: mean for number, mean in self.taken.items() if graph is not None and mean.graph is graph}
        return self.taken

    def push_layer(self, layer: Layer, number: int, gradients: Sequence[Gradient], begun: tf.Tensor,
                   weight: tf.Tensor) -> tf.Tensor:
        """Zeros go where one of several variables has no gradient."""
        place = {"begun": begun, "weight": weight, "model": self.place, "layer": number}
        if layer.factors:
            return self.push_product(layer, gradients[0], place)
        if layer.table:
            return self.push_rows(layer, gradients[0], place)
        parts = [tf.zeros(variable.shape, layer.dtype) if gradient is None
                 else tf.cast(tf.convert_to_tensor(gradient), layer.dtype)
                 for gradient, variable in zip(gradients, layer.variables)]
        flat = parts[0] if len(parts) == 1 else tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
        return self.functions.poseidon_push(gradient=flat, rows=tf.constant(0, tf.int64), **place).pushed

    def push_rows(self, layer: Layer, gradient: Gradient, place: dict[str, Any]) -> tf.Tensor:
        """A table's gradient that is dense in this graph has a row for every entry."""
        if isinstance(gradient, tf.IndexedSlices):
            indices, values = gradient.indices, gradient.values
        else:
            indices, values = tf.range(layer.variables[0].shape[0], dtype=tf.int64), gradient
        return self.functions.poseidon_push_rows(
            indices=tf.reshape(tf.cast(indices, tf.int64), [-1]),
            values=tf.reshape(tf.cast(values, layer.dtype), [-1, layer.width]), **place)

    def push_product(self, layer: Layer, gradient: Gradient, place: dict[str, Any]) -> tf.Tensor:
        """A kernel's gradient as the plan has it in this step, without a new trace when that changes. The product that the
        graph has made for the optimizer is read by nobody, so TensorFlow leaves it out: it is made where it is wanted."""
        found = product_of(gradient, resource_of(layer.variables[0]))
        factors, own = found or (None, None)
        whole = tf.convert_to_tensor(gradient) if factors is None else None
        if own is not None:
            self.own[place["layer"]] = own
        else:
            self.own.pop(place["layer"], None)

        def product() -> tf.Tensor:
            if factors is None:
                return tf.cast(whole, layer.dtype)
            return tf.cast(tf.matmul(factors.u, factors.v, transpose_a=True, name=factors.name), layer.dtype)

        def push_dense() -> tf.Tensor:
            rows = tf.shape(factors.u, tf.int64)[0] if factors is not None else tf.constant(layer.variables[0].shape[0], tf.int64)
            return self.functions.poseidon_push(gradient=product(), rows=rows, **place).pushed

        def push_factors() -> tf.Tensor:
            # A gradient that is no product in this graph is sent as the product of the unit matrix and itself.
            u, v = (tf.eye(layer.variables[0].shape[0], dtype=layer.dtype), whole) if factors is None else factors[:2]
            return self.functions.poseidon_push_factors(u=tf.cast(u, layer.dtype), v=tf.cast(v, layer.dtype), **place).pushed

        wanted = self.functions.poseidon_takes_factors(begun=place["begun"], model=self.place, layer=place["layer"])
        return tf.cond(tf.ensure_shape(wanted, []), push_factors, push_dense)

    def means(self, pushed: dict[int, tf.Tensor], forms: Sequence[Form | None]) -> list[Gradient]:
        """The means of a step, whose number is given by layer, in the forms of its gradients, None where that is None."""
        means: list[Gradient] = [None] * len(self.variables)
        for layer, number in zip(self.layers, self.numbers):
            if number in pushed:
                take = self.rows_of if layer.table else self.parts_of
                for place, part in zip(layer.places, take(layer, number, pushed[number])):
                    form = forms[place]
                    means[place] = None if form is None else in_form(part, form)
        return means

    def rows_of(self, layer: Layer, number: int, pushed: tf.Tensor) -> list[tf.IndexedSlices]:
        """A table's mean."""
        shape = list(layer.variables[0].shape)
        rows = self.functions.poseidon_rows(pushed=pushed, T=layer.dtype, model=self.place, layer=number, width=layer.width)
        self.note_taken(number, rows.values)
        return [tf.IndexedSlices(tf.reshape(rows.values, [-1, *shape[1:]]), tf.ensure_shape(rows.indices, [None]),
                                 tf.constant(shape, tf.int64))]

    def note_taken(self, number: int, mean: tf.Tensor) -> None:
        if not tf.executing_eagerly():
            self.taken[number] = mean

    def parts_of(self, layer: Layer, number: int, pushed: tf.Tensor) -> list[tf.Tensor]:
        """The means of a layer's variables."""
        mean = self.functions.poseidon_mean(pushed=pushed, T=layer.dtype, model=self.place, layer=number)
        self.note_taken(number, mean)
        if len(layer.variables) == 1:
            whole = tf.ensure_shape(mean, layer.variables[0].shape)
            return [self.own[number].added_to(whole) if number in self.own else whole]
        pieces = tf.split(mean, [elements_of(variable) for variable in layer.variables])
        return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, layer.variables)]

    def plan(self) -> dict[str, tuple[str, str]]:
        """By layer's name, its first variable's path: the scheme (kv, sfb, ...), and the reason in words, of the newest plan."""
        return {layer.name: self.session.plan_of(self.model, number) for layer, number in zip(self.layers, self.numbers)}

    def bytes_of_plan(self) -> tuple[int, int]:
        """Of payload that the busiest worker sends in a step: were all gradients sent whole, and as the newest plan has them."""
        return self.session.bytes_of_plan(self.model, self.numbers)


def in_form(mean: Gradient, form: Form) -> Gradient:
    """Dense where the gradient is, or that of the step that was traced first was."""
    if form.indices is None or not isinstance(mean, tf.IndexedSlices):
        return tf.cast(tf.convert_to_tensor(mean), form.dtype)
    return tf.IndexedSlices(tf.cast(mean.values, form.dtype), tf.cast(mean.indices, form.indices), mean.dense_shape)


def merged(rows: tf.IndexedSlices) -> tf.IndexedSlices:
    """The rows of each entry as one, their sum in the order in which they come. TensorFlow adds several rows to one entry in the
    order of its threads, so that a variable would end with other bits on every worker."""
    with tf.device("/cpu:0"):  # a GPU sums in no order of its own
        entries, places = tf.unique(rows.indices)
        values = tf.math.unsorted_segment_sum(rows.values, places, tf.size(entries))
    return tf.IndexedSlices(values, entries, rows.dense_shape)


def compare(session: Session, variables: Iterable[Variable]) -> None:
    """Raises PoseidonError on a worker whose variables are not named, shaped and typed as rank 0's, which ends the job."""
    session.compare_models([declared.variable(path_of(variable), variable.shape, tf.as_dtype(variable.dtype).name)
                            for variable in variables])


def numbers_of(variable: Variable) -> np.ndarray[Any, Any]:
    """A copy of a variable's numbers, those of half precision as float32."""
    resource = resource_of(variable)
    narrow = resource.dtype in (tf.float16, tf.bfloat16)
    return np.array(tf.cast(resource, tf.float32).numpy() if narrow else tf.convert_to_tensor(resource).numpy())


def differing(session: Session, variables: Iterable[Variable]) -> list[str]:
    """The paths of those variables that are not the same on all workers, bit for bit; every worker gets the answer."""
    variables = list(variables)
    with tf.init_scope():
        differs = session.differing([numbers_of(variable).tobytes() for variable in variables])
    return [path_of(variable) for variable, differing in zip(variables, differs) if differing]


def broadcast(session: Session, variables: Iterable[Variable], root: int = 0) -> bool:
    """Leaves rank `root`'s numbers in everybody's variables, as far as they are numbers, or true and false; whether that changed
    a worker's. Eagerly, also while a function is traced."""
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
            if resource.dtype not in FLOATS and not resource.dtype.is_integer and not resource.dtype.is_bool:
                continue
            numbers = numbers_of(resource).reshape(-1)
            if resource.dtype not in FLOATS:
                numbers = numbers.astype(np.int64)  # whose bits keep those of uint64 too
            before = numbers.tobytes()
            session.broadcast(view_of(numbers.data), root)
            if numbers.tobytes() != before:
                changed[0] += 1
                resource.assign(tf.cast(tf.reshape(numbers, resource.shape), resource.dtype))
    session.sum(changed)
    return changed[0] > 0
