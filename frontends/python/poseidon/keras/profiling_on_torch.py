# SPDX-License-Identifier: Apache-2.0
"""A model of Keras on torch, measured into a profile. Keras runs its layers past torch's hooks, so their calls are wrapped."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import library as c
from ..torch.exchange import Exchange
from ..torch.profiling import OfExchange
from . import leaves
from .models import like, without_seeds

if TYPE_CHECKING:
    from ..stopwatch import Stopwatch
    from ..torch.layer import Layer


class Measurement(OfExchange):
    """`modules_of`: the model's variables as modules of torch; `ended`: called after every step."""

    def __init__(self, model: Any, steps: int, modules_of: Callable[[Any], torch.nn.Module],
                 ended: Callable[[], None] | None = None) -> None:
        super().__init__(model.name, steps, torch.get_num_threads())
        self.model, self.modules_of, self.ended = model, modules_of, ended or self.note_step
        self.plain: list[tuple[Any, str, Callable[..., Any]]] = []  # what has been replaced
        self.step = self.replace(model, "train_step", self.train_step)

    def replace(self, owner: Any, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the method that `call` stands in for."""
        plain: Callable[..., Any] = getattr(owner, name)
        self.plain.append((owner, name, plain))
        setattr(owner, name, like(plain, call))
        return plain

    @property
    def watch(self) -> Stopwatch:
        watch = self.exchanged().model.stopwatch
        assert watch is not None, "no plan is final here"
        return watch

    def start(self) -> Exchange:
        """The model is built now."""
        self.exchange = exchange = Exchange(self.session, self.modules_of(self.model), factors=False)
        home = {parameter: layer for layer in exchange.layers for parameter in layer.parameters}
        for layer in self.model._flatten_layers(include_self=False):
            own = [home[variable.value] for variable in layer._trainable_variables if variable.value in home]
            if own:
                self.time_call(layer, own[0])
        loss = self.replace(self.model, "_compute_loss", lambda *arguments, **words: self.then_charge(loss, arguments, words))
        return exchange

    def time_call(self, layer: Any, owner: Layer) -> None:
        """Time runs for `owner` from here on, in forward passes of steps."""
        def call(*arguments: Any, **words: Any) -> Any:
            if torch.is_grad_enabled():
                self.watch.charge()
                self.watch.charge(c.FORWARD, owner)
            return plain(*arguments, **words)
        plain = self.replace(layer, "call", call)

    def then_charge(self, loss: Callable[..., Any], arguments: Any, words: Any) -> Any:
        """What comes behind the loss is the backward pass."""
        made = loss(*arguments, **words)
        if torch.is_grad_enabled():
            self.watch.charge()
        return made

    def train_step(self, batch: Any) -> Any:
        exchange = self.exchange or self.start()
        self.batch = leaves.samples_in(batch)
        exchange.passes.begin()
        self.watch.restart()
        logs = self.step(batch)
        self.watch.share()  # since the end of the backward pass: the update
        self.ended()
        return logs

    def tensor_names(self) -> dict[torch.nn.Parameter, str]:
        return {variable.value: variable.path for variable in without_seeds(self.model, self.model.variables)}

    def detach(self) -> None:
        for owner, name, _ in reversed(self.plain):
            vars(owner).pop(name, None)
        super().detach()
