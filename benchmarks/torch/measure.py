# SPDX-License-Identifier: Apache-2.0
"""Measures trainings in emulated clusters that passed the gate."""
import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

from benchmarks import cells
from benchmarks.performance import machine
from benchmarks.performance.measure import await_all

from . import grid

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "cluster"))
import calibration  # noqa: E402
import emulation    # noqa: E402

LIBRARY = ROOT / "build" / "release" / "poseidon" / "c" / "libposeidon.so"
SOURCES = ("poseidon", "frontends/python", "benchmarks/torch/train_bench.py", "benchmarks/torch/nets.py",
           "benchmarks/cluster", "scripts/dependencies.txt")
ATTEMPTS = 3     # of the gate
PATIENCE = 400   # seconds that a training may take


class Failed(Exception):
    """A training did not finish; the message is one sentence."""


@contextlib.contextmanager
def network(workers, rate, say):
    """A cluster that passed the gate, and the gate in short; one worker has no links, and None. Raises emulation.Refused."""
    if workers == 1:
        with emulation.Cluster(1, emulation.Link(rate=None)) as cluster:
            yield cluster, None
        return
    for attempt in range(ATTEMPTS):
        with emulation.Cluster(workers, emulation.Link(rate=rate)) as cluster:
            report = calibration.calibrate(cluster, seconds=1.0)
            say(calibration.line(report))
            if report["passed"] or attempt == ATTEMPTS - 1:
                calibration.require(report)
                phases = {phase: report[phase].get("least_share") for phase in ("ring", "all_to_all", "incast")}
                yield cluster, {"attempts": attempt + 1, "least_shares": phases,
                                "round_trip_seconds": report["round_trip"]["median_seconds"]}
                return


def measure(cell, cluster):
    """A training's result: what each system's steps took, as the mean of the workers, and its losses; of several starts their turns
    in a row. Raises Failed."""
    starts = [trained(cell, cluster) for _ in range(cell.starts)]
    return {name: {**starts[0][name], "turns": [turn for start in starts for turn in start[name]["turns"]],
                   "cpu_seconds_per_step": statistics.median(start[name]["cpu_seconds_per_step"] for start in starts)}
            for name in cell.systems}


def trained(cell, cluster):
    """One training of all the cell's systems. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-B", HERE / "train_bench.py", "--net", cell.net, "--systems", ",".join(cell.systems),
                 "--turns", cell.turns, "--turn-seconds", cell.turn_seconds, "--seed", grid.SEED,
                 "--plan-step", grid.PLAN_STEP, "--workers", cell.workers,
                 "--coordinator", cluster.addresses[0], "--token-file", cells.token_in(pathlib.Path(folder))]
        return of_systems(cluster, words, cell.systems, pathlib.Path(folder), PATIENCE)


def of_systems(cluster, words, systems, folder, patience, own=lambda rank: []):
    """What each of these systems took in one run of train_bench.py (`words`) on every node; `own`: words of one rank alone. Raises
    Failed."""
    outputs = run(cluster, words, folder, patience, own)
    lines = [[json.loads(line) for line in output.splitlines() if line.startswith("{")] for output in outputs]
    return {name: system_of(name, lines) for name in systems}


def run(cluster, words, folder, patience, own):
    """The output of each worker. Raises Failed."""
    environment = {"POSEIDON_LIBRARY": str(LIBRARY), **os.environ, "OMP_NUM_THREADS": "1"}  # of a bundle, where the caller has one
    processes, files = [], [(folder / f"out{rank}", folder / f"error{rank}") for rank in range(len(cluster.addresses))]
    for rank, (out, error) in enumerate(files):
        with open(out, "w") as to, open(error, "w") as errors:
            processes.append(cluster.run(rank, [*words, "--rank", rank, "--listen", cluster.addresses[rank], *own(rank)],
                                         stdout=to, stderr=errors, env=environment))
    try:
        late = await_all(processes, time.monotonic() + patience)
        codes = [process.poll() for process in processes]
    finally:
        cluster.end(*processes)
    if late:
        raise Failed(f"it had not finished after {patience} s")
    if failed := [rank for rank, code in enumerate(codes) if code]:
        # The end of the first can be why others have failed by now; what they said of it they said later.
        rank = min(failed, key=lambda rank: files[rank][1].stat().st_mtime_ns)
        told = files[rank][1].read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise Failed(f"rank {rank} ended with {codes[rank]}: {re.sub(r'(?:/[^ /:]+)+/', '', told[-1])}")
    return [out.read_text() for out, _ in files]


def system_of(name, ranks):
    steps = [[line for line in lines if line["system"] == name and "seconds" in line] for lines in ranks]
    summaries = [line["summary"] for lines in ranks for line in lines
                 if line["system"] == name and "summary" in line]
    weights = {summary["weights"] for summary in summaries}
    if name != "local" and len(weights) > 1:
        raise Failed(f"the workers ended with different weights by {name}")
    turns = {}
    for of_step in zip(*steps):
        turns.setdefault(of_step[0]["turn"], []).append(
            round(sum(line["seconds"] for line in of_step) / len(ranks), 6))
    cpu = sorted(sum(line["cpu_seconds"] for line in of_step) for of_step in zip(*steps))
    kept = {key: summaries[0][key] for key in ("batch", "gradient_bytes", "losses", "schemes", "hidden_share",
                                                  "predicted_seconds")
            if key in summaries[0]}
    return {"turns": list(turns.values()), "cpu_seconds_per_step": round(cpu[len(cpu) // 2], 6), **kept,
            "weights": sorted(weights)}
