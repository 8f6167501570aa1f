# SPDX-License-Identifier: Apache-2.0
"""The simulator beside what emulated clusters showed: step times of recorded cells, and how far off it is.

  python3 -m benchmarks.simulate.compare docs/performance/*.json
  python3 -m benchmarks.simulate.compare --goodput 0.91 --latency 40us CELL.json...

Cells are those of benchmarks/performance; of their turns the least disturbed one counts. What a port's frames get of
its rate and the latency are the only numbers that may be set by some cells, to predict the others.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from benchmarks.performance import grid

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIMULATE = ROOT / "build" / "release" / "bin" / "poseidon_simulate"
LEFT_OUT = ("--wire",)  # encryption costs CPU time, of which the simulator knows nothing


def simulated(cell, options, settings):
    """Median step seconds, or None with a sentence on stderr."""
    words = [SIMULATE, "--profile", "-", "--workers", cell["workers"], "--scale", cell["scale"], "--rate",
             f"{cell['port_rate_bits'] * cell['scale'] / 1e6:.6f}Mbit", "--jitter", cell["jitter"], "--straggler",
             cell["straggler"], "--goodput", settings.goodput, "--latency", settings.latency, "--segment",
             settings.segment, "--steps", cell["steps"], *options]
    done = subprocess.run([str(word) for word in words], input=json.dumps(grid.document(cell["profile"])),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"compare: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)["median_seconds"]


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.simulate.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", type=pathlib.Path)
    parser.add_argument("--goodput", type=float, default=0.956)
    parser.add_argument("--latency", default="40us")
    parser.add_argument("--segment", type=int, default=8192)
    settings = parser.parse_args(arguments)
    errors = []
    for path in settings.cells:
        result = json.loads(path.read_text())
        if not isinstance(result, dict) or not result.get("systems") or not result["cell"].get("port_rate_bits"):
            continue
        if result["cell"].get("background") or result["cell"].get("compute", "sleep") != "sleep":
            continue  # neither others' traffic nor others on the cores are simulated
        for name, measured in result["systems"].items():
            system = grid.SYSTEMS.get(name)
            if not system or system.program != "ours" or not measured["turns"]:
                continue
            if any(word in LEFT_OUT for word in system.options):
                continue
            seconds = simulated(result["cell"], system.options, settings)
            if seconds is None:
                continue
            emulated = min(turn["median_seconds"] for turn in measured["turns"])
            errors.append(seconds / emulated - 1)
            print(f"{path.stem:28} {name:9} emulated {emulated:.4f} s  simulated {seconds:.4f} s  {errors[-1]:+.1%}",
                  flush=True)
    if errors:
        print(f"{len(errors)} runs: mean of |error| {statistics.fmean(map(abs, errors)):.1%}, "
              f"most {max(map(abs, errors)):.1%}")
    return 0 if errors else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
