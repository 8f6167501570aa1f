# SPDX-License-Identifier: Apache-2.0
"""Measures the cells of a grid and writes docs/performance.md, the pages behind it, their plots and what is recorded.

  python3 -m benchmarks.performance                        # the quick grid; needs root
  python3 -m benchmarks.performance --grid full            # at most 6 hours, and training 20 minutes; resumable
  python3 -m benchmarks.performance --only resnet-50-p4-1x,mlp-p2-1G,dense-path
  python3 -m benchmarks.performance --list                 # the cells and what they take
  python3 -m benchmarks.performance --render               # measures nothing
  python3 -m benchmarks.performance --compare              # the smoke grid against the recorded ratios

Raw results are in build/performance. A cell is measured again when its inputs changed: setting, profile, sources or machine;
where the network is then refused, the result that was there stays. The figures of all cells are in
docs/performance/recorded.json, from which the pages are made: docs/performance.md, docs/performance/details.md with the
quick grid in detail, and build/performance/cells.md with the detail of all.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "performance"     # what is recorded, the pages behind docs/performance.md, their plots
RAW = ROOT / "build" / "performance"     # every step of every turn
RECORD = "recorded.json"
DENSE_PATH = "dense-path"  # all-reduces over unshaped links, beside the cells
DENSE_PATH_PATIENCE = "3 to 8 min, by how fast the machine copies"
TRAINING = "training"      # benchmarks.torch, with the full grid


def in_the_checkouts_python():
    """Starts the program anew in .venv of the checkout, which has torch and matplotlib."""
    python = ROOT / ".venv" / "bin" / "python3"
    if python.exists() and pathlib.Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        os.execv(python, [str(python), "-B", "-m", "benchmarks.performance", *sys.argv[1:]])


def parse(arguments):
    from . import calculated, grid
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.performance", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", choices=grid.GRIDS, help="quick unless another is named")
    parser.add_argument("--only", help="names of cells, with commas")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the cells")
    what.add_argument("--render", action="store_true", help="write the document from what is there")
    what.add_argument("--compare", action="store_true", help="say what got worse since the recorded results")
    parser.add_argument("--again", action="store_true", help="measure cells that are there as well")
    options = parser.parse_args(arguments)
    if options.compare and options.grid:
        parser.error("--compare takes no --grid: it measures the smoke grid")
    if options.render and options.only:
        parser.error("--render takes no --only: the document has all cells that are there")
    options.grid = options.grid or ("smoke" if options.compare else "quick")
    options.cells = grid.GRIDS[options.grid]()
    options.beside = [] if options.grid == "smoke" else grid.beside()
    options.chosen = options.cells + options.beside
    options.dense_path = options.grid != "smoke"
    options.training = options.dense_path and options.grid == "full"
    options.calculated = list(calculated.COMMANDS) if options.dense_path else []
    if options.only:
        names = set(options.only.split(","))
        known = {*options.calculated, *(cell.name for cell in options.chosen)}
        if not options.compare:  # which knows cells only
            known |= {DENSE_PATH, TRAINING}
        if unknown := names - known:
            parser.error(f"the grid {options.grid} has no cell {sorted(unknown)[0]}; --list names them")
        options.chosen = [cell for cell in options.chosen if cell.name in names]
        options.dense_path = DENSE_PATH in names
        options.training = TRAINING in names
        options.calculated = [name for name in options.calculated if name in names]
    return options


def say(line):
    print(line, flush=True)


def say_cells(cells):
    for cell in cells:
        say(f"{cell.name:40} {rate(cell.real_rate)} as {rate(cell.port_rate)}, {cell.steps} steps, "
            f"{cell.repeats} x {' '.join(cell.systems)}: at most about {cell.seconds / 60:.1f} min")
    say(f"{len(cells)} cells, at most about {sum(cell.seconds for cell in cells) / 60:.0f} min")


def say_grid(options):
    from . import calculated
    say_cells([cell for cell in options.cells if cell in options.chosen])
    if beside := [cell for cell in options.beside if cell in options.chosen]:
        say("beside the grid:")
        say_cells(beside)
    if options.dense_path:
        say(f"{DENSE_PATH:40} all-reduces over unshaped links: {DENSE_PATH_PATIENCE}")
    if options.training:
        say(f"{TRAINING:40} benchmarks.torch, real training beside DDP: about 20 min")
    for name in options.calculated:
        say(f"{name:40} calculated: {calculated.COMMANDS[name].patience}")


def rate(bits):
    from .tables import rate_words
    return rate_words(bits)


def build():
    done = subprocess.run([ROOT / "scripts" / "build.sh", "release", "-DPOSEIDON_BENCHMARKS=ON", "poseidon",
                           "poseidon_replay", "poseidon_bounds", "poseidon_allreduce", "poseidon_simulate"],
                          check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        say(done.stdout)  # where ninja prints what failed
        done.check_returncode()


def read(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def replace(path, text):
    """Writes a file in one piece: to whoever reads it, and when this program is ended, it is whole."""
    fresh = path.with_name(f"{path.name}.new")  # no *.json: those are taken for results
    fresh.write_text(text)
    os.replace(fresh, path)


def text_of(result):
    """JSON with a line per turn and system, so that differences can be read."""
    head = json.dumps({key: value for key, value in result.items() if key not in ("systems", "timeline")},
                      indent=1)
    systems = []
    for name, system in result["systems"].items():
        turns = ",\n   ".join(json.dumps(turn) for turn in system["turns"])
        rest = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in system.items()
                       if key != "turns")
        systems.append(f'  {json.dumps(name)}: {{"turns": [\n   {turns}\n  ]{rest}}}')
    timeline = f',\n "timeline": {json.dumps(result["timeline"])}' if "timeline" in result else ""
    return head.removesuffix("\n}") + timeline + ',\n "systems": {\n' + ",\n".join(systems) + "\n }\n}\n"


def measured(cell, sources):
    """A new result of a cell, complete. Raises emulation.Refused."""
    from . import machine, measure
    began = time.monotonic()
    result = measure.measure(cell, say)
    on = machine.machine()
    head = {"key": measure.key_of(cell, sources, on), "machine": on, "versions": machine.versions(),
            "wall_seconds": round(time.monotonic() - began, 1)}
    return head | result


def measure_all(options, raw, folder):
    """Measures what is missing or stale; every result is written to `raw` as soon as it is there, and at the end to the
    record of `folder`. That the network was refused is written only where no result was."""
    from . import machine, measure
    raw.mkdir(parents=True, exist_ok=True)
    build()
    sources = machine.sources()
    for number, cell in enumerate(options.chosen, 1):
        path = raw / f"{cell.name}.json"
        there = read(path)
        key = measure.key_of(cell, sources, machine.machine())
        if there and there["key"] == key and not there.get("refused") and not options.again:
            say(f"{number}/{len(options.chosen)} {cell.name}: there")
            continue
        say(f"{number}/{len(options.chosen)} {cell.name}: at most about {cell.seconds / 60:.1f} min")
        result = measured(cell, sources)
        if result.get("refused") and there and not there.get("refused"):
            say(f"{cell.name}: the result of {there['date']} is kept, the network was refused: {result['refused']}")
            continue
        replace(path, text_of(result))
    record_all(options.chosen, raw, folder)
    if options.dense_path:
        measure_dense_path(options, folder, sources)
    if options.training:
        from benchmarks.torch import __main__ as training
        training.main(["--again"] if options.again else [])
    calculate_all(options, folder, sources)


def measure_dense_path(options, folder, sources):
    from . import dense_path, machine, measure
    on = machine.machine()
    path, key = folder / f"{DENSE_PATH}.json", dense_path.key_of(sources, on)
    there = read(path)
    if there and there["key"] == key and not options.again:
        return say(f"{DENSE_PATH}: there")
    say(f"{DENSE_PATH}: {DENSE_PATH_PATIENCE}")
    try:
        result = {"key": key, "machine": on, "versions": machine.versions()} | dense_path.measure_all(say)
    except measure.Failed as failure:
        return say(f"{DENSE_PATH}: {failure}")
    replace(path, dense_path.text_of(result))


def calculate_all(options, folder, sources):
    """Makes the results that need no network: those of the planner and of the simulator."""
    from . import calculated
    for name in options.calculated:
        command, path = calculated.COMMANDS[name], folder / f"{name}.json"
        key = command.key(sources, folder)
        if (there := read(path)) and there["key"] == key and not options.again:
            say(f"{name}: there")
            continue
        say(f"{name}: {command.patience}")
        if reason := calculated.run(command, path, key):
            say(f"{name}: {reason}")


def record_all(chosen, raw, folder):
    """Puts what is in `raw` of these cells into the record of `folder`."""
    from . import record
    folder.mkdir(parents=True, exist_ok=True)
    fresh = [result for cell in chosen if (result := read(raw / f"{cell.name}.json"))]
    replace(folder / RECORD, record.text_of(record.merged(record.read(folder / RECORD), fresh)))


def render(cells, beside, folder, page, aside):
    """Writes `page` from the record of `folder`, into `folder` the details, with `cells` in detail and all results in sum,
    and the plots of both; into `aside` the detail of all cells, and a timeline where a raw result has one."""
    from . import calculated, grid, pages, plots, record, tables
    recorded = record.read(folder / RECORD)
    there = lambda of: [recorded[cell.name] for cell in of if cell.name in recorded]
    results = there(grid.full())
    quick = {cell.name for cell in grid.quick()}
    now = [result for result in results if result["name"] in quick]
    parts = pages.Parts(now, there(beside), read(folder / f"{DENSE_PATH}.json"), read(folder / "unscaled.json"),
                        read(folder / "agreement.json"), read(folder / "torch.json"), read(folder / "tensorflow.json"),
                        [result for result in results if result["name"] not in quick])
    drawn = plots.draw([result for result in results if result["systems"]], folder) + calculated.draw(folder)
    (folder / "details.md").write_text(tables.document(
        cells, results, [plot for plot in drawn if plot[0] not in pages.PLOTS], parts.beside, parts.dense_path, parts.unscaled,
        parts.agreement))
    page.write_text(pages.page(parts, [plot for plot in drawn if plot[0] in pages.PLOTS]))
    aside.mkdir(parents=True, exist_ok=True)
    (aside / "cells.md").write_text(tables.every_cell(results, parts.agreement))
    plots.timeline([result for cell in cells if (result := read(aside / f"{cell.name}.json"))], aside / "timeline.svg")
    say(f"{len(results)} cells in {page.relative_to(ROOT)}; the detail of all in {(aside / 'cells.md').relative_to(ROOT)}")


def compare(cells, folder):
    """Measures cells once more and prints which ratios got worse; the exit status, which is no success where nothing
    could be compared."""
    from . import figures, machine, record
    build()
    sources, compared, found = machine.sources(), 0, 0
    results = record.read(folder / RECORD)
    for cell in cells:
        recorded = results.get(cell.name)
        if not recorded or recorded.get("refused"):
            say(f"{cell.name}: nothing is recorded to compare with")
            continue
        result = measured(cell, sources)
        if result.get("refused"):
            say(f"{cell.name}: not measured, the network was refused: {result['refused']}")
            continue
        before = figures.ratios_of(recorded)
        compared += len(before)
        for name, (ratio, _) in figures.ratios_of(result).items():
            say(f"  {name}: {ratio:.3f}" + (f" (recorded {before[name][0]:.3f})" if name in before else ""))
        for sentence in figures.worse(recorded, result):
            found += 1
            say(f"{cell.name}: WORSE: {sentence}")
    if not compared:
        say("nothing was compared, expected at least one cell with a recorded ratio on a network that passes")
        return 1
    say(f"{found} ratios got worse than recorded" if found else "no ratio got worse than recorded")
    return 1 if found else 0


def main(arguments):
    from . import grid
    options = parse(arguments)
    # As an exception: what this program has started ends with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if options.list:
        say_grid(options)
        return 0
    smoke = options.grid == "smoke"
    raw = RAW / "smoke" if smoke else RAW
    folder, page = (raw / "docs", raw / "docs.md") if smoke else (DOCS, ROOT / "docs" / "performance.md")
    if not options.render:
        from . import measure
        if reason := measure.emulation.missing():
            say(f"performance: {reason}" + ("; nothing was compared" if options.compare else ""))
            return 1
        try:
            if options.compare:
                return compare(options.chosen, DOCS)
            measure_all(options, raw, folder)
        except measure.emulation.Refused as refusal:
            say(f"performance: {refusal}")
            return 1
        except subprocess.CalledProcessError as failure:
            return failure.returncode
    render(options.cells if smoke else grid.quick(), options.beside, folder, page, raw)
    return 0


if __name__ == "__main__":
    in_the_checkouts_python()
    sys.exit(main(sys.argv[1:]))
