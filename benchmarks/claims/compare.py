# SPDX-License-Identifier: Apache-2.0
"""Whether a row got worse than the figure that is recorded of it."""
import os
import sys

LESS = ("step_seconds", "seconds", "days", "machine_hours", "max_to_mean_bytes", "peak_to_mean", "of_bandwidth", "sent_bytes", "largest_error")  # is better
MORE = ("speedup", "poseidon", "2Gbit", "5Gbit", "10Gbit", "20Gbit", "30Gbit")
SHARE_OF_A_STEP = " workers"  # how the numbers of stalls end, of which less is better
TOLERANCE = 0.02   # of the recorded number
LEAST = 0.002      # and at least, for shares near 0


def wants_less(name):
    """True or False; None of a number that is no goal: what others do, a bound."""
    if name in LESS or name.endswith(SHARE_OF_A_STEP):
        return True
    return False if name in MORE else None


def worse(recorded, found):
    """A sentence for each number that got worse; both are a row's numbers."""
    for name, before in recorded.items():
        less, now = wants_less(name), found.get(name)
        if less is None:
            continue
        if now is None:
            yield f"{name} is missing, recorded {before:.4g}"
            continue
        lost = now - before if less else before - now
        if lost > max(TOLERANCE * abs(before), LEAST):
            yield f"{name} is {now:.4g}, recorded {before:.4g}"


def red(text):
    """On a terminal, but for NO_COLOR."""
    return f"\x1b[31m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
