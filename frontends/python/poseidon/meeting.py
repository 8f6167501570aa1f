# SPDX-License-Identifier: Apache-2.0
"""How the processes of one job meet where mpirun, srun or torchrun started them and connects nobody: by files, as the core
does it (poseidon/place/meeting.h)."""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from ctypes import byref, c_int32, c_void_p

from . import interruption
from . import library as c
from .launch import Place


def encoded(token_file: str | os.PathLike[str] | None) -> bytes | None:
    return os.fsencode(token_file) if token_file else None


def is_left_open(place: Place, token_file: str | os.PathLike[str] | None) -> bool:
    """Whether the launcher has left open where the processes meet, or by which secret, and they can agree on it themselves.
    Raises PoseidonError where they cannot."""
    answer = c_int32()
    c.library().is_left_open(byref(place.struct()), encoded(token_file), byref(answer))
    return bool(answer.value)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM, where it would end this process at once, ends the block first, so that no secret is left behind."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def by_files(place: Place, token_file: str | os.PathLike[str] | None, seconds: float) -> Iterator[tuple[bytes, c_void_p]]:
    """The token's file, and the meeting for the options of rank 0's session. The others wait for rank 0, up to `seconds`. When
    the block ends, all have joined or the job has failed, and what rank 0 left is removed, by any of them if it was killed."""
    core, meeting, known = c.library(), c_void_p(), place.struct()
    options = c.MeetingOptions(token_file=encoded(token_file), temporary_folder=os.fsencode(tempfile.gettempdir()),
                               program=b"python", timeout_seconds=seconds, interrupted=interruption.asked)
    with ended_in_order():
        try:
            core.meet(byref(options), byref(known), byref(meeting))
            place.complete(Place.of(known))
            yield core.meeting_token_file(meeting), meeting
        finally:
            core.end_meeting(meeting)
