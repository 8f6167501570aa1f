# SPDX-License-Identifier: Apache-2.0
"""A net of models/ trained by some numbers of workers at one global batch: its losses and accuracies by iteration and second."""
import json
import pathlib
import re
import sys
from typing import NamedTuple

from benchmarks.cells import ROOT

from . import data

WORKERS = (1, 2, 4, 8)
NOISE = 1e-7  # of each first weight, of the run that one worker repeats
TENSORFLOW = ROOT / ".venv-tensorflow/bin/python3"


def nothing(program, folder):
    """To be made before the training."""


class Net(NamedTuple):
    name: str
    title: str
    make: object     # makes its databases: (program, folder)
    batch: int       # of all workers together
    iterations: int
    tests_every: int
    model: str = ""   # its folder in models/, or what a script with several calls it
    solver: str = ""  # what else the solver says: the recipe of models/
    tested: int = 2000  # images
    script: str = ""  # that trains it; empty: the Caffe trainer does
    python: pathlib.Path = pathlib.Path(sys.executable)  # that runs the script


NETS = {net.name: net for net in (
    Net("lenet", "LeNet on Fashion-MNIST, the Caffe trainer", data.make_mnist, 64, 300, 25, "lenet",
        'base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75'),
    Net("cifar10_quick", "CIFAR-10 quick on Fashion-MNIST brought to 3x32x32, the Caffe trainer", data.make_cifar, 96, 200, 25, "cifar10_quick",
        'base_lr: 0.001 momentum: 0.9 weight_decay: 0.004 lr_policy: "fixed"'),
    Net("lenet_torch", "LeNet on Fashion-MNIST, PyTorch", nothing, 64, 300, 25, "lenet", script="with_torch"),
    Net("lenet_keras", "LeNet on Fashion-MNIST, Keras on TensorFlow", nothing, 64, 300, 25, script="with_keras", python=TENSORFLOW),
    Net("digits_torch", "A perceptron of 64-128-10 on scikit-learn's digits, PyTorch", nothing, 64, 300, 25, "digits", script="with_torch", tested=360))}


def write_solver(net, folder):
    """The solver's file. The net's training batch becomes the global one; 20 batches of 100 are tested."""
    text = (ROOT / f"models/{net.model}/train_val.prototxt").read_text()
    trained = re.sub(r"batch_size: \d+", f"batch_size: {net.batch}", text, count=1)
    (folder / f"{net.name}.prototxt").write_text(trained)
    solver = folder / f"{net.name}_solver.prototxt"
    solver.write_text(f'net: "{net.name}.prototxt" {net.solver} display: 0 max_iter: {net.iterations} test_iter: 20 '
                      f"test_interval: {net.tests_every} snapshot_after_train: false random_seed: 1\n")
    return solver.name


def curves_of(lines):
    """Of metrics.jsonl: [iteration, seconds, value] of each test's loss and accuracy. What it has of training is rank 0's share alone."""
    tests = [one for one in map(json.loads, lines) if one["kind"] == "test"]
    return {name: [[one["iteration"], one["elapsed"], one["outputs"][output]] for one in tests]
            for name, output in (("losses", "loss"), ("accuracies", "accuracy"))}


def largest_difference(one, other):
    """Of test losses at the same iterations, as a share of the first one's."""
    return max(abs(a[2] - b[2]) / abs(a[2]) for a, b in zip(one["losses"], other["losses"], strict=True))


def train_by_script(program, net, workers, folder, noise):
    curves = folder / f"{net.name}-{workers}.json"
    data.run(program, ROOT, "run", "-n", workers, net.python, "-B", "-m", f"benchmarks.convergence.{net.script}",
             *([net.model] if net.model else []), curves, net.batch, net.iterations, net.tests_every, noise)
    return json.loads(curves.read_text())


def train(program, net, workers, folder, noise=0.0):
    """Trains, in `folder`, which has the databases. A script adds the noise to the first weights."""
    if net.script:
        return train_by_script(program, net, workers, folder, noise)
    write_solver(net, folder)
    run_dir = folder / f"{net.name}-{workers}"
    data.run(program, folder, "train", "--solver", f"{net.name}_solver.prototxt", "--workers", workers, "--global-batch", "--run-dir", run_dir)
    summary = json.loads((run_dir / "summary.json").read_text())
    return curves_of((run_dir / "metrics.jsonl").read_text().splitlines()) | {
        "workers": workers, "seconds": summary["seconds"], "equal": summary["replicas_equal"]}
