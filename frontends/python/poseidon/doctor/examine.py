# SPDX-License-Identifier: Apache-2.0
"""One examination: agents on all hosts, their facts, and every ordered pair measured, one at a time."""
from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shlex
import socket
import sys
import time
import typing

from .facts import Facts, facts_from, taken
from .hosts import Address, Host, addresses_of, is_local
from .measure import Link
from .remote import CONNECT_WITHIN, END_WITHIN, SAME_WHEEL, Agent, Lost
from .route import Route

CLOCK_ROUNDS = 5             # of which the fastest counts: its answer lay between two readings of ours
LONGEST_RATE = 0.4           # seconds for the rate of one ordered pair: 2,000 packets at 60 Mbit/s
SHORTEST_RATE = 0.1          # seconds: ten round trips of 10 ms
RATES_WITHIN = 20.0          # seconds for the rates of all pairs, so that many hosts do not take minutes
# Of the time for an answer, after which an ssh that says nothing is tried with small packets. Logins take 1 to 5 s.
SHARE_BEFORE_NARROW = 1 / 3
PAIR_WITHIN = 30.0           # seconds after which a pair's answer counts as lost: a black hole takes five


@dataclasses.dataclass
class Options:
    """The values of the flags."""
    hosts: list[Host]          # empty: this machine alone
    ssh: list[str]
    python: str
    port: int                  # for the measurements; 0: any
    timeout: float             # seconds for an agent to come, and for its facts
    folder: str                # the working directory, here and there
    token_file: str            # that this environment names
    told: typing.Callable[[str], None] = lambda line: None  # what is under way, for a terminal


@dataclasses.dataclass
class HostReport:
    """One host as the doctor sees it."""
    name: str
    slots: int
    address: str = ""
    address_trouble: str = ""
    loopback: bool = False     # the trouble is that its name means loopback where the job is started
    facts: Facts | None = None
    trouble: str = ""          # why there are no facts
    todo: str = ""
    narrow: bool = False       # ssh reached it with small packets, and not without
    asked_port: int = 0        # at which it is to listen; 0: any
    port: int = 0              # at which it listens; 0 where it does not
    listen_trouble: str = ""
    listen_error: str = ""     # the name of the error: "EADDRINUSE"
    clock_offset: float | None = None  # seconds that it is ahead of the first host
    clock_error: float = 0.0   # seconds by which that may be wrong


@dataclasses.dataclass
class PairReport:
    """One direction: what `sender` measured towards `receiver`, both places in the list of hosts."""
    sender: int
    receiver: int
    link: Link
    route: Route


@dataclasses.dataclass
class Report:
    hosts: list[HostReport]
    pairs: list[PairReport]

    @property
    def workers(self) -> int:
        return sum(host.slots for host in self.hosts)

    def pair(self, sender: int, receiver: int) -> PairReport | None:
        return next((pair for pair in self.pairs if (pair.sender, pair.receiver) == (sender, receiver)), None)


def command_for(options: Options, host: Host, local: bool, narrow: bool = False) -> list[str]:
    """The command that starts the agent of a host; over ssh it changes to this working directory first. `narrow`: ssh sends
    small packets."""
    if local:
        return [options.python, "-m", "poseidon.doctor.agent"]
    start = f"cd {shlex.quote(options.folder)} && exec {shlex.quote(options.python)} -m poseidon.doctor.agent"
    own_python = shlex.quote(sys.executable).replace("%", "%%")
    way = ["-o", f"ProxyCommand={own_python} -m poseidon.doctor.narrow %h %p"] if narrow else []
    return [*options.ssh, *way, "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_WITHIN}", host.name, "--",
            start]


