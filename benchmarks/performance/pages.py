# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md: the prose of page.md around figures of what is recorded."""
import dataclasses
import statistics

from benchmarks.tables import bullets, days, table

from . import dense_path, grid, tables
from .figures import best_ddp, figures_of
from .tables import filled, number, over, plots_in, setting

PLOTS = ("speed-up.svg", "bandwidth.svg")  # of this page; the others are in the details
SIZES = (64 << 20, 256 << 20)              # of the all-reduces whose CPU time is shown
PATHS = (("bare", "bare TCP"), ("gloo", "gloo"), ("poseidon", "Poseidon"), ("tls", "Poseidon, encrypted"))
MIXED = " The rows are not of one commit ([details](performance/details.md#what-a-sceptic-would-ask) say each one's)."


@dataclasses.dataclass
class Parts:
    """The recorded results; None where a file is missing. `earlier`: those of the full grid that are not in the quick one."""
    results: list
    beside: list
    dense_path: dict | None = None
    unscaled: dict | None = None
    agreement: dict | None = None
    torch: dict | None = None
    tensorflow: dict | None = None
    earlier: list = dataclasses.field(default_factory=list)


def recorded_at(*results):
    """The commits and days of results, in words."""
    commits = list(dict.fromkeys(result["versions"]["poseidon"] for result in sorted(results, key=lambda one: one["date"])))
    at = f"commit `{commits[0]}`" if len(commits) == 1 else f"{len(commits)} commits"
    return f"{at}, {days(results)}"


def main_table(results):
    """A row for every setting."""
    rows = []
    for result in results:
        cell, f = result["cell"], figures_of(result)
        if "poseidon" not in f:
            continue
        ours, ddp, encrypted = f["poseidon"], best_ddp(f), f.get("tls")
        rows.append([setting(result), f"{cell['scale']:.3g}", number(ours.first["single_worker_seconds"]), number(ours.bound),
                     number(ours.seconds), f"{ours.to_bound:.3f}", f"{encrypted.to_bound:.3f}" if encrypted else "-",
                     number(ddp and ddp.seconds), over(ddp, ours), over(f.get("ps-2017"), ours)])
    return table(["setting", "sizes divided by", "computing, s", "T\\*, s", "Poseidon, s", "/ T\\*", "dense, encrypted / dense T\\*", "DDP, s",
                  "DDP / Poseidon", "ps-2017 / Poseidon"], rows)


def ratios(results, of):
    """(ratio, result) of every cell that has it, smallest first."""
    found = [(ratio, result) for result in results if (ratio := of(figures_of(result))) is not None]
    return sorted(found, key=lambda pair: pair[0])


def to_bound(name):
    return lambda f: f[name].to_bound if name in f else None


def over_ours(other):
    def ratio(f):
        theirs = best_ddp(f) if other == "ddp" else f.get(other)
        return theirs.seconds / f["poseidon"].seconds if theirs and "poseidon" in f else None
    return ratio


def range_words(found, places=2):
    """Least, median and most, and where the most is."""
    if not found:
        return "-"
    middle = statistics.median(ratio for ratio, _ in found)
    return (f"{found[0][0]:.{places}f} to {found[-1][0]:.{places}f} times, {middle:.{places}f} in the median; most in "
            f"{setting(found[-1][1])}")


def within_words(found):
    good = sum(ratio <= tables.GOAL for ratio, _ in found)
    return (f"{good} of {len(found)} settings within {tables.GOAL:g} T\\*, median "
            f"{statistics.median(ratio for ratio, _ in found):.3f}") if found else "-"


def bytes_words(results):
    found = ratios(results, lambda f: f["dense"].plans[-1][0] / f["poseidon"].plans[-1][0]
                   if {"dense", "poseidon"} <= f.keys() and f["dense"].plans and f["poseidon"].plans else None)
    return f"up to {found[-1][0]:.1f} times fewer bytes ({setting(found[-1][1])})" if found else "-"


