# SPDX-License-Identifier: Apache-2.0
"""What the pages of all benchmarks are made of: tables and lists in Markdown, and ratios with their bounds."""
import functools
import random
import statistics

SEED = 1
RESAMPLES = 1000


def table(head, rows):
    """A Markdown table; the first column is left, the others right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def bullets(lines):
    return "\n".join(f"- {line}" for line in lines)


def ms(seconds):
    return f"{seconds * 1e3:.4g}"


def days(results):
    """When they were measured: a day, or the first and the last."""
    dates = sorted({result["date"] for result in results})
    return " to ".join(dates[:1] + dates[1:][-1:])


def not_measured(cells, results):
    """Those of the cells that have no result, in words; empty where all have one."""
    there = {result["name"] for result in results}
    missing = [f"`{cell.name}`" for cell in cells if cell.name not in there]
    return ", ".join(missing)


def with_bounds(found):
    return "{:.2f} [{:.2f}, {:.2f}]".format(*found)


@functools.cache  # drawing takes a while, and every ratio is in more than one place
def with_bounds_of(pairs):
    """The median over turns of the ratio of their medians, with the bounds of 95 %: turns are drawn again, and steps
    within them. `pairs`: the steps of two systems, turn by turn."""
    draw = random.Random(SEED)
    found = sorted(median_ratio([[draw.choices(taken, k=len(taken)) for taken in pair]
                                 for pair in draw.choices(pairs, k=len(pairs))]) for _ in range(RESAMPLES))
    return median_ratio(pairs), found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES)]


def median_ratio(pairs):
    return statistics.median(statistics.median(theirs) / statistics.median(ours) for ours, theirs in pairs)
