# SPDX-License-Identifier: Apache-2.0
"""A worker's spans as JSON for Perfetto or chrome://tracing: the core's, and a front end's own."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import PoseidonError
from .library import LANES
from .session import Session, Span

CORE = 1  # the process of a trace that the core's spans are in; a front end's own are in process 0


class Event(NamedTuple):
    """One box of the trace, in nanoseconds."""

    process: int
    thread: int
    category: str
    name: str
    begin: float
    end: float
    arguments: dict[str, Any]


def check_has_spans(session: Session) -> None:
    if session.options.trace_spans == 0:
        raise PoseidonError("the job was joined without spans to trace, expected init(trace_spans=100_000) before",
                            "FAILED_PRECONDITION")


def of_core(span: Span, layer: str) -> Event:
    """A span of the layer with that name; empty where it belongs to none."""
    return Event(CORE, LANES.index(span.lane), span.lane, f"{span.label} {layer}".rstrip(), span.begin, span.end,
                 {"step": span.step, "bytes": span.bytes, "layer": span.layer})


def chrome_trace(events: Sequence[Event], front_end: tuple[str, Mapping[int, str]] | None = None,
                 **other: Any) -> dict[str, Any]:
    """Times in microseconds since the first event. `front_end`: the name of process 0 and of its threads."""
    origin = min((event.begin for event in events), default=0.0)
    processes: dict[int, tuple[str, Mapping[int, str]]] = {CORE: ("Poseidon", dict(enumerate(LANES)))}
    if front_end is not None:
        processes = {0: front_end, **processes}
    made: list[dict[str, Any]] = []
    for process, (name, lanes) in processes.items():
        made.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        made += [{"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": lane}}
                 for thread, lane in lanes.items()]
    made += [{"ph": "X", "pid": event.process, "tid": event.thread, "cat": event.category, "name": event.name,
              "ts": (event.begin - origin) / 1000, "dur": (event.end - event.begin) / 1000, "args": event.arguments}
             for event in events]
    return {"displayTimeUnit": "ms", "traceEvents": made, "otherData": other}
