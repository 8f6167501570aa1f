#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer: a profile through PyTorch's DistributedDataParallel over gloo, on the same timer.

  ddp_replay.py --profile FILE --scale 10 --workers 4 --rank {rank} --coordinator {coordinator}
  ddp_replay.py --allreduce 67108864,268435456 --workers 4 --rank {rank} --coordinator {coordinator}
  ddp_replay.py --orders --workers 4 --rank {rank} --coordinator {coordinator}

Every layer is an autograd function that sleeps to its deadline, forward and backward, around dummy
parameters of the layer's tensors; DDP's own hooks see the gradients layer by layer, as in training.
Its settings are its best: buckets (25 MiB, the first 1 MiB) divided like the sizes, gradients as views
of the buckets, and gradients that are there without being copied or added. There is no optimizer: a
step's fixed work is in the profile's times. Prints one JSON object per measured step and a summary.

Needs torch. Ends with a sentence and 1 if the sums are wrong.
"""
import argparse
import json
import math
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.parallel.distributed as ddp_module  # noqa: E402

import replay  # noqa: E402

BUCKET_MIB = 25
FIRST_BUCKET_BYTES = 1 << 20


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--profile", help="JSON profile, - for standard input")
    what.add_argument("--allreduce", help="only all-reduces, of these bytes: 1024,67108864")
    what.add_argument("--orders", action="store_true", help="all-reduces as standard input orders")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--coordinator", default="127.0.0.1", help="rank 0's address")
    parser.add_argument("--port", type=int, default=29500, help="rank 0's port")
    parser.add_argument("--interface", default="eth0")
    parser.add_argument("--connections", type=int, default=1, help="gloo's between two ranks")
    parser.add_argument("--bucket-mib", type=float, default=BUCKET_MIB, help="before division")
    parser.add_argument("--static-graph", action="store_true")
    replay.add_arguments(parser)
    return parser.parse_args(arguments)


def say(line):
    print(json.dumps(line), flush=True)


class Play(torch.autograd.Function):
    """One layer: its forward and its backward pass take their time on the stream."""

    @staticmethod
    def forward(ctx, signal, model, index, *parameters):
        ctx.model, ctx.index, ctx.count = model, index, len(parameters)
        model.play_forward(index)
        return signal.clone()

    @staticmethod
    def backward(ctx, signal):
        gradients = ctx.model.play_backward(ctx.index)
        return signal, None, None, *(gradients or [None] * ctx.count)


class Model(torch.nn.Module):
    """The dummy parameters, and the times of the step that is being played.

    In the first step each parameter's gradient is made, rank + 1 everywhere; afterwards the gradient is
    DDP's view into its bucket, and "computing" it leaves it where it is. So no copy is charged to DDP
    that an accelerator would have made, and every later mean is the mean of means.
    """

    def __init__(self, layers, rank, spins=False):
        super().__init__()
        self.rank = rank
        self.layers = [[torch.nn.Parameter(torch.zeros(shape)) for shape in layer.tensors]
                       for layer in layers]
        self.all = torch.nn.ParameterList(p for layer in self.layers for p in layer)
        self.stream = replay.Stream(spins)
        self.forward_seconds = self.backward_seconds = None
        self.first = True

    def begin(self, times):
        self.forward_seconds, self.backward_seconds = times

    def forward(self, signal):
        for index, parameters in enumerate(self.layers):
            signal = Play.apply(signal, self, index, *parameters)
        return signal

    def play_forward(self, index):
        self.stream.run(self.forward_seconds[index], idle=index == 0)

    def play_backward(self, index):
        self.stream.run(self.backward_seconds[index], idle=False)
        if self.first:
            return [torch.full_like(p, self.rank + 1) for p in self.layers[index]]
        return None

    def wrong(self, workers):
        """The first parameter whose gradient is not the mean of all ranks'; None if all are."""
        mean = (workers + 1) / 2
        for parameter in self.all:
            if parameter.grad is None or not torch.all((parameter.grad - mean).abs() < 1e-4 * mean):
                return list(parameter.shape)
        return None


