# SPDX-License-Identifier: Apache-2.0
"""A model that one worker trains: Keras trains it as always, and what several workers would refuse of it is refused here too, so that
it is found before there are several."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import profiling
from . import callbacks
from .models import like


def watch(model: Any, refuse: Callable[[Any], None],
          measurement: Callable[[Any, int, Callable[[], None]], profiling.Measurement]) -> None:
    """Has `refuse` look at `model` now and whenever fit begins; raises what it raises. Where `poseidon profile` asks for it, the
    model's steps are measured."""
    if (asked := profiling.take_asked()) is not None:
        asked.begin(measurement(model, asked.steps, asked.note_step))
    refuse(model)
    if "fit" in vars(model):  # it is watched already
        return
    plain = model.fit

    def fit(*arguments: Any, **words: Any) -> Any:
        refuse(model)
        callbacks.given(words.get("callbacks"))
        return plain(*arguments, **words)
    model.fit = like(plain, fit)
