# SPDX-License-Identifier: Apache-2.0
"""What autograd adds to parameters in a backward pass, seen before any exchange has it."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .replay import Replay, largest
from .under_way import UnderWay

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .layer import Layer
    from .product import Product
    from .replay import Gradients


class Local(NamedTuple):
    """A gradient of this worker's backward pass, before any exchange."""

    gradient: torch.Tensor | None
    size: float  # no sum of the sizes of the terms of one number is larger
    terms: int


class Pass:
    """The gradients of a backward pass so far."""

    def __init__(self) -> None:
        self.task = -1  # its graph task
        self.nested = False  # gradients came in a backward pass inside it
        self.before: Gradients = {}  # what parameters held when it began
        self.own: Gradients = {}  # what autograd added
        self.products: dict[Layer, list[tuple[torch.Tensor, torch.Tensor]]] = {}  # factors that were handed over instead
        self.by_the_side: dict[int, Replay] = {}  # by graph task: what can be said before a second run

    def open(self, layers: Sequence[Layer]) -> None:
        """A gradient comes: keeps what is there already, as this pass finds it."""
        task = torch._C._current_graph_task_id()
        if self.own or self.products:
            self.nested = self.nested or task != self.task
        elif task != self.task:
            self.task = task
            self.before = {}
            for layer in layers:
                for parameter in layer.parameters:
                    held = layer.before if layer.table and parameter.grad is None else parameter.grad
                    if held is not None and not isinstance(held, UnderWay):
                        self.before[parameter] = held.detach().clone()

    def add(self, parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
        own = gradient.detach().clone()
        self.own[parameter] = self.own[parameter] + own if parameter in self.own else own

    def local(self, layer: Layer, parameter: torch.nn.Parameter) -> Local:
        """A parameter's gradient, with the plain product of factors."""
        gradient = self.own.get(parameter)
        size, terms = largest(gradient), 0
        if gradient is not None:
            gradient = gradient.to(layer.dtype)
        for dy, x in self.products.get(layer, ()):
            is_weight = parameter is layer.parameters[0]
            product = dy.t().mm(x) if is_weight else dy.sum(0)
            size += largest(dy.abs().t().mm(x.abs()) if is_weight else dy.abs().sum(0))
            terms += len(dy)
            gradient = product if gradient is None else gradient + product
        return Local(gradient, size, terms)


class Watch:
    """Over parameters, while gradients are compared. `added`: called with a parameter and what autograd is about to add to it."""

    def __init__(self, added: Callable[[torch.nn.Parameter, torch.Tensor | None], None]) -> None:
        self.added = added
        self.watched: dict[torch.nn.Parameter, tuple[Any, RemovableHandle]] = {}

    def over(self, layers: Sequence[Layer]) -> None:
        """By the node that adds, before it does. A hook of the parameter itself would make its Linear's gradient come whole."""
        for layer in layers:
            for parameter in layer.parameters:
                if parameter.requires_grad and parameter not in self.watched:
                    with torch.enable_grad():
                        made: Any = parameter.view_as(parameter).grad_fn
                    node = made.next_functions[0][0]
                    self.watched[parameter] = node, node.register_prehook(functools.partial(self.adds, parameter))

    def adds(self, parameter: torch.nn.Parameter, gradients: Sequence[torch.Tensor | None]) -> None:
        self.added(parameter, gradients[0])

    def ends(self) -> None:
        for _, handle in self.watched.values():
            handle.remove()
        self.watched.clear()

    def sees(self, layer: Product) -> bool:
        return layer.parameters[0] in self.watched
