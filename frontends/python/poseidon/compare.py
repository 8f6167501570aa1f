# SPDX-License-Identifier: Apache-2.0
"""`poseidon compare`: the same training under each strategy in turn, and a table of what differs.

The first word is `net` or `script`. A Caffe net trains by `poseidon train` for so many iterations. A script runs by `poseidon run`, and is
ended once rank 0 has measured so many steps (step_account.py). Strategies take turns, round after round, so that a machine that slows down slows all of them. The table has the
median over the rounds. POSEIDON_PROGRAM is the poseidon command (tools/run/python_commands.cc).
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from .report import aligned, duration
from .step_account import MARK

STRATEGIES = ("poseidon", "dense", "wfbp", "p3", "dear", "ps-2017")
OWN = ("--strategies=", "--iterations=", "--rounds=")  # as tools/run/python_commands.cc passes them, before all others
MOST = 1_000_000  # iterations, and rounds
LINES_KEPT = 40  # of a script's output, for one that fails


class Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"poseidon: {message.removeprefix('argument ')} (see {self.prog} --help)\n")


def count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST}, not '{text}'")
    return int(text)


class Failed(Exception):
    """A run that did not end well; its output has been shown."""


class Run(NamedTuple):
    """What was measured of one run; of rank 0."""

    step: float  # seconds
    predicted: float  # seconds
    sent: float  # bytes of gradients in a step
    hidden: float  # share of the communication
    weights: str | None = None  # their hash, where it is known
    steps: int = 0  # of a script, that were measured: fewer where it has ended before


def of_summary(summary: Mapping[str, Any]) -> Run:
    """As `poseidon train` writes it."""
    return Run(summary["step_seconds"]["measured"], summary["step_seconds"]["predicted"],
               sum(layer["counted_bytes"]["sent"] for layer in summary["plan"]), summary["hidden_share"], summary["weights_hash"])


def of_account(account: Mapping[str, Any]) -> Run:
    return Run(account["step_seconds"], account["predicted_seconds"], account["sent_bytes"], account["hidden_share"],
               steps=account["steps"])


def train(program: str, strategy: str, iterations: int, words: Sequence[str]) -> Run:
    with tempfile.TemporaryDirectory(prefix="poseidon-compare-") as folder:
        command = [program, "train", "--strategy", strategy, "--iterations", str(iterations), "--run-dir", folder + "/run", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
            raise Failed(f"the training under strategy {strategy} ended with exit code {done.returncode}, expected 0")
        return of_summary(json.loads(pathlib.Path(folder, "run", "summary.json").read_text()))


def run(program: str, strategy: str, iterations: int, words: Sequence[str]) -> Run:
    """The script is asked to end when it has been measured, and all its ranks have ended when this returns."""
    command = [program, "run", "--env", f"POSEIDON_STRATEGY={strategy}", "--env", f"POSEIDON_ACCOUNT_STEPS={iterations}", *words]
    last: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as job:
        assert job.stdout is not None
        try:
            for line in job.stdout:
                last.append(line)
                if MARK in line:
                    return of_account(json.loads(line[line.index(MARK) + len(MARK):]))
        finally:
            job.send_signal(signal.SIGTERM)
            job.communicate()
    sys.stderr.write("".join(last))
    if job.returncode != 0:
        raise Failed(f"the script under strategy {strategy} ended with exit code {job.returncode}, expected 0")
    raise Failed(f"the script under strategy {strategy} ended before a step was measured, expected some steps beyond the final plan's, which is "
                 "made at step 10, by poseidon.torch, poseidon.keras or poseidon.tensorflow")


def row(strategy: str, rounds: Sequence[Run], others: Sequence[Run]) -> list[str]:
    """`others`: the rounds of the strategy to compare with."""
    steps = [one.step for one in rounds]
    step, last = statistics.median(steps), rounds[-1]
    words = [strategy, duration(step), f"{duration(min(steps))} to {duration(max(steps))}", duration(last.predicted),
             f"{step / statistics.median(one.step for one in others):.3f}", f"{last.sent / 1e6:.3g} MB",
             f"{statistics.median(one.hidden for one in rounds):.0%}"]
    if last.weights is not None:
        words.append("same" if last.weights == others[-1].weights else "rounded otherwise")
    return words


def table(found: Mapping[str, Sequence[Run]]) -> str:
    """A line for each strategy; the first one is what the others are compared with."""
    rows = [row(strategy, rounds, next(iter(found.values()))) for strategy, rounds in found.items()]
    heads = ["strategy", "step", "over the rounds", "predicted", "ratio", "sent", "hidden", "weights"][:len(rows[0])]
    return "\n".join(aligned([heads, *rows], set(range(len(heads)))))


def main(words: Sequence[str]) -> int:
    parser = Words(prog="poseidon compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--iterations", type=count, default=60)
    parser.add_argument("--rounds", type=count, default=3)
    is_net, words = words[0] == "net", words[1:]
    # A script may have flags of the same names.
    own = len(words) if is_net else next((at for at, word in enumerate(words) if not word.startswith(OWN)), len(words))
    options, rest = parser.parse_known_args(words[:own])
    rest += words[own:]
    if not rest:
        parser.error("there is nothing to train, expected --solver FILE, or a command of ranks as in poseidon run")
    strategies = options.strategies.split(",")
    found: dict[str, list[Run]] = {strategy: [] for strategy in strategies}
    for number in range(options.rounds):
        for strategy in strategies:
            print(f"poseidon: round {number + 1} of {options.rounds}, strategy {strategy}", file=sys.stderr, flush=True)
            try:
                found[strategy].append((train if is_net else run)(os.environ["POSEIDON_PROGRAM"], strategy, options.iterations, rest))
            except Failed as failed:
                print(f"poseidon: {failed}", file=sys.stderr)
                return 1
    print(table(found))
    least = min(one.steps for rounds in found.values() for one in rounds)
    steps = f"medians of {options.iterations} iterations" if is_net else f"means of at least {least} steps"
    print(f"steps: {steps}, those before the final plan left out, and over {options.rounds} round" + "s" * (options.rounds > 1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
