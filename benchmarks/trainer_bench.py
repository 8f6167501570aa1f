#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the trainer costs: beside itself without synchronisation, beside eager PyTorch, and beside BVLC Caffe.

  benchmarks/trainer_bench.py [--poseidon PATH] [--pairs N] [--only overhead,eager,memory] [--nets NET,...] [--json FILE]
  benchmarks/trainer_bench.py --only caffe --caffe PATH
  benchmarks/trainer_bench.py --only data

overhead  one worker with hooks, scheduler and its own shard against plain training: two runs that
          take turns of a quarter of a second (the other is stopped), because runs one after the other
          differ by more than what is measured; median ratio of neighbouring turns and the upper end
          of its 95 % interval (order statistics, no assumption about the noise)
eager     forward and backward of LeNet, AlexNet, GoogLeNet, ResNet-50 and VGG19 against the same net in eager PyTorch, on the
          same threads, alternating (--nets); with --gpu both on the first GPU
memory    what the core allocates for landing places and sums, against its bound
caffe     a training iteration of LeNet against that of BVLC Caffe's own program (--caffe, its `caffe` binary with OpenBLAS), on one
          thread and on two, alternating, from the same weights and the same database; both say the time in the same lines
data      AlexNet's crops of JPEG images of 500x375, from a database of files' bytes and from a list of files (scaled to 256x256):
          images/s of a decoding thread, and what a step of AlexNet waits for its batch beside what decoding it takes

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


