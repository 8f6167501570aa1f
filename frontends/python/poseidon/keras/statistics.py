# SPDX-License-Identifier: Apache-2.0
"""The variables of a model that no optimizer updates: moving statistics, counters. Each worker's are of its own batches."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from .metrics import Kinds, combine, kind_of
from .models import own_of_each_worker

if TYPE_CHECKING:
    from .training import Backend


class Statistics:
    """A model's. Where they were the same on all workers is remembered, so that what has been counted since is counted once."""

    def __init__(self, model: Any, backend: Backend) -> None:
        self.model, self.backend = model, backend
        self.agreed: dict[int, np.ndarray[Any, Any]] = {}

    def remember(self) -> None:
        """They are the same on all workers."""
        made_so = [variable for layer in self.model._flatten_layers() for variable in layer._non_trainable_variables]
        self.agreed = {id(variable): np.array(variable) for variable in made_so}

    def unite(self, kinds: Kinds) -> None:
        """Those of all workers: what has been added since they were the same is added up, a maximum is the largest, what Keras' user
        has given an `aggregation` has it. Others that are no whole numbers become their means."""
        own = own_of_each_worker(self.model)
        if not self.backend.differing(own):
            return
        groups: dict[str, list[Any]] = {}
        for variable in own:
            groups.setdefault(self.kind_of(variable, kinds), []).append(variable)
        counters = groups.pop("sum", [])
        for variable in counters:
            variable.assign(np.array(variable) - self.agreed[id(variable)])
        self.backend.sum(counters)
        for variable in counters:
            variable.assign(np.array(variable) + self.agreed[id(variable)])
        groups.pop("none", None)
        for kind, variables in sorted(groups.items()):
            combine(self.backend, variables, lambda _, kind=kind: kind)
        self.remember()

    def kind_of(self, variable: Any, kinds: Kinds) -> str:
        if getattr(variable, "aggregation", None) == "sum":
            kind = "sum"
        else:
            kind = kind_of(variable, kinds, "mean" if keras.backend.is_float_dtype(variable.dtype) else "none")
        return "none" if kind == "sum" and id(variable) not in self.agreed else kind
