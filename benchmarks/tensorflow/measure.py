# SPDX-License-Identifier: Apache-2.0
"""Measures a cell: starts the processes of its systems in one network and lets them take turns."""
import contextlib
import json
import os
import pathlib
import random
import subprocess
import tempfile

from benchmarks import cells
from benchmarks.performance import machine
from benchmarks.profiles.timing import profile, text_of

from . import conduct, grid
from .conduct import Failed, Member, System

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-tensorflow" / "bin" / "python3"
OLDEST = ROOT / ".venv-tensorflow-oldest" / "bin" / "python3"
BUILT = {"POSEIDON_LIBRARY": ROOT / "build/release/poseidon/c/libposeidon.so",
         "POSEIDON_TENSORFLOW_LIBRARY": ROOT / "build/release/frontends/tensorflow/libposeidon_tensorflow.so"}
PROGRAMS = ("train_bench.py", "server_bench.py", "nets.py", "orders.py")
SOURCES = ("poseidon", "frontends/python", "frontends/tensorflow", "benchmarks/cluster", "benchmarks/profiles",
           "scripts/dependencies.txt", *(f"benchmarks/tensorflow/{name}" for name in PROGRAMS))
START = 180     # seconds until processes are ready
PATIENCE = 120  # of a turn, beyond which it has hung


def versions():
    """Of what was compared."""
    told = subprocess.run([PYTHON, "-c", "import keras, tensorflow; print(keras.__version__, tensorflow.__version__)"],
                          capture_output=True, text=True, check=False)
    keras, tensorflow = (told.stdout.split() + [None, None])[:2]
    commit = machine.git("rev-parse", "--short=12", "HEAD")
    return {"poseidon": commit + ("+" if machine.git("diff", "HEAD", "--", *SOURCES) else ""), "keras": keras,
            "tensorflow": tensorflow, "python": machine.versions()["python"]}


class Nodes:
    """Where a cell's processes are started; they end with the block."""

    def __init__(self, cell, cluster, folder, ending, draw):
        self.cell, self.cluster, self.folder, self.ending, self.draw = cell, cluster, folder, ending, draw
        self.token = cells.token_in(folder)
        self.environment = {**os.environ, **{name: str(path) for name, path in BUILT.items()}, "KERAS_BACKEND": "tensorflow",
                            "TMPDIR": str(folder)}

    def start(self, program, label, *words, python=PYTHON):
        """One process in every node."""
        members = []
        for rank, _ in enumerate(self.cluster.addresses):
            members.append(Member(self.cluster, rank, [python, "-B", HERE / program, *words, "--rank", rank, "--addresses",
                                                       ",".join(self.cluster.addresses), "--token-file", self.token],
                                  self.folder / f"{label}{rank}", self.environment))
            self.ending.callback(self.end, members[-1])
        return members

    def end(self, member):
        member.close()
        self.cluster.end(member.process)


def training(nodes):
    cell = nodes.cell
    systems = []
    for name in nodes.draw.sample(list(cell.systems), len(cell.systems)):
        workers = nodes.start("train_bench.py", name, "--net", cell.net, "--system", name, "--steps", cell.steps,
                              "--workers", cell.workers, "--seed", grid.SEED)
        systems.append(System(name, nodes.cluster, workers))
    for system in systems:
        system.answers(START)
    return systems


def servers(nodes):
    cell = nodes.cell
    model = nodes.folder / "model.json"
    model.write_text(text_of(profile(cell.net)))
    words = ("--model", model, "--scale", cell.scale, "--steps", cell.steps)
    ours = nodes.start("server_bench.py", "poseidon", "--role", "poseidon", *words)
    systems = [System("poseidon", nodes.cluster, ours), System("local", nodes.cluster, ours, word="local")]
    for name, port, python, more in (("stock", 29600, PYTHON, ()), ("split", 29700, PYTHON, ("--split",)),
                                     ("oldest", 29800, OLDEST, ())):
        if name not in cell.systems:
            continue
        words_of = (*words, "--port", port, *more)
        serving, theirs = (nodes.start("server_bench.py", f"{name}-{role}", "--role", role, *words_of, python=python)
                           for role in ("ps", "worker"))
        systems.append(System(name, nodes.cluster, theirs, serving))
        System("servers", nodes.cluster, serving).answers(START)
    if "mirrored" in cell.systems:
        systems.append(System("mirrored", nodes.cluster,
                              nodes.start("server_bench.py", "mirrored", "--role", "mirrored", *words, "--port", 29900)))
    for system in systems:
        if system.word == "go":
            system.answers(START)
    for system in systems:  # sessions, the chief's first
        for members in (system.workers[:1], system.workers[1:]) if system.servers else ():
            System("sessions", nodes.cluster, members).ask(START)
    return systems


def measure(cell, cluster, say):
    """A cell's result: turns by system, their losses, plans. Raises Failed."""
    found = {name: {"turns": []} for name in cell.systems}
    for start in range(cell.starts):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
            draw = random.Random(f"{grid.SEED} {start}")
            nodes = Nodes(cell, cluster, pathlib.Path(folder), ending, draw)
            systems = (servers if cell.kind == "servers" else training)(nodes)
            for system in systems:
                for _ in range(cell.warm_up(system.name)):
                    before = system.turn(cell.steps, PATIENCE)
                    found[system.name].setdefault("losses", []).append(before.get("loss"))
                say(f"  {system.name}: {before['seconds'] * 1e3:.4g} ms a step at the end of the warm-up")
            for name, turns in conduct.by_turns(systems, cell.turns, cell.steps, draw, PATIENCE, say).items():
                found[name]["turns"].append(turns)
            finish(cell, systems, found)
    return found


def finish(cell, systems, found):
    """The last order: what the workers say at the end, which has to be the same."""
    for system in systems:
        if system.word != "go":
            continue
        told = system.ask(START, "end")
        if cell.workers > 1 and system.name != "local" and len({json.dumps(worker) for worker in told}) > 1:
            raise Failed(f"the workers ended with different weights by {system.name}")
        found[system.name] |= told[0]
