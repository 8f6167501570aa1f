# SPDX-License-Identifier: Apache-2.0
"""`poseidon doctor`: what keeps a job from running well on these hosts, each in one sentence."""
from __future__ import annotations


def main(arguments: list[str]) -> int:
    """Runs the command with the words behind `doctor`; the exit code. Prints, and never raises for what a user does."""
    from .command import run
    return run(arguments)