def predicted_words(results):
    found = [ratio for result in results for name in tables.OURS
             for ratio in tables.predicted_to_measured(figures_of(result), name)]
    return f"{sum(abs(ratio - 1) <= tables.PREDICTED for ratio in found)} of {len(found)}"


def unscaled_words(document):
    found = [point["ratio"] for point in document["points"]]
    return (f"{sum(ratio <= tables.GOAL for ratio in found)} of {len(found)} settings within {tables.GOAL:g} T\\*, at most "
            f"{max(found):.3f}")


def rows_of(measured):
    """(workers, row) of the sizes whose CPU time is shown."""
    return [(int(nodes), row) for nodes, sizes in measured["rows"].items() for row in sizes if row["bytes"] in SIZES]


def name_in(row, name):
    return dense_path.best_gloo(row) if name == "gloo" else name


def cpu_per_gigabyte(row, workers, name):
    return dense_path.median(row, name_in(row, name), "cpu_seconds") / (dense_path.payload(row["bytes"], workers) / 1e9)


def rate_of_a_worker(row, workers, name):
    """Gbit/s of payload that one worker sends, and receives at the same time."""
    return 8e-9 * dense_path.payload(row["bytes"], workers) / workers / dense_path.median(row, name_in(row, name))


def cpu_table(measured):
    """CPU seconds per GB and rates, all-reduce by all-reduce."""
    rows = []
    for workers, row in rows_of(measured):
        cpu = [cpu_per_gigabyte(row, workers, name) for name, _ in PATHS]
        rows.append([f"P={workers}, {dense_path.size_words(row['bytes'])}", *(f"{seconds:.2f}" for seconds in cpu),
                     *(f"{rate_of_a_worker(row, workers, name):.1f}" for name, _ in PATHS),
                     *(f"{8 / seconds:.1f}" for seconds in cpu[2:])])
    return table(["all-reduce of", "CPU s per GB: bare TCP", *(words for _, words in PATHS[1:]),
                  "Gbit/s a worker sends: bare TCP", *(words for _, words in PATHS[1:]),
                  "Gbit/s per core of its own: Poseidon", "encrypted"], rows)


def small_words(measured):
    found = [(dense_path.ratio(row), f"P={nodes}, {dense_path.size_words(row['bytes'])}")
             for nodes, sizes in measured["rows"].items() for row in sizes if row["bytes"] <= 1 << 20]
    return f"{min(found)[0]:.1f} to {max(found)[0]:.1f}"


def losses(parts):
    """Where Poseidon is slower, costs more or misses its goals; every number from what is recorded."""
    results, lines = parts.results, []
    missed = [pair for pair in ratios(results, to_bound("poseidon")) if pair[0] > tables.GOAL]
    if missed:
        worst = "; ".join(f"{ratio:.3f} ({setting(result)})" for ratio, result in missed[:-4:-1])
        eight = sum(result["cell"]["workers"] == 8 for _, result in missed)
        lines.append(f"{len(missed)} of {len(results)} settings are above {tables.GOAL:g} T\\*, {eight} of them with eight workers. The "
                     f"worst: {worst}. Two cores for all workers, and shallow queues, are the reasons that are known.")
    slower = [pair for pair in ratios(results, over_ours("ps-2017")) if pair[0] < 1 - tables.SAME]
    for ratio, result in slower:
        lines.append(f"The system of 2017 takes {ratio:.3f} of Poseidon's step in {setting(result)}: there Poseidon's plan was not the "
                     "best one.")
    for result in parts.beside:
        f = figures_of(result)
        if result["cell"].get("compute", "sleep") != "sleep" and "poseidon" in f:
            ddp = best_ddp(f)
            lines.append(f"Where computing needs the cores that serve the network, the step is {f['poseidon'].to_bound:.3f} T\\* "
                         f"({setting(result)}); DDP is at {ddp.to_bound:.3f} of the dense bound there.")
    if parts.dense_path:
        large = [(dense_path.ratio(row), f"P={nodes}, {dense_path.size_words(row['bytes'])}")
                 for nodes, sizes in parts.dense_path["rows"].items() for row in sizes]
        behind = [(ratio, words) for ratio, words in large if ratio < 1]
        if behind:
            lines.append("One all-reduce alone on a link without a limit: gloo is faster, in parts of Poseidon's time, at "
                         + ", ".join(f"{words} ({ratio:.2f})" for ratio, words in behind)
                         + ". Bytes are touched more often here: checksums at both ends, and sums in rank order.")
        more = [1 / dense_path.cpu_ratio(row) for _, row in rows_of(parts.dense_path)]
        if max(more) > 1:
            lines.append(f"From 64 MiB a byte costs {min(more):.2f} to {max(more):.2f} times gloo's CPU time (next table), encrypted "
                         "more.")
    for summary in (parts.torch, parts.tensorflow):
        for row in (summary or {"rows": []})["rows"]:
            value, low, high = row["ratio"]
            if value < row["goal"]:
                lines.append(f"{row['compared']}: {value:.2f} [{low:.2f}, {high:.2f}] for {row['setting']}.")
    return bullets(lines) or "Nowhere in what is recorded."


