# SPDX-License-Identifier: Apache-2.0
"""Layers as every front end declares them to the core, whatever framework their numbers are of."""
from __future__ import annotations

import math
from collections.abc import Sequence

from . import library as c

# Most tensors of a joined layer that a message lists one by one.
MOST_SHAPES = 8


def dimensions(shape: Sequence[int]) -> str:
    """As messages name a tensor's: "64x32"."""
    return "x".join(map(str, shape)) or "1"


def variable(name: str, shape: Sequence[int], dtype: str, frozen: bool = False) -> str:
    """A variable in the lines that workers compare (Session.compare_models)."""
    return f"{name} {dimensions(shape)} {dtype}" + (", frozen" if frozen else "")


def shape_of(shapes: Sequence[Sequence[int]]) -> str:
    """As messages name the tensors that are one layer: "64x32+64"."""
    if len(shapes) > MOST_SHAPES:
        return f"{len(shapes)} tensors"
    return "+".join(map(dimensions, shapes))


def declaration(name: str, shapes: Sequence[Sequence[int]], dtype: int, position: int) -> c.Layer:
    """A layer of tensors of these shapes, whose numbers follow one another in one gradient. `dtype`: as the header has it.
    `position`: in the order in which the forward pass needs the layers, from 0."""
    return c.Layer(name=name.encode(), shape=shape_of(shapes).encode(), elements=sum(map(math.prod, shapes)), dtype=dtype,
                   forward_position=position)


def matrix(declared: c.Layer, outputs: int, inputs: int, bias: bool = False) -> c.Layer:
    """Says that the layer's gradient is a product of factors, [outputs, inputs], with the sums of the first one's columns behind
    it where it has a `bias`."""
    declared.outputs, declared.inputs, declared.bias = outputs, inputs, bias
    return declared


def table(declared: c.Layer, entries: int, width: int) -> c.Layer:
    """Says that the layer's gradient is rows: of some of its entries, `width` numbers each."""
    declared.outputs, declared.inputs, declared.table = entries, width, True
    return declared
