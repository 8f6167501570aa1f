# SPDX-License-Identifier: Apache-2.0
"""How a step changes variables, read from TensorFlow's graph of it."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

PASS_ON = frozenset(("Cast", "EnsureShape", "Identity", "Reshape"))
ASSIGNS = {"AssignAddVariableOp": "sum", "AssignSubVariableOp": "sum", "ResourceScatterAdd": "sum", "ResourceScatterSub": "sum"}
CHOICES = {"Maximum": "max", "Minimum": "min"}


def kinds_in(graph: Any, variables: Iterable[Any]) -> dict[int, str]:
    """By id, of those `variables` that are changed here and in one way alone: "sum" where something is added that does not depend
    on the variable itself, "max" or "min" where the larger or the smaller one is kept."""
    captured = {id(outside): inside for outside, inside in graph.captures} if hasattr(graph, "captures") else {}
    changes: dict[str, list[tf.Operation]] = {}
    for op in graph.get_operations():
        if op.type == "AssignVariableOp" or op.type in ASSIGNS:
            changes.setdefault(op.inputs[0].name, []).append(op)
    kinds = {}
    for variable in variables:
        handle = captured.get(id(variable.value.handle))
        found = {kind_of(op, handle) for op in changes.get(handle.name, [])} if handle is not None else set()
        kind = found.pop() if len(found) == 1 else None
        if kind is not None:
            kinds[id(variable)] = kind
    return kinds


def kind_of(op: tf.Operation, handle: tf.Tensor) -> str | None:
    """Of one assignment."""
    if op.type in ASSIGNS:
        return None if depends(op.inputs[-1], handle) else ASSIGNS[op.type]
    value = made_by(op.inputs[1])
    if value.type not in ("AddV2", "Add", "Sub", *CHOICES):
        return None
    first, second = (one for one in value.inputs)
    if value.type != "Sub" and not is_read(first, handle):
        first, second = second, first
    if not is_read(first, handle) or depends(second, handle):
        return None
    return CHOICES.get(value.type, "sum")


def made_by(tensor: tf.Tensor) -> tf.Operation:
    """The op that makes the numbers of `tensor`."""
    op = tensor.op
    while op.type in PASS_ON:
        op = op.inputs[0].op
    return op


def is_read(tensor: tf.Tensor, handle: tf.Tensor) -> bool:
    op = made_by(tensor)
    return op.type == "ReadVariableOp" and op.inputs[0] is handle


def depends(tensor: tf.Tensor, handle: tf.Tensor) -> bool:
    """Whether `tensor` is made of what `handle` leads to."""
    seen, waiting = set[str](), [tensor.op]
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            if any(given is handle for given in op.inputs):
                return True
            waiting += [given.op for given in op.inputs]
    return False
