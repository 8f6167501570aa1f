# SPDX-License-Identifier: Apache-2.0
"""Throughput over 1 to 32 workers as the papers plot it, at 10 and 40 Gbit/s.

  python3 -m benchmarks.claims.curves            # simulates, some minutes; writes docs/claims/curves.{json,svg}
  python3 -m benchmarks.claims.curves --render   # only the plot

Hollow points are simulated or calculated, filled ones were measured over real sockets on an emulated network, crosses are the papers'.
"""
import argparse
import json
import sys

from benchmarks.cells import ROOT
from benchmarks.performance.plots import pyplot, save
from benchmarks.performance.record import rounded
from benchmarks.performance.standalone import write

from . import ours

JSON = ROOT / "docs/claims/curves.json"
SVG = JSON.with_suffix(".svg")
NETS = {"inception-v3": "Inception-V3", "vgg19": "VGG19", "vgg19-22k": "VGG19-22K", "resnet-152": "ResNet-152"}
RATES = ("10Gbit", "40Gbit")
WORKERS = (2, 4, 8, 16, 32)
# label, color, marker of each line.
LINES = {"poseidon": ("Poseidon", "#4c72b0", "o"), "backward_only": ("key-value only, overlap in the backward pass only", "#dd8452", "v"),
         "server": ("parameter server of whole layers, no overlap (calculated)", "#55a868", "s")}
STOCK = ("stock TensorFlow, measured", "#8172b3", "D")
FITTED = ("whole variables, fitted to stock TensorFlow on 1 and 2 nodes", "#c44e52")
# The papers' speed-ups, by net and rate (original figures; see rows.py for the sources).
PUBLISHED = {("inception-v3", "40Gbit"): {32: (31.5, 20)}, ("vgg19-22k", "40Gbit"): {32: (30, 29.5, 21.4, 4.4), 16: (15.0,), 8: (7.63,)},
             ("vgg19-22k", "10Gbit"): {16: (15.5,)}, ("resnet-152", "40Gbit"): {32: (31,)}}


def speedups(net, rate, workers):
    return {"workers": workers, "poseidon": ours.simulated(net, workers, rate, 10)["speedup"],
            "backward_only": ours.simulated(net, workers, rate, 10, *ours.BACKWARD_ONLY)["speedup"],
            "server": ours.planned(net, workers, rate)["budget"]["ways"]["whole_layers"]["speedup"]}


def simulate(workers=WORKERS):
    curves = []
    for net in NETS:
        alone = json.loads(ours.profile_of(net))
        images = alone["batch"] / sum(layer["forward_seconds"] + layer["backward_seconds"] for layer in alone["layers"])
        for rate in RATES:
            points = [speedups(net, rate, count) for count in workers]
            print(f"{net:12} {rate:7} " + " ".join(f"{point['poseidon']:.2f}/{point['backward_only']:.2f}/{point['server']:.2f}"
                                                  for point in points), flush=True)
            curves.append({"net": net, "rate": rate, "images_per_second": images, "points": points})
    return rounded(ours.found_now() | {"curves": curves})


def plot(document, path):
    plt = pyplot()
    figure, axes = plt.subplots(len(RATES), len(NETS), figsize=(4 * len(NETS), 3.4 * len(RATES)), squeeze=False)
    for curve in document["curves"]:
        axis = axes[RATES.index(curve["rate"])][list(NETS).index(curve["net"])]
        alone = curve["images_per_second"]
        workers = [1, *(point["workers"] for point in curve["points"])]
        axis.plot(workers, [count * alone for count in workers], color="#999999", linewidth=0.8, linestyle="--", label="ideal")
        for name, (label, color, marker) in LINES.items():
            axis.plot(workers, [alone, *(point[name] * alone for point in curve["points"])], label=label, color=color, marker=marker,
                      markersize=4, linewidth=1.2, markerfacecolor="white")
        label, color, marker = STOCK
        stock = ours.stock_tensorflow().get((curve["net"], curve["rate"]), {}).get("whole", {})
        axis.plot(list(stock), [speedup * alone for speedup in stock.values()], label=label, color=color, marker=marker, markersize=4,
                  linewidth=1.2)
        emulated = ours.emulated_speedups(curve["net"], curve["rate"], workers)
        label, color, marker = LINES["poseidon"]
        axis.plot(list(emulated), [speedup * alone for speedup in emulated.values()], marker, color=color, markersize=5, label="Poseidon, emulated")
        if curve["net"] == ours.FITTED_NET:
            label, color = FITTED
            axis.plot(workers, [speedup * alone for speedup in ours.fitted_speedups(curve["rate"], workers)], label=label, color=color, linewidth=1.2,
                      linestyle=":")
        published = [(count, speedup) for count, all_of in PUBLISHED.get((curve["net"], curve["rate"]), {}).items() for speedup in all_of]
        axis.plot([count for count, _ in published], [speedup * alone for _, speedup in published], "x", color="black", markersize=5,
                  label="published")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set(title=f"{NETS[curve['net']]}, {curve['rate'].removesuffix('Gbit')} Gbit/s", xlabel="workers", ylabel="images/s",
                 xticks=workers, xticklabels=workers)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
    # All lines are in the plots of one net.
    figure.legend(*axes[0][list(NETS).index(ours.FITTED_NET)].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False, fontsize=8)
    save(plt, figure, path, below=0.07)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.claims.curves", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", dest="source", action="store_const", const=JSON)
    parser.set_defaults(json=JSON, plot=SVG)
    return write("curves", parser.parse_args(arguments), lambda _: simulate(), plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
