# SPDX-License-Identifier: Apache-2.0
"""The doctor's other half on each host: `python -m poseidon.doctor.agent`, started by the doctor, directly or over ssh.

Requests come on standard input and answers leave on standard output, one JSON object a line; the secret of the run is
in the first request. The end of standard input ends the process at once, whatever it does, so that none outlives its
doctor. Requests are served one after the other on a second thread, because the first has to see that end.
"""
from __future__ import annotations

import dataclasses
import errno
import json
import os
import queue
import signal
import sys
import threading
import typing

PROTOCOL = 1  # of the messages; the doctor says so where an agent speaks another


class Agent:
    """One run's state on this host."""

    def __init__(self) -> None:
        self.secret = b""
        self.listener: typing.Any = None  # lives as long as the process

    def answer(self, request: dict[str, typing.Any]) -> dict[str, typing.Any]:
        """The answer to one request. Raises what a malformed one makes Python raise."""
        from . import facts, measure, route
        op = request["op"]
        if op == "begin":
            self.secret = bytes.fromhex(request["secret"])
            gathered = facts.gather(list(request["names"]), str(request["token_file"]), self.secret)
            return {"facts": dataclasses.asdict(gathered)}
        if op == "clock":
            return {"now": facts.now()}
        if op == "listen":
            try:
                self.listener = measure.Listener(str(request["address"]), int(request["port"]), self.secret)
            except OSError as error:
                return {"error": error.strerror or str(error), "name": errno.errorcode.get(error.errno or 0, "")}
            return {"port": self.listener.port}
        if op == "measure":
            target = measure.Target(str(request["address"]), int(request["port"]), self.secret,
                                    float(request["seconds"]), int(request["hint"]))
            way = route.route_to(target.address)
            return {"link": dataclasses.asdict(measure.measure(target)), "route": dataclasses.asdict(way)}
        raise ValueError("a request is unknown")


def say(message: dict[str, typing.Any]) -> None:
    """One line to the doctor; ends the process where nobody reads."""
    try:
        sys.stdout.write(json.dumps({"poseidon": PROTOCOL, **message}) + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(0)


def serve(requests: queue.SimpleQueue[str]) -> None:
    """Serves for ever."""
    agent = Agent()
    while True:
        line = requests.get()
        try:
            say(agent.answer(json.loads(line)))
        except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
            say({"error": f"{type(error).__name__}: {error}", "name": ""})


def main() -> None:
    """Runs until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the doctor decides, and its end is ours
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    say({"hello": sys.version.split()[0]})
    threading.Thread(target=serve, args=(requests,), daemon=True).start()
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
