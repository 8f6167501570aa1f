# SPDX-License-Identifier: Apache-2.0
"""Measures what the first steps take per layer and reports it to the session; the final plan is made of that.

Between two marks time belongs to one layer: forward from its module's call to the next one's, with the layer's update;
backward from one layer's gradient to the next. Waiting belongs to nobody.

A framework whose graph runs outside Python reports these times from there (frontends/tensorflow/ops.cc).
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from . import library as c

if TYPE_CHECKING:
    from .session import Session


class Timed(Protocol):
    """A layer."""

    id: int
    elements: int


class Stopwatch:
    """Counts the time of the thread that trains, from one mark to the next, for a layer and a pass."""

    since: Any  # a mark: nanoseconds of the session's clock

    def __init__(self, session: Session, model: ctypes.c_void_p, layers: Sequence[Timed]) -> None:
        self.library, self.session, self.model = session.c, session.handle, model
        self.layers = layers
        self.step = 0
        self.to: tuple[int, Timed] | None = None  # the pass and the layer that time runs for
        self.restart()

    def charge(self, which: int = c.FORWARD, layer: Timed | None = None) -> None:
        """Counts the time since the last mark for `layer`, or where none is named for the one that the watch runs for."""
        now = self.mark()
        if layer is not None:
            self.to = which, layer
        if self.to is not None:
            which, layer = self.to
            self.took(layer, which, self.since, now)
        self.since = now

    def restart(self, which: int = c.FORWARD, layer: Timed | None = None) -> None:
        """Drops the time since the last mark; from here on the watch runs for `layer`, or for none."""
        self.to = None if layer is None else (which, layer)
        self.since = self.mark()

    def share(self) -> None:
        """Divides the time since the last mark, which is the optimizer's, among all layers by their size."""
        self.divide(self.since, self.mark())
        self.restart()

    def mark(self) -> Any:
        return self.library.now(self.session)

    def took(self, layer: Timed, which: int, begin: Any, end: Any) -> None:
        self.library.timed(self.model, layer.id, self.step, which, begin, end)

    def divide(self, begin: Any, end: Any) -> None:
        elements, time = sum(layer.elements for layer in self.layers), end - begin
        for layer in self.layers:
            end = begin + time * layer.elements // elements
            self.library.timed(self.model, layer.id, self.step, c.FORWARD, begin, end)
            begin = end

    def tell(self) -> None:
        """Reports to the session all times of the step that has ended."""
