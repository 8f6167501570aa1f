# SPDX-License-Identifier: Apache-2.0
"""Measures what the first steps take per layer and reports it to the session; the final plan is made of that.

Between two marks time belongs to one layer: forward from its module's call to the next one's, with the layer's update;
backward from one layer's gradient to the next. Waiting belongs to nobody.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import library as c
from .devices import module_of

if TYPE_CHECKING:
    from ..session import Session
    from .layers import Layer


class Stopwatch:
    """Counts the time of the thread that trains, from one mark to the next, for a layer and a pass."""

    since: Any  # a mark: nanoseconds of the session's clock

    def __init__(self, session: Session, model: ctypes.c_void_p, layers: list[Layer]) -> None:
        self.library, self.session, self.model = session.c, session.handle, model
        self.layers = layers
        self.step = 0
        self.to: tuple[int, Layer] | None = None  # the pass and the layer that time runs for
        self.restart()

    def charge(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        """Counts the time since the last mark for `layer`, or where none is named for the one that the watch runs for."""
        now = self.mark()
        if layer is not None:
            self.to = which, layer
        if self.to is not None:
            which, layer = self.to
            self.took(layer, which, self.since, now)
        self.since = now

    def restart(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        """Drops the time since the last mark; from here on the watch runs for `layer`, or for none."""
        self.to = None if layer is None else (which, layer)
        self.since = self.mark()

    def share(self) -> None:
        """Divides the time since the last mark, which is the optimizer's, among all layers by their size."""
        self.divide(self.since, self.mark())
        self.restart()

    def mark(self) -> Any:
        return self.library.now(self.session)

    def took(self, layer: Layer, which: int, begin: Any, end: Any) -> None:
        self.library.timed(self.model, layer.id, self.step, which, begin, end)

    def divide(self, begin: Any, end: Any) -> None:
        elements, time = sum(layer.elements for layer in self.layers), end - begin
        for layer in self.layers:
            end = begin + time * layer.elements // elements
            self.library.timed(self.model, layer.id, self.step, c.FORWARD, begin, end)
            begin = end

    def tell(self) -> None:
        """Reports to the session all times of the step that has ended."""


class DeviceStopwatch(Stopwatch):
    """Marks are events of the device, because the host only launches a layer's work and does not wait for it."""

    def __init__(self, session: Session, model: ctypes.c_void_p, layers: list[Layer]) -> None:
        self.device = layers[0].device
        self.streams = module_of(self.device)
        self.kept: list[Callable[[Callable[[Any], int]], None]] = []  # reports for when the marks have been reached
        super().__init__(session, model, layers)

    # What a compiler traces has no marks, because it would make events of its own of them: what a compiled forward pass takes
    # counts for the layer whose gradient comes first.

    def charge(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        if not torch.compiler.is_compiling():
            super().charge(which, layer)

    def restart(self, which: int = c.FORWARD, layer: Layer | None = None) -> None:
        if not torch.compiler.is_compiling():
            super().restart(which, layer)

    def mark(self) -> Any:
        event = self.streams.Event(enable_timing=True)
        event.record(self.streams.current_stream(self.device))
        return event

    def took(self, layer: Layer, which: int, begin: Any, end: Any) -> None:
        took = super().took
        self.kept.append(lambda moment: took(layer, which, moment(begin), moment(end)))

    def divide(self, begin: Any, end: Any) -> None:
        divide = super().divide
        self.kept.append(lambda moment: divide(moment(begin), moment(end)))

    def tell(self) -> None:
        if not self.kept:
            return
        last = self.mark()
        last.synchronize()
        now = self.library.now(self.session)
        for tell in self.kept:
            tell(lambda mark: now - int(mark.elapsed_time(last) * 1e6))
        self.kept = []


def stopwatch_of(session: Session, model: ctypes.c_void_p, layers: list[Layer]) -> Stopwatch:
    return (Stopwatch if layers[0].device.type == "cpu" else DeviceStopwatch)(session, model, layers)
