# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands that measure a grid of cells: their options, which cells are meant, where results are kept."""
import argparse
import hashlib
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "performance"  # raw results
PAGES = ROOT / "docs" / "performance"


def say(line):
    print(line, flush=True)


def alternatives(words, ending=""):
    *first, last = (word + ending for word in words)
    return f"{', '.join(first)} or {last}"


def parser(benchmark, description, kinds):
    """Of `python3 -m benchmarks.NAME`, whose cells are chosen by names of these `kinds`: net, cell."""
    made = argparse.ArgumentParser(prog=f"python3 -m benchmarks.{benchmark}", description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", help=f"{alternatives(kinds, 's')}, with commas")
    made.add_argument("--list", action="store_true", help="print the cells")
    made.add_argument("--render", action="store_true", help="write the tables from what is there")
    made.add_argument("--again", action="store_true", help="measure cells that are there as well")
    return made


def choose(made, kinds, only, cells, called):
    """Those cells that --only names; all without it. `called`: what a cell is called, by each kind. A name of nothing
    ends the process."""
    if not only:
        return cells
    names = only.split(",")
    for name in names:
        if not any(name in called(cell) for cell in cells):
            made.error(f"there is no {alternatives(kinds)} {name}; --list names them")
    return [cell for cell in cells if set(called(cell)) & set(names)]


def token_in(folder):
    """The file of a new job's token, written there as poseidon.make_token_file does."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(os.urandom(32).hex() + "\n")
    return token


def key_of(cell, sources, on):
    """The hash of everything that a result depends on."""
    inputs = {"cell": cell.described(), "sources": sources, "machine": on}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:24]


def text_of(result):
    """JSON with a line per system, so that differences can be read."""
    head = json.dumps({key: value for key, value in result.items() if key != "systems"}, indent=1)
    systems = ",\n".join(f"  {json.dumps(name)}: {json.dumps(system)}" for name, system in result["systems"].items())
    return head.removesuffix("\n}") + ',\n "systems": {\n' + systems + "\n }\n}\n"


def results_in(folder, cells):
    """Of these cells, the results of those that are there."""
    paths = [folder / f"{cell.name}.json" for cell in cells]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def page_folder(benchmark, cells):
    """Where the page of these cells belongs: beside the other pages if the raw results of all are there."""
    missing = [cell.name for cell in cells if not (FOLDER / f"{cell.name}.json").exists()]
    if not missing:
        return PAGES
    say(f"{benchmark}: {len(missing)} of {len(cells)} cells are not in {FOLDER.relative_to(ROOT)}, {missing[0]} among them: the page goes "
        "there. docs/performance.md says where the recorded ones are.")
    return FOLDER


def summary_of(rows):
    """JSON of what docs/performance.md says of a page; `rows` are (result, its setting, what is compared, (ratio, low, high),
    the ratio below which it is a loss)."""
    lines = [{"setting": setting, "compared": compared, "ratio": [round(value, 4) for value in ratio], "goal": goal,
              "date": result["date"], "commit": result["versions"]["poseidon"]} for result, setting, compared, ratio, goal in rows]
    return '{"rows": [\n ' + ",\n ".join(map(json.dumps, lines)) + "]}\n"


def run(benchmark, main):
    """The command, by the checkout's own interpreter where there is one."""
    python = ROOT / ".venv" / "bin" / "python3"
    if python.exists() and pathlib.Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        os.execv(python, [str(python), "-B", "-m", f"benchmarks.{benchmark}", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
