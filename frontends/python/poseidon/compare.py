# SPDX-License-Identifier: Apache-2.0
"""`poseidon compare`: the same training of a Caffe net under each strategy in turn, and a table of what differs.

Strategies take turns, round after round, so that a machine that slows down slows all of them. The table has the median over the
rounds. POSEIDON_PROGRAM is the poseidon command that trains (tools/run/python_commands.cc).
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from .report import aligned

STRATEGIES = ("poseidon", "dense", "wfbp", "p3", "dear", "ps-2017")
Summary = Mapping[str, Any]  # of a run, as `poseidon train` writes it


class Failed(Exception):
    """A run that did not end well; its output has been shown."""


def train(program: str, strategy: str, iterations: int, words: Sequence[str], folder: pathlib.Path) -> Summary:
    """The summary of one run, whose files are in `folder`."""
    command = [program, "train", "--strategy", strategy, "--iterations", str(iterations), "--run-dir", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        raise Failed(f"the training under strategy {strategy} ended with exit code {done.returncode}, expected 0")
    summary: Summary = json.loads((folder / "summary.json").read_text())
    return summary


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def sent_by(summary: Summary) -> float:
    """Bytes of gradients that rank 0 sends in a step."""
    return float(sum(layer["counted_bytes"]["sent"] for layer in summary["plan"]))


def row(strategy: str, rounds: Sequence[Summary], others: Sequence[Summary]) -> list[str]:
    """`others`: the rounds of the strategy to compare with."""
    steps, other_steps = ([one["step_seconds"]["measured"] for one in runs] for runs in (rounds, others))
    step = statistics.median(steps)
    return [strategy, milliseconds(step), f"{milliseconds(min(steps))} to {milliseconds(max(steps))}",
            milliseconds(rounds[-1]["step_seconds"]["predicted"]), f"{step / statistics.median(other_steps):.3f}",
            f"{sent_by(rounds[-1]) / 1e6:.3g} MB", f"{statistics.median(one['hidden_share'] for one in rounds):.0%}",
            "same" if rounds[-1]["weights_hash"] == others[-1]["weights_hash"] else "rounded otherwise"]


def table(found: Mapping[str, Sequence[Summary]]) -> str:
    """A line for each strategy; the first one is what the others are compared with."""
    rows = [["strategy", "step", "over the rounds", "predicted", "ratio", "sent", "hidden", "weights"]]
    rows += [row(strategy, rounds, next(iter(found.values()))) for strategy, rounds in found.items()]
    return "\n".join(aligned(rows, set(range(len(rows[0])))))


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="poseidon compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options, of_train = parser.parse_known_args(words)
    strategies = options.strategies.split(",")
    found: dict[str, list[Summary]] = {strategy: [] for strategy in strategies}
    with tempfile.TemporaryDirectory(prefix="poseidon-compare-") as folder:
        for number in range(options.rounds):
            for strategy in strategies:
                print(f"poseidon: round {number + 1} of {options.rounds}, strategy {strategy}", file=sys.stderr, flush=True)
                run_dir = pathlib.Path(folder, f"{strategy}-{number}")
                try:
                    found[strategy].append(train(os.environ["POSEIDON_PROGRAM"], strategy, options.iterations, of_train, run_dir))
                except Failed as failed:
                    print(f"poseidon: {failed}", file=sys.stderr)
                    return 1
    print(table(found))
    print(f"steps: medians of {options.iterations} iterations, those before the final plan left out, and over {options.rounds} round" + "s" * (options.rounds > 1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
