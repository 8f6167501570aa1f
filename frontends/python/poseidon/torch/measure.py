# SPDX-License-Identifier: Apache-2.0
"""What the first steps take per layer, told to the session, whose clocks the final plan is made of.

Between two marks time belongs to one layer: forward from its module's call to the next one's, with the layer's update;
backward from one layer's gradient to the next. Waiting belongs to nobody.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from .. import library as c

if TYPE_CHECKING:
    from ..session import Session
    from .layers import Layer


class Stopwatch:
    since: int  # nanoseconds of the session's clock

    def __init__(self, session: Session, model: ctypes.c_void_p, layers: list[Layer]) -> None:
        self.library, self.session, self.model = session.c, session.handle, model
        self.layers = layers
        self.step = 0
        self.to: tuple[int, Layer] | None = None  # the pass and the layer that time runs for
        self.restart()

    def charge(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        """Time since the last mark goes to `layer`, or where it ran for already."""
        now: int = self.library.now(self.session)
        if layer is not None:
            self.to = which, layer
        if self.to is not None:
            which, layer = self.to
            self.library.timed(self.model, layer.id, self.step, which, self.since, now)
        self.since = now

    def restart(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        """Time since the last mark goes to nobody; from here it runs for `layer`."""
        self.to = None if layer is None else (which, layer)
        self.since = self.library.now(self.session)

    def share(self) -> None:
        """Time since the last mark goes to all layers by their size: the optimizer's."""
        time = self.library.now(self.session) - self.since
        elements = sum(layer.elements for layer in self.layers)
        for layer in self.layers:
            end = self.since + time * layer.elements // elements
            self.library.timed(self.model, layer.id, self.step, c.FORWARD, self.since, end)
            self.since = end
        self.restart()
