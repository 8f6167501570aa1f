# SPDX-License-Identifier: Apache-2.0
"""Reports of what Poseidon did, for people and for plots: the plan per layer beside what was measured, and numbers per step.

Bytes and times are the core's own counts, which it keeps in every job: a report needs no option of init. A file with the
spans of a timeline needs init(trace_spans=...).
"""
from __future__ import annotations

import json
import os
import pathlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import library as c
from .. import trace

if TYPE_CHECKING:
    from ..session import Session, Span
    from .exchange import Exchange
    from .layers import Layer

RULES = ("dense", "factors", "rows")  # how a layer goes, in words


class Moved(NamedTuple):
    """Bytes and times of layers over some steps; of this worker."""

    steps: int
    sent: int  # bytes, with the headers of frames
    received: int
    seconds: float  # from push to landed mean

    def since(self, before: Moved) -> Moved:
        return Moved(self.steps - before.steps, self.sent - before.sent, self.received - before.received,
                     self.seconds - before.seconds)

    def per_step(self, amount: float) -> float:
        return amount / self.steps if self.steps else 0.0


NOTHING = Moved(0, 0, 0, 0.0)


def moved(session: Session, model: object, layer: int) -> Moved:
    known = session.layer_statistics(model, layer)  # type: ignore[arg-type]  # a handle
    kinds = (known.key_value, known.factors)
    return Moved(known.steps, sum(kind.header_bytes_sent + kind.payload_bytes_sent for kind in kinds),
                 sum(kind.header_bytes_received + kind.payload_bytes_received for kind in kinds), known.seconds)


def moved_by_layer(exchange: Exchange) -> dict[int, Moved]:
    return {layer.id: moved(exchange.session, exchange.model, layer.id) for layer in exchange.layers}


def rule_of(layer: Layer, plan: c.LayerPlan) -> str:
    return "rows" if layer.table else "factors" if plan.takes != c.GRADIENT else "dense"


def amount(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} GB"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def sentence_of_plan(exchange: Exchange) -> str:
    """One line: what the final plan does with each kind of layer, and what that saves."""
    plan = exchange.session.model_plan(exchange.model)
    plans = [(layer, exchange.session.layer_plan(exchange.model, layer.id)) for layer in exchange.layers]
    kinds: dict[str, list[int]] = {}
    for layer, known in plans:
        kinds.setdefault(rule_of(layer, known), []).append(known.bytes_sent)
    said = ", ".join(f"{len(kinds[rule])} of {len(plans)} layers go as {rule} ({amount(sum(kinds[rule]))} a step)"
                     for rule in RULES if rule in kinds)
    line = f"from step {exchange.since + plan.switch_step} on {said}"
    if "factors" in kinds:
        line += f"; all dense would be {amount(plan.dense_bytes_sent)}"
    if plan.step_seconds > 0:
        line += (f"; a step is predicted to take {milliseconds(plan.step_seconds)}, all dense "
                 f"{milliseconds(plan.dense_step_seconds)}")
    return line


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of equally wide columns: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    left = {0, 1, len(widths) - 1}
    for row in rows:
        yield "  ".join(word.ljust(width) if at in left else word.rjust(width)
                        for at, (word, width) in enumerate(zip(row, widths))).rstrip()


HEADER = ("layer", "goes as", "sent/step", "received/step", "planned bytes", "push to mean", "planned time", "why")


