# SPDX-License-Identifier: Apache-2.0
"""Solvers of several workers: `poseidon run -n P python train.py`."""
import json
import os
import subprocess
import sys

import files
import numpy
import pytest
from test_solver import PROGRAM, with_failing

import poseidon.caffe as caffe

TRAIN = """
import json, sys
import numpy
import poseidon.caffe as caffe
solver = caffe.get_solver(sys.argv[1])
solver.net.params["conv1"][1].data[...] = caffe.solver_rank()  # all weights are worker 0's from the first step on
solver.step(5)
if sys.argv[2:] == ["broken"] and caffe.solver_rank() == 1:
    raise LookupError("nothing there")
solver.step(7)
accuracy = float(solver.test_nets[0].forward()["accuracy"])
with open(f"rank{caffe.solver_rank()}.json", "w") as file:
    json.dump({"hash": solver.weights_hash, "iter": solver.iter, "workers": caffe.solver_count()}, file)
if caffe.solver_rank() == 0:
    solver.net.save("workers.caffemodel")
"""


RAISES = """
import sys, time
import poseidon.caffe as caffe
solver = caffe.get_solver(sys.argv[1])
layer = sys.modules["user_layers"].Failing
layer.failure, layer.method, layer.passes = LookupError("mine"), sys.argv[2], 5 if caffe.solver_rank() == 1 else 0
if caffe.solver_rank() == 0 and sys.argv[4] == "late":  # with its part in the iteration before
    layer.fail = lambda self, method: time.sleep(0.2)
try:
    solver.step(int(sys.argv[3]))
except LookupError:
    pass
if caffe.solver_rank() == 1:
    print("learned", solver.iter, solver.weights_hash, flush=True)
"""


def run(workers, *arguments, script=TRAIN):
    script = files.write("train.py", script)
    folders = [files.pathlib.Path(caffe.__file__).parents[2], files.pathlib.Path(__file__).parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)}
    return subprocess.run([PROGRAM, "run", "-n", str(workers), sys.executable, script, *arguments], capture_output=True, text=True,
                          env=environment, timeout=120)


def no_dropout(path):
    text = files.pathlib.Path("train_val.prototxt").read_text()
    files.write("train_val.prototxt", "\n".join(line for line in text.splitlines() if "Dropout" not in line))
    return path


def test_two_workers_are_one_with_twice_the_batch(database):
    ended = run(2, no_dropout(files.solver(database, batch=6)))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    ranks = [json.loads(files.pathlib.Path(f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0] == ranks[1] and (ranks[0]["iter"], ranks[0]["workers"]) == (12, 2)
    assert "iteration 8" in ended.stderr + ended.stdout
    one = caffe.get_solver(no_dropout(files.solver(database, batch=12)))
    one.step(12)
    together = caffe.Net("train_val.prototxt", caffe.TRAIN, weights="workers.caffemodel")
    for layer, blobs in one.net.params.items():
        for mine, theirs in zip(blobs, together.params[layer]):
            numpy.testing.assert_allclose(theirs.data, mine.data, rtol=1e-4, atol=1e-6)


def test_a_script_that_fails_ends_the_job(database):
    ended = run(2, files.solver(database), "broken")
    assert ended.returncode != 0
    assert "LookupError: nothing there" in ended.stdout + ended.stderr
    assert "worker 1" in ended.stdout + ended.stderr


@pytest.mark.parametrize("method, other, place", [("forward", "", ("conv1", "score")), ("backward", "", ("conv1", "score")),
                                                  ("forward", "late", ("data", "conv1"))])
def test_an_iteration_that_raises_on_a_worker_updates_no_layer(database, method, other, place):
    """Gradients of the iteration before it are on their way, or some of its own."""
    def learned(*arguments):
        ended = run(2, path, *arguments, other, script=RAISES)
        return next(line for line in ended.stdout.splitlines() if "learned" in line)

    path = no_dropout(files.solver(database, display=0, test_interval=1000000))
    files.write("train_val.prototxt", with_failing(files.pathlib.Path("train_val.prototxt").read_text(), *place))
    assert learned(method, "9") == learned("", "4")
