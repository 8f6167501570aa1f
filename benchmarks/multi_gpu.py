#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/multi-gpu.md: what the planner predicts for four machines with 1 to 8 GPUs each, and for one whose workers
combine (--levels host). Nothing is measured.

  python3 -m benchmarks.multi_gpu [--poseidon PATH] [--copy-rate 80Gbit]

A cell is the speed-up over one GPU that the plan predicts. The workers of a machine combine through its memory, which each copies at the
given rate, and share its link. What NCCL within a machine could bring at most: --copy-rate 8000Gbit, at which copies take no time.
GPUs are those of the profiles (2016 to 2019), and eight times as fast.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.profiles import timing  # noqa: E402
from benchmarks.tables import table  # noqa: E402

PROFILES = ("resnet-50", "vgg19-22k", "bert-base")
FASTER = (1, 8)
MACHINES = 4
GPUS = (1, 2, 4, 8)
RATES = ("1G", "10G", "25G", "100G")


def faster(profile, times):
    """The profile of a GPU that computes so many times as fast."""
    layers = [layer | {name: layer[name] / times for name in ("forward_seconds", "backward_seconds")} for layer in profile["layers"]]
    return profile | {"layers": layers, "product_flops": profile["product_flops"] * times}


def speed_up(options, folder, profile, gpus, rate, machines=MACHINES):
    source, made = folder / "profile.json", folder / "plan.json"
    source.write_text(json.dumps(profile))
    words = [options.poseidon, "plan", source, "--workers", machines * gpus, "--per-host", gpus, "--rate", rate, "--copy-rate",
             options.copy_rate, "--json", made]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)
    return json.loads(made.read_text())["prediction"]["speedup"]


def profiles():
    for name in PROFILES:
        for times in FASTER:
            yield name + (f", GPUs {times} times as fast" if times > 1 else ""), faster(timing.profile(name), times)


def rows(options, folder):
    for words, profile in profiles():
        for gpus in GPUS:
            yield [f"{words}, {MACHINES} x {gpus}", str(MACHINES * gpus),
                   *(f"{speed_up(options, folder, profile, gpus, rate):.1f}" for rate in RATES)]


def of_one_machine(options, folder):
    for words, profile in profiles():
        yield [words, *(f"{speed_up(options, folder, profile, gpus, RATES[0], machines=1):.1f}" for gpus in GPUS[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--poseidon", default=ROOT / "build" / "release" / "bin" / "poseidon")
    parser.add_argument("--copy-rate", default="80Gbit", help="of a worker, to and from its machine's memory (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = list(rows(options, pathlib.Path(folder)))
        alone = list(of_one_machine(options, pathlib.Path(folder)))
    print(table(["model, machines x GPUs", "GPUs", *(f"{rate[:-1]} Gbit/s" for rate in RATES)], found))
    print("\n" + table(["model, one machine", *(f"{gpus} GPUs" for gpus in GPUS[1:])], alone))


if __name__ == "__main__":
    main()
