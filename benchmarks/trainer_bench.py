#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the trainer costs: beside itself without synchronisation, and beside eager PyTorch.

  benchmarks/trainer_bench.py [--poseidon PATH] [--pairs N] [--only overhead,eager,memory] [--nets NET,...] [--json FILE]

overhead  one worker with hooks, scheduler and its own shard against plain training: two runs that
          take turns of a quarter of a second (the other is stopped), because runs one after the other
          differ by more than what is measured; median ratio of neighbouring turns and the upper end
          of its 95 % interval (order statistics, no assumption about the noise)
eager     forward and backward of LeNet, AlexNet, GoogLeNet and ResNet-50 against the same net in eager PyTorch, on the
          same threads, alternating (--nets)
memory    what the core allocates for landing places and sums, against its bound

Ratios compare runs of one invocation; absolute times depend on the machine. Needs the interpreter
that has torch (.venv/bin/python3).
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TURN_SECONDS = 0.25
WARM_UP_SECONDS = 2


def conv(name, bottom, outputs, kernel, stride=1, pad=0, group=1):
    return f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
  convolution_param {{ num_output: {outputs} kernel_size: {kernel} stride: {stride} pad: {pad} group: {group}
    weight_filler {{ type: "xavier" }} }} }}\n"""


def pool(name, bottom, kernel, stride):
    return f"""layer {{ name: "{name}" type: "Pooling" bottom: "{bottom}" top: "{name}"
  pooling_param {{ pool: MAX kernel_size: {kernel} stride: {stride} }} }}\n"""


def inner(name, bottom, outputs):
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"
  inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} }} }}\n"""


def plain(kind, name, blob, extra=""):
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{blob}" top: "{blob}" {extra} }}\n'


def loss(bottom):
    return f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" }}\n'


