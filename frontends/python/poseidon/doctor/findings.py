# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong from a report alone: pure functions, one for each kind of fault."""
from __future__ import annotations

import collections
import dataclasses
import enum
import re
import typing

from .examine import HostReport, PairReport, Report
from .facts import Facts
from .hosts import is_loopback
from .measure import BROKEN, DROPPED, NO_ROUTE, REJECTED, STRANGER, next_size
from .remote import INSTALL

# A host whose link is below this share of the fastest one's is slow: a synchronous step takes as long as the slowest
# host's. Equal links measure within a tenth of each other on a busy machine (180 to 191 of 200 Mbit/s on two cores
# shared by three hosts); half leaves room for worse, and what is below is measured twice.
SLOW_SHARE = 0.5
# Of the speed that an interface announces. A negotiated lower speed shows as a tenth, other traffic seldom takes more
# than half.
SLOW_OF_SPEED = 0.3
# Bytes a second. Above it a busy processor decides more than the link does, and two measurements differ by half.
FASTEST_JUDGED = 10e9 / 8
# Seconds. Above it a host is not in the same building; each step waits for several round trips.
LONG_ROUND_TRIP = 0.010
# Seconds. Nothing in a job compares clocks, but who reads logs of two hosts side by side does.
CLOCK_APART = 1.0
# Descriptors that a member has open: up to a connection and three of a data loader or of shared memory for each worker;
# and whatever their number 64 strangers that wait, the files of Python and a framework, and room.
DESCRIPTORS_ALWAYS, DESCRIPTORS_A_WORKER = 256, 4
# Bytes. A process that has imported torch takes 230 MB (2.13 for CPUs) before any model is in memory; the rest is room
# for a small model, its gradients and a batch.
MEMORY_A_WORKER = 512 << 20
# Bytes. The smallest published model's snapshot (SqueezeNet, 5 MB) fits, the usual one (ResNet-50, 100 MB) does not.
LEAST_FREE = 100 << 20


