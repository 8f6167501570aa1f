# SPDX-License-Identifier: Apache-2.0
"""A report as text for people and as JSON for programs."""
from __future__ import annotations

import dataclasses
import json
import math
import sys
import typing

from ..library import CPU_SECONDS_PER_WIRE_BYTE
from .examine import HostReport, Report
from .findings import Finding, Level, best, measured, rate_text, size_text


MOST_ROWS = 30  # of the table of pairs: six hosts' fit a screen
MOST_LANES = 8


def table(rows: list[list[str]]) -> str:
    """Columns as wide as their longest word; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)


def limit_text(limit: int) -> str:
    return "unlimited" if limit >= sys.maxsize else str(limit)


def host_row(host: HostReport, frameworks: list[str], alone: bool) -> list[str]:
    facts = host.facts
    if facts is None:
        return [host.name, *([] if alone else [host.address or "-"]), *["-"] * (7 + len(frameworks) - alone)]
    clock = "-" if host.clock_offset is None else f"{host.clock_offset * 1e3:+.0f} ms"
    return [host.name, *([] if alone else [host.address or "-"]), facts.python, facts.poseidon or "-",
            *[facts.frameworks.get(framework, "-") for framework in frameworks], str(facts.cores),
            f"{size_text(facts.available_bytes)}", limit_text(facts.descriptors),
            size_text(min((place.free_bytes for place in facts.places), default=0)), *([] if alone else [clock])]


def host_table(report: Report) -> str:
    frameworks = sorted({name for host in report.hosts if host.facts for name in host.facts.frameworks})
    alone = len(report.hosts) == 1
    heading = ["host", *([] if alone else ["address"]), "python", "poseidon", *frameworks, "cores", "free memory",
               "open files", "free disk", *([] if alone else ["clock"])]
    return table([heading, *[host_row(host, frameworks, alone) for host in report.hosts]])


def pair_table(report: Report) -> str:
    """All pairs, or of many hosts' those without a rate and the slowest, and how many are left out."""
    slowest = sorted(report.pairs, key=lambda pair: pair.link.rate)[:MOST_ROWS]
    shown = sorted(slowest, key=lambda pair: (pair.sender, pair.receiver))
    rows = [["from", "to", "rate", "round trip", "path MTU", "interface", "route"]]
    for pair in shown:
        link, route = pair.link, pair.route
        rows.append([report.hosts[pair.sender].name, report.hosts[pair.receiver].name,
                     rate_text(link.rate) if link.rate else link.trouble or "-",
                     f"{link.round_trip * 1e3:.2f} ms" if link.round_trip else "-", str(link.mtu or "-"),
                     f"{route.interface} {route.mtu}" if route.interface else "-", route.why])
    left_out = len(report.pairs) - len(shown)
    return table(rows) + (f"\n({left_out} faster ways are in the file that --json names)" if left_out else "")


def lanes_line(report: Report) -> str:
    """How many lanes workers that compute with one thread get, which is as many as plan::LanesFor says."""
    needed = max(1, math.ceil(min((pair.link.rate for pair in measured(report)), default=0.0) * CPU_SECONDS_PER_WIRE_BYTE))
    spare = min((host.facts.cores // max(1, host.slots) - 1 for host in report.hosts if host.facts), default=0)
    lanes = max(1, min(needed, spare, MOST_LANES))
    threads = "one thread" if needed == 1 else f"{needed} threads"
    return (f"encrypted, the slowest way keeps {threads} of the network busy on each host; "
            f"{lanes} lane{'s' * (lanes > 1)} a worker where it computes with one thread")


def last_line(report: Report, found: list[Finding]) -> str:
    """The last line of a report: what to do now."""
    if found and found[0].level < Level.NOTE:
        first = found[0]
        others = sum(finding.level < Level.NOTE for finding in found) - 1
        more = f" (then {others} more)" if others else ""
        return f"do this first, {first.where}: {first.todo}{more}"
    if len(report.hosts) == 1:
        return "all well on this machine: start with poseidon run -n 2 python train.py"
    rates = [pair.link.rate for pair in measured(report)]
    hosts = ",".join(host.name + (f":{host.slots}" if host.slots > 1 else "") for host in report.hosts)
    return (f"all well: {len(report.hosts)} hosts, {rate_text(min(rates, default=0.0))} on the slowest way and "
            f"{rate_text(best(report.pairs))} on the fastest: start with poseidon run --hosts {hosts} python train.py")


def text(report: Report, found: list[Finding]) -> str:
    parts = [host_table(report)]
    if report.pairs:
        parts.append(pair_table(report))
        parts.append(lanes_line(report))
    if found:
        names = {Level.BREAKS: "breaks", Level.SLOWS: "slows", Level.NOTE: "note"}
        parts.append("\n".join(f"{names[finding.level]:<6}  {finding.sentence}" for finding in found))
    return "\n\n".join([*parts, last_line(report, found)])


def plain(report: Report, found: list[Finding]) -> str:
    """The report as JSON; whether tokens are equal is in the findings, their marks stay out."""
    hosts: list[dict[str, typing.Any]] = [dataclasses.asdict(host) for host in report.hosts]
    for host in hosts:
        if host["facts"]:
            del host["facts"]["token_mark"]
    names = [host.name for host in report.hosts]
    pairs = [{"from": names[pair.sender], "to": names[pair.receiver], **dataclasses.asdict(pair.link),
              "route": dataclasses.asdict(pair.route)} for pair in report.pairs]
    return json.dumps({"hosts": hosts, "pairs": pairs, "findings": [
        {"level": finding.level.name.lower(), "kind": finding.kind, "where": finding.where, "what": finding.what,
         "todo": finding.todo} for finding in found]}, indent=1) + "\n"
