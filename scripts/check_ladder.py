#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the tree: who may include whom, and what every source must carry.

A folder includes only folders on lower rungs of the ladder, never a neighbour on its own rung, and
names a header of ours by its path from the root. Some folders are ladders themselves: the same holds
between their rooms, for the modules of a Python package too, and there for imports that only a type
checker sees. What tests share is included by tests alone. Modules and classes of poseidon.torch keep
below a size. Headers carry the include guard that follows from their path, sources their licence line, and
nothing below tools/ and frontends/ reads the environment (tests may, for their counts). Mutexes are
those of poseidon/base/mutex.h, which Clang checks (tests may use others).

Prints one line per breach, `file:line: what, what was expected`, and exits 1 if there is any.
"""

import argparse
import ast
import pathlib
import re
import sys

RUNGS = [
    ["poseidon/base"],
    ["poseidon/tensor", "poseidon/transport"],
    ["poseidon/device", "poseidon/place", "poseidon/plan", "poseidon/sim"],
    ["poseidon/wire", "poseidon/factors"],
    ["poseidon/messaging"],
    ["poseidon/sync", "poseidon/coordinator"],
    ["poseidon/kv", "poseidon/sfb", "poseidon/fsc", "poseidon/local"],
    ["poseidon/schedule"],
    ["poseidon/session"],
    ["poseidon/c"],
    ["frontends/plan_file", "frontends/tensorflow"],
    ["frontends/caffe", "frontends/python"],
    ["tools"],
]
RUNG_OF = {folder: rung for rung, folders in enumerate(RUNGS) for folder in folders}

# Folders that are ladders themselves. A room is a folder in them, or a Python module; "." is all other files of theirs.
PYTHON = "frontends/python/poseidon"
TORCH = PYTHON + "/torch"
ROOMS = {
    "frontends/caffe": [["engine", "proto"], ["data"], ["net"], ["layers"], ["solver"], ["export"], ["train"], ["c"]],
    PYTHON: [["."], ["caffe", "doctor", "torch", "tensorflow"], ["keras", "lightning", "accelerate"], ["transformers", "demo"],
             ["cli"], ["__main__"]],
    TORCH: [["aliases", "devices", "hooks", "issued", "others", "random_numbers", "states", "tensors", "transforms", "under_way"],
            ["batch_norm", "core", "memory", "places", "products", "replicas"],
            ["layer"],
            ["dense", "measure", "refusals", "table"],
            ["data", "product", "staged"],
            ["linear", "partition", "shared"],
            ["model", "replay"],
            ["landing", "renewal", "sending", "unseen", "watching"],
            ["comparing", "late", "passes", "replica_checks"],
            ["checks"],
            ["exchange"],
            ["job", "joining"],
            ["profiling"],
            ["collectives", "ddp"],
            ["process_group", "speeds"],
            ["__init__"]],
    "tools": [["console", "draw"], ["launch", "logs", "profile"], ["watch"], ["run", "train"], ["."]],
}
RUNG_OF_ROOM = {ladder: {room: rung for rung, rooms in enumerate(rungs) for room in rooms}
                for ladder, rungs in ROOMS.items()}

MOST_LINES, MOST_LINES_OF_CLASS = 400, 250  # of a module in TORCH

# The core is loaded into processes that bring their own copies of these.
FOREIGN_TO_CORE = re.compile(r"^(ATen|c10|torch|google/protobuf|tensorflow)/|\.pb\.h$")

TOPS = ["poseidon", "frontends", "tools", "tests", "benchmarks", "examples"]
ABOVE = ("tests/", "benchmarks/", "examples/")
SOURCES = {".h", ".cc", ".c", ".cpp", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ENVIRONMENT = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
PLAIN_MUTEX = re.compile(r"\bstd::(mutex|condition_variable)\b")
IS_TEST = re.compile(r"(_test\.cc|/test_[^/]*)$")
LICENCE = "// SPDX-License-Identifier: Apache-2.0"


def folder_of(path):
    """The folder on the ladder that holds `path`, or None for tests, benchmarks and examples."""
    parts = path.split("/")
    folder = parts[0] if parts[0] == "tools" else "/".join(parts[:2])
    return folder if folder in RUNG_OF else None


def rooms_of(path):
    """Every folder that is a ladder itself and holds `path`, with the room in it; None where the ladder names no such room."""
    rooms = {}
    for ladder, rung_of in RUNG_OF_ROOM.items():
        if path.startswith(ladder + "/"):
            name, _, below = path[len(ladder) + 1:].partition("/")
            module = name.removesuffix(".py")
            if module in rung_of and (below or ladder.startswith(PYTHON)):
                rooms[ladder] = module
            else:
                rooms[ladder] = None if below or "." not in rung_of else "."
    return rooms


def guard_of(path):
    name = re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
    return name if name.startswith("POSEIDON_") else "POSEIDON_" + name


def without_comments(text):
    """The text with comments blanked and lines kept, so that line numbers stay."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
    keep = lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])
    return pattern.sub(keep, text)


