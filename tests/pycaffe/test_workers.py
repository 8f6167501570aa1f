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


ENDS = """
import sys, time
import poseidon.caffe as caffe
solver = caffe.get_solver(sys.argv[1])
solver.step(5)
rank, how, busy = int(sys.argv[2]), sys.argv[3], sys.argv[4:] == ["busy"]
if caffe.solver_rank() == rank:
    exec(how)
if busy:
    time.sleep(600)
solver.step(100000)
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


@pytest.mark.parametrize("rank, how, code", [(1, "sys.exit(1)", 1), (0, "sys.exit(1)", 1), (1, "raise SystemExit(7)", 7),
                                             (1, "sys.exit('no')", 1)])
def test_a_worker_that_exits_ends_the_job(database, rank, how, code):
    """At once: less time than the patience with a worker that is not heard of."""
    ended = run(2, files.solver(database, display=0, test_interval=1000000), str(rank), how, script=ENDS)
    assert ended.returncode == code, ended.stderr + ended.stdout
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if f"worker {rank} " in line]
    assert any(f"its script ended with exit code {code}" in line for line in said), ended.stdout + ended.stderr
    assert any(line.startswith(f"[{1 - rank}] poseidon.errors.PoseidonError") for line in said), ended.stdout + ended.stderr


def test_a_worker_that_exits_waits_for_none_that_computes(database):
    ended = run(2, files.solver(database), "1", "sys.exit(5)", "busy", script=ENDS)
    assert ended.returncode == 5, ended.stderr + ended.stdout


def test_a_worker_that_has_done_its_part_early_is_named(database):
    ended = run(2, files.solver(database, display=0, test_interval=1000000), "1", "sys.exit(0)", script=ENDS)
    assert ended.returncode != 0
    assert any("worker 1 " in line and "has left the job" in line for line in (ended.stdout + ended.stderr).splitlines()), ended.stdout


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
