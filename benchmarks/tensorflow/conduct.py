# SPDX-License-Identifier: Apache-2.0
"""Processes that take turns: all workers of a system run when they are ordered to and wait otherwise.

Each system has processes of its own, since one process cannot have both a strategy of TensorFlow and none, and what
one allocates must not lend a hand to another. Waiting costs nothing but memory.
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time

from benchmarks.torch.measure import Failed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
import cores      # noqa: E402
import emulation  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


class Member:
    """A process in a node, which obeys orders (orders.py)."""

    def __init__(self, cluster, node, words, log, environment):
        self.name, self.log = f"{log.name} on node {node}", log
        with open(log, "w") as errors:
            self.process = cluster.run(node, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                       bufsize=0, env=environment)

    def order(self, word):
        with contextlib.suppress(BrokenPipeError):  # the answer will be missing
            self.process.stdin.write(f"{word}\n".encode())

    def answer(self):
        """The next one. Raises Failed where the process has ended."""
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{self.name} ended: {self.last_words()}")
        return json.loads(line)

    def last_words(self):
        told = self.log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        return re.sub(r"(?:/[^ /:]+)+/", "", told[-1])

    def cpu_seconds(self):
        """User and system time. Raises Failed where it has ended."""
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            raise Failed(f"{self.name} ended: {self.last_words()}") from None
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()


class System:
    """The workers of one system, in rank order, and the processes that serve them."""

    def __init__(self, name, cluster, workers, servers=(), word="go"):
        """`word`: what orders a turn of this system, where processes play more than one."""
        self.name, self.cluster, self.workers, self.servers, self.word = name, cluster, workers, list(servers), word

    def answers(self, patience):
        """All workers' next ones, in rank order. Raises Failed with the words of the first that ends without one."""
        deadline, told = time.monotonic() + patience, {}
        waiting = {worker.process.stdout: worker for worker in self.workers}
        while waiting:
            ready = select.select(list(waiting), [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                late = next(iter(waiting.values()))
                raise Failed(f"{late.name} did not answer in {patience} s; it said last: {late.last_words()}")
            for stream in ready:
                worker = waiting.pop(stream)
                told[worker] = worker.answer()
        return [told[worker] for worker in self.workers]

    def ask(self, patience, word=None):
        for worker in self.workers:
            worker.order(word or self.word)
        return self.answers(patience)

    def cpu_seconds(self):
        return sum(member.cpu_seconds() for member in (*self.workers, *self.servers))

    def turn(self, steps, patience):
        """A turn's figures: seconds of a step as the mean of the workers, what all its processes computed per step, what
        the busiest node sent per step, and the machine's share meanwhile that was not idle, and that others stole."""
        cpu, traffic, spent = self.cpu_seconds(), self.cluster.counters(), cores.so_far()
        began = time.monotonic()
        answers = self.ask(patience)
        whole, shares, burnt = time.monotonic() - began, cores.shares_since(spent), self.cpu_seconds() - cpu
        sent = [node["sent_bytes"] for node in emulation.difference(self.cluster.counters(), traffic)]
        turn = {"seconds": round(sum(told["seconds"] for told in answers) / len(answers), 6),
                "cpu_seconds": round(burnt / steps, 5), "sent_bytes": round(max(sent) / steps),
                "own_share": round(burnt / (whole * os.cpu_count()), 3), **shares}
        if "loss" in answers[0]:
            turn["loss"] = round(sum(told["loss"] for told in answers) / len(answers), 6)
        return turn


def by_turns(systems, turns, steps, draw, patience, say):
    """The turns of every system by name, in an order that is drawn for each round."""
    taken = collections.defaultdict(list)
    for number in range(1, turns + 1):
        line = []
        for system in draw.sample(systems, len(systems)):
            turn = system.turn(steps, patience)
            taken[system.name].append(turn)
            line.append(f"{system.name} {turn['seconds'] * 1e3:.4g} ms")
        say(f"  {number}/{turns}: {', '.join(line)}")
    return taken
