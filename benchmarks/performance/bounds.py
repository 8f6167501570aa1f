# SPDX-License-Identifier: Apache-2.0
"""Recalculates T*, T_wfbp and the payload of every turn of ours, from its cell and its schemes.

  python3 -m benchmarks.performance.bounds        # after their formulas changed; then --render

They are no measurements: what was measured stays. It needs the raw results, in build/performance.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import types

from . import grid, machine, measure
from .__main__ import DOCS, RAW, record_all, replace, text_of

BOUNDS = machine.ROOT / "build" / "release" / "bin" / "poseidon_bounds"
KEPT = ("--mode", "--policy", "--scheme")  # of a system's options, what decides the schemes


def words_of(cell, system, turn, profile):
    """The command line for a turn; `cell` is as its result describes it."""
    options = dict(zip(system.options[::2], system.options[1::2]))
    network = types.SimpleNamespace(**cell, port_rate=cell["port_rate_bits"])
    words = ["--profile", profile, "--scale", cell["scale"], "--workers", cell["workers"],
             "--rate", f"{measure.rate_of_a_worker(network, system) / 1e6:.6f}Mbit", "--steps", cell["steps"] + 1,
             "--warm-up", cell["warm_up"], "--jitter", cell["jitter"], "--straggler", cell["straggler"]]
    if options.get("--levels") == "host":
        words += ["--per-host", cell["per_node"]]
    for name in turn["by_factors"]:
        words += ["--layer-scheme", f"{name}=sfb"]
    return [*words, *(word for name in KEPT if name in options for word in (name, options[name]))]


def recalculate(result, folder):
    """A result with the bounds of now."""
    profile = folder / "profile.json"
    profile.write_text(json.dumps(grid.document(result["cell"]["profile"])))
    for name, system in result["systems"].items():
        if grid.SYSTEMS[name].program != "ours":
            continue
        for turn in system["turns"]:
            words = words_of(result["cell"], grid.SYSTEMS[name], turn, profile)
            done = subprocess.run([BOUNDS, *map(str, words)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise measure.Failed(f"{result['name']}, {name}: {done.stderr.strip()}")
            turn |= json.loads(done.stdout)
    return result


def main():
    with tempfile.TemporaryDirectory() as folder:
        cells = [cell for cell in grid.full() + grid.beside() if (RAW / f"{cell.name}.json").exists()]
        for cell in cells:
            path = RAW / f"{cell.name}.json"
            replace(path, text_of(recalculate(json.loads(path.read_text()), pathlib.Path(folder))))
        record_all(cells, RAW, DOCS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
