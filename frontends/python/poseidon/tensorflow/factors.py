# SPDX-License-Identifier: Apache-2.0
"""Which gradients are products of factors, or rows of a table, read from the graph as it is traced.

The gradient of a Dense kernel is x^T dy. A graph has it as a MatMul of x and dy, whatever layer it comes from; where the plan
sends the factors instead, nothing reads that MatMul, and TensorFlow leaves it out. A regularizer adds what depends on the
kernel alone. That is the same on all workers, so it is its own mean: it stays here, and is added to the mean of the product.
"""
from __future__ import annotations

import enum
from typing import Any, NamedTuple

import tensorflow as tf

# Smaller kernels share a message with other small variables (poseidon_join_small).
LEAST_BYTES = 128 * 1024
# Each number of what they make depends on one of each input's alone, or on shapes: they make the same bits on every worker,
# however many threads it has.
ELEMENTWISE = frozenset(("Abs", "Add", "AddN", "AddV2", "BroadcastTo", "Cast", "Const", "Fill", "Identity", "Mul", "Neg",
                         "OnesLike", "Reshape", "Shape", "Sign", "Square", "Sub", "Tile", "Unpack", "ZerosLike"))


class Factors(NamedTuple):
    """A gradient that is u^T v: u is [rows, in] and v is [rows, out], in the precision they were computed in. `name` is that of
    the product in the graph."""

    u: tf.Tensor
    v: tf.Tensor
    name: str


class Kind(enum.Enum):
    WHOLE = 1
    PRODUCT = 2  # a sum of products in the graph that is traced, and of a size that pays
    TABLE = 3    # IndexedSlices, as of an embedding


def kind_of(gradient: Any, variable: tf.Variable) -> Kind:
    if isinstance(gradient, tf.IndexedSlices):
        return Kind.TABLE
    return Kind.PRODUCT if _products_of(gradient, variable).products else Kind.WHOLE


class Own:
    """Terms of a kernel's gradient that depend on the kernel alone, in the graph in which they were traced."""

    def __init__(self, terms: list[tf.Tensor], kernel: tf.Variable) -> None:
        self.terms = terms
        self.kernel = kernel

    def added_to(self, mean: tf.Tensor) -> tf.Tensor:
        """In the graph that is traced now, where the kernel has to be what it was when the product was made."""
        here = tf.compat.v1.get_default_graph()
        terms = self.terms if self.terms[0].graph is here else self.copied()
        return tf.add_n([mean, *(tf.cast(term, mean.dtype) for term in terms)])

    def copied(self) -> list[tf.Tensor]:
        """The terms once more, from what the kernel is in this graph."""
        ops = {op.name: op for term in self.terms for op in _made_by(term)}
        reads = {name for name, op in ops.items() if op.type == "ReadVariableOp"}
        definition = tf.compat.v1.GraphDef(versions=self.terms[0].graph.graph_def_versions)
        for name, op in ops.items():
            if name not in reads:
                node = definition.node.add()
                node.CopyFrom(op.node_def)
                node.input[:] = [name for name in node.input if not name.startswith("^")]
        value = self.kernel.read_value()
        with tf.control_dependencies(None):  # which cannot be given to what is imported; the value has them
            return tf.graph_util.import_graph_def(  # type: ignore[no-any-return]  # TensorFlow has no annotations
                definition, {f"{name}:0": value for name in reads}, [term.name for term in self.terms], name="regularizer")


class Product(NamedTuple):
    """A gradient that is a product, and what is added to it."""

    factors: Factors
    own: Own | None


class _Summands(NamedTuple):
    """What a gradient is the sum of: products, and terms that depend on the kernel alone. Neither where it is another sum."""

    products: list[Factors]
    terms: list[tf.Tensor]


_OTHER = _Summands([], [])


def product_of(gradient: Any, kernel: tf.Variable) -> Product | None:
    """Such a gradient's parts; None of another."""
    products, terms = _products_of(gradient, kernel)
    if not products:
        return None
    factors = products[0]
    if len(products) > 1:
        # A kernel used several times: the sum of its products is the product of all their rows.
        dtype = products[0].u.dtype
        u, v = (tf.concat([tf.cast(part, dtype) for part in parts], 0)
                for parts in ([one.u for one in products], [one.v for one in products]))
        factors = Factors(u, v, factors.name)
    return Product(factors, Own(terms, kernel) if terms else None)


