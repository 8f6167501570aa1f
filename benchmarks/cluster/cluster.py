#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Emulated clusters on this machine (needs root).

  cluster.py calibrate --nodes 4 --rate 1Gbit --queue 50ms
  cluster.py run --nodes 4 --rate 200Mbit -- PROGRAM ARGS...
  cluster.py mpi --nodes 4 --rate 200Mbit -- PROGRAM ARGS...
  cluster.py clean

run starts PROGRAM once per node (--per-node: so many times, with consecutive ranks) with {rank}, {node},
{nodes}, {workers} (all of them), {address} (its node's) and {coordinator} (node 0's) replaced in its
arguments, prints what they print behind their rank, and ends with 0 if all
did. The network is calibrated first, and nothing runs on one that does not pass; --ungated leaves
that out. mpi starts PROGRAM with mpirun, one process per node.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import sys
import threading
import time

import background
import calibration
import emulation
import mpi
import sampler

GRACE = 5.0  # seconds that the others have to end by themselves after one has failed


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("clean", help="remove what killed owners left behind")
    for name, words in (("calibrate", "measure the emulated network"),
                        ("run", "one program per node"), ("mpi", "one MPI program on all nodes")):
        add_network(commands.add_parser(name, help=words), name)
    return parser.parse_args(arguments)


def checked(kind, fits, expected):
    """An argument's type: what `kind` makes of the text, if that fits."""
    def value_of(text):
        with contextlib.suppress(ValueError):
            value = kind(text)
            if fits(value):
                return value
        raise argparse.ArgumentTypeError(f"it is '{text}', expected {expected}")
    return value_of


def writable(path):
    return (os.path.isdir(path.parent) and not os.path.isdir(path)
            and os.access(path if os.path.exists(path) else path.parent, os.W_OK))


def add_network(parser, command):
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rate", default="1Gbit", help="of every link and direction, or 'unshaped'")
    parser.add_argument("--queue", default="50ms", help="what may wait at either end of a link")
    parser.add_argument("--burst", type=int, default=emulation.Link.burst, help="bytes of the bucket")
    parser.add_argument("--latency", default="0", help="one way between two nodes")
    parser.add_argument("--seconds", type=checked(float, lambda seconds: 0 < seconds < math.inf, "more than 0"),
                        default=2.0, help="of each measurement of the gate")
    # Looked at before the run and not after it, when all was in vain.
    parser.add_argument("--json", type=checked(pathlib.Path, writable, "a file in a folder that can be written"),
                        help="write the report to this file")
    if command == "calibrate":
        return
    parser.add_argument("--background", default=0.0, metavar="SHARE",
                        type=checked(float, lambda share: 0 <= share < 1, "0 or a share below 1"),
                        help="of every link's rate that others' traffic takes meanwhile: 0.2")
    parser.add_argument("--ungated", action="store_true", help="run without calibration")
    if command == "run":
        parser.add_argument("--per-node", type=checked(int, lambda count: count > 0, "1 or more"), default=1,
                            help="programs on every node")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- PROGRAM ARGS...")


def link_of(options):
    return emulation.Link(rate=emulation.parse_rate(options.rate),
                          queue=emulation.parse_time(options.queue), burst=options.burst,
                          latency=emulation.parse_time(options.latency))


def write_report(options, report):
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def calibrate(cluster, options):
    report = calibration.calibrate(cluster, seconds=options.seconds)
    print(calibration.line(report), file=sys.stderr, flush=True)
    return report


def calibrate_command(cluster, options):
    report = calibrate(cluster, options)
    write_report(options, report)
    print(json.dumps(report))
    return 0 if report["passed"] else 1


def words_for(cluster, rank, program, per_node=1):
    """A program's command line as its node runs it for that rank."""
    node = rank // per_node
    for word in program:
        for key, value in (("rank", rank), ("node", node), ("nodes", cluster.nodes),
                           ("workers", cluster.nodes * per_node),
                           ("address", cluster.addresses[node]),
                           ("coordinator", cluster.addresses[0])):
            word = word.replace("{" + key + "}", str(value))
        yield word


def prefixed(stream, prefix, to):
    for line in stream:
        to.write(f"{prefix}{line}" if line.endswith("\n") else f"{prefix}{line}\n")
        to.flush()


class Programs:
    """The same number of programs on every node, their output prefixed and passed on."""

    def __init__(self, cluster, program, per_node=1):
        self.cluster = cluster
        self.ended = threading.Condition()
        self.codes = {}
        self.threads = []
        self.processes = []
        for rank in range(cluster.nodes * per_node):
            self.start(rank, rank // per_node, list(words_for(cluster, rank, program, per_node)))

    def start(self, rank, node, words):
        process = self.cluster.run(node, words, stdout=-1, stderr=-1, text=True, errors="replace")
        self.processes.append(process)
        for target, *arguments in ((prefixed, process.stdout, f"[{rank}] ", sys.stdout),
                                   (prefixed, process.stderr, f"[{rank}] ", sys.stderr),
                                   (self.watch, rank, process)):
            self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
            self.threads[-1].start()

    def watch(self, rank, process):
        code = process.wait()
        with self.ended:
            self.codes[rank] = code
            self.ended.notify()

    def finish(self):
        """Waits for all; after the first failure the others have GRACE. Exit codes by rank."""
        with self.ended:
            self.ended.wait_for(lambda: len(self.codes) == len(self.processes)
                                or any(self.codes.values()))
            self.ended.wait_for(lambda: len(self.codes) == len(self.processes), GRACE)
            codes = dict(self.codes)
        self.cluster.end(*self.processes)
        for thread in self.threads:
            thread.join()
        return [codes.get(rank, -signal.SIGTERM) for rank in range(len(self.processes))]


def run_command(cluster, options):
    report = {"program": options.program, "link": cluster.link.described(),
              "calibration": None if options.ungated else calibrate(cluster, options)}
    if report["calibration"]:
        calibration.require(report["calibration"])
    before, began = cluster.counters(), time.monotonic()
    with (background.Background(cluster, options.background) as others,
          sampler.Sampler(cluster) as samples):
        if options.command == "mpi":
            report["exit_codes"] = [mpi.run(cluster, options.program).wait()]
        else:
            report["exit_codes"] = Programs(cluster, options.program, options.per_node).finish()
    report["seconds"] = time.monotonic() - began
    report["traffic"] = emulation.difference(cluster.counters(), before)
    report["burstiness"] = samples.summary()
    report["background"] = others.summary()
    print(sampler.line(report["burstiness"]), file=sys.stderr, flush=True)
    write_report(options, report)
    return next((1 for code in report["exit_codes"] if code != 0), 0)


def with_cluster(options):
    if options.command != "calibrate":
        if options.program[:1] == ["--"]:
            del options.program[0]
        if not options.program:
            raise emulation.Refused("no program was named, expected -- PROGRAM ARGS...")
    with emulation.Cluster(options.nodes, link_of(options)) as cluster:
        return {"calibrate": calibrate_command, "run": run_command,
                "mpi": run_command}[options.command](cluster, options)


def main(arguments):
    options = parse(arguments)
    try:
        if options.command == "clean":
            for name in emulation.clean():
                print(f"removed {name}")
            return 0
        return with_cluster(options)
    except (emulation.Refused, OSError) as failure:
        print(f"cluster: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
