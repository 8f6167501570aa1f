# SPDX-License-Identifier: Apache-2.0
"""Where factors beat the key-value way: the plan's own choice for one layer, by workers, batch and rate.

  python3 -m benchmarks.performance.crossover vgg19-22k --layer fc6 --json crossover.json --plot crossover.svg
  python3 -m benchmarks.performance.crossover --from crossover.json --plot crossover.svg

Every point is `poseidon plan PROFILE --sweep`, with the profile of that batch; beside the plan's borders runs the
rule that counts bytes alone, K P = 2 M N / (M + N). Needs build/release/bin/poseidon; the plot needs matplotlib.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from .plots import pyplot, save
from .standalone import Failed, add_outputs, write

ROOT = pathlib.Path(__file__).resolve().parents[2]
POSEIDON = ROOT / "build" / "release" / "bin" / "poseidon"
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512)
COLORS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3")


def run(words, text=None):
    done = subprocess.run([str(word) for word in words], input=text, capture_output=True, text=True, check=False,
                          cwd=ROOT)
    if done.returncode:
        raise Failed(f"'{pathlib.Path(words[0]).name} {' '.join(map(str, words[1:4]))}' failed: {done.stderr.strip()}")
    return done.stdout


def schemes(sweep, layer, rate):
    """The layer's scheme by number of workers, at one rate: [(workers, scheme)] in pieces that begin there."""
    first = next(p for p in sweep["points"]
                 if p["workers"] == sweep["workers"][0] and p["rate_bits_per_second"] == rate)
    pieces = [(first["workers"], first["schemes"][layer])]
    pieces += [(c["workers"], c["from"]) for c in sweep["crossovers"]
               if c["layer"] == layer and c["rate_bits_per_second"] == rate]
    return sorted(pieces)


def compute(options):
    name, layer = options.profile, options.layer
    document = {"format": 1, "profile": name, "layer": layer, "batches": []}
    for batch in options.batches:
        text = run([sys.executable, "-B", "-m", "benchmarks.profiles", name, "--batch", batch])
        found = next((l for l in json.loads(text)["layers"] if l["name"] == layer and "factors" in l), None)
        if found is None:
            raise Failed(f"profile {name} has no fully connected layer '{layer}'")
        document |= {"outputs": found["factors"]["outputs"], "inputs": found["factors"]["inputs"]}
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "sweep.json"
            run([POSEIDON, "plan", "-", "--sweep", "--json", out], text)
            sweep = json.loads(out.read_text())["sweep"]
        document |= {"workers": sweep["workers"], "rates_bits_per_second": sweep["rates_bits_per_second"]}
        document["batches"].append({"batch": batch, "rows": found["rows"],
                                    "schemes": [schemes(sweep, layer, rate)
                                                for rate in sweep["rates_bits_per_second"]]})
    return document


def spans(pieces, last):
    """[(from, to)] of the numbers of workers for which the layer goes by factors."""
    ends = [workers for workers, _ in pieces[1:]] + [last]
    return [(begin, end) for (begin, scheme), end in zip(pieces, ends) if scheme == "sfb"]


def plot(document, path):
    plt = pyplot()
    rates, workers = document["rates_bits_per_second"], document["workers"]
    rows = [entry["rows"] for entry in document["batches"]]
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for j, rate in enumerate(rates):
        for i, entry in enumerate(document["batches"]):
            at = entry["rows"] * (1.09 ** (j - (len(rates) - 1) / 2))
            for n, (begin, end) in enumerate(spans(entry["schemes"][j], workers[-1])):
                axis.plot([begin, end], [at, at], color=COLORS[j % len(COLORS)], linewidth=3, solid_capstyle="butt",
                          label=f"factors at {rate / 1e9:g} Gbit/s" if i == n == 0 else None)
    m, n = document["outputs"], document["inputs"]
    axis.plot(workers, [2 * m * n / (m + n) / p for p in workers], color="#555555", linestyle="--", linewidth=1.2,
              label="fewer bytes below: K P = 2MN/(M+N)")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set(title=f"{document['profile']}, layer {document['layer']} ({m} x {n})", xlabel="workers",
             ylabel="gradient rows per worker", xticks=workers, xticklabels=workers, yticks=rows, yticklabels=rows,
             ylim=(rows[0] / 1.5, rows[-1] * 1.5))
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    save(plt, figure, path)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.performance.crossover", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?")
    parser.add_argument("--layer", default="fc6")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=BATCHES)
    add_outputs(parser, "plot this, plan nothing")
    options = parser.parse_args(arguments)
    if bool(options.profile) == bool(options.source):
        parser.error("expected a profile, or --from with results")
    return write("crossover", options, compute, plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