def dummy(*shape, gpu=False):
    """Random images, drawn in every pass. For a GPU constant ones, which are filled once: drawing is the CPU's work and would be measured too."""
    filler = 'type: "constant" value: 1' if gpu else 'type: "gaussian" std: 1'
    dims = " ".join(f"dim: {d}" for d in shape)
    return f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {{ shape {{ {dims} }} shape {{ dim: {shape[0]} }}
    data_filler {{ {filler} }} data_filler {{ type: "constant" value: 1 }} }} }}\n"""


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
    widths = (64, 64, "pool", 128, 128, "pool", *[256] * 4, "pool", *[512] * 4, "pool", *[512] * 4, "pool")
    channels, features = 3, []
    for width in widths:
        features += [nn.MaxPool2d(2)] if width == "pool" else block(channels, width, 3, 1, 1)
        channels = channels if width == "pool" else width
    vgg19 = nn.Sequential(*features, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
                          nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000))
    return {"LeNet": (lenet, (64, 1, 28, 28), lenet_layers(), 60),
            "AlexNet": (alexnet, (16, 3, 227, 227), alexnet_layers(), 4),
            "GoogLeNet": (eager_nets.GoogLeNet(), (8, 3, 224, 224), layers_of("googlenet"), 3),
            "ResNet-50": (eager_nets.resnet50(), (8, 3, 224, 224), layers_of("resnet50"), 3),
            "VGG19": (vgg19, (8, 3, 224, 224), layers_of("vgg19"), 2)}


def photograph(random):
    """An image whose frequencies fall off as those of photographs do; with quality 95 it takes about 110 kB."""
    import numpy
    from PIL import Image
    width, height = 500, 375
    image = numpy.zeros((height, width, 3))
    for size in (1, 2, 4, 8, 16, 32, 64):
        noise = (size ** 0.4 * random.standard_normal((height // size + 2, width // size + 2, 3))).astype("f")
        image += numpy.stack([numpy.asarray(Image.fromarray(noise[..., c]).resize((width, height), Image.BICUBIC)) for c in range(3)], -1)
    image *= 50 / image.std()
    return Image.fromarray(numpy.clip(image + 118, 0, 255).astype("u1"))


def eager_milliseconds(net, shape, iterations, gpu=False):
    import torch
    device = "cuda" if gpu else "cpu"
    # As the trainer computes: torch's own default rounds the inputs of convolutions, and leaves the order of sums to chance.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    wait = torch.cuda.synchronize if gpu else lambda: None
    images = torch.ones(*shape, device=device) if gpu else torch.randn(*shape)  # as in dummy(): a GPU's clock depends on the numbers too
    labels = torch.ones(shape[0], dtype=torch.long, device=device)
    net = net.to(device)
    from eager_nets import loss
    def step():
        net.zero_grad(set_to_none=False)
        loss(net, images, labels).backward()
    step()
    wait()
    begin = time.perf_counter()
    for _ in range(iterations):
        step()
    wait()
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


def processor():
    names = re.findall(r"(?m)^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text())
    return names[0] if names else "an unknown processor"


def displayed(log):
    """Of a log as Caffe writes it: milliseconds of an iteration in each interval but the first, and the last loss."""
    lines = re.findall(r"Iteration (\d+) \(\S+ iter/s, ([\d.e+-]+)s/(\d+) iters\), loss = (\S+)", log)
    times = [1e3 * float(seconds) / int(count) for iteration, seconds, count, _ in lines if int(iteration) >= 2 * int(count)]
    if not times:
        sys.exit("a log has no two intervals, expected lines of Caffe's solver")
    return times, float(lines[-1][3])


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

    def solver(self, iterations, display=0, name="solver"):
        net = f"""name: "LeNet"
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{self.database()}" batch_size: 64 backend: LMDB }} }}\n""" + lenet_layers()
        (self.folder / "net.prototxt").write_text(net)
        path = self.folder / f"{name}.prototxt"
        path.write_text(f'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 '
                        f'lr_policy: "fixed" max_iter: {iterations} display: {display} '
                        f'test_initialization: false snapshot_after_train: {str(name == "first").lower()} '
                        f'snapshot_prefix: "{name}"\n')
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
            model.write_text(f'name: "{name}"\n' + dummy(*shape, gpu=self.args.gpu) + layers)
            ours, theirs = [], []
            iterations *= 10 if self.args.gpu else 1
            for _ in range(self.args.repeats):
                theirs.append(eager_milliseconds(net, shape, iterations, self.args.gpu))
                out = self.run("time", "--model", str(model), "--iterations", str(iterations),
                               "--threads", str(self.args.threads), *(("--gpu", "0") if self.args.gpu else ()))
                ours.append(float(re.search(r"forward-backward: ([\d.]+)", out)[1]))
            ratio = statistics.median(o / t for o, t in zip(ours, theirs))
            print(f"eager      {name}: ours {statistics.median(ours):.1f} ms, eager PyTorch "
                  f"{statistics.median(theirs):.1f} ms, ours/eager {ratio:.3f} "
                  f"[{min(o / t for o, t in zip(ours, theirs)):.3f}, {max(o / t for o, t in zip(ours, theirs)):.3f}] "
                  f"(goal: at most 1)")
            self.results["eager"][name] = {"ours_ms": ours, "eager_ms": theirs, "ratio": ratio}

    def caffe(self):
        if not self.args.caffe:
            sys.exit("caffe needs --caffe PATH, the program of BVLC Caffe")
        self.run("train", "--solver", str(self.solver(1, name="first")))
        self.solver(3 * self.args.iterations + 1, display=self.args.iterations)
        print(f"caffe      on {processor()}")
        self.results["caffe"] = {"processor": processor()}
        for threads, goal in ((1, 1.0), (2, 1.3)):
            ours, theirs = [], []
            for _ in range(self.args.repeats):
                times, loss = self.caffe_log(threads, self.args.poseidon, "--threads", str(threads), "--log", "caffe")
                caffe_times, caffe_loss = self.caffe_log(threads, self.args.caffe)
                if abs(loss - caffe_loss) > 0.05 * abs(caffe_loss):
                    sys.exit(f"losses after {3 * self.args.iterations} iterations are {loss} and {caffe_loss}: not the same net")
                ours.append(statistics.median(times))
                theirs.append(statistics.median(caffe_times))
            ratios = [t / o for o, t in zip(ours, theirs)]
            print(f"caffe      LeNet, {threads} thread{'s' * (threads > 1)}: ours {statistics.median(ours):.2f} ms "
                  f"[{min(ours):.2f}, {max(ours):.2f}], BVLC Caffe {statistics.median(theirs):.2f} ms "
                  f"[{min(theirs):.2f}, {max(theirs):.2f}], Caffe/ours {statistics.median(ratios):.2f} "
                  f"[{min(ratios):.2f}, {max(ratios):.2f}], {len(ratios)} pairs (goal: at least {goal})")
            self.results["caffe"][threads] = {"ours_ms": ours, "caffe_ms": theirs}

    def caffe_log(self, threads, program, *flags):
        """What `displayed` finds in the log of a program that takes Caffe's command line."""
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run([program, "train", "--solver=solver.prototxt", "--weights=first_iter_1.caffemodel", *flags],
                              capture_output=True, text=True, cwd=self.folder, env=environment)
        if done.returncode != 0:
            sys.exit(f"{program} failed: {done.stderr.strip()[-500:]}")
        return displayed(done.stderr)

    def images(self, count=64):
        """A list of JPEG files and a database of their bytes; returns their mean size."""
        import numpy
        random = numpy.random.default_rng(1)
        (self.folder / "images").mkdir()
        for i in range(count):
            photograph(random).save(self.folder / f"images/{i}.jpg", quality=95)
        (self.folder / "list.txt").write_text("".join(f"{i}.jpg {i % 10}\n" for i in range(count)))
        self.run("convert_imageset", "--encoded", "images/", "list.txt", "encoded_lmdb")
        return statistics.mean(file.stat().st_size for file in (self.folder / "images").iterdir())

    def data_row(self, layers, threads, iterations):
        """Milliseconds of the layer of data, and of the whole step."""
        (self.folder / "data.prototxt").write_text(f'name: "data"\n{layers}')
        out = self.run("time", "--model", "data.prototxt", "--iterations", str(iterations), "--threads", str(threads))
        return float(re.search(r"(?m)^data +([\d.]+)", out)[1]), float(re.search(r"forward-backward: ([\d.]+)", out)[1])

    def data(self):
        batch = 16
        transform = "transform_param { crop_size: 227 mirror: true mean_value: 104 mean_value: 117 mean_value: 123 }"
        def database(ahead):
            return f"""layer {{ name: "data" type: "Data" top: "data" top: "label" {transform}
  data_param {{ source: "encoded_lmdb" backend: LMDB batch_size: {batch} prefetch: {ahead} }} }}\n"""
        listed = f"""layer {{ name: "data" type: "ImageData" top: "data" top: "label" {transform} image_data_param {{ source: "list.txt"
  root_folder: "images/" batch_size: {batch} shuffle: true new_height: 256 new_width: 256 }} }}\n"""
        silence = 'layer { name: "silence" type: "Silence" bottom: "data" bottom: "label" }\n'
        print(f"data       on {processor()}; JPEG images of 500x375, {self.images() / 1000:.0f} kB each, batches of {batch}")
        self.results["data"] = {"processor": processor()}
        for name, layer in (("database, prefetch 1", database(1)), ("database, prefetch 4", database(4)), ("list", listed)):
            for threads in (1, 2):
                rounds = [(self.data_row(layer + silence, threads, 30)[0], *self.data_row(layer + alexnet_layers(), threads, 6))
                          for _ in range(self.args.repeats)]
                decoding, waiting, step = map(statistics.median, zip(*rounds))
                print(f"data       {name}, {threads} thread{'s' * (threads > 1)}: {1e3 * batch / decoding / threads:.0f} images/s a decoding thread; "
                      f"a batch takes {decoding:.1f} ms, AlexNet's step of {step:.0f} ms waits {waiting:.2f} ms "
                      f"[{min(r[1] for r in rounds):.2f}, {max(r[1] for r in rounds):.2f}] for it")
                self.results["data"][f"{name}, {threads}"] = {"alone_ms": [r[0] for r in rounds], "wait_ms": [r[1] for r in rounds],
                                                              "step_ms": [r[2] for r in rounds]}

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
    parser.add_argument("--poseidon", type=os.path.abspath, default=str(ROOT / "build/release/bin/poseidon"))
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--only", default="overhead,eager,memory")
    parser.add_argument("--gpu", action="store_true", help="eager: on the first GPU")
    parser.add_argument("--nets", default="LeNet,AlexNet", help="of eager: LeNet, AlexNet, GoogLeNet, ResNet-50, VGG19")
    parser.add_argument("--caffe", metavar="PATH", type=os.path.abspath, help="the program of BVLC Caffe, for the part of that name")
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
