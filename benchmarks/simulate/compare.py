# SPDX-License-Identifier: Apache-2.0
"""The simulator beside what emulated clusters showed: step times of recorded cells, and how far off it is.

  python3 -m benchmarks.simulate.compare                              # all cells that are recorded
  python3 -m benchmarks.simulate.compare --goodput 0.91 --latency 40us CELL.json...
  ... --json agreement.json                                           # the step times

Cells are those of benchmarks/performance; of their turns the least disturbed one counts. The simulator's network
has three numbers, none set by a step time: what a port's frames get of its rate (full frames carry 95.7 %), half a
round trip between idle nodes (the gates' are 25 to 105 us), and the bytes in which connections share a port.
"""
import argparse
import json
import pathlib
import statistics
import sys

from benchmarks.performance import figures, grid, record
from benchmarks.performance.standalone import Failed

from .program import play

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "performance" / "recorded.json"
LEFT_OUT = ("--wire",)  # encryption costs CPU time, of which the simulator knows nothing


def simulated(cell, options, settings):
    """Median step seconds, or None with a sentence on stderr."""
    rate = f"{cell['port_rate_bits'] * cell['scale'] / 1e6:.6f}Mbit"
    try:
        found = play(json.dumps(grid.document(cell["profile"])), cell["workers"], rate, "--scale", cell["scale"], "--jitter", cell["jitter"],
                     "--straggler", cell["straggler"], "--goodput", settings.goodput, "--latency", settings.latency, "--segment",
                     settings.segment, "--steps", cell["steps"], "--warm-up", cell["warm_up"], *options, what="compare")
    except Failed as failure:
        print(failure, file=sys.stderr)
        return None
    return found["median_seconds"]


def runs_of(result, settings):
    """Every run of a cell that can be simulated: cell, system, emulated and simulated seconds of a step."""
    cell = result["cell"]
    if (cell.get("background") or cell.get("latency_seconds") or cell.get("compute", "sleep") != "sleep"
            or cell.get("per_node", 1) > 1):
        return  # neither others' traffic, nor a delay stage, nor others on the cores, nor shared ports are simulated
    for name, measured in figures.figures_of(result).items():
        system = grid.SYSTEMS[name]
        if system.program != "ours" or any(word in LEFT_OUT for word in system.options):
            continue
        if (seconds := simulated(cell, system.options, settings)) is not None:
            yield {"cell": result["name"], "system": name, "simulated_seconds": seconds,
                   "emulated_seconds": min(measured.medians)}


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.simulate.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", type=pathlib.Path)
    parser.add_argument("--goodput", type=float, default=0.956)
    parser.add_argument("--latency", default="40us")
    parser.add_argument("--segment", type=int, default=8192)
    parser.add_argument("--json", type=pathlib.Path, help="write the step times to this file")
    settings = parser.parse_args(arguments)
    try:
        return agreement(settings)
    except OSError as failure:
        print(f"compare: {failure}", file=sys.stderr)
        return 1


def agreement(settings):
    """Simulates the cells, prints and writes how far off that is; the exit status. Raises OSError."""
    runs = []
    results = [json.loads(path.read_text()) for path in settings.cells] or list(record.read(RECORD).values())
    for result in results:
        if not isinstance(result, dict) or not result.get("systems") or "port_rate_bits" not in result["cell"]:
            continue
        for run in runs_of(result, settings):
            runs.append(run)
            print(f"{run['cell']:28} {run['system']:9} emulated {run['emulated_seconds']:.4f} s  simulated "
                  f"{run['simulated_seconds']:.4f} s  {off(run):+.1%}", flush=True)
    if not runs:
        print("compare: no result can be simulated, expected files that benchmarks.performance wrote", file=sys.stderr)
        return 1
    errors = [abs(off(run)) for run in runs]
    print(f"{len(runs)} runs: mean of |error| {statistics.fmean(errors):.1%}, most {max(errors):.1%}")
    if settings.json:
        settings.json.write_text(json.dumps({"goodput": settings.goodput, "latency": settings.latency,
                                             "segment_bytes": settings.segment, "runs": runs}, indent=1) + "\n")
    return 0


def off(run):
    """How much longer the simulated step is, as a share of the emulated one."""
    return run["simulated_seconds"] / run["emulated_seconds"] - 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
