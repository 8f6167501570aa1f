# SPDX-License-Identifier: Apache-2.0
"""Trains small networks in emulated clusters, through Poseidon and through DDP, and writes what steps took.

  python3 -m benchmarks.torch                  # all cells, about 20 minutes; needs root
  python3 -m benchmarks.torch --only mlp       # of some nets
  python3 -m benchmarks.torch --only mlp-p2-1G,lenet
  python3 -m benchmarks.torch --render         # measures nothing

Raw results are build/performance/torch-*.json, the table is docs/performance/torch.md. A cell is measured again
when its inputs changed (setting, sources or machine) or when others used the cores meanwhile.
"""
import itertools
import json
import subprocess

from benchmarks import cells as of_cells
from benchmarks.cells import FOLDER, ROOT, say, text_of


def parse(arguments):
    from . import grid
    kinds = ("net", "cell")
    parser = of_cells.parser("torch", __doc__, kinds)
    options = parser.parse_args(arguments)
    options.chosen = of_cells.choose(parser, kinds, options.only, grid.cells(),
                                     lambda cell: (cell.net, cell.name, cell.name.removeprefix("torch-")))
    return options


def measure_all(cells, again):
    """Measures what is missing or stale; the exit status."""
    from benchmarks.performance import machine
    from . import measure, tables
    subprocess.run([ROOT / "scripts" / "build.sh", "release", "poseidon_shared"], check=True,
                   stdout=subprocess.DEVNULL)
    sources, on = machine.sources(folders=measure.SOURCES), machine.machine()
    stale = []
    for cell in cells:
        path = FOLDER / f"{cell.name}.json"
        there = json.loads(path.read_text()) if path.exists() else None
        if (there and there["key"] == of_cells.key_of(cell, sources, on) and not again
                and tables.undisturbed(there) >= tables.LEAST_SHARE):
            say(f"{cell.name}: there")
        else:
            stale.append(cell)
    failed = 0
    for (workers, _), group in itertools.groupby(stale, lambda cell: (cell.workers, cell.rate)):
        group = list(group)
        with measure.network(workers, group[0].described()["rate_bits"], say) as (cluster, gate):
            for cell in group:
                try:
                    systems = measure.measure(cell, cluster)
                except measure.Failed as failure:
                    say(f"{cell.name}: {failure}")
                    failed = 1
                    continue
                result = {"key": of_cells.key_of(cell, sources, on), "name": cell.name, "date": machine.today(),
                          "machine": on, "versions": machine.versions(), "cell": cell.described(), "gate": gate,
                          "systems": systems}
                FOLDER.mkdir(parents=True, exist_ok=True)
                (FOLDER / f"{cell.name}.json").write_text(text_of(result))
                say(f"{cell.name}: " + ", ".join(f"{name} {tables.ms(tables.seconds_of(result, name))} ms"
                                                 for name in systems)
                    + f"; {tables.undisturbed(result):.0%} of the cores")
    return failed


def main(arguments):
    from . import grid, measure, tables
    options = parse(arguments)
    if options.list:
        for cell in options.chosen:
            say(cell.name)
        return 0
    failed = 0
    if not options.render:
        if reason := measure.emulation.missing():
            say(f"torch: {reason}")
            return 1
        try:
            failed = measure_all(options.chosen, options.again)
        except measure.emulation.Refused as refusal:
            say(f"torch: {refusal}")
            return 1
        except subprocess.CalledProcessError as failure:
            return failure.returncode
    pages = of_cells.page_folder("torch", grid.cells())
    pages.mkdir(parents=True, exist_ok=True)
    (pages / "torch.json").write_text(of_cells.summary_of(tables.summary(of_cells.results_in(FOLDER, grid.cells()))))
    document = pages / "torch.md"
    document.write_text("# Training through PyTorch\n\nWritten by `python3 -m benchmarks.torch`.\n\n"
                        + tables.section(FOLDER))
    say(f"the table is in {document.relative_to(ROOT)}")
    return failed


if __name__ == "__main__":
    of_cells.run("torch", main)
