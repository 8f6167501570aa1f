# SPDX-License-Identifier: Apache-2.0
"""What worker 0 of a script's job leaves in its run directory, for `poseidon report`: the files of `poseidon train`, with losses
and tests where the script records them, without weights, and with rank 0's spans alone. Counts are means over all steps."""
from __future__ import annotations

import contextlib
import json
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from . import library as c
from .errors import PoseidonError

if TYPE_CHECKING:
    from .session import Declared, Session, Span

SPANS = 30_000  # of a job whose user asks for none, as many as the trainer keeps
NAMES = ("summary.json", "plan.json", "trace.json", "metrics.jsonl", "report.html")  # the last one is poseidon report's


class Told(NamedTuple):
    """What is said of a session: its models that still train, by their numbers, and their spans."""

    session: Session
    models: dict[int, Declared]
    spans: list[Span]

    def layers(self) -> list[tuple[str, str, c.LayerPlan, c.LayerStatistics]]:
        """Name, shape, plan and counts of every layer; names have their model's number where there are several models."""
        several = len(self.models) > 1
        return [(f"model {number}: {name}" if several else name, shape, self.session.layer_plan(one.model, at), self.session.layer_statistics(one.model, at))
                for number, one in self.models.items() for at, (name, shape) in enumerate(one.layers)]

    def plans(self) -> list[c.Plan]:
        return [self.session.model_plan(one.model) for one in self.models.values()]


