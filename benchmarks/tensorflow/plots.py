# SPDX-License-Identifier: Apache-2.0
"""The speed-ups as SVG."""
import statistics

from benchmarks.performance.plots import panels, pyplot, save

from . import grid, tables

STYLES = {"poseidon": ("Poseidon", "#0b5fa5", "o"), "stock": ("TensorFlow's servers", "#c44e52", "^"),
          "split": ("the same, variables split", "#dd8452", "v"), "oldest": ("TensorFlow 2.16.2's servers", "#8172b3", "<"),
          "mirrored": ("MultiWorkerMirroredStrategy", "#55a868", "s")}


def speed_up(results, path):
    """Speed-up against workers, per net and links, into a file; whether enough is there."""
    settings = dict.fromkeys((result["cell"]["net"], result["cell"]["rate"]) for result in results)
    if len(results) < 2:
        return False
    plt = pyplot()
    figure, axes = panels(plt, len(settings))
    for axis, (net, rate) in zip(axes, settings):
        workers = [result["cell"]["workers"] for result in tables.with_system(results, net, rate, "poseidon")]
        axis.plot(workers, workers, color="#999999", linewidth=0.8, linestyle="--", label="linear")
        for name, (label, color, marker) in STYLES.items():
            members = tables.with_system(results, net, rate, name)
            if not members:
                continue
            found = [tables.speed_ups(result, name) for result in members]
            middle = [statistics.median(ups) for ups in found]
            axis.errorbar([result["cell"]["workers"] for result in members], middle, yerr=[[m - min(ups) for m, ups in zip(middle, found)],
                                                 [max(ups) - m for m, ups in zip(middle, found)]],
                          label=label, color=color, marker=marker, capsize=2, markersize=4, linewidth=1.2)
        axis.axhline(1, color="#999999", linewidth=0.6)
        axis.set(title=f"{grid.NETS[net]}, {rate.removesuffix('G')} Gbit/s", xlabel="workers",
                 ylabel="speed-up over one worker", xticks=workers, ylim=(0, None))
        axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)
    return True
