# SPDX-License-Identifier: Apache-2.0
"""A layer whose gradient is rows: the weight of an Embedding(sparse=True). No memory of the weight's size is made.

The mean is all workers' rows, unmerged, in the order of ranks, as of one process on all their batches.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from .. import declared
from .. import library as c
from .layer import Layer
from .tensors import at, view_of

if TYPE_CHECKING:
    from .core import Core
    from .devices import Moves
    from .layer import Out


class Table(Layer):
    table = True
    mean: torch.Tensor | None = None  # what has landed, a sparse tensor
    rows = 0  # of the last push

    def declaration(self, position: int) -> c.Layer:
        entries, width = self.parameters[0].shape
        return declared.table(super().declaration(position), entries, width)

    def rows_come(self) -> None:
        """Before rows are added to the gradient: what it holds of backward passes before is a mean already."""
        if not self.flying and self.waiting_for == len(self.parameters):
            self.before, self.parameters[0].grad = self.parameters[0].grad, None

    def leave(self, out: Out) -> bool:
        parameter = self.parameters[0]
        came = self.waiting_for < len(self.parameters) or self.local
        if not came:
            self.before = parameter.grad
        self.used = [came or self.before is not None]
        out.push_rows(self, parameter.grad if came else None)
        return True

    def leave_nothing(self, out: Out) -> None:
        self.used = [False]
        out.push_rows(self, None)

    def lend_rows(self, gradient: torch.Tensor | None) -> tuple[c.Rows, Moves]:
        """Lends the rows of a sparse gradient. Returns the struct that names them, and what has to be copied before they are
        pushed."""
        rows = c.Rows()
        self.rows = 0 if gradient is None else gradient._nnz()
        if gradient is None or gradient._nnz() == 0:
            return rows, []
        (indices, values), moves = self.lendable(gradient._indices().contiguous(),
                                                 gradient._values().to(self.dtype).contiguous())
        view = view_of(values)
        rows.indices, rows.values, rows.count = indices.data_ptr(), ctypes.pointer(view), len(values)
        self.lent = indices, values, view, rows
        return rows, moves

    def take(self, core: Core) -> None:
        """Copies the mean, behind what the gradient held before this backward pass."""
        self.lent = ()
        self.mean = self.landed(core)
        self.before = None

    def landed(self, core: Core) -> torch.Tensor:
        gathered, weight = core.gathered(self), self.parameters[0]
        indices = at(gathered.indices, (1, gathered.count), torch.int64).clone().to(self.device)
        values = at(gathered.values, (gathered.count, weight.shape[1]), self.dtype).to(weight.dtype, copy=True).to(self.device)
        rows = torch.sparse_coo_tensor(indices, values, weight.shape, check_invariants=False)
        return rows if self.before is None else self.before + rows

    def give(self) -> None:
        self.parameters[0].grad = self.mean if self.used[0] else None

    def peek(self, number: int, core: Core) -> torch.Tensor | None:
        return self.landed(core) if self.used[number] else None

    def release(self) -> None:
        self.mean = None
