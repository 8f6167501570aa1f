# SPDX-License-Identifier: Apache-2.0
"""A model that one worker trains: Keras trains it as always, and what several workers would refuse of it is refused here too, so that
it is found before there are several."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .. import profiling
from . import callbacks
from .models import like

_watched: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(model: Any, refuse: Callable[[Any], None],
          measurement: Callable[[Any, int, Callable[[], None]], profiling.Measurement]) -> None:
    """Has `refuse` look at `model` now and whenever fit begins; raises what it raises. Where `poseidon profile` asks for it, the
    model's steps are measured."""
    if (asked := profiling.take_asked()) is not None:
        asked.begin(measurement(model, asked.steps, asked.note_step))
    refuse(model)
    if model in _watched:
        return
    plain = model.fit

    def fit(*arguments: Any, **words: Any) -> Any:
        refuse(model)
        callbacks.given(words.get("callbacks"))
        return plain(*arguments, **words)
    model.fit = like(plain, fit)
    _watched.add(model)


def release() -> None:
    """Watches no model any more; each is as it was before."""
    while _watched:
        del _watched.pop().fit
