# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a call of the core blocks: the core asks every 100 ms whether Python has something to raise.

Python runs signal handlers between two steps of its own main thread; a call into C is one step however long it takes.
What a handler raises (KeyboardInterrupt, or whatever the program's own does) ends the core's call and the job, and is
raised from the call; so is what a callback of the core raises. Calls of other threads go on.
"""
from __future__ import annotations

import threading
from collections.abc import Generator
from ctypes import CFUNCTYPE, c_int32, c_void_p

Interrupted = CFUNCTYPE(c_int32, c_void_p)  # the type of poseidon_options.interrupted

_raised: dict[int, BaseException] = {}  # by the thread whose call ends with it


def take() -> BaseException | None:
    """What a handler raised while a call of this thread blocked, once; else None."""
    return _raised.pop(threading.get_ident(), None) if _raised else None


def put(failure: BaseException) -> None:
    """What a callback of the core has to raise, which it cannot itself: this thread's call ends and raises it."""
    _raised[threading.get_ident()] = failure


def _answers() -> Generator[int | None, int | None, None]:
    """1 where there is something to raise, else 0. Handlers run as soon as Python code is entered, before a
    function's first line; a generator that goes on is inside its `try` already, so send() is what the core calls."""
    answer = None
    while True:
        try:
            yield answer
            answer = int(threading.get_ident() in _raised)
        except GeneratorExit:
            raise
        except BaseException as raised:
            put(raised)
            answer = 1


_answering = _answers()
next(_answering)
asked = Interrupted(_answering.send)  # lives as long as the process