def summary_words(summary):
    """A line for each kind of comparison of a framework's training, and the age of the whole."""
    if not summary:
        return "Not measured yet."
    kinds = {}
    for row in summary["rows"]:
        value, low, high = row["ratio"]
        kinds.setdefault(row["compared"], []).append(f"{value:.2f} [{low:.2f}, {high:.2f}] for {row['setting']}")
    return bullets(f"{compared}: {'; '.join(found)}." for compared, found in kinds.items())


def summary_age(summary):
    if not summary:
        return "not recorded"
    return recorded_at(*({"date": row["date"], "versions": {"poseidon": row["commit"]}} for row in summary["rows"]))


def earlier_words(results):
    """The rest of the full grid, in one sentence."""
    if not results:
        return "Nothing else of the full grid is recorded."
    return (f"The rest of the full grid was measured earlier, {recorded_at(*results)}: {within_words(ratios(results, to_bound('poseidon')))}. "
            "It is in the details.")


def page(parts, drawn):
    """The whole text. `drawn`: names of the plots of PLOTS and their captions."""
    passed = [result for result in parts.results if result["systems"]]
    measured = parts.dense_path
    return filled("page.md", {
        "mixed": MIXED if len({one["versions"]["poseidon"] for one in passed}) > 1 else "",
        "cells": f"{len(passed)} of {len(grid.quick())}", "earlier": earlier_words([result for result in parts.earlier if result["systems"]]),
        "encrypted_within": within_words(ratios(passed, to_bound("tls"))), "age": recorded_at(*passed) if passed else "not recorded",
        "within": within_words(ratios(passed, to_bound("poseidon"))),
        "dense_within": within_words(ratios(passed, to_bound("dense"))),
        "over_ddp": range_words(ratios(passed, over_ours("ddp"))),
        "over_2017": range_words(ratios(passed, over_ours("ps-2017"))),
        "slower_than_ddp": str(sum(ratio < 1 for ratio, _ in ratios(passed, over_ours("ddp")))),
        "bytes": bytes_words(passed), "predicted": predicted_words(passed),
        "unscaled": unscaled_words(parts.unscaled) if parts.unscaled else "not simulated yet",
        "table": main_table(passed), "plots": plots_in(drawn, "performance/"),
        "losses": losses(dataclasses.replace(parts, results=passed)),
        "cpu": cpu_table(measured) if measured else "Not measured yet.",
        "cpu_age": recorded_at(measured) if measured else "not recorded",
        "cpu_machine": tables.machine_words(measured) if measured else "-",
        "small": small_words(measured) if measured else "-",
        "torch": summary_words(parts.torch), "torch_age": summary_age(parts.torch),
        "tensorflow": summary_words(parts.tensorflow), "tensorflow_age": summary_age(parts.tensorflow)})
