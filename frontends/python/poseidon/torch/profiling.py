# SPDX-License-Identifier: Apache-2.0
"""A model of torch, measured into a profile: it is exchanged with nobody, in a session of its own."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import library as c
from .. import profiling
from . import job, products
from .exchange import Exchange
from .hooks import Hook, keep_hooks_out_of_pickles
from .product import Product
from .table import Table
from .tensors import tensors_in

if TYPE_CHECKING:
    from .layer import Layer


class OfExchange(profiling.Measurement):
    """Whoever makes the exchange. Belongs to the thread that trains."""

    exchange: Exchange | None = None

    def exchanged(self) -> Exchange:
        assert self.exchange is not None, "a step has been made"
        return self.exchange

    def tensor_names(self) -> dict[torch.nn.Parameter, str]:
        raise NotImplementedError

    def steps(self) -> int:
        return 0 if self.exchange is None else self.exchange.step

    def layers(self) -> list[profiling.Layer]:
        names = self.tensor_names()
        return [profiling.Layer(declaration_of(layer, at), layer.id, [(names[one], one.shape) for one in layer.parameters], rows_of(layer))
                for at, layer in enumerate(self.exchanged().layers)]

    def time_product(self, layer: c.Layer, rows: int) -> float:
        exchange, outputs, inputs = self.exchanged(), int(layer.outputs), int(layer.inputs)
        device = exchange.model.device
        if device.type != "cpu":
            test = products.test(device, outputs, inputs, bool(layer.bias), 2, exchange.wishes.tf32)
            return test.seconds * rows / test.rows
        u, v, product = torch.ones(rows, outputs), torch.ones(rows, inputs), torch.empty(outputs, inputs)
        return profiling.fastest(lambda: torch.mm(u.t(), v, out=product))

    def place(self) -> str:
        device = self.exchanged().model.device
        if device.type == "cpu":
            return super().place()
        return torch.cuda.get_device_name(device) if device.type == "cuda" else f"a device of type {device.type}"

    def document(self) -> dict[str, Any]:
        if self.exchange is not None and self.exchange.model.stopwatch is not None:
            self.exchange.model.stopwatch.tell()
        with torch.no_grad():
            return super().document()

    def detach(self) -> None:
        if self.exchange is not None:
            self.exchange.detach()


class Measurement(OfExchange):
    """Of a module in a training loop of its own."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, steps: int, factors: bool = True,
                 tf32: bool = False, ended: Callable[[], None] | None = None) -> None:
        """`ended`: called after every update of an optimizer."""
        super().__init__(type(model).__name__, steps, torch.get_num_threads())
        self.model, self.ended = model, ended or self.note_step
        try:
            self.exchange = Exchange(self.session, model, optimizer, factors=factors, tf32=tf32)
        except BaseException:
            self.session.close()
            raise
        job.measured.append(self.exchange)
        keep_hooks_out_of_pickles(model)
        # Of optimizers, because a compiler may leave out what a model's hook does.
        self.hooks = [model.register_forward_pre_hook(Hook(self.note_batch), with_kwargs=True),
                      register_optimizer_step_post_hook(lambda *_: self.ended())]

    def note_batch(self, model: torch.nn.Module, arguments: object, words: object) -> None:
        if torch.is_grad_enabled():
            self.batch = next((len(one) for one in tensors_in([arguments, words]) if one.dim() > 0), self.batch)

    def tensor_names(self) -> dict[torch.nn.Parameter, str]:
        return {parameter: name for name, parameter in self.model.named_parameters()}

    def detach(self) -> None:
        job.measured.remove(self.exchanged())
        for hook in self.hooks:
            hook.remove()
        super().detach()


def declaration_of(layer: Layer, at: int) -> c.Layer:
    declared = layer.declaration(at)
    if isinstance(layer, Product) and layer.staged:
        layer.test_product(declared, workers=2)
    return declared


def rows_of(layer: Layer) -> int:
    if isinstance(layer, Product):
        return 0 if layer.more.rows == layer.rows_of_whole else int(layer.more.rows)
    return layer.rows if isinstance(layer, Table) else 0


def measure_asked(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, factors: bool = True,
                  tf32: bool = False) -> None:
    """Measures `model` where `poseidon profile` asks for it and no other is measured."""
    asked = profiling.take_asked()
    if asked is not None:
        asked.begin(Measurement(model, optimizer, asked.steps, factors, tf32, asked.note_step))
