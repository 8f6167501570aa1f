# SPDX-License-Identifier: Apache-2.0
"""The doctor's side of an agent: a child process, directly or by ssh, that answers one request after the other."""
from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import threading
import time
import typing
import warnings

from .agent import PROTOCOL

CONNECT_WITHIN = 10       # seconds that ssh has, for its key exchange too
LINES_KEPT = 20           # of an agent's standard error
LAST_LINE_WITHIN = 0.5    # seconds for the words on standard error once standard output has ended
END_WITHIN = 0.5          # seconds for all agents to end by themselves; Ctrl-C has one


PR_SET_PDEATHSIG = 1      # of linux/prctl.h
prctl = ctypes.CDLL(None).prctl
OLDEST_PYTHON = (3, 10)   # for which the package is
OLDEST = ".".join(map(str, OLDEST_PYTHON))
INSTALL = "pip install poseidon_train-*.whl"
SAME_WHEEL = f"install the same wheel on all hosts: {INSTALL}"
OTHER_PYTHON = "name one that all hosts have with --python"


class Lost(Exception):
    """The agent cannot be asked any more; `trouble` says why and `todo` what to do. `silent`: nothing came from there
    in time, as where packets vanish."""

    def __init__(self, trouble: str, todo: str, silent: bool = False) -> None:
        super().__init__(trouble)
        self.trouble, self.todo, self.silent = trouble, todo, silent


def follow(parent: int) -> None:
    """In a child before its program starts: the kernel ends it with the doctor. An ssh that hangs as it exchanges keys
    does not see the end of its input."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Agent:
    """One host's agent, from its start to `close`. Not thread-safe; two threads of its own read its output."""

    def __init__(self, name: str, command: list[str], over_ssh: bool) -> None:
        """Starts the agent and does not wait for it. Raises OSError where the command cannot be started."""
        self.name, self.command, self.over_ssh = name, command, over_ssh
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.errors: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        # Apart from the terminal: its Ctrl-C is for the doctor.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child takes no lock
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
                                            preexec_fn=functools.partial(follow, os.getpid()))
        threading.Thread(target=self.read, daemon=True).start()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.put(line)
        self.lines.put(None)

    def listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                if line.strip():
                    self.errors.append(line.strip())

    def send(self, request: dict[str, typing.Any]) -> None:
        """Sends a request. What cannot be sent is missed when the answer is read."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()

    def receive(self, within: float) -> dict[str, typing.Any]:
        """The next answer. Raises Lost where none comes `within` seconds, or never. What a shell prints at its start is
        passed over."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self.lines.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                raise Lost("it gives no answer in time",
                           "look whether it hangs there, or give it more time with --timeout", silent=True) from None
            if line is None:
                raise self.ended()
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict) and "poseidon" in message:
                    if message["poseidon"] != PROTOCOL:
                        raise Lost("the poseidon there has another doctor than this one", SAME_WHEEL)
                    return message

    def greet(self, within: float) -> None:
        """Waits for the agent's greeting. Raises Lost, also for a Python that the package is not for."""
        version = str(self.receive(within).get("hello", ""))
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if numbers < OLDEST_PYTHON:
            raise Lost(f"Python {version} is there, expected {OLDEST} or newer", OTHER_PYTHON)

    def ask(self, request: dict[str, typing.Any], within: float) -> dict[str, typing.Any]:
        """Sends and receives. Raises Lost."""
        self.send(request)
        return self.receive(within)

    def ended(self) -> Lost:
        """Why the agent has ended, from the messages that it or ssh left."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_LINE_WITHIN)
        self.listener.join(LAST_LINE_WITHIN)
        return explained(self.name, self.over_ssh, self.process.poll(), list(self.errors), self.command)

    def let_go(self) -> None:
        """Begins the agent's end, which is that of its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def close(self, until: float | None = None) -> None:
        """Ends the agent, and waits for it until then (monotonic; none: END_WITHIN from now) before it is killed."""
        self.let_go()
        try:
            self.process.wait(max(0.0, (time.monotonic() + END_WITHIN if until is None else until) - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# Known messages of ssh, of a shell or of Python: pattern, what is wrong, what to do.
MEANINGS = (
    (r"Permission denied \((.*)\)", "ssh refuses this user's keys ({0})", "copy a key there: ssh-copy-id {host}"),
    (r"Host key verification failed|No \w+ host key is known",
     "ssh does not know its host key", "connect once by hand: ssh {host}"),
    (r"Could not resolve hostname", "ssh finds no address for its name", "correct the name, or add it to /etc/hosts"),
    (r"Connection refused", "nothing listens at its ssh port", "start sshd there"),
    (r"No route to host|Network is unreachable", "no route leads to its ssh port",
     "look at cables and routes: ip route get {host}"),
    (r"timed out", "ssh does not reach it ({line})", "look whether it runs and whether a firewall closes its ssh port"),
    (r"No module named '?poseidon(\.doctor)?(\.agent)?'?",
     "python there has no poseidon with a doctor, expected the same wheel", INSTALL),
    (r"cd: .*|can't cd to .*", "the working directory does not exist there ({line})",
     "make it there, or start in a folder that all hosts have"),
    (r"not found|No such file or directory", "there is no such python ({line})",
     OTHER_PYTHON),
    (r"SyntaxError", f"python there is too old, expected {OLDEST} or newer", OTHER_PYTHON),
    (r"Connection reset|Connection closed|Broken pipe", "ssh loses its connection ({line})", "try by hand: ssh {host}"),
)


def explained(name: str, over_ssh: bool, code: int | None, errors: list[str], command: list[str]) -> Lost:
    """An agent's end in words."""
    for pattern, trouble, todo in MEANINGS:
        for line in reversed(errors):
            found = re.search(pattern, line)
            if found:
                words = {"host": name, "line": line}
                return Lost(trouble.format(*found.groups(), **words), todo.format(**words), silent="timed out" in line)
    last = f" ({errors[-1]})" if errors else ""
    how = f"ended with code {code}" if code is None or code >= 0 else f"was ended by signal {-code}"
    by_hand = " ".join(shlex.quote(word) for word in command)
    return Lost(f"{'ssh' if over_ssh else 'the agent'} {how}{last}", f"try by hand: {by_hand}")
