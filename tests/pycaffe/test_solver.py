# SPDX-License-Identifier: Apache-2.0
"""Solvers, beside `poseidon train` on the same files."""
import json
import os
import signal
import subprocess
import sys
import threading
import traceback

import files
import numpy
import pytest

import poseidon.caffe as caffe
from poseidon import PoseidonError, distribution

PROGRAM = next(path for path in distribution.places("POSEIDON_PROGRAM", "bin/poseidon", "bin/poseidon") if os.path.exists(path))


def weights_of(net):
    return [blob.data.copy() for blobs in net.params.values() for blob in blobs]


def train(path, *arguments):
    """What `poseidon train` makes of a solver's file: the hash of its weights, and its lines."""
    run = subprocess.run([PROGRAM, "train", "--solver", path, "--run-dir", "run", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr + run.stdout
    with open("run/summary.json") as file:
        return json.load(file)["weights_hash"], run.stdout


KINDS = {"SGD": caffe.SGDSolver, "Nesterov": caffe.NesterovSolver, "AdaGrad": caffe.AdaGradSolver, "RMSProp": caffe.RMSPropSolver,
         "AdaDelta": caffe.AdaDeltaSolver, "Adam": caffe.AdamSolver}


def test_steps_are_those_of_the_trainer(database, capfd):
    """Dropout, fillers, order of data, updates: to the bit."""
    path = files.solver(database)
    expected, said = train(path)
    solver = caffe.get_solver(path)
    solver.step(5)
    solver.net.forward()  # looks at the net, and leaves training alone
    solver.test_nets[0].forward()
    solver.step(7)
    assert solver.iter == 12 and solver.weights_hash == expected
    line = next(line for line in said.splitlines() if "iteration 8" in line)
    assert line.split("(")[0].split(",")[:2] == next(
        other for other in capfd.readouterr().err.splitlines() if "iteration 8" in other).split("(")[0].split(",")[:2]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_by_class_and_by_file(database, kind):
    by_file = caffe.get_solver(files.solver(database, type=f'"{kind}"'))
    by_file.step(3)
    text = files.pathlib.Path("solver.prototxt").read_text().replace(f'type: "{kind}"', "")
    by_class = KINDS[kind](files.write("plain.prototxt", text))
    assert isinstance(by_class, caffe.SGDSolver) and isinstance(by_class, caffe.Solver)
    by_class.step(3)
    assert by_class.weights_hash == by_file.weights_hash
    assert by_class.param.type == kind


def test_solve_resumes_and_tests(database, capfd):
    path = files.solver(database, snapshot=6)
    whole = caffe.SGDSolver(path)
    whole.solve()
    assert sorted(name for name in os.listdir() if name.endswith("state")) == ["bars_iter_12.solverstate", "bars_iter_6.solverstate"]
    resumed = caffe.SGDSolver(path)
    resumed.solve("bars_iter_6.solverstate")
    assert resumed.iter == 12 and resumed.weights_hash == whole.weights_hash
    assert "test" in capfd.readouterr().err
    restored = caffe.SGDSolver(path)
    restored.restore("bars_iter_6.solverstate")
    assert restored.iter == 6
    restored.step(6)
    assert restored.weights_hash == whole.weights_hash
    os.remove("bars_iter_12.caffemodel")
    restored.snapshot()
    read = caffe.Net("train_val.prototxt", caffe.TEST, weights="bars_iter_12.caffemodel")
    for mine, theirs in zip(weights_of(read), weights_of(whole.net)):
        assert (mine == theirs).all()


def test_test_nets_share_the_weights(database):
    solver = caffe.SGDSolver(files.solver(database))
    test = solver.test_nets[0]
    assert test.phase == caffe.TEST and solver.net.phase == caffe.TRAIN and len(solver.test_nets) == 1
    before = test.forward()["loss"].copy()
    solver.step(6)
    assert (test.params["score"][0].data == solver.net.params["score"][0].data).all()
    for _ in range(9):
        test.forward()
    assert test.forward()["loss"] < before
    del solver
    assert test.forward()["accuracy"] >= 0  # it keeps its solver


def test_the_diff_of_a_weight_is_its_update(database):
    solver = caffe.SGDSolver(files.solver(database))
    before = solver.net.params["score"][0].data.copy()
    solver.step(1)
    taken = solver.net.params["score"][0].diff
    assert abs(taken).max() > 0
    numpy.testing.assert_array_equal(before - taken, solver.net.params["score"][0].data)


def test_callbacks_see_gradients_before_updates(database):
    solver = caffe.SGDSolver(files.solver(database))
    seen = []

    def ready():
        seen.append("ready")
        for blobs in solver.net.params.values():
            for blob in blobs:
                blob.diff[...] = 0

    solver.add_callback(lambda: seen.append("start"), ready)
    plain = caffe.SGDSolver(files.solver(database, weight_decay=0))
    before = weights_of(plain.net)
    solver.step(2)
    assert seen == ["start", "ready"] * 2
    # Without gradients there is decay alone.
    for mine, first in zip(weights_of(solver.net), before):
        numpy.testing.assert_allclose(mine, first, rtol=2e-3)


def test_a_callback_that_looks_changes_nothing(database):
    plain = caffe.SGDSolver(files.solver(database))
    plain.step(3)
    solver = caffe.SGDSolver(files.solver(database))
    seen = []
    solver.add_callback(lambda: 0, lambda: seen.append(numpy.abs(solver.net.params["score"][0].diff).max()))
    solver.step(3)
    assert min(seen) > 0 and solver.weights_hash == plain.weights_hash


def test_on_start_sees_the_weights_of_the_iterations_before(database):
    plain = caffe.SGDSolver(files.solver(database))
    expected = []
    for number in range(12):
        expected.append((number, weights_of(plain.net)))
        plain.step(1)
    solver = caffe.SGDSolver(files.solver(database))  # of 12 iterations, with tests in between and a pass at the end that is shown
    seen, gradients = [], []

    def start():
        seen.append((solver.iter, weights_of(solver.net)))
        gradients.extend(blob.diff.any() for blobs in solver.net.params.values() for blob in blobs)

    solver.add_callback(start, lambda: None)
    solver.solve()
    assert [number for number, _ in seen] == [number for number, _ in expected]
    for (_, mine), (_, theirs) in zip(seen, expected):
        for blob, other in zip(mine, theirs):
            numpy.testing.assert_array_equal(blob, other)
    assert solver.weights_hash == plain.weights_hash and not any(gradients)


FAILING = """
layer { name: "failing" type: "Python" bottom: "relu" top: "failing" python_param { module: "user_layers" layer: "Failing" } }
"""


def with_failing(text, bottom="conv1", reader="score"):
    """The training net, with such a layer between `bottom`, a blob, and the layer that reads it: between those that learn."""
    text = text.replace(f'bottom: "{bottom}" top: "{reader}"', f'bottom: "failing" top: "{reader}"')
    return text.replace(f'layer {{ name: "{reader}"', FAILING.replace('"relu"', f'"{bottom}"') + f'layer {{ name: "{reader}"')


@pytest.mark.parametrize("clip", [-1, 0.05])
@pytest.mark.parametrize("where", ["forward", "backward", "start", "ready", "interrupted"])
def test_an_iteration_that_raises_updates_no_layer(database, user_layers, where, clip):
    """The weights are those of the iterations before it, in all layers; the next step makes it anew."""
    net = '"%s"' % files.write("failing.prototxt", with_failing(files.train_net(database)))
    user_layers.Failing.method = ""
    path = files.solver(database, net=net, clip_gradients=clip, iter_size=2)
    plain, solver = caffe.SGDSolver(path), caffe.SGDSolver(path)
    failure = KeyboardInterrupt("mine") if where == "interrupted" else LookupError("mine")
    calls = {"start": 0, "ready": 0}

    def called(what):
        calls[what] += 1
        if where == what and calls[what] == 4:
            raise failure

    if where in calls:
        solver.add_callback(lambda: called("start"), lambda: called("ready"))
    else:  # in the second pass of the fourth iteration, or in the first, where weights are updated
        user_layers.Failing.failure = failure
        user_layers.Failing.method, user_layers.Failing.passes = ("backward", 8) if where == "backward" else ("forward", 7)
    with pytest.raises(type(failure), match="mine"):
        solver.step(5)
    user_layers.Failing.method = ""
    plain.step(3)
    assert solver.iter == 3
    for mine, theirs in zip(weights_of(solver.test_nets[0]), weights_of(plain.net)):
        numpy.testing.assert_array_equal(mine, theirs)
    assert solver.weights_hash == plain.weights_hash
    solver.step(4)
    plain.step(4)
    assert solver.iter == 7 and solver.weights_hash == plain.weights_hash


def test_a_solvers_net_runs_in_parts(database):
    """Also between a normalization and the scale in place on it, which `poseidon train` computes as one."""
    below, above = files.train_net(database).split('layer { name: "relu1"')
    text = below + """
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "bn1" }
layer { name: "scale1" type: "Scale" bottom: "bn1" top: "bn1" scale_param { bias_term: true filler { value: 3 } } }
layer { name: "relu1\"""" + above.replace('"conv1"', '"bn1"')
    solver = caffe.SGDSolver(files.solver(database, net='"%s"' % files.write("scaled.prototxt", text)))
    solver.step(1)
    net = solver.net
    net.forward(end="bn1")
    normalized = net.blobs["bn1"].data.copy()
    assert abs(normalized.std() - 1) < 0.01
    net.forward(start="scale1", end="scale1")
    factor, term = (blob.data.reshape(1, -1, 1, 1) for blob in net.params["scale1"])
    numpy.testing.assert_allclose(net.blobs["bn1"].data, normalized * factor + term, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("iterations", [-1])
def test_steps_back_are_refused(database, iterations):
    with pytest.raises(PoseidonError, match="expected 0 or more"):
        caffe.SGDSolver(files.solver(database)).step(iterations)


def test_a_callback_that_raises_ends_the_step(database):
    solver = caffe.SGDSolver(files.solver(database))

    def ready():
        raise KeyError("mine")

    solver.add_callback(ready, ready)
    with pytest.raises(KeyError, match="mine") as raised:
        solver.step(3)
    assert "ready" in "".join(traceback.format_tb(raised.value.__traceback__))


def test_interrupts_end_a_long_step(database):
    solver = caffe.SGDSolver(files.solver(database, display=0, test_interval=1000000))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which may be ignored where the tests run
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            solver.step(10 ** 9)
    finally:
        signal.signal(signal.SIGINT, before)
    done = solver.iter
    solver.step(2)
    assert solver.iter == done + 2


def test_parameters_are_there_and_the_rate_can_be_changed(database):
    solver = caffe.SGDSolver(files.solver(database))
    assert (solver.param.max_iter, solver.param.display, list(solver.param.test_iter)) == (12, 4, [3])
    solver.param.base_lr = 0.02
    assert solver.param.base_lr == pytest.approx(0.02)
    solver.step(1)
    assert solver.lr == pytest.approx(0.02)
    with pytest.raises(AttributeError, match="base_lr"):
        solver.param.max_iter = 3


def test_weights_of_another_net_are_taken(database):
    first = caffe.SGDSolver(files.solver(database))
    first.step(4)
    first.net.save("first.caffemodel")
    second = caffe.SGDSolver(files.solver(database))
    second.net.copy_from("first.caffemodel")
    assert second.weights_hash == first.weights_hash
    third = caffe.Net("train_val.prototxt", caffe.TEST)
    first.share_weights(third)
    assert (third.params["conv1"][0].data == first.net.params["conv1"][0].data).all()


@pytest.mark.parametrize("fields, sentence", [({"type": '"Nothing"'}, "Nothing"), ({"lr_policy": "'none'"}, "none"), ({"max_iter": -1}, "max_iter"),
                                              ({"display": "}"}, "solver.prototxt:"), ({"net": "'x'"}, "cannot open x")])
def test_a_wrong_solver_is_a_sentence(database, fields, sentence):
    path = files.solver(database, **fields)
    with pytest.raises(PoseidonError, match=sentence):
        caffe.get_solver(path)


def test_logging_can_be_silenced(database, capfd, monkeypatch):
    monkeypatch.setenv("GLOG_minloglevel", "2")
    caffe.SGDSolver(files.solver(database)).step(5)
    assert capfd.readouterr().err == ""


def run_script(text, *arguments):
    """A script in a process of its own; user_layers is there for it."""
    folders = [files.pathlib.Path(caffe.__file__).parents[2], files.pathlib.Path(__file__).parent]
    return subprocess.run([sys.executable, files.write("script.py", text), *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)})


def test_a_script_ends_with_a_solver_at_hand(database):
    run = run_script(f"import poseidon.caffe as caffe\nsolver = caffe.SGDSolver({files.solver(database)!r})\nsolver.step(1)\n"
                     "view = solver.net.blobs['data'].data")
    assert run.returncode == 0 and "Traceback" not in run.stderr, run.stderr


LATE = """
import atexit, sys

class Held:
    def use(self):
        self.solver.step(2)
        self.solver.snapshot()
        blob = self.net.blobs["failing"]
        blob.reshape(2, 3)
        output = self.net.forward(data=[[1, 2, 3], [4, 5, 6]])["failing"]
        print(self.solver.iter, self.solver.weights_hash[:8], output.sum(), blob.data.sum(), flush=True)
        print(blob.diff.shape, blob.shape, self.array.shape, flush=True)

    def __del__(self):
        if sys.argv[1] == "global":
            self.use()

held = Held()
if sys.argv[1] == "atexit":
    atexit.register(held.use)  # functions of atexit run last where they are registered first
import poseidon.caffe as caffe
held.solver = caffe.SGDSolver("solver.prototxt")
held.solver.add_callback(lambda: None, lambda: None)
held.net = caffe.Net("net.prototxt", caffe.TEST)
held.array = held.net.blobs["data"].data
if sys.argv[1] == "now":
    held.use()
"""


def test_nets_are_there_until_the_process_ends(database):
    """Functions of atexit use them, whenever they were registered. An object that ends with its module may raise, no more."""
    files.write("net.prototxt", 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }'
                + FAILING.replace('"relu"', '"data"'))
    files.solver(database)
    now = run_script(LATE, "now")
    assert now.returncode == 0 and now.stdout.startswith("2 ") and " 21.0 21.0\n(2, 3) (2, 3) (2, 3)" in now.stdout, now.stderr
    late = run_script(LATE, "atexit")
    assert (late.returncode, late.stdout) == (0, now.stdout), late.stderr
    for _ in range(3):
        last = run_script(LATE, "global")
        assert last.returncode == 0 and (last.stdout == now.stdout or "Exception ignored" in last.stderr), last.stderr
