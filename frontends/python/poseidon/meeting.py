# SPDX-License-Identifier: Apache-2.0
"""How the processes of one job meet where mpirun, srun or torchrun started them and connects nobody: by files, as the
trainer's do (tools/train/placed.h).

Rank 0 leaves a note that says where it listens; the others wait for it. On one host both the note and the job's token,
unless the user has one, are in a folder of this user alone in the system's temporary folder. On several hosts the user's
token file is in a folder that all of them share, and the note beside it.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from .errors import PoseidonError
from .launch import Place, network_address

BETWEEN_LOOKS = 0.02  # seconds: no event announces new files on a file system of several hosts


def job_name(place: Place) -> str:
    """A part of this job's file names that other jobs' do not have."""
    assert place.launcher is not None
    values = [os.environ.get(name, "") for name in place.launcher.job]
    job = "-".join(filter(None, values)) or (f"of-{os.getppid()}" if place.one_host else "job")
    return f"{place.launcher.launcher}-python-" + re.sub(r"[^A-Za-z0-9.-]", "_", job)


def private_folder() -> pathlib.Path:
    """A folder of this user alone, made where there is none."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"poseidon-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        known = folder.lstat()
    except OSError as error:
        raise PoseidonError(f"folder {folder} cannot be made: {error.strerror}", "PERMISSION_DENIED") from None
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid() or known.st_mode & 0o077:
        raise PoseidonError(f"{folder} is not a folder of this user alone, expected mode 0700", "PERMISSION_DENIED")
    return folder


def has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


class Note:
    """The file in which rank 0 says where it listens, and its process."""

    def __init__(self, path: pathlib.Path, same_host: bool) -> None:
        self.path = path
        self.same_host = same_host  # then a note whose writer has ended is an earlier job's

    def leave(self, host: str, port: int) -> None:
        """Writes it whole. Raises PoseidonError with the path."""
        written = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            written.write_text(f"{host} {port} {os.getpid()}\n")
            written.replace(self.path)
        except OSError as error:
            written.unlink(missing_ok=True)
            raise PoseidonError(f"the other processes cannot be told where to join: {self.path} cannot be written: "
                                f"{error.strerror}", "UNAVAILABLE") from None

    def read(self) -> tuple[str, int] | None:
        with contextlib.suppress(OSError, ValueError):
            host, port, writer = self.path.read_text().split()
            if not (self.same_host and has_ended(int(writer))):
                return host, int(port)
        return None

    def wait(self, seconds: float) -> tuple[str, int]:
        """Rank 0's address and port. Raises PoseidonError with the path where there is no note in time."""
        deadline = time.monotonic() + seconds
        while (found := self.read()) is None:
            if time.monotonic() > deadline:
                raise PoseidonError(f"rank 0 has not said in {self.path} within {seconds:g} s where it listens: it has "
                                    "failed, or does not share that folder", "UNAVAILABLE")
            time.sleep(BETWEEN_LOOKS)
        return found

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()


def is_left_open(place: Place, token_file: str | os.PathLike[str] | None) -> bool:
    """Whether the launcher has left open where the processes meet, or by which secret, and they can agree on it themselves.
    Raises PoseidonError where they cannot."""
    if place.workers == 1 or (place.coordinator and place.port and token_file):
        return False
    # Variables alone may be those of a launcher that has none of these, or set by hand.
    launched = place.launcher is not None and place.local is not None
    started = f"{place.launcher.launcher} started {place.workers} processes and " if place.launcher is not None else ""
    if not launched and not place.port:
        raise PoseidonError(f"{started}rank 0's port is not known, expected MASTER_PORT or port=", "INVALID_ARGUMENT")
    if not launched:
        raise PoseidonError("the job's token is missing, expected POSEIDON_TOKEN_FILE or token_file= to name a file "
                            "written by poseidon.make_token_file", "PERMISSION_DENIED")
    if not place.one_host and not token_file:
        raise PoseidonError(f"{started}not all are on this host, expected POSEIDON_TOKEN_FILE or token_file= to name a "
                            "file written by poseidon.make_token_file that all hosts can read", "PERMISSION_DENIED")
    return True


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
def by_files(place: Place, token_file: str | os.PathLike[str] | None, seconds: float,
             make_token: Callable[[str], None]) -> Iterator[tuple[str, Callable[[str, int], None] | None]]:
    """The token's file, and what rank 0 calls when it listens, None for the others: they wait for that, up to `seconds`,
    and their place knows then where it is. When the block ends, all have joined or the job has failed, and what rank 0
    left is removed."""
    shared = pathlib.Path(os.path.abspath(token_file)) if token_file and not place.one_host else None
    folder = shared.parent if shared else private_folder()
    name = job_name(place)
    note = Note(folder / (f"{shared.name}.{name}.address" if shared else f"{name}.address"), place.one_host)
    token = str(token_file or folder / f"{name}.token")
    if place.rank > 0:
        place.meets_at(*note.wait(seconds))
        yield token, None
        return
    if not place.coordinator:
        place.meets_at(network_address(), place.port)
    note.remove()  # of an earlier job
    if not os.access(folder, os.W_OK):
        raise PoseidonError(f"the other processes cannot be told where to join: folder {folder} cannot be written",
                            "UNAVAILABLE")
    with ended_in_order():
        try:
            if not token_file:
                make_token(token)
            yield token, note.leave
        finally:
            note.remove()
            if not token_file:
                with contextlib.suppress(OSError):
                    os.unlink(token)