def wrap(model, options):
    """DDP with its buckets divided like the sizes; the defaults are changed, because a size given as
    an argument would also do away with the small first bucket."""
    if not hasattr(ddp_module, "_DEFAULT_BUCKET_CAP_MB"):
        sys.exit("ddp_replay: this torch has no _DEFAULT_BUCKET_CAP_MB, expected 2.13")
    ddp_module._DEFAULT_BUCKET_CAP_MB = options.bucket_mib / options.scale
    dist._DEFAULT_FIRST_BUCKET_BYTES = max(1, int(FIRST_BUCKET_BYTES / options.scale))
    return torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, broadcast_buffers=False,
        static_graph=options.static_graph)


def connect(options):
    os.environ["GLOO_SOCKET_IFNAME"] = ",".join([options.interface] * options.connections)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=options.rank, world_size=options.workers,
                            init_method=f"tcp://{options.coordinator}:{options.port}")


def play_profile(options):
    name, layers = replay.read_profile(options.profile, options.scale)
    times = replay.ComputeTimes(layers, options.workers, options.jitter, options.straggler)
    drawn = [times.of_step(options.rank, step) for step in range(options.warm_up + options.steps)]
    model = Model(layers, options.rank, options.compute == "spin")
    wrapped = wrap(model, options)
    steps = play_steps(model, wrapped, drawn, options.warm_up)
    if (shape := model.wrong(options.workers)) is not None:
        sys.exit(f"ddp_replay: the gradient of a parameter of shape {shape} is not the mean of all ranks")
    for line in steps.lines(options.rank):
        say(line)
    say({"rank": options.rank, "summary": {
        "mode": f"ddp-{options.connections}", "profile": name, "torch": torch.__version__,
        **replay.summary_of(steps.seconds, steps.cpu),
        "single_worker_seconds": math.fsum(layer.forward_seconds + layer.backward_seconds
                                           for layer in layers),
        "gradient_bytes": sum(4 * p.numel() for p in model.all)}})


def play_steps(model, wrapped, drawn, warm_up):
    """All steps; kept are those after the warm-up."""
    steps = replay.Steps(warm_up)
    for step, times in enumerate(drawn):
        model.begin(times)
        wrapped(torch.zeros(1, requires_grad=True)).sum().backward()
        model.first = False
        steps.end(step)
    return steps


def allreduce(size, options):
    """Median of all-reduces of `size` bytes, all ranks starting together."""
    tensor = torch.full((max(1, size // 4),), 1.0)
    seconds, cpu = [], []
    for repetition in range(options.warm_up + options.steps):
        tensor.fill_(1.0)
        dist.barrier()
        began, used = time.monotonic(), replay.cpu_seconds()
        dist.all_reduce(tensor)
        if repetition >= options.warm_up:
            seconds.append(time.monotonic() - began)
            cpu.append(replay.cpu_seconds() - used)
        if not torch.all(tensor == options.workers):
            sys.exit(f"ddp_replay: the sum of {size} bytes is wrong")
    say({"rank": options.rank, "summary": {
        "mode": f"gloo-{options.connections}", "allreduce_bytes": size,
        **replay.summary_of(seconds, cpu)}})


def obey_orders():
    """All-reduces ordered on standard input, "SIZE REPEATS", answered as poseidon_allreduce does: the
    mean of so many behind one another. Sums of zeros stay zeros; before, a size proves its sum."""
    for line in sys.stdin:
        size, repeats = map(int, line.split())
        tensor = torch.ones(max(1, size // 4))
        dist.all_reduce(tensor)
        if not torch.all(tensor == dist.get_world_size()):
            sys.exit(f"ddp_replay: the sum of {size} bytes is wrong")
        tensor.zero_()
        dist.barrier()
        began, used = time.monotonic(), replay.cpu_seconds()
        for _ in range(repeats):
            dist.all_reduce(tensor)
        took, burnt = time.monotonic() - began, replay.cpu_seconds() - used
        say({"bytes": size, "repeats": repeats, "seconds": took / repeats, "cpu_seconds": burnt / repeats})


def main(arguments):
    options = parse(arguments)
    connect(options)
    if options.profile:
        play_profile(options)
    elif options.orders:
        obey_orders()
    else:
        for size in options.allreduce.split(","):
            allreduce(int(size), options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
