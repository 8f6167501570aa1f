# SPDX-License-Identifier: Apache-2.0
"""`poseidon report RUN_DIR`: one page of HTML of a run, with nothing that it needs from elsewhere. The trainer's runs have all workers'
spans, those of programs (poseidon/c/run_files.h) rank 0's, and losses where they were recorded."""
from __future__ import annotations

import argparse
import html
import os
import pathlib
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import charts
from .charts import Bar, Lane, Line, Piece
from .errors import PoseidonError
from .library import LANES
from .report import amount, duration
from .run_record import Record, Step, Worker, read, typical_steps, workers_of

MOST_WORKERS = 4  # whose lanes are drawn
OTHER = charts.COLORS - 1  # the colour of what belongs to no layer that is exchanged
STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --paper: #fff; --faint: #d8dce4; --soft: #5b6477; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --paper: #14171d; --faint: #343a46; --soft: #9aa3b5; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p, figure { margin: .5rem 0; } figure { overflow-x: auto; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
svg { width: 100%; min-width: 36rem; height: auto; display: block; } text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--faint); fill: none; } .mark { stroke: var(--ink); stroke-dasharray: 3 3; fill: none; } .line { fill: none; stroke-width: 2; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--faint); vertical-align: top; }
td:last-child { min-width: 9rem; } .plan td:last-child { min-width: 12rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
""" + "".join(f"rect.c{at} {{ fill: {color}; }} .line.c{at} {{ stroke: {color}; }}\n" for at, color in enumerate(
    ("#2f6fb7", "#d9822b", "#3f9a5b", "#b54a6e", "#7a63b8", "#2a9aa3", "#9a7b32", "#6b7687")))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag}{" class=n" if at in numbers else ""}>{html.escape(cell)}</{tag}>' for at, cell in enumerate(cells)) + "</tr>"
    return f'<div class="wide"><table><thead>{row(heads, "th")}</thead><tbody>{"".join(row(cells, "td") for cells in rows)}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def sentence(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def head(record: Record) -> str:
    known = record.summary
    tests = ", ".join(f"{name} {value:.4f}" for name, value in known.get("test", {}).items() if isinstance(value, float))
    taken = f" in {known['seconds']:.1f} s, {known['images_per_s']:.0f} images a second" if "seconds" in known else ""  # of the trainer
    lines = [f"{known['workers']} worker{'s' * (known['workers'] != 1)}, {known['iterations']} iterations{taken}", f"last test: {tests}" if tests else ""]
    if "weights_hash" in known:
        lines.append(f"weights {known['weights_hash'][:16]}, " + ("equal on all workers" if known["replicas_equal"] else "NOT EQUAL on all workers"))
    return f"<h1>{html.escape(record.folder.resolve().name)}</h1>" + "".join(f'<p class="soft">{html.escape(line)}</p>' for line in lines if line)


def curves(record: Record) -> str:
    """Loss of training and of the tests, and their accuracy, by iterations and by seconds."""
    training, tests = record.of_kind("train"), record.of_kind("test")
    parts = []
    for label, x in ("iterations", "iteration"), ("seconds", "elapsed"):
        losses = [Line("training", [(line[x], line["loss"]) for line in training if finite(line.get("loss"))]),
                  Line("test", [(line[x], line["outputs"]["loss"]) for line in tests if finite(line["outputs"].get("loss"))])]
        drawn = [line for line in losses if line.points]
        if drawn:
            parts.append(figure(charts.lines(drawn, label, f"loss by {label}"), f"Loss by {label}: of rank 0's batches, and of the tests."))
        accuracies = [Line("training", [(line[x], line["accuracy"]) for line in training if finite(line.get("accuracy"))]),
                      Line("test", [(line[x], line["outputs"]["accuracy"]) for line in tests if finite(line["outputs"].get("accuracy"))])]
        drawn = [line for line in accuracies if line.points]
        if drawn:
            of = " and ".join({"training": "training", "test": "the tests"}[line.label] for line in drawn)
            parts.append(figure(charts.lines(drawn, label, f"accuracy by {label}", 160), f"Accuracy of {of} by {label}."))
    return section("Loss and accuracy", *parts) if parts else ""


def finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 1e300


def step_times(record: Record) -> str:
    if not record.plan:
        return ""
    plan, taken = record.plan, record.summary["step_seconds"]
    drawn = [("measured, the median", taken["measured"], 1), ("predicted by the plan", taken["predicted"], 0),
             ("predicted, overlap in backward only", plan["wfbp_seconds"], 2), ("predicted, key-value alone", plan["dense_step_seconds"], 3),
             ("predicted, computing alone", plan["compute_seconds"], 7)]
    words = [f"{100 * record.summary['hidden_share']:.0f} % of the communication was behind computing"]
    if plan["bandwidth_bytes_per_second"] > 0:
        words.insert(0, f"transfers are predicted for a network of {amount(plan['bandwidth_bytes_per_second'])}/s each way")
    if helps := record.summary.get("what_would_help"):
        words.append(helps)
    return section("A step, predicted and measured",
                   figure(charts.bars([Bar(name, value, duration(value), color) for name, value, color in drawn], "times of a step"), "Seconds of a step."),
                   *map(sentence, words))


def color_of_layers(record: Record) -> dict[str, int]:
    """Layers of the net that share a message share a colour."""
    return {name: at % OTHER for at, layer in enumerate(record.plan.get("layers", ())) for name in (layer["layer"], *layer.get("joined", ()))}


def in_time(steps: Sequence[Step], colors: dict[str, int]) -> str:
    if not steps:
        return ""
    parts = []
    for step in steps[:MOST_WORKERS]:
        lanes = [Lane(lane, [Piece(span.begin, span.end, f"{span.label}, {duration(span.end - span.begin)}", colors.get(span.layer, OTHER))
                             for span in step.spans if span.lane == lane]) for lane in LANES if any(span.lane == lane for span in step.spans)]
        late = step.computes and step.landed > step.next_begin
        marks = [(step.next_begin, "the next forward pass begins" if step.computes else "the next step's first gradient leaves"),
                 (step.landed, "every layer has landed" + (": with overlap in the backward pass only it would begin here" if late else ""))]
        end = 1.04 * (max(step.next_begin, step.landed) - step.begin) + step.begin
        parts.append(figure(charts.lanes(lanes, step.begin, end, marks, f"step {step.number} of worker {step.worker}"),
                            f"Worker {step.worker}, step {step.number}."))
    left_out = f" Of {len(steps)} workers the first {MOST_WORKERS} are drawn." if len(steps) > MOST_WORKERS else ""
    return section("A step in time", sentence("A colour is a layer whose gradient is exchanged; grey is all other work. Among the steps of the trace "
                                              "this one's time is in the middle." + left_out), *parts)


def waiting(record: Record, workers: Sequence[Worker]) -> str:
    waited = record.summary.get("waited_seconds")
    if waited is None:
        return ""
    steps = max(1, waited.get("steps") or record.summary["iterations"])
    drawn = [Bar("for bytes that nothing hid", waited["communication"], f"{duration(waited['communication'] / steps)} a step", 1),
             Bar("for slower workers", waited["slower_workers"], f"{duration(waited['slower_workers'] / steps)} a step", 3)]
    parts = [figure(charts.bars(drawn, "waiting by reason"), f"What rank 0 waited for, in {steps} steps.")]
    if len(workers) > 1:
        slowest = max(workers, key=lambda worker: worker.computing)
        middle = statistics.median(worker.computing for worker in workers)
        parts.append(sentence(f"worker {slowest.rank} computes longest: {duration(slowest.computing)} a step, {slowest.computing / middle:.2f} times the median"))
        parts.append(table(("worker", "computes", "waits"), ((str(one.rank), duration(one.computing), duration(one.waiting)) for one in workers),
                           frozenset((0, 1, 2))))
    return section("Waiting", *parts)


def plan_table(record: Record) -> str:
    if not record.plan:
        return ""
    def cells(layer: Any, own: Any) -> Sequence[str]:
        counted, taken = own.get("counted_bytes"), own.get("measured_seconds")  # null where a run ended before its final plan
        return (", ".join(layer.get("joined") or [layer["layer"]]), layer["scheme"], amount(layer["predicted_bytes"]["sent"]),
                "-" if counted is None else amount(counted["sent"]), duration(layer["predicted_seconds"]), "-" if taken is None else duration(taken),
                layer["reason"])
    heads = ("layer", "scheme", "sent, predicted", "sent, counted", "time, predicted", "time, measured", "why")
    return section("The plan", sentence(f"from step {record.final_step} on; bytes and times are of rank 0 and a step, a time from a gradient to its mean"
                                        + ("" if "seconds" in record.summary else "; what was counted and measured is the mean of all steps")),
                   f'<div class="plan">{table(heads, map(cells, record.plan["layers"], record.summary["plan"]), frozenset((2, 3, 4, 5)))}</div>')


def page_of(record: Record) -> str:
    body = [head(record), step_times(record), curves(record), in_time(typical_steps(record), color_of_layers(record)),
            waiting(record, workers_of(record)), plan_table(record)]
    title = html.escape(record.folder.resolve().name)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}: a run of Poseidon</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(filter(None, body)) + "\n</body></html>\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="poseidon report", add_help=False, allow_abbrev=False)
    parser.add_argument("--out")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args(words)
    out = pathlib.Path(options.out) if options.out else options.folder / "report.html"
    try:
        text = page_of(read(options.folder))
        partial = out.with_name(out.name + ".part")
        partial.write_text(text, encoding="utf-8", errors="replace")
        os.replace(partial, out)
    except PoseidonError as failure:
        print(f"poseidon: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"poseidon: {out} cannot be written: {failure.strerror}", file=sys.stderr)
        return 1
    print(f"the run's page is in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