def _products_of(gradient: Any, kernel: tf.Variable) -> _Summands:
    """What `gradient` is the sum of, where there are products among it whose factors pay."""
    if tf.executing_eagerly() or not isinstance(gradient, tf.Tensor) or gradient.graph is not tf.compat.v1.get_default_graph():
        return _OTHER
    shape = tuple(kernel.shape)
    if len(shape) != 2 or shape[0] * shape[1] * 4 < LEAST_BYTES:
        return _OTHER
    summands = _summands_of(gradient, shape, gradient.graph.capture(kernel.handle))
    return summands if summands.products else _OTHER


def _summands_of(gradient: tf.Tensor, shape: tuple[int, ...], kernel: tf.Tensor) -> _Summands:
    op = gradient.op
    factors = _factors_of(op, shape)
    if factors is not None:
        return _Summands([factors], [])
    if _passes_on(op, shape):
        summands = _summands_of(op.inputs[0], shape, kernel)
        # A term that is cast or reshaped is not the tensor that would be added.
        if summands.products and (not summands.terms or op.type == "Identity"):
            return summands
    if op.type in ("AddN", "AddV2"):
        return _summands_of_sum(op, shape, kernel)
    return _Summands([], [gradient]) if _is_own(gradient, kernel) else _OTHER


def _summands_of_sum(op: tf.Operation, shape: tuple[int, ...], kernel: tf.Tensor) -> _Summands:
    """Of an addition: those of all that it adds."""
    products: list[Factors] = []
    terms: list[tf.Tensor] = []
    for added in op.inputs:
        summands = _summands_of(added, shape, kernel)
        if not any(summands):
            return _OTHER
        products += summands.products
        terms += summands.terms
    return _Summands(products, terms)


def _factors_of(op: tf.Operation, shape: tuple[int, ...]) -> Factors | None:
    """Of an op that is one product of x and dy, or the sum of a batch of them."""
    if op.type == "MatMul" and op.get_attr("transpose_a") and not op.get_attr("transpose_b"):
        u, v = op.inputs  # of a Dense layer on more than two axes, u has static sizes for none of its own
        return Factors(tf.ensure_shape(u, [None, shape[0]]), tf.ensure_shape(v, [None, shape[1]]), op.name)
    batch = _summed_batch(op)
    if batch is None:
        return None
    u, v = (tf.reshape(one, [-1, size]) for one, size in zip(batch.inputs, shape))
    return Factors(u, v, batch.name)


def _passes_on(op: tf.Operation, shape: tuple[int, ...]) -> bool:
    """Whether the op's result has the numbers of its input, perhaps in another precision or shape."""
    if op.type == "Reshape":
        return bool(op.inputs[0].shape == tf.TensorShape(shape))  # whose rank may be unknown
    return op.type in ("Cast", "Identity") and op.inputs[0].dtype.is_floating


def _summed_batch(op: tf.Operation) -> tf.Operation | None:
    """The products of which a matrix's gradient is the sum over a batch: Keras before 3.15 multiplies inputs of more than two
    axes so. TensorFlow sums over the axes that the matrix lacks, and reshapes to the matrix."""
    total = op.inputs[0].op if op.type == "Reshape" else None
    if total is None or total.type != "Sum" or total.inputs[1].op.type != "BroadcastGradientArgs":
        return None
    products = total.inputs[0].op
    of_factors = products.type == "BatchMatMulV2" and products.get_attr("adj_x") and not products.get_attr("adj_y")
    return products if of_factors else None


def _made_by(tensor: tf.Tensor) -> list[tf.Operation]:
    """The ops that a tensor depends on, as far as the variables that are read."""
    found, todo = {}, [tensor.op]
    while todo:
        op = todo.pop()
        if op.name not in found:
            found[op.name] = op
            if op.type != "ReadVariableOp":
                todo += [one.op for one in op.inputs]
    return list(found.values())


def _is_own(tensor: tf.Tensor, kernel: tf.Tensor) -> bool:
    """Whether it depends on the kernel alone."""
    return all(op.inputs[0] is kernel if op.type == "ReadVariableOp" else op.type in ELEMENTWISE for op in _made_by(tensor))
