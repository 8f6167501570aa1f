# SPDX-License-Identifier: Apache-2.0
"""What worker 0 of a script's job leaves in its run directory, for `poseidon report`: the files of `poseidon train`, without what only the
trainer knows (losses, tests, weights) and with rank 0's spans alone."""
from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
from typing import TYPE_CHECKING, Any

from . import library as c

if TYPE_CHECKING:
    from .session import Session, Span

SPANS = 30_000  # of a job whose user asks for none, as many as the trainer keeps


def write(session: Session, folder: str | os.PathLike[str]) -> None:
    """Never raises: what cannot be written is said, and the job ends well."""
    place = pathlib.Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        spans = session.take_trace()
        for name, content in (("summary.json", summary_of(session, spans)), ("plan.json", plan_of(session)), ("trace.json", trace_of(session, spans))):
            partial = place / (name + ".part")
            partial.write_text(json.dumps(content, indent=None if name == "trace.json" else 1) + "\n")
            os.replace(partial, place / name)
    except OSError as failure:
        print(f"poseidon: warning: {place} has no account of this run: {failure.strerror}", file=sys.stderr, flush=True)


def layers_of(session: Session) -> list[tuple[str, str, c.LayerPlan, c.LayerStatistics]]:
    """Name, shape, plan and counts of every layer of every model."""
    return [(name, shape, session.layer_plan(one.model, at), session.layer_statistics(one.model, at))
            for one in session.declared for at, (name, shape) in enumerate(one.layers)]


def sent_and_received(known: c.LayerStatistics) -> tuple[int, int]:
    """Bytes of payload."""
    return (known.key_value.payload_bytes_sent + known.factors.payload_bytes_sent,
            known.key_value.payload_bytes_received + known.factors.payload_bytes_received)


def summary_of(session: Session, spans: list[Span]) -> dict[str, Any]:
    known = session.statistics()
    layers = layers_of(session)
    return {"workers": session.workers, "iterations": max((counts.steps for _, _, _, counts in layers), default=0),
            "step_seconds": {"measured": step_seconds(spans, known), "predicted": sum(session.model_plan(one.model).step_seconds for one in session.declared)},
            "hidden_share": known.hidden_share,
            "waited_seconds": {"communication": max(0.0, known.waited_seconds - known.slower_workers_seconds),
                               "slower_workers": known.slower_workers_seconds},
            "link": {"bytes_per_second": known.link_bytes_per_second, "latency_seconds": known.link_latency_seconds,
                     "bandwidth_bytes_per_second": known.bandwidth},
            "plan": [{"layer": name, "scheme": plan.scheme_name.decode(), "counted_bytes": bytes_of(*(
                          amount / max(1, counts.steps) for amount in sent_and_received(counts))),
                      "measured_seconds": counts.seconds / max(1, counts.steps)} for name, _, plan, counts in layers]}


def bytes_of(sent: float, received: float) -> dict[str, int]:
    return {"sent": round(sent), "received": round(received)}


def step_seconds(spans: list[Span], known: c.Statistics) -> float:
    """The median of the steps in the trace, from what leaves first in one to that of the next; without a trace the mean of those that were
    measured."""
    begins: dict[int, int] = {}
    for span in spans:
        if span.lane == "send":
            begins[span.step] = min(begins.get(span.step, span.begin), span.begin)
    steps = [(begins[step + 1] - begins[step]) / 1e9 for step in begins if step + 1 in begins]
    return statistics.median(steps) if steps else known.measured_seconds / max(1, known.measured_steps)


def plan_of(session: Session) -> dict[str, Any]:
    """Of the models together; empty where nothing was declared."""
    if not session.declared:
        return {}
    plans = [session.model_plan(one.model) for one in session.declared]
    times = {name: sum(getattr(plan, name) for plan in plans) for name in ("step_seconds", "compute_seconds", "wfbp_seconds", "dense_step_seconds")}
    return times | {"workers": session.workers, "switch_step": max(plan.switch_step for plan in plans),
                    "bandwidth_bytes_per_second": session.statistics().link_bytes_per_second,
                    "layers": [{"layer": name, "shape": shape, "scheme": plan.scheme_name.decode(), "reason": plan.reason.decode(errors="replace"),
                                "predicted_bytes": bytes_of(plan.bytes_sent, plan.bytes_received),
                                "predicted_seconds": plan.transfer_seconds + plan.rebuild_seconds}
                               for name, shape, plan, _ in layers_of(session)]}


def trace_of(session: Session, spans: list[Span]) -> dict[str, Any]:
    """For Perfetto too."""
    def name_of(span: Span) -> str:
        layers = session.declared[span.model].layers if span.model < len(session.declared) else []
        return f"{span.label} {layers[span.layer][0]}" if 0 <= span.layer < len(layers) else span.label
    origin = min((span.begin for span in spans), default=0)
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"worker {session.rank}"}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 0, "tid": at, "args": {"name": lane}} for at, lane in enumerate(c.LANES)]
    events += [{"ph": "X", "pid": 0, "tid": c.LANES.index(span.lane), "cat": span.lane, "name": name_of(span), "ts": (span.begin - origin) / 1000,
                "dur": (span.end - span.begin) / 1000, "args": {"step": span.step, "bytes": span.bytes}} for span in spans]
    return {"displayTimeUnit": "ms", "traceEvents": events}
