# SPDX-License-Identifier: Apache-2.0
"""Which gradients are products of factors, or rows of a table, read from the graph as it is traced.

The gradient of a Dense kernel is x^T dy. A graph has it as a MatMul of x and dy, whatever layer it comes from; where the plan
sends the factors instead, nothing reads that MatMul, and TensorFlow leaves it out.
"""
from __future__ import annotations

import enum
from typing import Any, NamedTuple

import tensorflow as tf

# Smaller kernels share a message with other small variables (poseidon_join_small).
LEAST_BYTES = 128 * 1024


class Factors(NamedTuple):
    """A gradient that is u^T v: u is [rows, in] and v is [rows, out], in the precision they were computed in."""

    u: tf.Tensor
    v: tf.Tensor


class Kind(enum.Enum):
    WHOLE = 1
    PRODUCT = 2  # a sum of products in the graph that is traced, and of a size that pays
    TABLE = 3    # IndexedSlices, as of an embedding


def kind_of(gradient: Any, variable: Any) -> Kind:
    if isinstance(gradient, tf.IndexedSlices):
        return Kind.TABLE
    return Kind.PRODUCT if _products_of(gradient, variable) else Kind.WHOLE


def factors_of(gradient: Any, variable: Any) -> Factors | None:
    """The factors of such a gradient; None of another."""
    products = _products_of(gradient, variable)
    if len(products) < 2:
        return products[0] if products else None
    # A kernel used several times: the sum of its products is the product of all their rows.
    dtype = products[0].u.dtype
    return Factors(*(tf.concat([tf.cast(part, dtype) for part in parts], 0) for parts in zip(*products)))


def _products_of(gradient: Any, variable: Any) -> list[Factors]:
    if tf.executing_eagerly() or not isinstance(gradient, tf.Tensor) or gradient.graph is not tf.compat.v1.get_default_graph():
        return []
    shape = tuple(variable.shape)
    if len(shape) != 2 or shape[0] * shape[1] * 4 < LEAST_BYTES:
        return []
    return _products(gradient, shape)


def _products(gradient: tf.Tensor, shape: tuple[int, ...]) -> list[Factors]:
    """Empty where the gradient is not a sum of products."""
    op = gradient.op
    if op.type == "MatMul" and op.get_attr("transpose_a") and not op.get_attr("transpose_b"):
        u, v = op.inputs  # of a Dense layer on more than two axes, u has static sizes for none of its own
        return [Factors(tf.ensure_shape(u, [None, shape[0]]), tf.ensure_shape(v, [None, shape[1]]))]
    if op.type in ("Cast", "Identity") and op.inputs[0].dtype.is_floating:
        return _products(op.inputs[0], shape)
    if op.type == "Reshape" and tuple(op.inputs[0].shape) == shape:
        return _products(op.inputs[0], shape)
    if op.type in ("AddN", "AddV2"):
        terms = [_products(term, shape) for term in op.inputs]
        return [product for term in terms for product in term] if all(terms) else []
    return []
