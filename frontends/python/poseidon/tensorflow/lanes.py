# SPDX-License-Identifier: Apache-2.0
"""A trace of a few steps: the ops that TensorFlow ran, by thread, beside the core's sends and receives, on one clock.

TensorFlow's profiler stamps ops with the wall clock and the core stamps spans with a steady one. Marks show how far they are
apart: ops of the profiler's, between two readings of the core's clock each. Some are made when the trace begins and some when
it ends, so that a wall clock that is being corrected meanwhile is followed. The core's clock is the trace's.
"""
from __future__ import annotations

import bisect
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from ..report import name_of
from ..session import Session
from ..trace import CORE, Event, check_has_spans, chrome_trace, of_core

if TYPE_CHECKING:
    from .exchange import Exchange

MARK = "poseidon clock"
MARKS = 20  # at each end: the narrowest counts
OP = re.compile(r"(?P<node>[^:#\s]+):(?P<kind>[A-Z_]\w*)")  # as TensorFlow names an op that it runs
UPDATE = re.compile(r"poseidon/update(_\d+)?/")  # keras/late.py
DERIVED = ("forward", "backward")  # the core's spans that follow from when gradients came: the ops are there
BACKWARD = re.compile(r"gradient_tape/(?P<scope>[^/]+)")  # TensorFlow's name for what a tape makes


class Mark(NamedTuple):
    """A span by the profiler's clock, and the readings of the core's clock before and after it; in nanoseconds."""

    before: int
    after: int
    begin: float
    end: float


class Clocks:
    """From the profiler's nanoseconds to the core's."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        """Those of the trace's beginning, and as many of its end."""
        half = len(marks) // 2
        ends = [self.nearest(part) for part in (marks[:half], marks[half:])]
        (self.at, self.offset, first_error), (until, offset, last_error) = ends
        self.drift = (offset - self.offset) / (until - self.at) if until > self.at else 0.0
        self.error = max(first_error, last_error)  # either way

    @staticmethod
    def nearest(marks: Sequence[Mark]) -> tuple[float, float, float]:
        """When, how much the core's clock is ahead, and how much more or less it may be."""
        ahead = min(mark.after - mark.end for mark in marks)
        behind = max(mark.before - mark.begin for mark in marks)
        return marks[0].begin, (ahead + behind) / 2, abs(ahead - behind) / 2

    def of_core(self, time: float) -> float:
        return time + self.offset + self.drift * (time - self.at)


def make_marks(session: Session) -> list[tuple[int, int]]:
    readings = []
    for _ in range(MARKS):
        before = session.now()
        with tf.profiler.experimental.Trace(MARK):
            pass
        readings.append((before, session.now()))
    return readings


@contextlib.contextmanager
def traced(session: Session, exchanges: Sequence[Exchange], path: str | os.PathLike[str]) -> Iterator[None]:
    """See poseidon.tensorflow.trace."""
    check_has_spans(session)
    if session.rank != 0:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        session.take_trace()  # of what was before
        tf.profiler.experimental.start(folder)
        try:
            readings = make_marks(session)
            yield
            readings += make_marks(session)
        except BaseException:
            tf.profiler.experimental.stop(save=False)
            raise
        tf.profiler.experimental.stop()
        spans = session.take_trace()
        events, threads, marks = profiled(next(pathlib.Path(folder).glob("plugins/profile/*/*.xplane.pb")))
    clocks = Clocks([Mark(*reading, *mark) for reading, mark in zip(readings, marks, strict=True)])
    events = [event._replace(begin=clocks.of_core(event.begin), end=clocks.of_core(event.end))
              for event in with_categories(events)]
    accounts = [exchange.account for exchange in exchanges]
    events += [of_core(span, name_of(span, accounts)) for span in spans if span.label not in DERIVED]
    trace = chrome_trace(events, ("TensorFlow", threads), clock_error_us=clocks.error / 1000)
    pathlib.Path(path).write_text(json.dumps(trace))
    print(f"poseidon: {os.fspath(path)} has {summary(events)}", file=sys.stderr)


def profiled(path: pathlib.Path) -> tuple[list[Event], dict[int, str], list[tuple[float, float]]]:
    """Of what TensorFlow's profiler has written: the ops, the threads' names, and where the marks are, in their order."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    events, threads, marks = [], {}, []
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                begin = line.timestamp_ns + event.offset_ps / 1000
                end = begin + event.duration_ps / 1000
                op = OP.fullmatch(name)
                if name == MARK:
                    marks.append((begin, end))
                elif op is not None:
                    threads[line.id] = line.name or str(line.id)
                    events.append(Event(0, line.id, "other", op["kind"], begin, end, {"op": op["node"]}))
    return events, threads, sorted(marks)


def with_categories(events: Sequence[Event]) -> Iterator[Event]:
    """Sorts ops by what they are for: forward and backward are those of scopes that a tape has gone back through."""
    scopes = {found["scope"] for event in events if (found := BACKWARD.search(event.arguments["op"]))}
    for event in events:
        node = event.arguments["op"]
        if UPDATE.search(node):
            yield event._replace(category="update")
        elif BACKWARD.search(node):
            yield event._replace(category="backward")
        elif not scopes.isdisjoint(node.split("/")):
            yield event._replace(category="forward")
        else:
            yield event


# ---- how much was hidden

class Times:
    """Stretches of time, joined where they touch."""

    def __init__(self, stretches: Iterable[tuple[float, float]]) -> None:
        self.stretches: list[tuple[float, float]] = []
        for begin, end in sorted(stretches):
            if self.stretches and begin <= self.stretches[-1][1]:
                self.stretches[-1] = self.stretches[-1][0], max(end, self.stretches[-1][1])
            else:
                self.stretches.append((begin, end))

    def total(self) -> float:
        return sum(end - begin for begin, end in self.stretches)

    def common(self, other: Times) -> float:
        """How long both are."""
        ends = [end for _, end in other.stretches]
        shared = 0.0
        for begin, end in self.stretches:
            for first, last in other.stretches[bisect.bisect_right(ends, begin):]:
                if first >= end:
                    break
                shared += min(end, last) - max(begin, first)
        return shared


def summary(events: Sequence[Event]) -> str:
    """In how much of the time in which gradients left or means came TensorFlow computed, in words."""
    times = {kind: Times((event.begin, event.end) for event in events if event.category == kind)
             for kind in ("backward", "forward", "update")}
    core = [event for event in events if event.process == CORE]
    ms: Callable[[float], str] = lambda nanoseconds: f"{nanoseconds / 1e6:.1f} ms"
    said = [f"{len({event.arguments['step'] for event in core})} steps"]
    for category, word in (("send", "sending"), ("receive", "receiving")):
        moved = Times((event.begin, event.end) for event in core if event.category == category)
        said.append(f"of {ms(moved.total())} of {word} {ms(moved.common(times['backward']))} beside backward ops and "
                    f"{ms(moved.common(times['forward']))} beside forward ops")
    updates = times["update"]
    said.append(f"of {ms(updates.total())} of late updates {ms(updates.common(times['forward']))} beside forward ops")
    return "; ".join(said)