class Curves:
    """What a script records of its training, in metrics.jsonl, a line each, as `poseidon train` writes it. A file that cannot be written is
    said once, and the job goes on."""

    def __init__(self, folder: str) -> None:
        self.path, self.began = pathlib.Path(folder, "metrics.jsonl"), time.monotonic()
        self.file: TextIO | None = None  # open from the first line on
        self.failed = False

    def add(self, step: int, test: bool, numbers: Mapping[str, float]) -> None:
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}  # JSON has no other numbers
        line: dict[str, Any] = {"kind": "test" if test else "train", "iteration": step, "elapsed": round(time.monotonic() - self.began, 3)}
        line |= {"outputs": known} if test else known
        if self.failed:
            return
        try:
            if self.file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.file = self.path.open("a", buffering=1, encoding="utf-8")  # a line is there at once
            self.file.write(json.dumps(line) + "\n")
        except OSError as failure:
            self.failed = True
            print(f"poseidon: warning: {self.path} has no losses of this run: {failure.strerror}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()


def clear(folder: str) -> None:
    """No file of an earlier run is taken for one of this run. What cannot be removed cannot be written either, which write says."""
    for name in NAMES:
        with contextlib.suppress(OSError):
            pathlib.Path(folder, name).unlink()


def write(session: Session, folder: str) -> None:
    """Never raises: what cannot be written is said, and the job ends well."""
    place = pathlib.Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        told = told_of(session)
        for name, content in (("summary.json", summary_of(told)), ("plan.json", plan_of(told)), ("trace.json", trace_of(told))):
            partial = place / (name + ".part")
            partial.write_text(json.dumps(content, indent=None if name == "trace.json" else 1) + "\n", encoding="utf-8")
            partial.replace(place / name)
    except (OSError, PoseidonError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else failure
        print(f"poseidon: warning: {place} has no account of this run: {why}", file=sys.stderr, flush=True)


def told_of(session: Session) -> Told:
    """A model whose last span is in the first half of all has been given back, as where a layer is thawed: another one has its layers."""
    spans = session.take_trace()
    models = dict(enumerate(session.declared))
    if spans:
        middle = statistics.median(span.begin for span in spans)
        models = {number: one for number, one in models.items() if any(span.model == number and span.begin >= middle for span in spans)}
    return Told(session, models, [span for span in spans if span.model in models])


def sent_and_received(known: c.LayerStatistics) -> tuple[int, int]:
    """Bytes of payload."""
    return (known.key_value.payload_bytes_sent + known.factors.payload_bytes_sent,
            known.key_value.payload_bytes_received + known.factors.payload_bytes_received)


def summary_of(told: Told) -> dict[str, Any]:
    known, layers = told.session.statistics(), told.layers()
    return {"workers": told.session.workers, "iterations": max((counts.steps for _, _, _, counts in layers), default=0),
            "step_seconds": {"measured": step_seconds(told.spans, known), "predicted": sum(plan.step_seconds for plan in told.plans())},
            "hidden_share": known.hidden_share,
            "waited_seconds": {"communication": max(0.0, known.waited_seconds - known.slower_workers_seconds),
                               "slower_workers": known.slower_workers_seconds, "steps": known.measured_steps},
            "link": {"bytes_per_second": known.link_bytes_per_second, "latency_seconds": known.link_latency_seconds,
                     "bandwidth_bytes_per_second": known.bandwidth},
            "plan": [{"layer": name, "scheme": plan.scheme_name.decode(), "counted_bytes": bytes_of(*(
                          amount / max(1, counts.steps) for amount in sent_and_received(counts))),
                      "measured_seconds": counts.seconds / max(1, counts.steps)} for name, _, plan, counts in layers]}


def bytes_of(sent: float, received: float) -> dict[str, int]:
    return {"sent": round(sent), "received": round(received)}


def step_seconds(spans: list[Span], known: c.Statistics) -> float:
    """The median of the steps in the trace, from what leaves first in one to that of the next, of the model with most spans; without a trace
    the mean of those that were measured."""
    begins: dict[int, int] = {}
    sends = [span for span in spans if span.lane == "send"]
    if sends:
        model = statistics.mode(span.model for span in sends)
        for span in sends:
            if span.model == model:
                begins[span.step] = min(begins.get(span.step, span.begin), span.begin)
    steps = [(begins[step + 1] - begins[step]) / 1e9 for step in begins if step + 1 in begins]
    return statistics.median(steps) if steps else known.measured_seconds / max(1, known.measured_steps)


def plan_of(told: Told) -> dict[str, Any]:
    """Of the models together; empty where nothing was declared."""
    plans = told.plans()
    if not plans:
        return {}
    times = {name: sum(getattr(plan, name) for plan in plans) for name in ("step_seconds", "compute_seconds", "wfbp_seconds", "dense_step_seconds")}
    return times | {"workers": told.session.workers, "switch_step": max(plan.switch_step for plan in plans),
                    "bandwidth_bytes_per_second": told.session.statistics().link_bytes_per_second,
                    "layers": [{"layer": name, "shape": shape, "scheme": plan.scheme_name.decode(), "reason": plan.reason.decode(errors="replace"),
                                "predicted_bytes": bytes_of(plan.bytes_sent, plan.bytes_received),
                                "predicted_seconds": plan.transfer_seconds + plan.rebuild_seconds}
                               for name, shape, plan, _ in told.layers()]}


def trace_of(told: Told) -> dict[str, Any]:
    """As the trainer writes it: a process is a worker, a thread a lane."""
    def name_of(span: Span) -> str:
        layers = told.models[span.model].layers
        return f"{span.label} {layers[span.layer][0]}" if 0 <= span.layer < len(layers) else span.label
    origin = min((span.begin for span in told.spans), default=0)
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"worker {told.session.rank}"}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 0, "tid": at, "args": {"name": lane}} for at, lane in enumerate(c.LANES)]
    events += [{"ph": "X", "pid": 0, "tid": c.LANES.index(span.lane), "cat": span.lane, "name": name_of(span), "ts": (span.begin - origin) / 1000,
                "dur": (span.end - span.begin) / 1000, "args": {"step": span.step, "bytes": span.bytes, "model": span.model}} for span in told.spans]
    return {"displayTimeUnit": "ms", "traceEvents": events}
