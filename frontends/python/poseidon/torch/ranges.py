# SPDX-License-Identifier: Apache-2.0
"""Ranges of torch.profiler for what an exchange does: "poseidon::push fc1", "poseidon::wait fc1", "poseidon::land fc1" (the
wait and what follows it) and, with overlap, "poseidon::update fc1".

The functions of an exchange are others while a profiler runs. Whether one does is asked once per step, so a profiler sees the
ranges of the steps that begin while it runs, and steps without one pay for that question alone.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .exchange import Exchange

# Methods of an exchange whose first argument is the layer, or the layers, that they are for.
RANGES = {"push_dense": "push", "push_factors": "push", "push_rows": "push", "land": "land", "first_landed": "wait",
          "update_layers": "update"}


def name_of(layers: Any) -> str:
    """Of one layer, or of the first of several."""
    if not isinstance(layers, list):
        return str(layers.name)
    return f"{layers[0].name}" + (f" and {len(layers) - 1} more" if len(layers) > 1 else "")


class Ranges:
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.on = False

    def follow_profiler(self) -> None:
        """Before a step of the exchange: its functions make ranges if a profiler runs on this thread, else none."""
        if torch._C._autograd._profiler_enabled() != self.on:
            self.on = not self.on
            (self.begin if self.on else self.end)()

    def begin(self) -> None:
        functions = vars(self.exchange)
        self.plain_wait = functions["wait"]
        functions["wait"] = self.waits
        for method, verb in RANGES.items():
            functions[method] = self.ranged(verb, getattr(self.exchange, method))

    def end(self) -> None:
        functions = vars(self.exchange)
        functions["wait"] = self.plain_wait
        for method in RANGES:
            del functions[method]

    @staticmethod
    def ranged(verb: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(layers: Any, *arguments: Any, **words: Any) -> Any:
            with torch.profiler.record_function(f"poseidon::{verb} {name_of(layers)}"):
                return method(layers, *arguments, **words)
        return call

    def waits(self, model: Any, number: int) -> None:
        """As Exchange.wait, which knows a layer by its number."""
        declared = (*self.exchange.layers, *self.exchange.shared)
        with torch.profiler.record_function(f"poseidon::wait {next(one.name for one in declared if one.id == number)}"):
            self.plain_wait(model, number)
