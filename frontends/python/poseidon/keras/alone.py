# SPDX-License-Identifier: Apache-2.0
"""A model that one worker trains: Keras trains it as always, and what several workers would refuse of it is refused here too, so that
it is found before there are several."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import callbacks
from .models import like


def watch(model: Any, refuse: Callable[[Any], None]) -> None:
    """Has `refuse` look at `model` now and whenever fit begins; raises what it raises."""
    refuse(model)
    if "fit" in vars(model):  # it is watched already
        return
    plain = model.fit

    def fit(*arguments: Any, **words: Any) -> Any:
        refuse(model)
        callbacks.given(words.get("callbacks"))
        return plain(*arguments, **words)
    model.fit = like(plain, fit)
