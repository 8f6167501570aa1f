# SPDX-License-Identifier: Apache-2.0
"""Runs of the real poseidon command, watched from outside: what it prints, its member processes and
their sockets as /proc shows them, and the moment each of them ends."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

# A busy machine is slow, not wrong: nothing passes or fails by this time except by never ending.
PATIENCE = 120 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))


# Of Caffe's log, which the trainer writes to a standard error that is no terminal.
LOG_LINE = re.compile(r"I\d{4} [\d:.]+ +\d+ \w+\.cpp:\d+\] ")


class Lines:
    """Lines of a pipe as they come, read by a thread of their own; those of Caffe's log apart."""

    def __init__(self, stream):
        self.lines = []
        self.log = []
        self.open = True
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(stream,), daemon=True)
        self.thread.start()

    def read(self, stream):
        for line in stream:
            with self.changed:
                (self.log if LOG_LINE.match(line) else self.lines).append(line.rstrip("\n"))
                self.changed.notify_all()
        stream.close()
        with self.changed:
            self.open = False
            self.changed.notify_all()

    def count(self, pattern):
        return sum(1 for line in self.lines if re.search(pattern, line))

    def find(self, pattern):
        return next((match for match in map(re.compile(pattern).search, self.lines) if match), None)

    def wait(self, pattern, count=1):
        """The first match in any line, past or future, once `count` lines match; None when the stream ends before."""
        with self.changed:
            self.changed.wait_for(lambda: self.count(pattern) >= count or not self.open, PATIENCE)
            return self.find(pattern) if self.count(pattern) >= count else None

    @property
    def text(self):
        with self.changed:
            return "\n".join(self.lines)


class Ending:
    """The moment at which a process, not necessarily our child, ends."""

    def __init__(self, pid):
        self.pid = pid
        self.fd = os.pidfd_open(pid)
        self.at = None

    def close(self):
        os.close(self.fd)


def wait_for_ends(endings, until):
    """Notes when each of `endings` ends; returns those that have not by `until` (monotonic)."""
    left = [ending for ending in endings if ending.at is None]
    poll = select.poll()
    for ending in left:
        poll.register(ending.fd, select.POLLIN)
    while left and time.monotonic() < until:
        ready = {fd for fd, _ in poll.poll(max(0, until - time.monotonic()) * 1000)}
        for ending in [ending for ending in left if ending.fd in ready]:
            ending.at = time.monotonic()
            poll.unregister(ending.fd)
            left.remove(ending)
    return left


def stat_of(pid):
    """Parent, start time and state from /proc/PID/stat; None for a process that is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[19]), fields[0]


def children_of(pid):
    """Living children, the eldest first."""
    found = []
    for entry in os.listdir("/proc"):
        stat = stat_of(entry) if entry.isdigit() else None
        if stat and stat[0] == pid and stat[2] != "Z":
            found.append((stat[1], int(entry)))
    return [child for _, child in sorted(found)]


def descendants_of(pid):
    """Living children and theirs, each before its own."""
    return [one for child in children_of(pid) for one in (child, *descendants_of(child))]


def listening_sockets(pids):
    """(address, port) of every TCP socket on which one of `pids` listens, in whatever network
    namespace; IPv6 addresses stay hexadecimal."""
    return {socket for pid in pids for socket in _listening_sockets_of(pid)}


def _listening_sockets_of(pid):
    inodes, rows = set(), []
    try:
        for fd in os.scandir(f"/proc/{pid}/fd"):
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd.path))
            if match:
                inodes.add(match.group(1))
        for table in ("tcp", "tcp6"):
            path = pathlib.Path(f"/proc/{pid}/net/{table}")
            rows += path.read_text().splitlines()[1:] if path.exists() else []
    except (FileNotFoundError, ProcessLookupError):
        return
    for row in rows:
        fields = row.split()
        if fields[3] != "0A" or fields[9] not in inodes:
            continue
        address, port = fields[1].split(":")
        if len(address) == 8:
            address = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
        yield address, int(port, 16)


def clean_environment():
    """Ours, without what a launcher that started the tests says of them."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "OMPI_", "PMI")) and name not in ("RANK", "WORLD_SIZE")}


class Job:
    """One `poseidon ...` under way. Ends with all its processes when it is closed."""

    def __init__(self, binary, *arguments, cwd=None, environment=None, wrapper=(), before=None):
        self.process = subprocess.Popen(
            [*wrapper, binary, *map(str, arguments)], cwd=cwd, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=before, env={**clean_environment(), **(environment or {})})
        self.pid = self.process.pid
        self.out = Lines(self.process.stdout)
        self.err = Lines(self.process.stderr)
        self.known = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        members = self.known + [pid for pid in children_of(self.pid) if pid not in self.known]
        for pid in members:
            stat = stat_of(pid)
            if stat and stat[0] == self.pid:
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def members(self, count):
        """The pids of all members, in the order of their start: workers by rank, then servers.
        Returns once training is under way, so that everybody has joined everybody."""
        assert self.out.wait(r"^iteration \d+"), f"no training:\n{self.out.text}\n{self.err.text}"
        self.known = children_of(self.pid)
        assert len(self.known) == count, f"{self.known}, expected {count} members"
        return self.known

    def finish(self):
        """Waits for the end and returns the exit code."""
        code = self.process.wait(PATIENCE)
        self.out.thread.join(PATIENCE)
        self.err.thread.join(PATIENCE)
        return code


def finished(job):
    """A job under way, run to its end."""
    with job:
        job.code = job.finish()
    return job


def run(binary, *arguments, **options):
    """Runs poseidon to its end."""
    return finished(Job(binary, *arguments, **options))


def summary_of(run_dir):
    return json.loads(pathlib.Path(run_dir, "summary.json").read_text())
