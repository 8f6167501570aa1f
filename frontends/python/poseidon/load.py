# SPDX-License-Identifier: Apache-2.0
"""Whether other programs compute on this machine while something is measured here."""
from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

PROC = pathlib.Path("/proc")
SPARE = (3, 4)  # fields of a processor's line in /proc/stat: idle, and waiting for a disk
GUEST = 8       # from this field on time is counted a second time
# Shares of the cores: what others may use, and what all use where they begin to take turns.
MOST_OF_OTHERS, FULL = 0.1, 0.8
MOST_SPREAD = 1.5  # of slow steps to usual ones


class Reading(NamedTuple):
    """Seconds; of processors, on those that this process may use."""

    wall: float
    all: float | None  # None: the system does not say
    own: float


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def used_by_all() -> float | None:
    """What all programs have used, also those of a host's other guests."""
    mine, ticks = {f"cpu{number}" for number in os.sched_getaffinity(0)}, os.sysconf("SC_CLK_TCK")
    try:
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
        return sum(int(field) for name, *fields in lines if name in mine
                   for at, field in enumerate(fields[:GUEST]) if at not in SPARE) / ticks
    except (OSError, ValueError):
        return None


def used_here() -> float:
    """What this process has used, and those that it has started, as a loader does."""
    children, used, ticks = collections.defaultdict[int, list[int]](list), dict[int, float](), os.sysconf("SC_CLK_TCK")
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(folder.name))
            used[int(folder.name)] = sum(map(int, fields[11:15])) / ticks  # with those of its own that have ended
    ended = os.times()
    total, left = time.process_time() + ended.children_user + ended.children_system, list(children[os.getpid()])
    while left:
        one = left.pop()
        total += used.get(one, 0.0)
        left += children[one]
    return total


class Load:
    """Since it was made."""

    def __init__(self) -> None:
        self.begin = self.read()

    @staticmethod
    def read() -> Reading:
        return Reading(time.monotonic(), used_by_all(), used_here())

    def shares(self) -> tuple[float | None, float]:
        """Which shares of the cores others used, and this program; None where the system does not say."""
        now = self.read()
        capacity = max(1e-9, now.wall - self.begin.wall) * cores()
        own = (now.own - self.begin.own) / capacity
        if now.all is None or self.begin.all is None:
            return None, own
        return max(0.0, (now.all - self.begin.all) / capacity - own), own


def busy(steps: Sequence[float], others: float | None, own: float, cores: int) -> str | None:
    """A sentence where the times of `steps`, in seconds, are those of a busy machine; else None. `others`, `own`: Load.shares."""
    first, last = min(steps), max(steps)
    took = f"steps took {1000 * first:.3g} to {1000 * last:.3g} ms"
    if others is None:
        slow = sorted(steps)[int(0.9 * (len(steps) - 1))]
        return f"measured on a busy machine: {took}" if slow > MOST_SPREAD * statistics.median(steps) else None
    if others < MOST_OF_OTHERS or others + own < FULL:
        return None
    return (f"measured on a busy machine: {took}, and other programs used {100 * others:.0f} % of its "
            f"{cores} {'core' if cores == 1 else 'cores'}; times are too long, measure again when they rest")
