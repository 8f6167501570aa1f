#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The other peer: a profile through all-reduces of an MPI, on the same timer.

  cluster.py mpi --nodes 4 --rate 1Gbit -- .venv/bin/python3 -B mpi_replay.py --profile FILE --scale 10
  cluster.py mpi --nodes 4 --rate 1Gbit -- .venv/bin/python3 -B mpi_replay.py --allreduce 1048576,67108864

Gradients are in buckets as DDP's are: 25 MiB, the first one 1 MiB, divided like the sizes and filled from the
last layer's last tensor on. A thread all-reduces a bucket in place as soon as backward has passed all of it,
because an MPI gets on only inside its calls; a step ends when all buckets are back. Nothing is copied into
buckets and no mean is taken. Prints the lines of ddp_replay.py.

Needs mpi4py and an MPI, and a start by mpirun. Ends with a sentence and 1 if the sums are wrong.
"""
import argparse
import array
import json
import math
import os
import queue
import sys
import threading
import time

# A ring. What Open MPI 4.1 chooses by itself at these sizes takes 1.4 times as long on links of 1 Gbit/s.
os.environ.setdefault("OMPI_MCA_coll_tuned_use_dynamic_rules", "1")
os.environ.setdefault("OMPI_MCA_coll_tuned_allreduce_algorithm", "4")
from mpi4py import MPI  # noqa: E402

import replay  # noqa: E402

BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--profile", help="JSON profile")
    what.add_argument("--allreduce", help="only all-reduces, of these bytes: 1024,67108864")
    replay.add_arguments(parser)
    return parser.parse_args(arguments)


def say(line):
    """In one write: mpirun joins what all ranks print."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def floats(count, value=0.0):
    return array.array("f", [value]) * count


class Buckets:
    """Gradients that are all-reduced together: `ready[i]` are the buckets that are whole when backward has passed layer i."""

    def __init__(self, layers, scale):
        self.ready = [[] for _ in layers]
        limit, filled = FIRST_BUCKET_BYTES / scale, 0
        for index in reversed(range(len(layers))):
            for tensor in reversed(layers[index].tensors):
                filled += math.prod(tensor)
                if 4 * filled >= limit:
                    self.ready[index].append(floats(filled))
                    limit, filled = BUCKET_BYTES / scale, 0
        if filled:
            self.ready[0].append(floats(filled))

    @property
    def all(self):
        return [bucket for buckets in self.ready for bucket in buckets]


class Reducer:
    """The thread that all-reduces, one bucket after the other, the same order on every rank."""

    def __init__(self, world):
        self.world = world
        self.waiting = queue.SimpleQueue()
        self.done = threading.Semaphore(0)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.world.Allreduce(MPI.IN_PLACE, [self.waiting.get(), MPI.FLOAT])
            self.done.release()

    def finish(self, count):
        for _ in range(count):
            self.done.acquire()


def play_profile(options, world):
    rank, workers = world.Get_rank(), world.Get_size()
    name, layers = replay.read_profile(options.profile, options.scale)
    buckets = Buckets(layers, options.scale)
    prove(world, buckets.all)
    times = replay.ComputeTimes(layers, workers, options.jitter, options.straggler)
    drawn = [times.of_step(rank, step) for step in range(options.warm_up + options.steps)]
    stream = replay.Stream(options.compute == "spin")
    steps = play_steps(stream, buckets, Reducer(world), drawn, options.warm_up)
    for line in steps.lines(rank):
        say(line)
    say({"rank": rank, "summary": {
        "mode": "mpi", "profile": name, "mpi": MPI.Get_library_version().split(",")[0],
        **replay.summary_of(steps.seconds, steps.cpu),
        "single_worker_seconds": math.fsum(layer.forward_seconds + layer.backward_seconds for layer in layers),
        "gradient_bytes": sum(4 * len(bucket) for bucket in buckets.all)}})


def prove(world, buckets):
    """Ends with a sentence unless the sums of all buckets are right; afterwards they hold zeros, which sums of
    any number of steps leave zero."""
    rank, workers = world.Get_rank(), world.Get_size()
    for bucket in buckets:
        bucket[:] = floats(len(bucket), rank + 1)
        world.Allreduce(MPI.IN_PLACE, [bucket, MPI.FLOAT])
        if bucket.count(workers * (workers + 1) / 2) != len(bucket):
            sys.exit(f"mpi_replay: the sum of {4 * len(bucket)} bytes is wrong")
        bucket[:] = floats(len(bucket))


def play_steps(stream, buckets, reducer, drawn, warm_up):
    """All steps; kept are those after the warm-up."""
    count = len(buckets.all)
    steps = replay.Steps(warm_up)
    for step, (forward, backward) in enumerate(drawn):
        for index, duration in enumerate(forward):
            stream.run(duration, idle=index == 0)
        for index in reversed(range(len(backward))):
            stream.run(backward[index], idle=False)
            for bucket in buckets.ready[index]:
                reducer.waiting.put(bucket)
        reducer.finish(count)
        steps.end(step)
    return steps


def allreduce(size, options, world):
    """Median of all-reduces of `size` bytes, all ranks starting together."""
    bucket = floats(max(1, size // 4))
    prove(world, [bucket])
    seconds, cpu = [], []
    for repetition in range(options.warm_up + options.steps):
        world.Barrier()
        began, used = time.monotonic(), replay.cpu_seconds()
        world.Allreduce(MPI.IN_PLACE, [bucket, MPI.FLOAT])
        if repetition >= options.warm_up:
            seconds.append(time.monotonic() - began)
            cpu.append(replay.cpu_seconds() - used)
    say({"rank": world.Get_rank(), "summary": {
        "mode": "mpi", "allreduce_bytes": size,
        **replay.summary_of(seconds, cpu)}})


def main(arguments):
    options = parse(arguments)
    world = MPI.COMM_WORLD
    if options.profile:
        play_profile(options, world)
    else:
        for size in options.allreduce.split(","):
            allreduce(int(size), options, world)


if __name__ == "__main__":
    main(sys.argv[1:])
