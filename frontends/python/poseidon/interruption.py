# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a call of the core blocks: the core asks every 100 ms whether Python has something to raise.

Python runs signal handlers between two steps of its own main thread; a call into C is one step however long it takes.
What a handler raises (KeyboardInterrupt, or whatever the program's own does) ends the core's call and the job, and is
raised from the call; so is what a callback of the core raises. Calls of other threads go on.

But for those that the main thread waits for, in C, as it does for a backward pass on a device, which runs on a thread of
autograd's: see `listen`.
"""
from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from ctypes import CFUNCTYPE, c_int32, c_void_p

Interrupted = CFUNCTYPE(c_int32, c_void_p)  # the type of poseidon_options.interrupted

raised: dict[int, BaseException] = {}  # by the thread whose call ends with it; `take` has what is this thread's
_heard: int | None = None  # where a byte comes with every signal, without Python's help


def take() -> BaseException | None:
    """Takes the exception that a handler raised while a call of this thread blocked; None where there is none."""
    return raised.pop(threading.get_ident(), None) if raised else None


def put(failure: BaseException) -> None:
    """Keeps the exception of a callback, which cannot raise into the core: this thread's call ends and raises it."""
    raised[threading.get_ident()] = failure


def listen() -> None:
    """From here on Ctrl-C ends calls of other threads too, where Python's own handler would raise KeyboardInterrupt: such a call
    raises it, and the main thread does as soon as it is back in Python. Belongs to the main thread, else it does nothing; nor
    does it where the program has a wakeup file of its own."""
    global _heard
    if _heard is not None or threading.current_thread() is not threading.main_thread():
        return
    reads, writes = os.pipe()
    for end in reads, writes:
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)
    else:
        _heard = reads


def forget() -> None:
    """Drops the signals that have come so far where the main thread calls, because it has had them itself."""
    if threading.current_thread() is threading.main_thread():
        heard()


def heard() -> bool:
    """Whether SIGINT has come since the last call."""
    if _heard is None:
        return False
    with contextlib.suppress(BlockingIOError):
        return signal.SIGINT in os.read(_heard, 4096)
    return False


def _ends_for_main() -> bool:
    return (_heard is not None and threading.current_thread() is not threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler and heard())


def _answers() -> Generator[int | None, int | None, None]:
    """1 where there is something to raise, else 0. Handlers run as soon as Python code is entered, before a
    function's first line; a generator that goes on is inside its `try` already, so send() is what the core calls."""
    answer = None
    while True:
        try:
            yield answer
            if _ends_for_main():
                put(KeyboardInterrupt())
            answer = int(threading.get_ident() in raised)
        except GeneratorExit:
            raise
        except BaseException as failure:
            put(failure)
            answer = 1


_answering = _answers()
next(_answering)
asked = Interrupted(_answering.send)  # lives as long as the process
