# SPDX-License-Identifier: Apache-2.0
"""What a run of `poseidon train`, or of a program (poseidon/c/run_files.h), has written into its folder, as run_page.py shows it."""
from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import PoseidonError
from .library import LANES  # threads of a worker in trace.json, by number



class Span(NamedTuple):
    """An activity of a worker, in seconds of its clock."""

    worker: int
    lane: str
    label: str  # "forward conv1", "push ip1"
    step: int
    begin: float
    end: float
    model: int = 0  # of a script's

    @property
    def layer(self) -> str:
        return self.label.partition(" ")[2]

    @property
    def is_forward(self) -> bool:
        return self.lane == "compute" and self.label.split(" ")[0] == "forward"


class Step(NamedTuple):
    """One step of one worker in the trace, in seconds of its clock."""

    number: int
    worker: int
    computes: bool      # whether the trace has its forward pass; else it begins with what leaves first
    begin: float
    next_begin: float   # of the next step, likewise
    landed: float       # when every layer's mean has landed
    spans: Sequence[Span]  # of the step, and of the next one's forward pass


class Worker(NamedTuple):
    """Seconds of a step, means over those that were measured."""

    rank: int
    computing: float
    waiting: float


class Record(NamedTuple):
    folder: pathlib.Path
    summary: Mapping[str, Any]
    plan: Mapping[str, Any]       # empty where one worker exchanged nothing
    metrics: Sequence[Mapping[str, Any]]
    spans: Sequence[Span]

    @property
    def final_step(self) -> int:
        """The first one of the newest plan, as the trace counts steps: iterations of the trainer, also where it has resumed."""
        return int(self.plan.get("switch_step", 0) + self.summary.get("first_iteration", 0))

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        return [line for line in self.metrics if line.get("kind") == kind]


def json_of(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise unreadable(path, str(failure.strerror) if isinstance(failure, OSError) else "it is not JSON") from None


def unreadable(path: pathlib.Path, why: str) -> PoseidonError:
    return PoseidonError(f"{path} cannot be read ({why}), expected one that a run wrote (train --run-dir, init(run_dir=...))", "INVALID_ARGUMENT")


def read(folder: pathlib.Path) -> Record:
    """Raises PoseidonError where the folder is none of a run, or one of its files is damaged."""
    summary = json_of(folder / "summary.json")
    if not isinstance(summary, dict) or any(key not in summary for key in ("workers", "iterations", "step_seconds", "hidden_share")):
        raise unreadable(folder / "summary.json", "it is of no run")
    metrics = []
    if (folder / "metrics.jsonl").exists():
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                metrics.append(json.loads(line))
            except ValueError:  # a full disk has cut it
                break
    spans = spans_of(json_of(folder / "trace.json")) if (folder / "trace.json").exists() else []
    plan = json_of(folder / "plan.json") if (folder / "plan.json").exists() else {}
    return Record(folder, summary, plan, metrics, spans)


def spans_of(trace: Mapping[str, Any]) -> list[Span]:
    found = []
    for event in trace.get("traceEvents", ()):
        if event.get("ph") == "X" and "step" in event.get("args", {}) and event["tid"] < len(LANES):
            begin, given = event["ts"] / 1e6, event["args"]
            found.append(Span(event["pid"], LANES[event["tid"]], event["name"], given["step"], begin, begin + event["dur"] / 1e6, given.get("model", 0)))
    return found


def typical_steps(record: Record) -> list[Step]:
    """Of each worker by rank, the same step: the one under the final plan of which rank 0's time is in the middle. None where the trace has
    no two steps behind one another."""
    if not record.spans:
        return []
    model = statistics.mode(span.model for span in record.spans)
    by_step: dict[tuple[int, int], list[Span]] = {}
    for span in record.spans:
        if span.model == model:
            by_step.setdefault((span.worker, span.step), []).append(span)
    later = record.final_step
    computes = any(span.is_forward and span.step > later for span in record.spans)
    begins = {key: min(first) for key, spans in by_step.items()
              if (first := [span.begin for span in spans if (span.is_forward if computes else span.lane == "send")])}
    whole = sorted((begins[0, step + 1] - begins[0, step], step) for worker, step in begins
                   if worker == 0 and step > later and (0, step + 1) in begins)
    if not whole:
        return []
    number = whole[len(whole) // 2][1]
    return [step_of(computes, by_step[worker, number], by_step[worker, number + 1], begins[worker, number], begins[worker, number + 1])
            for worker in sorted({worker for worker, _ in begins}) if (worker, number) in begins and (worker, number + 1) in begins]


def step_of(computes: bool, spans: Sequence[Span], following: Sequence[Span], begin: float, next_begin: float) -> Step:
    landed = max((span.end for span in spans if span.lane in ("receive", "rebuild")), default=begin)
    return Step(spans[0].step, spans[0].worker, computes, begin, next_begin, landed,
                [*spans, *(span for span in following if span.is_forward)])


def workers_of(record: Record) -> list[Worker]:
    """By rank; none where nothing was measured. A step takes all workers as long, and what one does not compute it waits."""
    waited, computed = record.summary.get("waited_seconds"), record.summary.get("computed_seconds", ())
    if not waited or not waited["steps"]:
        return []
    return [Worker(rank, seconds / waited["steps"], max(0.0, waited["of"] - seconds) / waited["steps"]) for rank, seconds in enumerate(computed)]
