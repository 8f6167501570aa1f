# SPDX-License-Identifier: Apache-2.0
"""Simulated speed-up of a profile against the number of workers, beside its bound and other schedules.

  python3 -m benchmarks.simulate.curves vgg19-22k resnet-50 --rate 10Gbit --json curves.json --plot curves.svg
  python3 -m benchmarks.simulate.curves --from curves.json --plot curves.svg

Needs build/release/bin/poseidon_simulate; the plot needs matplotlib. 64 workers take minutes; a scale, by which
sizes and rate are divided, spares the sums their time.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from benchmarks.performance.plots import pyplot, save
from benchmarks.performance.standalone import Failed, add_outputs, write

from .program import play

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKERS = (1, 2, 4, 8, 16, 32, 64)
# The simulated systems: name -> options, label, color, marker.
SYSTEMS = {"poseidon": ((), "Poseidon", "#4c72b0", "o"),
           "dense": (("--scheme", "kv"), "Poseidon, key-value only", "#55a868", "s"),
           "wfbp": (("--scheme", "kv", "--mode", "wfbp"), "key-value only, backward-only overlap", "#dd8452", "v")}
KEPT = ("median_seconds", "t_star", "t_wfbp", "ratio", "speedup", "single_worker_seconds", "predicted_seconds",
        "wire_bytes_per_step", "max_to_mean_bytes", "peak_to_mean", "chunk_bytes", "events", "took_seconds")


def profile_of(name):
    done = subprocess.run([sys.executable, "-B", "-m", "benchmarks.profiles", name], capture_output=True, text=True,
                          check=False, cwd=ROOT)
    if done.returncode:
        raise Failed(f"there is no profile '{name}'")
    return done.stdout


def point(profile, workers, system, options):
    """The result of one simulation, as a JSON object. One worker has no network to simulate."""
    if workers == 1:
        seconds = sum(layer["forward_seconds"] + layer["backward_seconds"]
                      for layer in json.loads(profile)["layers"])
        return {"workers": 1, "median_seconds": seconds, "t_star": seconds, "ratio": 1, "speedup": 1}
    found = play(profile, workers, options.rate, "--latency", options.latency, "--scale", options.scale, "--steps", options.steps,
                 "--segment", options.segment, *SYSTEMS[system][0], what=f"{system}, {workers} workers")
    factors = sorted(layer for layer, scheme in found["schemes"].items() if scheme != "kv")
    return {"workers": workers, "by_factors": factors} | {key: found[key] for key in KEPT}


def simulate(options):
    document = {"format": 1, "rate": options.rate, "latency": options.latency, "scale": options.scale, "curves": []}
    for name in options.profiles:
        profile = profile_of(name)
        for system in options.systems:
            points = []
            for workers in options.workers:
                points.append(point(profile, workers, system, options))
                last = points[-1]
                print(f"{name:12} {system:9} P={workers:<3} {last['median_seconds']:.4f} s  {last['speedup']:6.2f}x  "
                      f"{last['ratio']:.3f} T*", flush=True)
            document["curves"].append({"profile": name, "system": system, "points": points})
    return document


def plot(document, path):
    plt = pyplot()
    profiles = list(dict.fromkeys(curve["profile"] for curve in document["curves"]))
    figure, axes = plt.subplots(1, len(profiles), figsize=(4.4 * len(profiles), 3.6), squeeze=False)
    for axis, profile in zip(axes.flat, profiles):
        curves = [curve for curve in document["curves"] if curve["profile"] == profile]
        workers = [point["workers"] for point in curves[0]["points"]]
        axis.plot(workers, workers, color="#999999", linewidth=0.8, linestyle="--", label="linear")
        for curve in curves:
            _, label, color, marker = SYSTEMS[curve["system"]]
            points = curve["points"]
            if curve["system"] != "wfbp":
                axis.plot(workers, [p["speedup"] * p["ratio"] for p in points], color=color, linewidth=4, alpha=0.25)
            axis.plot(workers, [p["speedup"] for p in points], label=label, color=color, marker=marker, markersize=4,
                      linewidth=1.2)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set(title=f"{profile}, {document['rate']}", xlabel="workers", ylabel="speed-up over one worker",
                 xticks=workers, xticklabels=workers, yticks=workers, yticklabels=workers)
        axis.minorticks_off()
        axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.simulate.curves", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*")
    parser.add_argument("--rate", default="10Gbit")
    parser.add_argument("--latency", default="50us")
    parser.add_argument("--workers", type=lambda text: [int(word) for word in text.split(",")], default=WORKERS)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--scale", type=float, default=4)
    parser.add_argument("--segment", type=int, default=16384)
    add_outputs(parser, "plot these results, simulate nothing")
    options = parser.parse_args(arguments)
    if bool(options.profiles) == bool(options.source):
        parser.error("expected profiles to simulate, or --from with results")
    if unknown := set(options.systems) - SYSTEMS.keys():
        parser.error(f"system '{sorted(unknown)[0]}' is unknown, expected {', '.join(SYSTEMS)}")
    return options


def main(arguments):
    return write("curves", parse(arguments), simulate, plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