def lines_of(exchange: Exchange) -> Iterator[str]:
    """Of one model."""
    session, steps = exchange.session, exchange.step - exchange.since
    plan = session.model_plan(exchange.model)
    first = min(exchange.measured_from, steps)
    over = f"measured over steps {exchange.since + first} to {exchange.step - 1}" if steps > first else "no step measured yet"
    kind = "final plan" if plan.final_plan else "first plan"
    switch = exchange.since + plan.switch_step
    yield f"{type(exchange.root).__name__}: {exchange.step} steps, {kind} since step {switch}, {over}"
    rows, total = [HEADER], NOTHING
    for layer in exchange.layers:
        known = session.layer_plan(exchange.model, layer.id)
        now = moved(session, exchange.model, layer.id).since(exchange.moved_before.get(layer.id, NOTHING))
        total = Moved(max(total.steps, now.steps), total.sent + now.sent, total.received + now.received, 0.0)
        predicted = known.transfer_seconds + known.rebuild_seconds
        rows.append((layer.name, rule_of(layer, known), amount(now.per_step(now.sent)), amount(now.per_step(now.received)),
                     amount(known.bytes_sent), milliseconds(now.per_step(now.seconds)),
                     milliseconds(predicted) if predicted else "-", known.reason.decode(errors="replace")))
    yield from columns(rows)
    sent = total.per_step(total.sent)
    yield f"sent {amount(sent)} a step; all dense would be {amount(plan.dense_bytes_sent)} of the busiest worker"
    if plan.step_seconds > 0:
        yield (f"predicted: a step {milliseconds(plan.step_seconds)}, all dense {milliseconds(plan.dense_step_seconds)}, "
               f"without waiting {milliseconds(plan.compute_seconds)}")


def report(session: Session, exchanges: Sequence[Exchange]) -> str:
    known = session.statistics()
    lines = [f"Poseidon: rank {session.rank} of {session.workers} workers"]
    for exchange in exchanges:
        lines += lines_of(exchange)
    lines.append(f"the job: {100 * known.hidden_share:.0f} % of communication behind computing; waited "
                 f"{known.waited_seconds:.3g} s, of it {known.slower_workers_seconds:.3g} s for workers that computed longer; "
                 f"{amount(known.wire_bytes_sent)} sent and {amount(known.wire_bytes_received)} received with all that is not "
                 "gradients")
    return "\n".join(lines) + "\n"


def write_trace(session: Session, exchanges: Sequence[Exchange], path: str | os.PathLike[str]) -> None:
    """Writes the spans that the core kept since the last call."""
    trace.check_has_spans(session)
    events = [trace.of_core(span, name_of(span, exchanges)) for span in session.take_trace()]
    pathlib.Path(path).write_text(json.dumps(trace.chrome_trace(events)))


def name_of(span: Span, exchanges: Sequence[Exchange]) -> str:
    """Of a span's layer; its numbers where the model has been given back."""
    for exchange in exchanges:
        if exchange.number == span.model:
            for one in (*exchange.layers, *exchange.shared):
                if one.id == span.layer:
                    return one.name
    return "" if span.layer < 0 else f"{span.model}.{span.layer}"


# ---- for plots

class Told(NamedTuple):
    """The counters at the last call of scalars."""

    step: int
    sent: int
    received: int
    busy: float
    waited: float
    slower: float


_told: weakref.WeakKeyDictionary[Exchange, Told] = weakref.WeakKeyDictionary()


def scalars(exchange: Exchange) -> dict[str, float]:
    known = exchange.session.statistics()
    now = Told(exchange.step, known.wire_bytes_sent, known.wire_bytes_received, known.busy_seconds, known.waited_seconds,
               known.slower_workers_seconds)
    before = _told.get(exchange, Told(0, 0, 0, 0.0, 0.0, 0.0))
    _told[exchange] = now
    step, sent, received, busy, waited, slower = (new - old for new, old in zip(now, before))
    steps = max(1, step)
    slower = min(max(slower, 0.0), waited)  # the core has sums over all steps, and may correct what it said of some
    communication = busy - slower
    hidden = 1 - (waited - slower) / communication if communication > 0 else 1.0
    return {"poseidon/step": now.step, "poseidon/bytes_sent_per_step": sent / steps,
            "poseidon/bytes_received_per_step": received / steps, "poseidon/waited_seconds_per_step": waited / steps,
            "poseidon/slower_workers_seconds_per_step": slower / steps, "poseidon/hidden_share": min(1.0, max(0.0, hidden))}