class Level(enum.IntEnum):
    """How bad a finding is; worst first."""
    BREAKS = 0  # no job runs, or it ends
    SLOWS = 1   # a job runs, worse than it could
    NOTE = 2    # nothing to do now


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault: `sentence` is what a user reads."""
    level: Level
    kind: str   # for programs: "closed-port"
    where: str  # "host b"
    what: str
    todo: str

    @classmethod
    def of(cls, level: Level, kind: str, host: HostReport, what: str, todo: str) -> Finding:
        """A fault of one host."""
        return cls(level, kind, f"host {host.name}", what, todo)

    @property
    def sentence(self) -> str:
        return f"{self.where}: {self.what}: {self.todo}"


def findings(report: Report) -> list[Finding]:
    """Everything found, worst first, and within a level in the order in which a user would fix it."""
    found = [finding for look in LOOKS for finding in look(report)]
    return sorted(together(found), key=lambda finding: finding.level)


def together(found: list[Finding]) -> list[Finding]:
    """Joins findings that are the same on several hosts into one."""
    groups: dict[Finding, list[str]] = {}
    for finding in found:
        name = finding.where.removeprefix("host ")
        alike = dataclasses.replace(finding, where="" if re.fullmatch(r"host \S+", finding.where) else finding.where)
        groups.setdefault(alike, []).append(name)
    return [dataclasses.replace(alike, where=alike.where or hosts_of(names)) for alike, names in groups.items()]


def hosts_of(names: typing.Sequence[str]) -> str:
    """ "host a", "hosts a, b and c" """
    if len(names) == 1:
        return f"host {names[0]}"
    return f"hosts {', '.join(names[:-1])} and {names[-1]}"


def names_at(report: Report, places: typing.Iterable[int]) -> list[str]:
    return [report.hosts[place].name for place in sorted(set(places))]


def known(report: Report) -> list[tuple[HostReport, Facts]]:
    return [(host, host.facts) for host in report.hosts if host.facts is not None]


def rate_text(bytes_a_second: float) -> str:
    """Bytes a second as people speak of links."""
    bits = bytes_a_second * 8
    if bits >= 10e9:
        return f"{bits / 1e9:.1f} Gbit/s"
    return f"{bits / 1e6:.{0 if bits >= 10e6 else 1}f} Mbit/s"


def size_text(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


# ---- hosts

def unreached(report: Report) -> typing.Iterator[Finding]:
    for host in report.hosts:
        if host.trouble:
            yield Finding.of(Level.BREAKS, "unreached", host, host.trouble, host.todo)


def addresses(report: Report) -> typing.Iterator[Finding]:
    """Names that mean nothing, or loopback, where the job is started."""
    for host in report.hosts:
        if host.address_trouble:
            todo = ("remove the name from the line of 127.0.0.1 or 127.0.1.1 in /etc/hosts, or name the host by its "
                    "address in the network" if host.loopback else
                    "add the name to /etc/hosts, or name the host by its address")
            yield Finding.of(Level.BREAKS, "loopback-name" if host.loopback else "name", host,
                             host.address_trouble, todo)


def names_elsewhere(report: Report) -> typing.Iterator[Finding]:
    """Names that mean something else on another host: `MASTER_ADDR=b` is read by every host for itself."""
    for host, facts in known(report):
        for other in report.hosts:
            meant = facts.names.get(other.name)
            if other is host or not meant or not other.address or other.name == "localhost" or meant == other.address:
                continue
            if is_loopback(meant):
                yield Finding.of(Level.BREAKS, "loopback-name", host,
                                 f"there the name of host {other.name} means the loopback address {meant}, expected "
                                 f"{other.address}",
                                 f"remove the name from the line of {meant} in /etc/hosts there")
            else:
                yield Finding.of(Level.NOTE, "name", host,
                                 f"there the name of host {other.name} means {meant}, expected {other.address} as where "
                                 "the job starts",
                                 "correct /etc/hosts or the name server, or use addresses")


def versions(report: Report) -> typing.Iterator[Finding]:
    """The version that most hosts have is the right one; where no one is, the first host's."""
    have = [(host, facts) for host, facts in known(report) if facts.poseidon]
    right = most_common([facts.poseidon for _, facts in have])
    for host, facts in have:
        if facts.poseidon != right:
            yield Finding.of(Level.BREAKS, "version", host,
                             f"poseidon {facts.poseidon} is there, expected {right} as on the other hosts",
                             f"{INSTALL}=={right}")
    for host, facts in known(report):
        if facts.library_trouble:
            yield Finding.of(Level.BREAKS, "library", host, facts.library_trouble,
                             f"install the wheel there: {INSTALL}")
        if facts.foreign:
            yield Finding.of(Level.NOTE, "foreign", host,
                             f"an unrelated package named poseidon ({facts.foreign}) is in the same folder there",
                             f"pip uninstall poseidon, then {INSTALL}")


def most_common(values: list[str]) -> str:
    """The value that comes most often, the first of equals; empty of none."""
    return collections.Counter(values).most_common(1)[0][0] if values else ""


def frameworks(report: Report) -> typing.Iterator[Finding]:
    """A framework that one host has, all should have, in one version."""
    for framework in sorted({name for _, facts in known(report) for name in facts.frameworks}):
        versions_of = [facts.frameworks[framework] for _, facts in known(report) if framework in facts.frameworks]
        right = most_common(versions_of)
        plain = right.partition("+")[0]
        for host, facts in known(report):
            there = facts.frameworks.get(framework)
            if there is None:
                yield Finding.of(Level.BREAKS, "framework", host,
                                 f"{framework} is missing there, other hosts have {right}",
                                 f"pip install {framework}=={plain}")
            elif there.partition("+")[0] != plain:
                yield Finding.of(Level.BREAKS, "framework", host,
                                 f"{framework} {there} is there, expected {right} as on other hosts, because other "
                                 "versions compute other bits",
                                 f"pip install {framework}=={plain}")


def pythons(report: Report) -> typing.Iterator[Finding]:
    minors = {host.name: ".".join(facts.python.split(".")[:2]) for host, facts in known(report)}
    right = most_common(list(minors.values()))
    for name, minor in minors.items():
        if minor != right:
            yield Finding(Level.NOTE, "python", f"host {name}", f"Python {minor} is there and {right} on other hosts",
                          f"install Python {right} there if a script needs it")


def tokens(report: Report) -> typing.Iterator[Finding]:
    """All hosts hold the same token, or none names a file."""
    for host, facts in known(report):
        if facts.token_trouble:
            yield Finding.of(Level.BREAKS, "token", host,
                             f"the job's token cannot be used: file {facts.token_file}: {facts.token_trouble}",
                             "copy the file from a host that has it, and chmod 600")
    marked = [(host, facts) for host, facts in known(report) if facts.token_mark]
    right = most_common([facts.token_mark for _, facts in marked])
    for host, facts in marked:
        if facts.token_mark != right:
            same = next(other for other, its in marked if its.token_mark == right)
            yield Finding.of(Level.BREAKS, "token", host,
                             f"file {facts.token_file} holds another token than on host {same.name}",
                             f"copy the file from host {same.name}")


