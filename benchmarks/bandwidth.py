# SPDX-License-Identifier: Apache-2.0
"""What jobs that are held to a bandwidth (poseidon train --bandwidth) leave of their links, on emulated clusters. Needs root.

For each job: the most that a link carried in any 100 ms, headers, acknowledgements and what was sent again included, in either
direction, by the interfaces' counters, as a share of the bandwidth; the step beside the least possible with that bandwidth (T*);
and what other traffic, which asks for 0.6 of every link, gets beside a job that is held and beside one that is not.

  python3 -m benchmarks.bandwidth               all, four minutes
  python3 -m benchmarks.bandwidth --only tls,lanes
"""
import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile

from benchmarks import cells
from benchmarks.performance import grid, measure

import background  # benchmarks.performance.measure has put its folder on the path
import emulation
import sampler

WINDOW = 0.1   # seconds
SHARE = 0.4    # of every link, that a job is held to
OTHERS = 0.6   # of every link, that others ask for
NET = "vgg19"
RATE = 10e9    # of a link, before scaling


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    words: str
    options: tuple
    workers: int = 4
    per_node: int = 1
    others: float = 0.0
    held: bool = True
    net: str = NET


KV = ("--mode", "poseidon", "--policy", "time", "--scheme", "kv")
JOBS = (
    Job("tls", "4 workers, encrypted", (*KV, "--wire", "tls")),
    Job("auth", "4 workers, authenticated", (*KV, "--wire", "auth")),
    Job("plan", "4 workers, schemes by the plan", ("--mode", "poseidon", "--policy", "time", "--wire", "tls")),
    Job("lanes", "2 lanes each", (*KV, "--wire", "tls", "--lanes", "2")),
    Job("levels", "2 workers on each of 2 machines", (*KV, "--wire", "tls", "--levels", "host"), per_node=2),
    Job("ps-2017", "strategy ps-2017", ("--mode", "ps-2017", "--wire", "tls")),
    Job("two", "2 workers", (*KV, "--wire", "tls"), workers=2),
    Job("beside", "beside others' traffic", (*KV, "--wire", "tls"), others=OTHERS),
    Job("not-held", "not held, beside others' traffic", (*KV, "--wire", "tls"), others=OTHERS, held=False),
)


def most_in_window(samples, nodes):
    """The most bytes per second of any link and direction in WINDOW, from counters that are read each 10 ms."""
    most = 0.0
    end = 0
    for first in samples:
        while end < len(samples) and samples[end][0] - first[0] < WINDOW:
            end += 1
        if end == len(samples):
            break
        # Between two samples the counters go straight.
        before, last = samples[end - 1], samples[end]
        share = (first[0] + WINDOW - before[0]) / (last[0] - before[0])
        for way in (1, 2):
            for node in range(nodes):
                at_end = before[way][node] + share * (last[way][node] - before[way][node])
                most = max(most, (at_end - first[way][node]) / WINDOW)
    return most


def played(job, folder):
    """One run: the most of a link against the bandwidth, the median step, T*, and what the others got of a link."""
    cell = grid.Cell(job.net, job.workers, RATE, systems=(), background=job.others, per_node=job.per_node)
    bandwidth = SHARE * cell.port_rate
    options = job.options + (("--bandwidth", f"{bandwidth / 1e6:.3f}Mbit") if job.held else ())
    (folder / "profile.json").write_text(json.dumps(grid.document(cell.profile)))
    with emulation.Cluster(cell.nodes, emulation.Link(rate=cell.port_rate)) as cluster:
        with background.Background(cluster, cell.background) as others, sampler.Sampler(cluster) as samples:
            ranks = measure.run_all(cell, cluster, folder, grid.System("held", "ours", options, ""))
        arrived = others.summary()
    summary = ranks[0][-1]["summary"]
    return {"of_bandwidth": 8 * most_in_window(samples.samples, cell.nodes) / bandwidth,
            "seconds": statistics.fmean(line[-1]["summary"]["median_seconds"] for line in ranks),
            "t_star": summary["t_star"], "predicted": summary["predicted_seconds"],
            "others": arrived and arrived["arrived_share"]}


def row(job, found):
    alone = not job.others
    return "| " + " | ".join((
        job.words, f"{found['of_bandwidth']:.3f}" if alone and job.held else "", f"{found['seconds']:.3f}",
        f"{found['seconds'] / found['t_star']:.3f}" if alone else "", f"{found['seconds'] / found['predicted']:.3f}" if alone else "",
        "" if alone else f"{found['others']:.3f}")) + " |"


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.bandwidth", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="jobs, with commas")
    parser.add_argument("--list", action="store_true", help="print the jobs")
    options = parser.parse_args(arguments)
    if options.list:
        for job in JOBS:
            cells.say(f"{job.name:10} {job.words}")
        return
    if why := emulation.missing():
        sys.exit(f"bandwidth: {why}")
    cells.say(f"{NET} at {RATE / 1e9:g} Gbit/s, sizes and rates scaled together, held to {SHARE:g} of every link; others ask for {OTHERS:g}\n")
    cells.say("| job | most of 100 ms / bandwidth | step, s | / T* | / predicted | others got of a link |")
    cells.say("|---|---:|---:|---:|---:|---:|")
    for job in cells.choose(parser, ("job",), options.only, JOBS, lambda one: (one.name,)):
        with tempfile.TemporaryDirectory() as folder:
            cells.token_in(pathlib.Path(folder))
            cells.say(row(job, played(job, pathlib.Path(folder))))


if __name__ == "__main__":
    cells.run("bandwidth", main)