class Examination:
    """One examination, from the start of the agents to their end. A context manager: its exit ends all agents."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.own_name = socket.gethostname()
        self.hosts = options.hosts or [Host("localhost")]
        self.secret = secrets.token_hex(32)
        self.agents: list[Agent | None] = []
        self.report = Report([HostReport(host.name, host.slots, asked_port=options.port or host.port)
                              for host in self.hosts], [])

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        until = time.monotonic() + END_WITHIN
        for agent in filter(None, self.agents):
            agent.let_go()
        for agent in filter(None, self.agents):
            agent.close(until)

    def run(self) -> Report:
        """The whole examination. Raises OSError where not even the command that starts an agent is there."""
        self.resolve()
        self.start()
        self.gather()
        if len(self.hosts) > 1:
            self.read_clocks()
            self.listen()
            self.measure_all()
            self.measure_slow_ones_again()
        return self.report

    def lose(self, place: int, lost: Lost) -> None:
        """An agent that is lost is not asked again."""
        host, agent = self.report.hosts[place], self.agents[place]
        host.trouble, host.todo, host.port = lost.trouble, lost.todo, 0
        if agent is not None:
            agent.close()
            self.agents[place] = None

    def living(self) -> typing.Iterator[tuple[int, Agent]]:
        for place, agent in enumerate(self.agents):
            if agent is not None:
                yield place, agent

    def resolve(self) -> None:
        found = addresses_of(self.hosts, self.own_name) if self.options.hosts else [Address("127.0.0.1")]
        for host, address in zip(self.report.hosts, found):
            host.address, host.address_trouble, host.loopback = address.text, address.trouble, address.loopback

    def start(self) -> None:
        self.options.told(f"starting {len(self.hosts)} agents")
        for host, report in zip(self.hosts, self.report.hosts):
            local = is_local(host.name, self.own_name)
            # Behind a name that means loopback ssh finds this machine.
            self.agents.append(None if report.loopback else
                               Agent(host.name, command_for(self.options, host, local), not local))

    def gather(self) -> None:
        """The facts of all hosts, which work on them at the same time."""
        deadline = time.monotonic() + self.options.timeout
        narrow_from = time.monotonic() + self.options.timeout * SHARE_BEFORE_NARROW
        begin = {"op": "begin", "secret": self.secret, "names": [host.name for host in self.hosts],
                 "token_file": os.path.abspath(self.options.token_file) if self.options.token_file else ""}
        for _, agent in self.living():
            agent.send(begin)
        silent = []
        for place, agent in list(self.living()):
            try:
                agent.greet((narrow_from if agent.over_ssh else deadline) - time.monotonic())
            except Lost as lost:
                self.lose(place, lost)
                if lost.silent and agent.over_ssh:
                    silent.append(place)
        self.try_narrow(silent, begin, deadline)
        for place, _ in list(self.living()):
            with self.losing(place):
                self.report.hosts[place].facts = self.facts_of(place, deadline - time.monotonic())

    def try_narrow(self, silent: list[int], begin: dict[str, typing.Any], deadline: float) -> None:
        """Starts the agents of hosts whose ssh says nothing once more, with small packets: where large ones vanish, ssh
        hangs as it exchanges keys."""
        for place in silent:
            host = self.hosts[place]
            self.options.told(f"trying {host.name} with small packets")
            again = self.agents[place] = Agent(host.name, command_for(self.options, host, False, True), True)
            again.send(begin)
        for place, agent in [living for living in self.living() if living[0] in silent]:
            report = self.report.hosts[place]
            with self.losing(place):
                agent.greet(deadline - time.monotonic())
                report.narrow, report.trouble, report.todo = True, "", ""

    def facts_of(self, place: int, within: float) -> Facts:
        """The next answer of a greeted agent. Raises Lost."""
        agent = self.agents[place]
        assert agent is not None
        answer = agent.receive(within)
        if not isinstance(answer.get("facts"), dict):
            raise Lost(f"its agent cannot look round there ({answer.get('error')})", SAME_WHEEL)
        return facts_from(answer["facts"])

    def read_clocks(self) -> None:
        """How far each clock is ahead of the first that can be read."""
        first: tuple[float, float] | None = None
        for place, agent in list(self.living()):
            with self.losing(place):
                ahead, error = min((self.read_clock(agent) for _ in range(CLOCK_ROUNDS)), key=lambda read: read[1])
                first = first or (ahead, error)
                host = self.report.hosts[place]
                host.clock_offset, host.clock_error = ahead - first[0], error + first[1]

    def read_clock(self, agent: Agent) -> tuple[float, float]:
        """How many seconds an agent's clock is ahead of ours, and by how much that may be wrong."""
        before = time.time()
        now = float(agent.ask({"op": "clock"}, self.options.timeout).get("now", before))
        after = time.time()
        return now - (before + after) / 2, (after - before) / 2

    @contextlib.contextmanager
    def losing(self, place: int) -> typing.Iterator[None]:
        """Notes why an agent was lost where its conversation fails inside, and goes on without it."""
        try:
            yield
        except Lost as lost:
            self.lose(place, lost)
        except (ValueError, TypeError):
            self.lose(place, Lost("its agent's answer is not understood", SAME_WHEEL))

    def listen(self) -> None:
        """Every host listens at the address that its name means, and nowhere else."""
        for place, agent in list(self.living()):
            host = self.report.hosts[place]
            if not host.address:
                continue
            with self.losing(place):
                request = {"op": "listen", "address": host.address, "port": host.asked_port}
                answer = agent.ask(request, self.options.timeout)
                host.port = int(answer.get("port", 0))
                host.listen_trouble, host.listen_error = str(answer.get("error", "")), str(answer.get("name", ""))

    def measure_all(self) -> None:
        places = [place for place, host in enumerate(self.report.hosts) if host.port]
        ordered = [(sender, receiver) for sender in places for receiver in places if sender != receiver]
        seconds = max(SHORTEST_RATE, min(LONGEST_RATE, RATES_WITHIN / max(1, len(ordered))))
        for count, (sender, receiver) in enumerate(ordered, 1):
            self.options.told(f"measuring {self.hosts[sender].name} to {self.hosts[receiver].name} "
                              f"({count} of {len(ordered)})")
            pair = self.measure(sender, receiver, seconds)
            if pair is not None:
                self.report.pairs.append(pair)

    def measure(self, sender: int, receiver: int, seconds: float) -> PairReport | None:
        """One direction of one pair; None where either agent is lost."""
        agent, host = self.agents[sender], self.report.hosts[receiver]
        if agent is None or not host.port:
            return None
        holes = [pair.link.mtu for pair in self.report.pairs if pair.link.black_hole]
        with self.losing(sender):
            answer = agent.ask({"op": "measure", "address": host.address, "port": host.port, "seconds": seconds,
                                "hint": holes[-1] if holes else 0}, PAIR_WITHIN)
            if "link" not in answer:
                raise Lost(f"its agent cannot measure ({answer.get('error')})", SAME_WHEEL)
            return PairReport(sender, receiver, taken(Link, answer["link"]), taken(Route, answer.get("route")))
        return None

    def measure_slow_ones_again(self) -> None:
        """Measures ways that look slow once more, for longer, because a busy moment of a machine looks the same; the
        better measurement counts."""
        from .findings import slow_pairs
        for pair in slow_pairs(self.report):
            self.options.told(f"measuring {self.hosts[pair.sender].name} to {self.hosts[pair.receiver].name} again")
            again = self.measure(pair.sender, pair.receiver, LONGEST_RATE)
            if again is not None and not again.link.trouble and again.link.rate > pair.link.rate:
                pair.link = again.link


