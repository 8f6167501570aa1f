# SPDX-License-Identifier: Apache-2.0
"""Layers in Python in the nets of the plain program, which runs them in a Python beside it."""
import json
import os
import subprocess
import sys

import files
import pytest
from test_solver import PROGRAM, train

import poseidon.caffe as caffe

LAYERS = """
import os
import caffe
from user_layers import *

class Who(Scale):
    def forward(self, bottom, top):
        super().forward(bottom, top)
        print(f"worker {caffe.solver_rank()} of {caffe.solver_count()}")

class InPlace(Scale):
    def forward(self, bottom, top):
        top[0].data[...] *= self.factor

class Counting(Bias):
    def forward(self, bottom, top):
        self.blobs[0].data[...] += 0.25  # as running statistics are kept
        super().forward(bottom, top)

class Careless(Scale):
    def forward(self, bottom, top):
        bottom[0].data[...] = 0

class Leaving(Scale):
    def forward(self, bottom, top):
        os._exit(5)
"""


def python(name, kind, bottom, top, param="", more=""):
    """A layer of Python with one bottom and one top."""
    return (f'layer {{ name: "{name}" type: "Python" bottom: "{bottom}" top: "{top}" {more} '
            f'python_param {{ module: "my_layers" layer: "{kind}" param_str: "{param}" }} }}\n')


@pytest.fixture(autouse=True)
def layers(in_folder, monkeypatch):
    """A module of layers in the working directory, which imports another one."""
    files.write("my_layers.py", LAYERS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(os.path.dirname(caffe.__file__)))]))
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


def solver(database, layers, loss_of="score"):
    """A net with `layers` between its score and its loss, which is that of the blob `loss_of`."""
    path = files.solver(database)
    head, tail = files.train_net(database).split('layer { name: "accuracy"')
    files.write("train_val.prototxt", head + layers + 'layer { name: "accuracy"' + tail.replace('bottom: "score"', f'bottom: "{loss_of}"'))
    return path


LEARNS = python("bias", "Bias", "score", "moved", more="param { lr_mult: 2 }") + python("half", "InPlace", "moved", "moved", param="0.5")


def test_the_program_trains_what_a_script_does(database):
    """To the bit: learned blobs, an in-place layer, gradients, tests."""
    path = solver(database, LEARNS, "moved")
    programs, lines = train(path)
    script = caffe.get_solver(path)
    script.solve()
    assert programs == script.weights_hash
    assert (script.net.params["bias"][0].data != [0, 1, 2]).any(), "it learns"
    assert "accuracy" in lines


def test_a_blob_that_a_layer_changes_itself_stays_changed(database):
    path = solver(database, python("bias", "Counting", "score", "moved"), "moved")
    programs, _ = train(path)
    script = caffe.get_solver(path)
    script.solve()
    assert programs == script.weights_hash
    assert script.net.params["bias"][0].data.mean() > 3


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)


def test_workers_train_what_those_of_a_script_do(database):
    """And a layer knows which worker's it is."""
    path = solver(database, LEARNS + python("who", "Who", "moved", "told", "1"), "told")
    ended = run("train", "--solver", path, "--workers", "2", "--run-dir", "run")
    assert ended.returncode == 0, ended.stderr
    assert {f"worker {rank} of 2" for rank in range(2)} <= set(ended.stderr.splitlines())
    script = files.write("train.py", f"import poseidon.caffe as caffe\nsolver = caffe.get_solver({path!r})\nsolver.solve()\n"
                                     "print(solver.weights_hash)\n")
    of_script = run("run", "-n", "2", sys.executable, script)
    assert of_script.returncode == 0, of_script.stderr
    assert json.loads(files.pathlib.Path("run/summary.json").read_text())["weights_hash"] in of_script.stdout


def test_a_saved_model_is_scored(database):
    path = solver(database, LEARNS, "moved")
    train(path)
    scored = run("test", "--model", "train_val.prototxt", "--weights", "bars_iter_12.caffemodel", "--iterations", "2")
    assert scored.returncode == 0 and "accuracy = " in scored.stdout, scored.stderr


@pytest.mark.parametrize("kind, sentence", [
    ("Broken", "my_layers.Broken.forward raised LookupError: nothing there"),
    ("Absent", "my_layers.Absent raised AttributeError: module 'my_layers' has no attribute 'Absent'"),
    ("Shapeless", "reshape of the class has not given top 0 a shape"),
    ("Careless", "my_layers.Careless.forward raised ValueError: assignment destination is read-only"),
    ("Leaving", "which runs layers of type Python, exited with code 5"),
])
def test_a_failure_is_a_sentence(database, kind, sentence):
    ended = run("train", "--solver", solver(database, python("mine", kind, "score", "mine")))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("poseidon: ") and sentence in ended.stderr.splitlines()[-1], ended.stderr
    if kind == "Broken":
        assert 'raise LookupError("nothing there")' in ended.stderr, "the traceback, once"
        assert "layer_server.py" not in ended.stderr


def test_a_module_that_is_nowhere_is_a_sentence(database):
    ended = run("train", "--solver", solver(database, python("mine", "Scale", "score", "mine").replace('"my_layers"', '"nowhere"')))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("nowhere.Scale raised ModuleNotFoundError: No module named 'nowhere'"), ended.stderr


def test_a_python_that_does_not_start_is_a_sentence(database, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    ended = run("train", "--solver", solver(database, python("mine", "Scale", "score", "mine")))
    assert ended.returncode == 1 and "expected a Python with NumPy and the trainer's package" in ended.stderr.splitlines()[-1], ended.stderr
