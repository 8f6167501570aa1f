# SPDX-License-Identifier: Apache-2.0
"""A model's computing, slept: profile, scaled sizes and the stream, as benchmarks/replay plays them.

Both replays must agree in every number here, or their step times cannot be compared: sizes divided by
one factor (scaled_model.cc), times with jitter and straggler (ComputeTimes in replay.cc), and deadlines
on one stream (stream.cc).
"""
import ctypes
import json
import math
import os
import pathlib
import resource
import statistics
import sys
import time
import zlib

PR_SET_TIMERSLACK = 29
CLOCK_MONOTONIC, TIMER_ABSTIME = 1, 1
MASK = (1 << 64) - 1

libc = ctypes.CDLL(None, use_errno=True)


def add_arguments(parser):
    """Those that every replay in Python has, as benchmarks/replay has them."""
    parser.add_argument("--scale", type=float, default=1, help="sizes divided by this")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--compute", choices=("sleep", "spin"), default="sleep",
                        help="spin: burn this machine's CPU time")
    parser.add_argument("--jitter", type=float, default=0, help="relative deviation of computing")
    parser.add_argument("--straggler", type=float, default=1, help="factor on the last rank's computing")


class Layer:
    """A layer of a scaled model: tensors as lists of dimensions, in the profile's order."""

    def __init__(self, layer, scale):
        self.name = layer["name"]
        self.forward_seconds = layer["forward_seconds"]
        self.backward_seconds = layer["backward_seconds"]
        if layer.get("factors"):
            factors = layer["factors"]
            outputs = divided(factors["outputs"], math.sqrt(scale))
            self.tensors = [[outputs, divided(factors["inputs"], math.sqrt(scale))]]
            self.tensors += [[outputs]] if factors["bias"] else []
        else:
            self.tensors = [[divided(math.prod(tensor["shape"]), scale)]
                            for tensor in layer.get("tensors", [])]


def divided(value, by):
    """Rounded half away from zero as std::llround does, at least 1."""
    return max(1, math.floor(value / by + 0.5))


def read_profile(path, scale):
    """A profile's name and layers, sizes divided by scale; '-' is stdin. Raises OSError, ValueError,
    KeyError."""
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text()
    profile = json.loads(text)
    return profile["name"], [Layer(layer, scale) for layer in profile["layers"]]


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed):
    """The numbers of poseidon/base/random.h (xoshiro256**) from a seed, each in [0, 1) as a multiple of
    2^-30."""
    state = []
    for _ in range(4):
        seed = mix64(seed)
        state.append(seed)
    while True:
        product = (state[1] * 5) & MASK
        result = (((product << 7) | (product >> 57)) * 9) & MASK
        carried = (state[1] << 17) & MASK
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= carried
        state[3] = ((state[3] << 45) | (state[3] >> 19)) & MASK
        yield (result * (1 << 30) >> 64) / (1 << 30)


def cpu_seconds():
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def core_wait_seconds():
    """Seconds for which threads of this process that still live were ready to run and had no core, as
    CoreWaitSeconds of member.h; 0 where the kernel does not count it."""
    waited = 0
    for thread in os.scandir("/proc/self/task"):
        try:
            waited += int(pathlib.Path(thread.path, "schedstat").read_text().split()[1])
        except (OSError, IndexError):  # it has ended, or is not counted
            continue
    return 1e-9 * waited


def summary_of(seconds, cpu):
    """The part of a printed summary that says how long steps, or all-reduces, took."""
    return {"median_seconds": statistics.median(seconds), "median_cpu_seconds": statistics.median(cpu),
            "least_seconds": min(seconds), "most_seconds": max(seconds)}


class Steps:
    """The measured steps of a rank, those after the warm-up: when each ended on the monotonic clock, and since the
    end of the one before the seconds, the CPU seconds and those of waiting for a core. The first begins with this."""

    def __init__(self, warm_up):
        self.warm_up = warm_up
        self.ended, self.seconds, self.cpu, self.core_wait = [], [], [], []
        self.began = time.monotonic(), cpu_seconds(), core_wait_seconds()

    def end(self, step):
        now = time.monotonic(), cpu_seconds(), core_wait_seconds()
        if step >= self.warm_up:
            self.ended.append(now[0])
            for measured, begin, end in zip((self.seconds, self.cpu, self.core_wait), self.began, now):
                measured.append(end - begin)
        self.began = now

    def lines(self, rank):
        """Yields the printed record of each step."""
        for step, (ended, seconds, cpu, core_wait) in enumerate(zip(self.ended, self.seconds, self.cpu,
                                                                    self.core_wait)):
            yield {"rank": rank, "step": step, "ended": ended, "seconds": seconds, "cpu_seconds": cpu,
                   "core_wait_seconds": core_wait}


class ComputeTimes:
    """The times of a rank's layers in each step; every rank could draw every other's."""

    def __init__(self, layers, workers, jitter, straggler):
        self.layers = layers
        self.workers = workers
        self.jitter = jitter
        self.straggler = straggler

    def factor(self, rank, step, layer, backward):
        factor = self.straggler if rank + 1 == self.workers else 1.0
        if self.jitter > 0:
            draws = uniform(mix64(rank + 1000003 * (step + 1000003 * (layer * 2 + backward))))
            total = -6 + sum(next(draws) for _ in range(12))
            factor *= max(0.2, 1 + self.jitter * total)
        return factor

    def of_step(self, rank, step):
        """Seconds of every layer's forward and backward pass."""
        return ([layer.forward_seconds * self.factor(rank, step, i, 0)
                 for i, layer in enumerate(self.layers)],
                [layer.backward_seconds * self.factor(rank, step, i, 1)
                 for i, layer in enumerate(self.layers)])


class Stream:
    """The accelerator that is slept: what it runs ends at deadlines that add up, so that waking late
    does not make the model slower."""

    def __init__(self, spins=False):
        self.spins = spins
        libc.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
        self.free_at = 0.0

    def run(self, seconds, idle):
        """Computes for so long, from when the stream was free; if it was `idle`, from now. A stream that
        spins burns so much CPU time instead."""
        if self.spins:
            spin(seconds)
            return
        if idle:
            self.free_at = max(self.free_at, time.monotonic())
        self.free_at += seconds
        sleep_until(self.free_at)


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


WORK = bytes(64 * 1024)


def spin(seconds):
    """Burns CPU time of this thread, without the interpreter's lock: others may run in Python."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        zlib.crc32(WORK)


def sleep_until(when):
    """Sleeps until time.monotonic() is `when`, an absolute deadline."""
    whole = math.floor(when)
    until = Timespec(whole, int((when - whole) * 1e9))
    while libc.clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, ctypes.byref(until), None) != 0:
        pass