def descriptors(report: Report) -> typing.Iterator[Finding]:
    needed = DESCRIPTORS_ALWAYS + DESCRIPTORS_A_WORKER * report.workers
    for host, facts in known(report):
        if 0 < facts.descriptors < needed:
            raised = max(needed, 65536)
            how = (f"raise it with ulimit -n {min(raised, facts.descriptors_hard)}" if facts.descriptors_hard >= needed
                   else f"raise nofile to {raised} in /etc/security/limits.conf there")
            yield Finding.of(Level.BREAKS, "descriptors", host,
                             f"only {facts.descriptors} open files are allowed, expected at least {needed} for "
                             f"{report.workers} worker{'s' * (report.workers > 1)}", how)


def disks(report: Report) -> typing.Iterator[Finding]:
    for host, facts in known(report):
        seen = set()
        for place in facts.places:
            if place.path in seen:
                continue
            seen.add(place.path)
            where = f"the {place.use} {place.path}"
            if place.trouble and place.free_bytes >= LEAST_FREE:
                yield Finding.of(Level.BREAKS, "disk", host, f"{where} cannot be written ({place.trouble})",
                                 "look at its permissions and its mount there")
            elif place.free_bytes < LEAST_FREE:
                yield Finding.of(Level.BREAKS, "disk", host,
                                 f"{where} has {size_text(place.free_bytes)} free, expected at least "
                                 f"{size_text(LEAST_FREE)}",
                                 f"make room there: df -h {place.path}")


def machines(report: Report) -> typing.Iterator[Finding]:
    """Memory and cores for the workers that a host is to have."""
    for host, facts in known(report):
        needed = MEMORY_A_WORKER * host.slots
        if 0 < facts.available_bytes < needed:
            yield Finding.of(Level.BREAKS, "memory", host,
                             f"{size_text(facts.available_bytes)} of memory are free, expected at least "
                             f"{size_text(needed)} for {host.slots} worker{'s' * (host.slots > 1)}",
                             "end other programs there, or start fewer workers")
        if 0 < facts.cores < host.slots:
            yield Finding.of(Level.SLOWS, "cores", host,
                             f"it has {facts.cores} core{'s' * (facts.cores > 1)} for {host.slots} workers",
                             f"start at most {facts.cores} there: {host.name}:{facts.cores}")


def clocks(report: Report) -> typing.Iterator[Finding]:
    for host in report.hosts:
        offset = host.clock_offset
        if offset is not None and abs(offset) - host.clock_error > CLOCK_APART:
            yield Finding.of(Level.NOTE, "clock", host,
                             f"its clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} that of host "
                             f"{report.hosts[0].name}",
                             "start an NTP client there, for logs that can be compared")


# ---- pairs

def listening(report: Report) -> typing.Iterator[Finding]:
    for host in report.hosts:
        if not host.listen_trouble:
            continue
        if host.listen_error == "EADDRINUSE":
            yield Finding.of(Level.BREAKS, "port-taken", host, f"port {host.asked_port} is taken there",
                             "choose another with --port, or in the host file")
        elif host.listen_error == "EADDRNOTAVAIL":
            yield Finding.of(Level.BREAKS, "address", host,
                             f"its name means {host.address} here, which is no address of its own",
                             "name it by an address of its own that the other hosts reach")
        else:
            yield Finding.of(Level.BREAKS, "listen", host,
                             f"it cannot listen at {host.address} ({host.listen_trouble})",
                             "name another port with --port")


def blamed_hosts(report: Report, bad: typing.Callable[[PairReport], bool]) -> list[int]:
    """The hosts to which every other host's way is bad; where no way is good at all, all of them."""
    receivers: dict[int, list[bool]] = {}
    for pair in report.pairs:
        receivers.setdefault(pair.receiver, []).append(bad(pair))
    return [place for place, each in sorted(receivers.items()) if all(each)]


