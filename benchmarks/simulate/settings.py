# SPDX-License-Identifier: Apache-2.0
"""Profiles at full size and rate, simulated: a step against its bound, by workers and rate.

  python3 -m benchmarks.simulate.settings --json unscaled.json --plot unscaled.svg
  python3 -m benchmarks.simulate.settings resnet-50 --workers 8
  python3 -m benchmarks.simulate.settings --from unscaled.json --plot unscaled.svg

An emulated cluster on two cores divides sizes and rates, and chunks and buffers, which have floors in bytes, do
not follow. Virtual time carries any rate. What is measured of a port is the share of its rate that frames get,
and the latency, as in compare.py.
"""
import argparse
import concurrent.futures
import json
import os
import sys

from benchmarks.performance import grid
from benchmarks.performance.plots import pyplot, save
from benchmarks.performance.standalone import add_outputs, write
from benchmarks.profiles.architectures import ARCHITECTURES

from .program import play

WORKERS = {2: ("#4c72b0", "o"), 4: ("#55a868", "s"), 8: ("#dd8452", "^")}
GOAL = 1.02  # of T*
RATES = ("0.5x", "1x", "2x", 10e9)  # multiples of the profile's ridge, or bit/s
KEPT = ("median_seconds", "t_star", "t_wfbp", "predicted_seconds", "ratio", "speedup", "chunk_bytes",
        "send_buffer_bytes")


def point(profile, workers, rate, options):
    """The result of one simulation, as a JSON object."""
    real_rate = grid.Cell(profile, workers, rate).real_rate
    found = play(json.dumps(grid.document(profile)), workers, f"{real_rate / 1e6:.6f}Mbit", "--goodput", options.goodput, "--latency",
                 options.latency, "--steps", options.steps, what=f"{profile}, {workers} workers")
    return {"profile": profile, "workers": workers, "rate": rate, "rate_bits": real_rate} | \
        {key: found[key] for key in KEPT}


def simulate(options):
    settings = [(profile, workers, rate) for profile in options.profiles for workers in options.workers
                for rate in RATES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        points = []
        for found in pool.map(lambda setting: point(*setting, options), settings):
            points.append(found)
            print(f"{found['profile']:12} P={found['workers']:<3} {found['rate_bits'] / 1e9:7.2f} Gbit/s  "
                  f"{found['median_seconds']:.4f} s  {found['ratio']:.3f} T*", flush=True)
    return {"format": 1, "goodput": options.goodput, "latency": options.latency, "points": points}


def plot(document, path):
    plt = pyplot()
    profiles = list(dict.fromkeys(found["profile"] for found in document["points"]))
    figure, axis = plt.subplots(figsize=(8, 3.2))
    axis.axhline(GOAL, color="#999999", linewidth=0.8, linestyle="--", label=f"{GOAL:g}")
    for number, (workers, (color, marker)) in enumerate(WORKERS.items()):
        points = [found for found in document["points"] if found["workers"] == workers]
        axis.plot([profiles.index(found["profile"]) + 0.18 * (number - 1) for found in points],
                  [found["ratio"] for found in points], color=color, marker=marker, markersize=4, linewidth=0,
                  label=f"P={workers}")
    axis.set(ylabel="step / T*", xticks=range(len(profiles)))
    axis.set_xticklabels(profiles, rotation=25, ha="right")
    axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.simulate.settings", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=[*grid.GOALS, *grid.OTHERS])
    parser.add_argument("--workers", type=lambda text: [int(word) for word in text.split(",")], default=list(WORKERS))
    parser.add_argument("--goodput", type=float, default=0.956)
    parser.add_argument("--latency", default="40us")
    parser.add_argument("--steps", type=int, default=6)
    add_outputs(parser, "plot these results, simulate nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.profiles) - ARCHITECTURES.keys():
        parser.error(f"profile '{sorted(unknown)[0]}' is unknown, expected {', '.join(ARCHITECTURES)}")
    return options


def main(arguments):
    return write("settings", parse(arguments), simulate, plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
