# SPDX-License-Identifier: Apache-2.0
"""Counts the time of the machine's cores, and how much of it others take.

On a machine that is itself a guest, its kernel counts the time in which a core had work and others
had the core: stolen time. A figure that was measured meanwhile includes it.
"""
import pathlib
import time

MOST_STOLEN = 0.02  # of the machine's time, while something is measured
PATIENCE = 30.0     # seconds for others to end what they do


def so_far():
    """The time of all cores together since the machine's start, in clock ticks: (everything, idle, stolen)."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, irq, soft, stolen = map(int, fields)
    return user + nice + system + idle + waiting + irq + soft + stolen, idle + waiting, stolen


def shares_between(before, after):
    """Of the whole machine between two so_far(), some ticks apart: what was not idle, and what others stole."""
    total, idle, stolen = (now - then for now, then in zip(after, before))
    return {"machine_busy": round(1 - idle / total, 3), "machine_stolen": round(stolen / total, 4)}


def shares_since(before):
    return shares_between(before, so_far())


def await_quiet(longest=PATIENCE):
    """Returns when others have left the machine alone for a second, or after `longest` seconds without one."""
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        before = so_far()
        time.sleep(1)
        if shares_since(before)["machine_stolen"] <= MOST_STOLEN:
            return