def connections(report: Report) -> typing.Iterator[Finding]:
    """Ports that are closed, ways that are not there. Where nobody reaches a host, the host is named; else the pair."""
    for trouble, kind, what in (
            (DROPPED, "closed-port", "connections to {port} get no answer, so that a firewall drops them"),
            (REJECTED, "closed-port",
             "connections to {port} are refused while the doctor listens, so that a firewall rejects them"),
            (NO_ROUTE, "no-route", "no route leads to it"),
            (STRANGER, "stranger", "somebody else answers at address {address}"),
            (BROKEN, "broken", "connections to {port} break ({detail})")):
        bad = [pair for pair in report.pairs if pair.link.trouble == trouble]
        blamed = blamed_hosts(report, lambda pair: pair.link.trouble == trouble)
        for place in blamed:
            first = next(pair for pair in bad if pair.receiver == place)
            yield connection(report, first, kind, what, f"host {report.hosts[place].name}")
        for pair in bad:
            if pair.receiver not in blamed and pair.sender not in blamed:
                sender, receiver = names_at(report, [pair.sender])[0], names_at(report, [pair.receiver])[0]
                yield connection(report, pair, kind, what, f"host {receiver}, from host {sender}")


def connection(report: Report, pair: PairReport, kind: str, what: str, where: str) -> Finding:
    host = report.hosts[pair.receiver]
    port = f"port {host.port}" if host.asked_port else "the ports"
    said = what.format(port=f"{port} there", address=host.address, detail=pair.link.detail)
    return Finding(Level.BREAKS, kind, where, said, mending(host, kind))


def mending(host: HostReport, kind: str) -> str:
    """The advice about a way that is closed."""
    if kind == "closed-port":
        facts = host.facts or Facts()
        ports = f"port {host.port}" if host.asked_port else f"ports {facts.first_port} to {facts.last_port}"
        return f"open TCP {ports} there for the other hosts"
    if kind == "no-route":
        return f"look at the routes: ip route get {host.address}"
    if kind == "stranger":
        return "look for a proxy, a port forward, or a second machine with this address"
    return f"look for a proxy or a faulty link between them: ping -s 1400 {host.address}"


def black_holes(report: Report) -> typing.Iterator[Finding]:
    """Packets that vanish because they are large, and nobody says so."""
    holes = [pair for pair in report.pairs if pair.link.black_hole]
    for place, host in enumerate(report.hosts):
        own = [pair for pair in report.pairs if place in (pair.sender, pair.receiver)]
        if host.narrow and best(own) == 0:
            yield Finding.of(Level.BREAKS, "black-hole", host,
                             "ssh reaches it with small packets alone, so that larger ones vanish on the way",
                             f"look for the largest that arrives: ping -M do -s 1472 {host.name}")
    if not holes:
        return
    touched = [{pair.sender, pair.receiver} for pair in holes]
    shared = set.intersection(*touched)
    where = names_at(report, shared if len(shared) == 1 else set.union(*touched))
    size = min(pair.link.mtu for pair in holes)
    on = sorted({pair.route.interface for pair in holes if not shared or len(shared) > 1 or pair.sender in shared})
    interface = on[0] if on else holes[0].route.interface
    yield Finding(Level.BREAKS, "black-hole", hosts_of(where),
                  f"packets of {next_size(size)} bytes vanish on the way, those of {size} arrive, and interface "
                  f"{interface} sends up to {max(pair.route.mtu for pair in holes)}",
                  f"ip link set {interface} mtu {size} there, or let ICMP \"fragmentation needed\" through")


def measured(report: Report) -> list[PairReport]:
    """The pairs whose rates can be compared: a black hole has smaller packets, and a finding of its own."""
    return [pair for pair in report.pairs if pair.link.rate > 0 and not pair.link.black_hole]


def slow_pairs(report: Report) -> list[PairReport]:
    """The pairs below the threshold of the fastest."""
    fastest = judged(best(measured(report)))
    return [pair for pair in measured(report) if pair.link.rate < SLOW_SHARE * fastest]


def judged(rate: float) -> float:
    return min(rate, FASTEST_JUDGED)


def best(pairs: typing.Iterable[PairReport]) -> float:
    return max((pair.link.rate for pair in pairs), default=0.0)


@dataclasses.dataclass(frozen=True)
class Ability:
    """The best that a host sends and receives, bytes a second; 0 where no way of that direction is measured."""
    sends: float
    receives: float

    def far_below(self, top: Ability) -> bool:
        return (0 < self.sends < SLOW_SHARE * judged(top.sends)
                or 0 < self.receives < SLOW_SHARE * judged(top.receives))