def dummy(*shape):
    dims = " ".join(f"dim: {d}" for d in shape)
    return f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {{ shape {{ {dims} }} shape {{ dim: {shape[0]} }}
    data_filler {{ type: "gaussian" std: 1 }} data_filler {{ type: "constant" value: 1 }} }} }}\n"""


def lenet_layers():
    return (conv("conv1", "data", 20, 5) + pool("pool1", "conv1", 2, 2) + conv("conv2", "pool1", 50, 5)
            + pool("pool2", "conv2", 2, 2) + inner("ip1", "pool2", 500) + plain("ReLU", "relu1", "ip1")
            + inner("ip2", "ip1", 10) + loss("ip2"))


def lrn(name, bottom):
    return f"""layer {{ name: "{name}" type: "LRN" bottom: "{bottom}" top: "{name}"
  lrn_param {{ local_size: 5 alpha: 0.0001 beta: 0.75 }} }}\n"""


def alexnet_layers():
    drop = "dropout_param { dropout_ratio: 0.5 }"
    return (conv("conv1", "data", 96, 11, 4) + plain("ReLU", "relu1", "conv1") + lrn("norm1", "conv1")
            + pool("pool1", "norm1", 3, 2) + conv("conv2", "pool1", 256, 5, 1, 2, 2)
            + plain("ReLU", "relu2", "conv2") + lrn("norm2", "conv2") + pool("pool2", "norm2", 3, 2)
            + conv("conv3", "pool2", 384, 3, 1, 1) + plain("ReLU", "relu3", "conv3")
            + conv("conv4", "conv3", 384, 3, 1, 1, 2) + plain("ReLU", "relu4", "conv4")
            + conv("conv5", "conv4", 256, 3, 1, 1, 2) + plain("ReLU", "relu5", "conv5")
            + pool("pool5", "conv5", 3, 2) + inner("fc6", "pool5", 4096) + plain("ReLU", "relu6", "fc6")
            + plain("Dropout", "drop6", "fc6", drop) + inner("fc7", "fc6", 4096)
            + plain("ReLU", "relu7", "fc7") + plain("Dropout", "drop7", "fc7", drop)
            + inner("fc8", "fc7", 1000) + loss("fc8"))


def layers_of(model):
    """Those of a net of models/ that train, but for its data."""
    text = (ROOT / "models" / model / "train_val.prototxt").read_text()
    layers = re.split(r"(?m)^(?=layer \{)", text)[1:]
    return "".join(layer for layer in layers if 'type: "Data"' not in layer and "phase: TEST" not in layer)


def nets_beside_eager():
    import eager_nets
    from torch import nn
    lenet = nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, 10))
    def block(i, o, k, p, g):
        return [nn.Conv2d(i, o, k, padding=p, groups=g), nn.ReLU(inplace=True)]
    alexnet = nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(inplace=True), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2),
        *block(96, 256, 5, 2, 2), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2), *block(256, 384, 3, 1, 1),
        *block(384, 384, 3, 1, 2), *block(384, 256, 3, 1, 2), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000))
    return {"LeNet": (lenet, (64, 1, 28, 28), lenet_layers(), 60),
            "AlexNet": (alexnet, (16, 3, 227, 227), alexnet_layers(), 4),
            "GoogLeNet": (eager_nets.GoogLeNet(), (8, 3, 224, 224), layers_of("googlenet"), 3),
            "ResNet-50": (eager_nets.resnet50(), (8, 3, 224, 224), layers_of("resnet50"), 3)}


def eager_milliseconds(net, shape, iterations):
    import torch
    images = torch.randn(*shape)
    labels = torch.ones(shape[0], dtype=torch.long)
    from eager_nets import loss
    def step():
        net.zero_grad(set_to_none=False)
        loss(net, images, labels).backward()
    step()
    begin = time.perf_counter()
    for _ in range(iterations):
        step()
    return 1e3 * (time.perf_counter() - begin) / iterations


def median_interval(values):
    """The two-sided 95 % interval of the median: how many of n values are below it is binomial."""
    ordered = sorted(values)
    reach = 0.98 * math.sqrt(len(ordered)) + 1
    low = max(0, math.floor(len(ordered) / 2 - reach))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach) - 1)
    return ordered[low], ordered[high]


class TurnTaker:
    """A training run that is stopped except in its turns. Ended, by its id, on exit."""

    def __init__(self, poseidon, folder, name, *flags):
        self.metrics = pathlib.Path(folder) / name / "metrics.jsonl"
        self.process = subprocess.Popen([poseidon, "train", *flags, "--run-dir", name], cwd=folder,
                                        stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            self.await_first_line(name)
        except BaseException:  # nobody enters what was not made
            self.__exit__()
            raise
        os.killpg(self.process.pid, signal.SIGSTOP)
        self.read = self.metrics.stat().st_size

    def await_first_line(self, name):
        while not self.metrics.exists() or self.metrics.stat().st_size == 0:
            if self.process.poll() is not None:
                sys.exit(f"the {name} run ended with {self.process.returncode}")
            time.sleep(0.05)

    def turn(self, seconds):
        """Median seconds of the iterations that begin and end within the next turn."""
        os.killpg(self.process.pid, signal.SIGCONT)
        time.sleep(seconds)
        os.killpg(self.process.pid, signal.SIGSTOP)
        with open(self.metrics, "rb") as file:
            file.seek(self.read)
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self.read += sum(map(len, lines))
        times = [json.loads(line)["seconds"] for line in lines]
        # The first line ends the iteration that the last stop cut.
        return statistics.median(after - before for before, after in zip(times, times[1:]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = pathlib.Path(folder)
        self.results = {}

    def run(self, *argv):
        done = subprocess.run([self.args.poseidon, *argv], capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)} failed: {done.stderr.strip()}")
        return done.stdout

    def database(self):
        path = self.folder / "lmdb"
        if path.exists():
            return path
        count = 6400
        pixels = bytes((i * 2654435761 >> 13) & 255 for i in range(28 * 28 * 97))
        with open(self.folder / "images", "wb") as f:
            f.write(struct.pack(">IIII", 2051, count, 28, 28))
            for i in range(count):
                f.write(pixels[(i % 97) * 784:(i % 97) * 784 + 784])
        with open(self.folder / "labels", "wb") as f:
            f.write(struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count)))
        self.run("convert-mnist", "images", "labels", str(path))
        return path

    def solver(self, iterations, display=0):
        net = f"""name: "LeNet"
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{self.database()}" batch_size: 64 backend: LMDB }} }}\n""" + lenet_layers()
        (self.folder / "net.prototxt").write_text(net)
        path = self.folder / "solver.prototxt"
        path.write_text(f'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 '
                        f'lr_policy: "fixed" max_iter: {iterations} display: {display} '
                        f'test_initialization: false snapshot_after_train: false\n')
        return path

    def train(self, name, *flags):
        self.run("train", "--solver", str(self.solver(self.args.iterations)), "--run-dir", name, *flags)
        return json.loads((self.folder / name / "summary.json").read_text())

    def overhead(self):
        solver = self.solver(10**6, display=1)
        with contextlib.ExitStack() as stack:
            runs = {name: stack.enter_context(TurnTaker(
                        self.args.poseidon, self.folder, name, "--solver", str(solver),
                        "--threads", str(self.args.threads), *flags))
                    for name, flags in (("plain", ()), ("sync", ("--sync",)))}
            for run in runs.values():
                run.turn(WARM_UP_SECONDS)
            ratios = []
            for pair in range(self.args.pairs):
                order = ["plain", "sync"] if pair % 2 == 0 else ["sync", "plain"]
                seconds = {name: runs[name].turn(TURN_SECONDS) for name in order}
                ratios.append(seconds["sync"] / seconds["plain"])
        median, (low, high) = statistics.median(ratios), median_interval(ratios)
        print(f"overhead   --workers 1 --sync over --workers 1, LeNet: {100 * (median - 1):+.2f} % "
              f"[{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}] at 95 %, "
              f"{len(ratios)} pairs of turns (goal: +1.10 %, upper end +1.50 %)")
        self.results["overhead"] = {"median": median, "low95": low, "high95": high, "ratios": ratios}

    def eager(self):
        import torch
        torch.set_num_threads(self.args.threads)
        self.results["eager"] = {}
        for name, (net, shape, layers, iterations) in nets_beside_eager().items():
            if name not in self.args.nets.split(","):
                continue
            model = self.folder / f"{name}.prototxt"
            model.write_text(f'name: "{name}"\n' + dummy(*shape) + layers)
            ours, theirs = [], []
            for _ in range(self.args.repeats):
                theirs.append(eager_milliseconds(net, shape, iterations))
                out = self.run("time", "--model", str(model), "--iterations", str(iterations),
                               "--threads", str(self.args.threads))
                ours.append(float(re.search(r"forward-backward: ([\d.]+)", out)[1]))
            ratio = statistics.median(o / t for o, t in zip(ours, theirs))
            print(f"eager      {name}: ours {statistics.median(ours):.1f} ms, eager PyTorch "
                  f"{statistics.median(theirs):.1f} ms, ours/eager {ratio:.3f} "
                  f"[{min(o / t for o, t in zip(ours, theirs)):.3f}, {max(o / t for o, t in zip(ours, theirs)):.3f}] "
                  f"(goal: at most 1)")
            self.results["eager"][name] = {"ours_ms": ours, "eager_ms": theirs, "ratio": ratio}

    def memory(self):
        elements = {"conv1": 520, "conv2": 25050, "ip1": 400500, "ip2": 5010}
        shapes = {"ip1": (500, 800), "ip2": (10, 500)}
        self.results["memory"] = {}
        for workers in (2, 4):
            for policy in ("time", "bytes"):
                s = self.train(f"memory{workers}{policy}", "--workers", str(workers), "--policy", policy)
                weights = 4 * sum(elements.values())
                factors = sum(2 * (workers - 1) * 64 * 4 * sum(shapes[p["layer"]])
                              for p in s["plan"] if p["scheme"] != "kv")
                bound = (2 - 1 / workers) * weights + factors
                print(f"memory     {workers} workers, policy {policy}: the core allocated "
                      f"{s['core_allocated_bytes']} bytes, bound {bound:.0f} "
                      f"({s['core_allocated_bytes'] / bound:.2f} of it)")
                self.results["memory"][f"{workers}{policy}"] = {"allocated": s["core_allocated_bytes"], "bound": bound}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit ends the runs, which may be stopped
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--poseidon", default=str(ROOT / "build/release/bin/poseidon"))
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--only", default="overhead,eager,memory")
    parser.add_argument("--nets", default="LeNet,AlexNet", help="of eager: LeNet, AlexNet, GoogLeNet, ResNet-50")
    parser.add_argument("--json")
    args = parser.parse_args()
    # Idle threads sleep, as they do in the trainer: both sides wait the same way.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"threads {args.threads} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for part in args.only.split(","):
            getattr(bench, part)()
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(bench.results, indent=1) + "\n")


if __name__ == "__main__":
    main()
