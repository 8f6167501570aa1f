# SPDX-License-Identifier: Apache-2.0
"""Trains under Keras and TensorFlow in emulated clusters, through Poseidon and through what TensorFlow brings, and
writes what steps took.

  python3 -m benchmarks.tensorflow                    # all cells, half an hour; needs root
  python3 -m benchmarks.tensorflow --only train,overhead
  python3 -m benchmarks.tensorflow --only servers     # or nets, or cells: servers-vgg19-22k-p8-10G
  python3 -m benchmarks.tensorflow --smoke            # a turn or two of each cell, into build/
  python3 -m benchmarks.tensorflow --render           # measures nothing

Raw results are build/performance/tensorflow-*.json, the tables are docs/performance/tensorflow.md. A cell is measured
again when its inputs changed (setting, sources or machine) or when others used the cores meanwhile.
"""
import dataclasses
import itertools
import json
import subprocess

from benchmarks import cells as of_cells
from benchmarks.cells import FOLDER, ROOT, say, text_of


def parse(arguments):
    from . import grid
    kinds = ("kind", "net", "cell")
    parser = of_cells.parser("tensorflow", __doc__, kinds)
    parser.add_argument("--smoke", action="store_true", help="few turns, into build/: that everything runs")
    options = parser.parse_args(arguments)
    options.folder = ROOT / "build" / "tensorflow" if options.smoke else FOLDER
    options.chosen = of_cells.choose(parser, kinds, options.only, grid.cells(),
                                     lambda cell: (cell.kind, cell.net, cell.name, cell.name.removeprefix("tensorflow-")))
    if options.smoke:
        options.chosen = [dataclasses.replace(cell, turns=2, starts=1) for cell in options.chosen]
    return options


def is_there(cell, key, folder):
    from . import tables
    path = folder / f"{cell.name}.json"
    there = json.loads(path.read_text()) if path.exists() else None
    return bool(there) and there["key"] == key and (cell.kind == "servers"
                                                    or tables.strangers(there) <= tables.MOST_STRANGERS)


def measure_all(options):
    """Measures what is missing or stale; the exit status."""
    from benchmarks.performance import machine
    from benchmarks.torch.measure import network
    from . import measure
    subprocess.run([ROOT / "scripts" / "build.sh", "release", "poseidon_shared", "poseidon_tensorflow"], check=True,
                   stdout=subprocess.DEVNULL)
    sources, on = machine.sources(folders=measure.SOURCES), machine.machine()
    key_of = lambda cell: of_cells.key_of(cell, sources, on)
    stale = [cell for cell in options.chosen if options.again or not is_there(cell, key_of(cell), options.folder)]
    for cell in options.chosen:
        if cell not in stale:
            say(f"{cell.name}: there")
    failed = 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for _, group in itertools.groupby(stale, lambda cell: (cell.workers, cell.rate_bits)):
        group = list(group)
        with network(group[0].workers, group[0].rate_bits, say) as (cluster, gate):
            for cell in group:
                say(cell.name)
                try:
                    systems = measure.measure(cell, cluster, say)
                except measure.Failed as failure:
                    say(f"{cell.name}: {failure}")
                    failed = 1
                    continue
                result = {"key": key_of(cell), "name": cell.name, "date": machine.today(), "machine": on,
                          "versions": measure.versions(), "cell": cell.described(), "gate": gate, "systems": systems}
                (options.folder / f"{cell.name}.json").write_text(text_of(result))
    return failed


def write(folder):
    """The tables from what is there, and the plot where matplotlib is."""
    from . import grid, plots, tables
    pages = of_cells.page_folder("tensorflow", grid.cells()) if folder == FOLDER else folder
    pages.mkdir(parents=True, exist_ok=True)
    results = of_cells.results_in(folder, grid.cells())
    plot = pages / "tensorflow.svg"
    try:
        drawn = plots.speed_up(tables.of_kind(results, "servers"), plot)
    except ImportError:
        drawn = plot.exists()
    (pages / "tensorflow.json").write_text(of_cells.summary_of(tables.summary(results)))
    document = pages / "tensorflow.md"
    document.write_text("# Training through Keras and TensorFlow\n\nWritten by `python3 -m benchmarks.tensorflow`.\n\n"
                        + tables.section(folder, plot.name if drawn else None))
    print(document.read_text())
    print(f"the tables are in {document.relative_to(ROOT)}", flush=True)


def main(arguments):
    from . import measure
    from .conduct import emulation
    options = parse(arguments)
    if options.list:
        for cell in options.chosen:
            print(cell.name)
        return 0
    failed = 0
    if not options.render:
        reason = emulation.missing()
        missing = [python for python in (measure.PYTHON, measure.OLDEST) if not python.exists()]
        if not reason and missing:
            reason = f"{missing[0].relative_to(ROOT)} is missing, expected TensorFlow and Keras in it"
        if reason:
            print(f"tensorflow: {reason}")
            return 1
        try:
            failed = measure_all(options)
        except emulation.Refused as refusal:
            print(f"tensorflow: {refusal}")
            return 1
        except subprocess.CalledProcessError as failure:
            return failure.returncode
    write(options.folder)
    return failed


if __name__ == "__main__":
    of_cells.run("tensorflow", main)