def abilities(report: Report) -> dict[int, Ability]:
    """Of the hosts that took part in a measurement."""
    pairs = measured(report)
    places = sorted({pair.sender for pair in pairs} | {pair.receiver for pair in pairs})
    return {place: Ability(best(pair for pair in pairs if pair.sender == place),
                           best(pair for pair in pairs if pair.receiver == place)) for place in places}


def slow_places(can: dict[int, Ability]) -> list[int]:
    """Hosts far below the fastest. Of two hosts nobody can know which one is slow."""
    if len(can) < 3:
        return []
    top = Ability(max(each.sends for each in can.values()), max(each.receives for each in can.values()))
    return [place for place, each in can.items() if each.far_below(top)]


def slow_links(report: Report) -> typing.Iterator[Finding]:
    """Hosts far below the fastest, each by the best that it sends and receives."""
    can = abilities(report)
    for place in slow_places(can):
        own, top = can[place], max(can.values(), key=lambda each: min(each.sends, each.receives))
        [fastest, *_] = [report.hosts[other].name for other, each in can.items() if each == top]
        interface = next((pair.route.interface for pair in measured(report) if pair.sender == place), "eth0")
        yield Finding.of(Level.SLOWS, "slow-link", report.hosts[place],
                         f"its link sends {rate_text(own.sends)} and receives {rate_text(own.receives)}, that of host "
                         f"{fastest} {rate_text(top.sends)} and {rate_text(top.receives)}, and every step waits for "
                         "the slowest",
                         f"look at its cable, its switch port and its limits (ethtool {interface}; tc qdisc), or leave "
                         "it out")


def slow_ways(report: Report) -> typing.Iterator[Finding]:
    """Single ways far below what both their hosts can do; of two hosts, below the way back."""
    can = abilities(report)
    slow = slow_places(can)
    for pair in measured(report):
        back = report.pair(pair.receiver, pair.sender)
        expected = (min(can[pair.sender].sends, can[pair.receiver].receives) if len(can) > 2
                    else back.link.rate if back is not None else 0.0)
        if pair.sender in slow or pair.receiver in slow or pair.link.rate >= SLOW_SHARE * judged(expected):
            continue
        sender, receiver = report.hosts[pair.sender].name, report.hosts[pair.receiver].name
        yield Finding(Level.SLOWS, "slow-link", f"host {sender} to host {receiver}",
                      f"{rate_text(pair.link.rate)} arrive, expected {rate_text(expected)} as on other ways",
                      "look at the route between them")


def below_speed(report: Report) -> typing.Iterator[Finding]:
    """Interfaces that announce far more than any pair moves over them."""
    for place, host in enumerate(report.hosts):
        own = [pair for pair in measured(report) if pair.sender == place and pair.route.speed > 0]
        if not own:
            continue
        route = own[0].route
        if best(own) < SLOW_OF_SPEED * judged(route.speed * 1e6 / 8):
            yield Finding.of(Level.SLOWS, "below-speed", host,
                             f"interface {route.interface} announces {route.speed} Mbit/s and sends "
                             f"{rate_text(best(own))}",
                             "look for other traffic, a slower switch in between, or limits (tc qdisc)")


def ways(report: Report) -> typing.Iterator[Finding]:
    """Wireless interfaces, and long round trips."""
    for place, host in enumerate(report.hosts):
        routes = [pair.route for pair in report.pairs if pair.sender == place and pair.route.wireless]
        if routes:
            yield Finding.of(Level.SLOWS, "wireless", host,
                             f"its route to other hosts takes the wireless {routes[0].interface}",
                             "name the host by the address of its cable")
    for pair in report.pairs:
        if pair.link.round_trip > LONG_ROUND_TRIP and pair.sender < pair.receiver:
            yield Finding(Level.SLOWS, "round-trip", hosts_of(names_at(report, [pair.sender, pair.receiver])),
                          f"a round trip between them takes {pair.link.round_trip * 1e3:.0f} ms, expected less than "
                          f"{LONG_ROUND_TRIP * 1e3:.0f} ms", "take hosts of one place")


LOOKS: tuple[typing.Callable[[Report], typing.Iterator[Finding]], ...] = (
    addresses, unreached, names_elsewhere, versions, listening, connections, black_holes, tokens, frameworks,
    descriptors, disks, machines, slow_links, slow_ways, below_speed, ways, pythons, clocks)