def check_include(path, folder, included):
    """What is wrong with `path` including `included`, or None."""
    if folder.startswith("poseidon/") and FOREIGN_TO_CORE.search(included):
        return f"includes {included}, but the core includes no framework and no protobuf"
    target = folder_of(included)
    if target == folder:
        return check_rooms(path, included)
    if target is None and included.startswith(ABOVE) and not path.endswith("_test.cc"):
        return f"includes {included}, which only tests may"
    if target is None or RUNG_OF[target] < RUNG_OF[folder]:
        return None
    return (f"includes {included}, but {target} is on rung {RUNG_OF[target]} and {folder} on rung "
            f"{RUNG_OF[folder]}: only lower rungs may be included")


def check_rooms(path, included):
    """What is wrong with `path` including a file of the same ladder, or None."""
    own, target = rooms_of(path), rooms_of(included)
    if path.endswith("_test.cc"):  # a test may be built of what is above: a net is tested with layers
        return None
    for ladder in own.keys() & target.keys():
        here, there, rung_of = own[ladder], target[ladder], RUNG_OF_ROOM[ladder]
        if here != there and None not in (here, there) and rung_of[there] >= rung_of[here]:
            return (f"uses {included}, but in {ladder} {there} is on rung {rung_of[there]} and {here} on rung "
                    f"{rung_of[here]}: only lower rungs may be used")
    return None


def imports_of(path, text):
    """Yields (line, path without its suffix) for every module of the package that a module of it imports."""
    packages = path.split("/")[:-1]
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = packages[2:len(packages) - node.level + 1] if node.level else []
            module = ".".join(whole + ([node.module] if node.module else []))
            # Of a package that is a ladder, names may be modules.
            is_ladder = "frontends/python/" + module.replace(".", "/") in ROOMS
            names = [f"{module}.{alias.name}" for alias in node.names] if is_ladder else [module]
        else:
            continue
        for name in names:
            if name.startswith("poseidon."):
                yield node.lineno, "frontends/python/" + name.replace(".", "/")


def check_module(path, text):
    """Yields (line, what is wrong) for one module of the Python package."""
    if None in rooms_of(path).values():
        yield 1, "package is not on the ladder of scripts/check_ladder.py"
        return
    if path.startswith(TORCH + "/"):
        yield from check_sizes(path, text)
    for number, imported in imports_of(path, text):
        if wrong := check_rooms(path, imported):
            yield number, wrong


def check_sizes(path, text):
    """Yields (line, what is wrong) where a module or a class of it is too long to be read as one."""
    if (lines := text.count("\n")) > MOST_LINES:
        yield 1, f"has {lines} lines, expected {MOST_LINES} at most"
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.ClassDef) and (lines := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_CLASS:
            yield node.lineno, f"class {node.name} has {lines} lines, expected {MOST_LINES_OF_CLASS} at most"


def check_place(mark, included):
    """What is wrong with how `included` is named, between quotation marks or angle brackets, or None."""
    parts = included.split("/")
    if mark == '"' and (parts[0] not in TOPS or ".." in parts):
        return f'includes "{included}", expected the path from the root: the ladder is read off it'
    return None


def check_source(path, text):
    """Yields (line, what is wrong) for one source under the root."""
    if not text.startswith(LICENCE):
        yield 1, f"first line is not '{LICENCE}'"
    if path.endswith(".h"):
        guard = guard_of(path)
        if f"#ifndef {guard}\n#define {guard}\n" not in text:
            yield 1, f"expected the include guard {guard}"
    folder = folder_of(path)
    if folder is None and path.startswith(("poseidon/", "frontends/")) and path.count("/") > 1:
        yield 1, "folder is not on the ladder of scripts/check_ladder.py"
    if folder is None:
        return
    if None in rooms_of(path).values():
        yield 1, "folder is not on the ladder of scripts/check_ladder.py"
    may_read_environment = not folder.startswith("poseidon/") or path.endswith("_test.cc")
    may_use_any_mutex = path == "poseidon/base/mutex.h" or IS_TEST.search(path)
    for number, line in enumerate(without_comments(text).splitlines(), start=1):
        include = INCLUDE.match(line)
        if include:
            wrong = check_place(*include.groups()) or check_include(path, folder, include[2])
            if wrong:
                yield number, wrong
        elif not may_read_environment and ENVIRONMENT.search(line):
            yield number, "reads the environment, which only tools/ and frontends/ may"
        elif not may_use_any_mutex and PLAIN_MUTEX.search(line):
            yield number, "uses a mutex of the standard library, expected one of poseidon/base/mutex.h"


def check_tree(root):
    """Yields (path, line, what is wrong) for every source below `root`."""
    for file in sorted((root / PYTHON).rglob("*.py")):
        path = file.relative_to(root).as_posix()
        for line, wrong in check_module(path, file.read_text(encoding="utf-8")):
            yield path, line, wrong
    for top in TOPS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            for line, wrong in check_source(path, file.read_text(encoding="utf-8")):
                yield path, line, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent,
                        type=pathlib.Path, help="the checkout (default: the one of this script)")
    breaches = list(check_tree(parser.parse_args().root.resolve()))
    for path, line, wrong in breaches:
        print(f"{path}:{line}: {wrong}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
