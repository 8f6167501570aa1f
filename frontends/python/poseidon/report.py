# SPDX-License-Identifier: Apache-2.0
"""What Poseidon did, for people and for plots, whatever framework trains: the plan per layer beside what was measured, and numbers
per step.

Bytes and times are the core's own counts, which it keeps in every job: a report needs no option of init.
"""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from . import library as c
from . import trace

if TYPE_CHECKING:
    from .session import Session, Span

RULES = ("dense", "factors", "rows")  # how a layer goes, in words
INDENT = "    "
HEADER = ("layer", "goes as", "sent/step", "received/step", "planned bytes", "push to mean", "planned time", "why")


NOTHING_EXCHANGED = "Poseidon: one worker, nothing is exchanged\n"


class Named(Protocol):
    """What is declared: a layer, or what travels beside layers."""

    name: str
    id: int


class Reported(Named, Protocol):
    """A layer."""

    @property
    def table(self) -> bool:
        """Whether its gradient is rows."""


class Moved(NamedTuple):
    """Bytes and times of layers over some steps; of this worker."""

    steps: int
    sent: int  # bytes, with the headers of frames
    received: int
    seconds: float  # from push to landed mean
    left_out: int = 0  # bytes that would have been sent as well, of zeros that factors left without

    def since(self, before: Moved) -> Moved:
        return Moved(self.steps - before.steps, self.sent - before.sent, self.received - before.received,
                     self.seconds - before.seconds, self.left_out - before.left_out)

    def per_step(self, amount: float) -> float:
        return amount / self.steps if self.steps else 0.0


NOTHING = Moved(0, 0, 0, 0.0)


def moved(session: Session, model: ctypes.c_void_p, layer: int) -> Moved:
    known = session.layer_statistics(model, layer)
    kinds = (known.key_value, known.factors)
    return Moved(known.steps, sum(kind.sent for kind in kinds), sum(kind.received for kind in kinds), known.seconds,
                 known.factor_bytes_sent - known.factors.payload_bytes_sent)


class Account:
    """Of one model of the session, which its owner calls `title`. `since`: how many steps its owner had made before."""

    def __init__(self, session: Session, model: ctypes.c_void_p, title: str, layers: Sequence[Reported], steps: Callable[[], int],
                 shared: Sequence[Named] = (), since: int = 0) -> None:
        """`steps`: says how many the model has made; `shared`: what travels beside the layers, for the names of spans."""
        self.session, self.model, self.title, self.layers, self.shared = session, model, title, layers, shared
        self.steps, self.since = steps, since
        self.number = session.models - 1  # of the model, in spans
        self.measured_from, self.before = 0, dict[int, Moved]()  # since when layers are measured under the plan that holds

    def begin_plan(self, step: int) -> str:
        """Layers are measured anew from this step of the model on. Returns the plan in a line."""
        self.measured_from = step
        self.before = {layer.id: moved(self.session, self.model, layer.id) for layer in self.layers}
        return self.sentence()

    def plans(self) -> list[tuple[Reported, c.LayerPlan]]:
        return [(layer, self.session.layer_plan(self.model, layer.id)) for layer in self.layers]

    def sentence(self) -> str:
        """What the newest plan does with each kind of layer, and what that saves."""
        plan, plans = self.session.model_plan(self.model), self.plans()
        kinds: dict[str, list[int]] = {}
        for layer, known in plans:
            kinds.setdefault(rule_of(layer, known), []).append(known.bytes_sent)
        said = ", ".join(f"{len(kinds[rule])} of {len(plans)} layers go as {rule} ({amount(sum(kinds[rule]))} a step)"
                         for rule in RULES if rule in kinds)
        line = f"from step {self.since + plan.switch_step} on {said}"
        if "factors" in kinds:
            line += f"; all dense would be {amount(plan.dense_bytes_sent)}"
        if plan.step_seconds > 0:
            line += (f"; a step is predicted to take {milliseconds(plan.step_seconds)}, all dense "
                     f"{milliseconds(plan.dense_step_seconds)}")
        return line

    def lines(self) -> Iterator[str]:
        """As a table to print."""
        steps, plan = self.steps(), self.session.model_plan(self.model)
        first = min(self.measured_from, steps)
        over = f"measured over steps {self.since + first} to {self.since + steps - 1}" if steps > first else "no step measured yet"
        kind = "final plan" if plan.final_plan else "first plan"
        yield f"{self.title}: {self.since + steps} steps, {kind} since step {self.since + plan.switch_step}, {over}"
        rows: list[Sequence[str]] = [HEADER]
        total = NOTHING
        for layer, known in self.plans():
            now = moved(self.session, self.model, layer.id).since(self.before.get(layer.id, NOTHING))
            total = Moved(max(total.steps, now.steps), total.sent + now.sent, total.received + now.received, 0.0,
                          total.left_out + now.left_out)
            rows.append(row_of(layer, known, now))
        yield from columns(rows, terminal_width())
        sent = total.per_step(total.sent)
        yield f"sent {amount(sent)} a step; all dense would be {amount(plan.dense_bytes_sent)} of the busiest worker"
        if total.left_out > 0:
            yield (f"factors left without {amount(total.per_step(total.left_out))} of zeros a step: "
                   f"{(total.sent + total.left_out) / total.sent:.2f} times fewer bytes")
        if plan.step_seconds > 0:
            yield (f"predicted: a step {milliseconds(plan.step_seconds)}, all dense {milliseconds(plan.dense_step_seconds)}, "
                   f"without waiting {milliseconds(plan.compute_seconds)}")

    def name_of(self, layer: int) -> str:
        """Of a layer's number in spans; empty where it belongs to none."""
        return next((one.name for one in (*self.layers, *self.shared) if one.id == layer), "")


