# SPDX-License-Identifier: Apache-2.0
"""What holds for the whole process: where it computes, by which seed, what is printed."""
from __future__ import annotations

import os
import sys
import time
from ctypes import byref, c_int32

from .. import interruption
from ..errors import PoseidonError
from . import library as c

_seed: int | None = None
_told: set[str] = set()


def tell_once(sentence: str) -> None:
    """Prints a sentence for the user, once."""
    if sentence not in _told:
        _told.add(sentence)
        _print(c.WARNING, sentence.encode())


def _print(level: int, line: bytes) -> None:
    # As with glog: 1 hides what training reports, 2 warnings too.
    hidden = os.environ.get("GLOG_minloglevel", "0")
    if level > (int(hidden) if hidden.isdecimal() else 0):
        print(f"poseidon: {line.decode(errors='replace')}" if level > c.NOTICE else line.decode(errors="replace"),
              file=sys.stderr, flush=True)


def _say(level: int, line: bytes) -> None:
    try:
        _print(level, line)
    except BaseException as failure:
        interruption.put(failure)


_saying = c.lasting(c.Say(_say))
_silent = False


def listen() -> None:
    """What nets and solvers report is printed to sys.stderr, where a notebook shows it."""
    if not _silent:
        c.library().set_say(_saying)


def fall_silent() -> None:
    """From here on the library prints by itself: Python ends, and threads of a job must not wait for it."""
    global _silent
    _silent = True
    c.library().set_say(c.Say())


def set_mode_cpu() -> None:
    """Nets compute on the CPU, as they always do."""


def set_mode_gpu() -> None:
    """Accepted, so that scripts run as they are: nets compute on the CPU all the same, which is said once."""
    tell_once("set_mode_gpu: nets of Python programs compute on the CPU, and so these do; poseidon train computes on a GPU")


def set_device(device: int) -> None:
    """Accepted, so that scripts run as they are: there is no GPU `device` to choose."""
    tell_once(f"set_device({device}): nets of Python programs compute on the CPU, and so these do; poseidon train computes on a GPU")


def set_random_seed(seed: int) -> None:
    """Nets that are made from here on draw by `seed`; a solver's own random_seed comes before it. Without it the seed is 1."""
    global _seed
    if not 0 <= seed < 2 ** 63:
        raise PoseidonError(f"the seed is {seed}, expected a number from 0 to 2^63 - 1", "INVALID_ARGUMENT")
    _seed = seed


def seed() -> int | None:
    """The seed that set_random_seed has set."""
    return _seed


def layer_type_list() -> list[str]:
    """The types of layers there are."""
    return str(c.library().layer_types().decode()).split("\n")


def has_nccl() -> bool:
    """False: workers exchange gradients through poseidon run."""
    return False


def init_log(*arguments: object) -> None:
    """Accepted: what training reports goes to sys.stderr. GLOG_minloglevel=1 in the environment hides it. `arguments` are not looked
    at."""


def log(text: str) -> None:
    """Prints `text` as training reports."""
    _print(c.NOTICE, text.encode())


def place() -> tuple[int, int]:
    """This process's rank and how many workers there are."""
    rank, workers = c_int32(), c_int32()
    c.library().place(byref(rank), byref(workers))
    return rank.value, workers.value


def solver_rank() -> int:
    """Which worker of the job this process is, from 0."""
    return place()[0]


def solver_count() -> int:
    """How many workers the job has: those of `poseidon run -n`, 1 without it."""
    return place()[1]


def _fixed(what: str, given: int, here: int) -> None:
    if given != here:
        raise PoseidonError(f"the {what} is {here} here and cannot be set to {given}: `poseidon run -n N python train.py` starts N workers",
                            "UNIMPLEMENTED")


def set_solver_count(count: int) -> None:
    """Accepted where `count` is the number of workers that there are."""
    _fixed("solver count", count, solver_count())


def set_solver_rank(rank: int) -> None:
    """Accepted where `rank` is this process's."""
    _fixed("solver rank", rank, solver_rank())


def set_multiprocess(multiprocess: bool) -> None:
    """Accepted: every worker is a process. `multiprocess` is not looked at."""


class Timer:
    """A stopwatch."""

    def __init__(self) -> None:
        self._began, self._took = time.perf_counter(), 0.0

    def start(self) -> None:
        """Starts it anew."""
        self._began = time.perf_counter()

    def stop(self) -> float:
        """Stops it and returns the milliseconds since its start."""
        self._took = time.perf_counter() - self._began
        return self.ms

    @property
    def ms(self) -> float:
        """The milliseconds from the last start to the last stop."""
        return self._took * 1000
