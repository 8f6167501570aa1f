# SPDX-License-Identifier: Apache-2.0
"""The stopwatch of models whose gradients are on a device."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import library as c
from ..stopwatch import Stopwatch
from .devices import module_of

if TYPE_CHECKING:
    from ..session import Session
    from ..stopwatch import Timed
    from .layer import Layer


class DeviceStopwatch(Stopwatch):
    """Marks are events of the device, because the host only launches a layer's work and does not wait for it."""

    def __init__(self, session: Session, model: ctypes.c_void_p, layers: Sequence[Layer]) -> None:
        self.device = layers[0].device
        self.streams = module_of(self.device)
        self.kept: list[Callable[[Callable[[Any], int]], None]] = []  # reports for when the marks have been reached
        super().__init__(session, model, layers)

    # What a compiler traces has no marks, because it would make events of its own of them: what a compiled forward pass takes
    # counts for the layer whose gradient comes first.

    def charge(self, which: int = c.FORWARD, layer: Timed | None = None) -> None:
        if not torch.compiler.is_compiling():
            super().charge(which, layer)

    def restart(self, which: int = c.FORWARD, layer: Timed | None = None) -> None:
        if not torch.compiler.is_compiling():
            super().restart(which, layer)

    def mark(self) -> Any:
        event = self.streams.Event(enable_timing=True)
        event.record(self.streams.current_stream(self.device))
        return event

    def took(self, layer: Timed, which: int, begin: Any, end: Any) -> None:
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


def stopwatch_of(session: Session, model: ctypes.c_void_p, layers: Sequence[Layer]) -> Stopwatch:
    return (Stopwatch if layers[0].device.type == "cpu" else DeviceStopwatch)(session, model, layers)
