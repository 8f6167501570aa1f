#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains nets of train_bench.py on a GPU, a worker in each of several network namespaces, and prints a table of what steps took.

  gpu_bench.py                                       # needs root, ip and tc; about 3 minutes
  gpu_bench.py --nets mlp,resnet --rates 1G,unshaped

The workers share the machine's GPUs, worker r the (r mod n)th of n. Systems train by turns in the same processes
(train_bench.py); a step ends when the device has ended it. Each figure is the median over the steps of all turns, of the mean of
the workers; the spread is that of the turns' medians. `local` is a step in which nothing is synchronised while all workers compute.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "cluster")]

import emulation  # noqa: E402

from benchmarks.torch import grid, measure, tables  # noqa: E402

RATES = {"10G": 1e10, **grid.RATES}
SYSTEMS = ("overlap", "waiting", "whole", "ddp", "ddp4", "local")
PORT = 29500
HEAD = ["net", "link", *SYSTEMS, "factors", "DDP / overlap", "predicted"]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nets", type=lambda text: text.split(","), default=["mlp", "alexnet-67", "bert", "resnet"])
    parser.add_argument("--rates", type=lambda text: text.split(","), default=list(RATES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=6, help="of every system")
    parser.add_argument("--turn-seconds", type=float, default=0.3)
    parser.add_argument("--plan-step", type=int, default=6, help="Poseidon's final plan, made of the steps before")
    parser.add_argument("--patience", type=int, default=120, help="seconds that a training may take")
    options = parser.parse_args(arguments)
    if unknown := set(options.rates) - set(RATES):
        parser.error(f"there is no rate {sorted(unknown)[0]}, expected some of {', '.join(RATES)}")
    return options


def train(options, cluster, net, devices):
    """What each system took, by its name. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-B", pathlib.Path(__file__).with_name("train_bench.py"), "--net", net,
                 "--systems", ",".join(SYSTEMS), "--turns", options.turns, "--turn-seconds", options.turn_seconds,
                 "--workers", options.workers, "--coordinator", cluster.addresses[0], "--port", PORT, "--seed", grid.SEED,
                 "--token-file", folder + "/token", "--plan-step", options.plan_step]
        return measure.of_systems(cluster, words, SYSTEMS, pathlib.Path(folder), options.patience,
                                  lambda rank: ["--device", f"cuda:{rank % devices}"])


def row(net, rate, systems):
    """A line of the table: ms of each system, the plan's factors, and how many steps of the overlap mode the better DDP takes."""
    medians = {name: [statistics.median(turn) for turn in system["turns"]] for name, system in systems.items()}
    result = {"systems": systems}
    step = {name: tables.seconds_of(result, name) for name in systems}
    better = tables.best(result)
    ratios = sorted(one / other for one, other in zip(medians[better], medians["overlap"]))
    factors = sum(scheme == "sfb" for scheme in systems["overlap"]["schemes"].values())
    cells = [f"{1e3 * step[name]:.2f} ({1e3 * min(medians[name]):.2f} to {1e3 * max(medians[name]):.2f})" for name in SYSTEMS]
    return [net, rate, *cells, f"{factors} of {len(systems['overlap']['schemes'])}",
            f"{step[better] / step['overlap']:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            f"{100 * (systems['overlap']['predicted_seconds'] / step['overlap'] - 1):+.0f} %"]


def main(arguments):
    options = parse(arguments)
    if reason := emulation.missing():
        sys.exit(f"gpu_bench: {reason}")
    # Torch is not loaded here: a CUDA context would share the GPU with the workers.
    names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    devices = names.stdout.strip().splitlines()
    print(f"{options.workers} workers on {', '.join(devices)}; ms a step\n")
    print(tables.table(HEAD, []), flush=True)
    failed = 0
    for rate in options.rates:
        with emulation.Cluster(options.workers, emulation.Link(rate=RATES[rate])) as cluster:
            for net in options.nets:
                try:
                    cells = row(net, rate, train(options, cluster, net, len(devices)))
                except measure.Failed as failure:
                    cells = [net, rate, f"FAILED: {failure}".replace("|", "/"), *["-"] * (len(HEAD) - 3)]
                    failed = 1
                print("| " + " | ".join(cells) + " |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
