# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import subprocess

import numpy
import pytest

PROGRAM = os.environ.get("POSEIDON_PROGRAM")
REFERENCE = os.environ.get("POSEIDON_EXPORT_REFERENCE")


def export(*arguments, code=0):
    """Runs `poseidon export` and returns what it printed; with another code than 0, its sentence."""
    done = subprocess.run([PROGRAM, "export", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


class Case:
    """A net in a folder, with random weights, random inputs and what the TEST phase makes of them."""

    def __init__(self, folder):
        self.net = folder / "net.prototxt"
        self.weights = folder / "weights.caffemodel"
        self.folder = folder
        index = json.loads((folder / "index.json").read_text())
        self.inputs, self.outputs = ({name: self.read(entry) for name, entry in index[kind].items()} for kind in ("inputs", "outputs"))

    def read(self, entry):
        return numpy.fromfile(self.folder / entry["file"], dtype="<f4").reshape(entry["shape"])


def compute(nets, folder):
    """The cases of some nets by name, computed by one run of the program that knows how."""
    folders = {name: folder / str(i) for i, name in enumerate(nets)}
    for name, text in nets.items():
        folders[name].mkdir()
        (folders[name] / "net.prototxt").write_text(text)
    subprocess.run([REFERENCE, *map(str, folders.values())], check=True, timeout=120, stderr=subprocess.PIPE, text=True)
    return {name: Case(pathlib.Path(path)) for name, path in folders.items()}


@pytest.fixture(scope="session", autouse=True)
def programs():
    if not PROGRAM or not REFERENCE:
        pytest.exit("POSEIDON_PROGRAM and POSEIDON_EXPORT_REFERENCE are expected to name the two programs", 4)