def rule_of(layer: Reported, plan: c.LayerPlan) -> str:
    return "rows" if layer.table else "factors" if plan.takes != c.GRADIENT else "dense"


def row_of(layer: Reported, plan: c.LayerPlan, now: Moved) -> tuple[str, ...]:
    predicted = plan.transfer_seconds + plan.rebuild_seconds
    return (layer.name, rule_of(layer, plan), amount(now.per_step(now.sent)), amount(now.per_step(now.received)), amount(plan.bytes_sent),
            milliseconds(now.per_step(now.seconds)), milliseconds(predicted) if predicted else "-",
            plan.reason.decode(errors="replace"))


def amount(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} GB"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def duration(seconds: float) -> str:
    return milliseconds(seconds) if seconds < 0.9995 else f"{seconds:.3g} s"


def aligned(rows: Sequence[Sequence[str]], left: set[int]) -> Iterator[str]:
    """Lines of equally wide columns; words of those whose numbers are in `left` begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(word.ljust(width) if at in left else word.rjust(width)
                        for at, (word, width) in enumerate(zip(row, widths))).rstrip()


def columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table with headings. Where they are wider than `width`, what a row ends with follows it in lines of its own; so
    does all but what it begins with, where that is long."""
    whole = list(aligned(rows, {0, 1, len(rows[0]) - 1}))
    if max(map(len, whole)) <= width:
        yield from whole
        return
    lines = list(aligned([row[:-1] for row in rows], {0, 1}))
    names_apart = max(map(len, lines)) > width
    if names_apart:
        lines = [INDENT + line for line in aligned([row[1:-1] for row in rows], {0})]
    for number, (line, row) in enumerate(zip(lines, rows)):
        if names_apart and number:
            yield row[0]
        yield line
        if number:
            yield from textwrap.wrap(row[-1], width, initial_indent=INDENT, subsequent_indent=INDENT)


def terminal_width() -> int:
    """The columns of the terminal: what COLUMNS says, as `poseidon run` does, or 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def report(session: Session, accounts: Sequence[Account]) -> str:
    """Of a job of this worker, as text."""
    known = session.statistics()
    lines = [f"Poseidon: rank {session.rank} of {session.workers} workers"]
    for account in accounts:
        lines += account.lines()
    lines.append(f"the job: {100 * known.hidden_share:.0f} % of communication behind computing; waited "
                 f"{known.waited_seconds:.3g} s, of it {known.slower_workers_seconds:.3g} s for workers that computed longer; "
                 f"{amount(known.wire_bytes_sent)} sent and {amount(known.wire_bytes_received)} received with all that is not "
                 "gradients")
    width = terminal_width()
    return "".join(one + "\n" for line in lines for one in (textwrap.wrap(line, width, subsequent_indent="  ") if len(line) > width else [line]))


def write_trace(session: Session, accounts: Sequence[Account], path: str | os.PathLike[str]) -> None:
    """Writes the spans that the core kept since the last call, as JSON."""
    trace.check_has_spans(session)
    events = [trace.of_core(span, name_of(span, accounts)) for span in session.take_trace()]
    pathlib.Path(path).write_text(json.dumps(trace.chrome_trace(events)))


def name_of(span: Span, accounts: Sequence[Account]) -> str:
    """Of a span's layer; its numbers where the model has been given back."""
    for account in accounts:
        if account.number == span.model and (name := account.name_of(span.layer)):
            return name
    return "" if span.layer < 0 else f"{span.model}.{span.layer}"


# ---- for plots

class Counted(NamedTuple):
    """What a job had counted at a moment."""

    step: int = 0
    sent: int = 0
    received: int = 0
    busy: float = 0.0
    waited: float = 0.0
    slower: float = 0.0


class Scalars:
    """Numbers for a plot, per step since they were asked for last."""

    def __init__(self, session: Session) -> None:
        self.session, self.before = session, Counted()

    def take(self, step: int) -> dict[str, float]:
        """`step`: how many have ended."""
        known = self.session.statistics()
        now = Counted(step, known.wire_bytes_sent, known.wire_bytes_received, known.busy_seconds, known.waited_seconds,
                      known.slower_workers_seconds)
        made, sent, received, busy, waited, slower = (new - old for new, old in zip(now, self.before))
        self.before, steps = now, max(1, made)
        slower = min(max(slower, 0.0), waited)  # the core has sums over all steps, and may correct what it said of some
        communication = busy - slower
        hidden = 1 - (waited - slower) / communication if communication > 0 else 1.0
        return {"poseidon/step": now.step, "poseidon/bytes_sent_per_step": sent / steps,
                "poseidon/bytes_received_per_step": received / steps, "poseidon/waited_seconds_per_step": waited / steps,
                "poseidon/slower_workers_seconds_per_step": slower / steps, "poseidon/hidden_share": min(1.0, max(0.0, hidden))}
