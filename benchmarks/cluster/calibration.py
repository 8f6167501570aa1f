# SPDX-License-Identifier: Apache-2.0
"""The gate before any figure: does the emulated network carry what it announces?

    report = calibration.calibrate(cluster)        # a JSON object; goes into every report
    calibration.require(report)                    # raises Refused with the reason

Four measurements by link_check.py in every node: the idle round trip; a ring, which loads every port
in both directions at once; all to all; and all others to node 0. Every loaded direction of every port
must carry between 94 and 102 % of the set rate as TCP payload; an idle round trip must be at least
twice the latency that was asked for, and no more than a millisecond and a tenth above it. An unshaped
link has no rate to be held to: its figures are only reported.
"""
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import cores
import emulation

LEAST, MOST = 0.94, 1.02   # of the set rate; full frames of 1500 bytes carry 0.957
WARM_UP = 2.0              # seconds before the window opens: an incast begins with losses
ROUNDS = 200
PACE = 0.952               # of the rate, in payload, that a node's paced connections send together
CHECK = pathlib.Path(__file__).resolve().parent / "link_check.py"


class Checks:
    """A link_check.py in every node of a cluster; a context manager."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __enter__(self):
        self.programs = [
            self.cluster.run(i, [sys.executable, "-B", CHECK, address], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for i, address in enumerate(self.cluster.addresses)]
        self.answers(range(self.cluster.nodes))  # that they listen
        return self

    def __exit__(self, *_):
        for program in self.programs:
            with contextlib.suppress(OSError):
                program.stdin.close()
            program.stdout.close()
        self.cluster.end(*self.programs)

    def order(self, orders):
        """Sends an order to each node named (a dict by index) and waits for all answers, a dict by
        index. Raises Refused if a check has ended."""
        with contextlib.suppress(OSError):  # the answer will be missing
            for i, order in orders.items():
                print(json.dumps(order), file=self.programs[i].stdin, flush=True)
        return self.answers(orders)

    def answers(self, indices):
        lines = {i: self.programs[i].stdout.readline() for i in indices}
        for i, line in lines.items():
            if not line:
                raise emulation.Refused(f"the link check of node {i} ended before it had measured")
        return {i: json.loads(line) for i, line in lines.items()}


def pace(cluster):
    """Bytes per second of one connection of an all-to-all: its fair share of what full frames carry.
    Here the links are measured and not how loss-driven senders share them: unpaced, a few flows
    starve others for seconds, on perfect links too. None where there is no rate."""
    rate = cluster.link.rate
    return None if rate is None else int(PACE * rate / 8 / (cluster.nodes - 1))


def flow(cluster, checks, receivers, seconds, pace=None):
    """One measurement: node i sends to receivers[i], a list of indices. Goodput per node that
    receives, in bits per second."""
    before, spent = cluster.counters(), cores.so_far()
    begin = time.monotonic() + 0.2 + 0.02 * cluster.nodes  # all have connected by then
    times = {"pace": pace, "begin": begin, "from": begin + WARM_UP, "until": begin + WARM_UP + seconds}
    answers = checks.order({
        i: {"do": "flow", "to": [cluster.addresses[j] for j in receivers[i]], **times}
        for i in range(cluster.nodes)})
    counted = emulation.difference(cluster.counters(), before)
    return {
        "received_bits": [answers[i]["received_bytes"] * 8 / seconds for i in range(cluster.nodes)],
        "retransmits": sum(node["retransmits"] for node in counted),
        "segments": sum(node["segments"] for node in counted),
        "dropped": sum(node["dropped_at_sender"] + node["dropped_at_port"] for node in counted),
        **cores.shares_since(spent),
    }


def round_trips(cluster, checks):
    """Idle round trips from node 0 to every other, in seconds."""
    times = []
    for address in cluster.addresses[1:]:
        times += checks.order({0: {"do": "ping", "to": address, "rounds": ROUNDS}})[0]["round_trips"]
    times.sort()
    return {"median_seconds": statistics.median(times), "p99_seconds": times[int(len(times) * 0.99)],
            "least_seconds": times[0]}


def calibrate(cluster, announced=None, seconds=2.0):
    """Measures a cluster of two or more nodes against what is announced (its own link unless
    another is given). A JSON object with "passed" and, if it did not, "reason". Takes about three
    times `seconds` plus eight. Raises Refused if it cannot be measured at all."""
    announced = announced or cluster.link
    others = [[j for j in range(cluster.nodes) if j != i] for i in range(cluster.nodes)]
    if cluster.nodes < 2:
        raise emulation.Refused("one node has no link to calibrate, expected two or more")
    report = {"nodes": cluster.nodes, "link": announced.described(),
              "congestion": cluster.congestion, "cores": os.cpu_count(), "seconds": seconds,
              "bounds": [LEAST, MOST]}
    with Checks(cluster) as checks:
        report["round_trip"] = round_trips(cluster, checks)
        report["ring"] = flow(cluster, checks, [[(i + 1) % cluster.nodes]
                                                for i in range(cluster.nodes)], seconds)
        report["all_to_all"] = flow(cluster, checks, others, seconds, pace(cluster))
        report["incast"] = flow(cluster, checks,
                                [[]] + [[0] for _ in range(cluster.nodes - 1)], seconds)
    reasons = [*rate_reasons(report, announced), latency_reason(report, announced)]
    report["reason"] = next((reason for reason in reasons if reason), "")
    report["passed"] = not report["reason"]
    return report


def rate_reasons(report, announced):
    """The goodputs outside the bounds, worst phase first, as sentences. In a ring and all
    to all every port sends as much as it receives, so that its receivers judge both directions."""
    if announced.rate is None:
        return
    for phase in ("ring", "all_to_all", "incast"):
        loaded = report[phase]["received_bits"][:1 if phase == "incast" else None]
        shares = [bits / announced.rate for bits in loaded]
        report[phase]["least_share"] = round(min(shares), 4)
        report[phase]["most_share"] = round(max(shares), 4)
        for at_fault, share, words in (
                (min(shares) < LEAST, min(shares), f"at least {LEAST:.0%}"),
                (max(shares) > MOST, max(shares), f"at most {MOST:.0%}")):
            if at_fault:
                yield (f"the goodput of node {shares.index(share)} in the {phase} measurement is "
                       f"{share:.1%} of {announced.rate / 1e6:g} Mbit/s, expected {words}; the "
                       f"machine was {report[phase]['machine_busy']:.0%} busy")


def latency_reason(report, announced):
    """Why the idle round trip is not what is announced, as a sentence; None if it is."""
    least, asked = report["round_trip"]["least_seconds"], 2 * announced.latency
    median = report["round_trip"]["median_seconds"]
    if least >= asked and median <= asked * 1.1 + 1e-3:
        return None
    return (f"the idle round trip is {median * 1e3:.3f} ms (least {least * 1e3:.3f} ms), expected "
            f"{asked * 1e3:.3f} to {asked * 1.1e3 + 1:.3f} ms")


def require(report):
    """Raises Refused with the reason if a calibration did not pass."""
    if not report["passed"]:
        raise emulation.Refused(f"no figure is taken on this network: {report['reason']}")


def line(report):
    """A calibration in one line for people."""
    link = announced_words(report["link"])
    if not report["passed"]:
        return f"calibration of {report['nodes']} nodes, {link}: refused: {report['reason']}"
    phases = ", ".join(f"{phase.replace('_', ' ')} {share(report, phase)}"
                       for phase in ("ring", "all_to_all", "incast"))
    return (f"calibration of {report['nodes']} nodes, {link}: {phases}, round trip "
            f"{report['round_trip']['median_seconds'] * 1e6:.0f} us, retransmits "
            + "/".join(str(report[phase]["retransmits"]) for phase in ("ring", "all_to_all", "incast")))


def share(report, phase):
    if "least_share" in report[phase]:
        return f"{report[phase]['least_share']:.1%}"
    return f"{min(report[phase]['received_bits'][:1]) / 1e9:.2f} Gbit/s"


def announced_words(link):
    rate = "unshaped" if link["rate_bits"] is None else f"{link['rate_bits'] / 1e6:g} Mbit/s"
    late = f", latency {link['latency_seconds'] * 1e3:g} ms" if link["latency_seconds"] else ""
    return f"{rate}, queue {link['queue_seconds'] * 1e3:g} ms{late}"
