# SPDX-License-Identifier: Apache-2.0
"""The plots of docs/performance.md and of the details as SVG, from the cells' results."""
import collections
import re

from . import grid
from .figures import best_ddp, figures_of, usual

STYLES = {"poseidon": ("Poseidon", "#0b5fa5", "o"), "dense": ("Poseidon, dense", "#3aa6dd", "s"),
          "ddp": ("PyTorch DDP", "#c44e52", "^"), "wfbp": ("backward-only overlap", "#dd8452", "v")}


def pyplot():
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "poseidon", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "sans-serif"], "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt
    return plt


def groups(results, key, least):
    """Usual results that share a key and differ in one thing, at least so many."""
    found = collections.defaultdict(list)
    for result in results:
        if usual(result["cell"]) and "poseidon" in figures_of(result):
            found[key(result["cell"])].append(result)
    return {name: members for name, members in found.items() if len(members) >= least}


def curves(axis, members, x_of, y_of):
    for name, (label, color, marker) in STYLES.items():
        points = []
        for result in members:
            f = figures_of(result)
            chosen = best_ddp(f) if name == "ddp" else f.get(name)
            if chosen:
                points.append((x_of(result), *y_of(chosen, result)))
        if points:
            x, y, low, high = zip(*sorted(points))
            axis.errorbar(x, y, yerr=[[b - a for a, b in zip(low, y)], [b - a for a, b in zip(y, high)]],
                          label=label, color=color, marker=marker, capsize=2, markersize=4, linewidth=1.2)


def save(plt, figure, path, below=0):
    """`below`: the share of the figure's height that its plots leave free at the bottom."""
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(path, metadata={"Date": None, "Creator": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    if path.suffix == ".svg":  # hundredths of a point are enough, and nobody reads the indentation
        text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", path.read_text())
        path.write_text(re.sub(r"^ +", "", text, flags=re.M))


def panels(plt, count):
    across = min(count, 3)
    down = -(-count // across)
    figure, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.2 * down), squeeze=False)
    for unused in axes.flat[count:]:
        unused.set_visible(False)
    return figure, axes.flat


def speed_up(results, path):
    """P times the images of one worker: speed-up against P, at the ridge and at 10 Gbit/s."""
    results = [result for result in results if result["cell"]["rate"] in ("1x", 10e9)]
    found = groups(results, lambda c: (c["profile"], str(c["rate"]), c["real_rate_bits"]
                                       if not isinstance(c["rate"], str) else 0), 2)
    if not found:
        return None
    plt = pyplot()
    figure, axes = panels(plt, len(found))
    for axis, ((profile, rate, bits), members) in zip(axes, found.items()):
        def y_of(f, result):
            ours = figures_of(result)["poseidon"].first["single_worker_seconds"]
            work = result["cell"]["workers"] * ours
            return work / f.seconds, work / max(f.quartiles[1], f.seconds), work / min(f.quartiles[0], f.seconds)
        workers = sorted(result["cell"]["workers"] for result in members)
        axis.plot(workers, workers, color="#999999", linewidth=0.8, linestyle="--", label="linear")
        curves(axis, members, lambda r: r["cell"]["workers"], y_of)
        axis.set(title=f"{profile}, {f'{bits / 1e9:g} Gbit/s' if bits else rate + ' ridge'}",
                 xlabel="workers", ylabel="speed-up over one worker", xticks=workers, ylim=(0, None))
        axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)
    return "Speed-up over one worker without a network."


def bandwidth(results, path):
    """Step time against bandwidth of four workers, T* as a line, of the profiles that the goals speak of."""
    results = [result for result in results if result["cell"]["workers"] == 4 and result["cell"]["profile"] in grid.GOALS]
    found = groups(results, lambda c: (c["profile"], c["workers"]), 3)
    if not found:
        return None
    plt = pyplot()
    figure, axes = panels(plt, len(found))
    for axis, ((profile, workers), members) in zip(axes, found.items()):
        for name, style in (("poseidon", "-"), ("dense", ":")):
            points = sorted((r["cell"]["real_rate_bits"] / 1e9, f[name].bound)
                            for r, f in ((r, figures_of(r)) for r in members) if name in f)
            if points:
                axis.plot(*zip(*points), color="#555555", linewidth=2.5, alpha=0.4, linestyle=style,
                          label="T*" if name == "poseidon" else "T*, dense")
        curves(axis, members, lambda r: r["cell"]["real_rate_bits"] / 1e9,
               lambda f, _: (f.seconds, min(f.quartiles[0], f.seconds), max(f.quartiles[1], f.seconds)))
        axis.set(title=f"{profile}, {workers} workers", xlabel="Gbit/s of a port, before scaling",
                 ylabel="seconds per step", ylim=(0, None))
        axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)
    return "Step time against bandwidth; the wide lines are the bound T\\*(trace)."


def scheme_bytes(results, path):
    """Bytes per scheme."""
    rows, seen = [], set()
    for result in results:
        f, which = figures_of(result), (result["cell"]["profile"], result["cell"]["workers"])
        if which not in seen and usual(result["cell"]) and {"poseidon", "dense"} <= f.keys():
            if f["dense"].plans and f["poseidon"].plans:
                sent = [f[n].plans[-1][0] for n in ("dense", "poseidon")]
                cell = result["cell"]
                seen.add(which)
                rows.append((f"{cell['profile']}, P={cell['workers']}, {cell['real_rate_bits'] / 1e9:.3g}G",
                             *(s * cell["scale"] / 1e6 for s in sent)))
    if not rows:
        return None
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 0.8 + 0.42 * len(rows)))
    places = range(len(rows))
    axis.barh([p - 0.2 for p in places], [row[1] for row in rows], 0.38, color=STYLES["dense"][1],
              label="key-value for every layer")
    axis.barh([p + 0.2 for p in places], [row[2] for row in rows], 0.38, color=STYLES["poseidon"][1],
              label="as the plan chose")
    axis.set(yticks=list(places), yticklabels=[row[0] for row in rows],
             xlabel="MB sent by the busiest worker per step, before scaling")
    axis.invert_yaxis()
    axis.legend(frameon=False, fontsize=7, loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
    save(plt, figure, path)
    return "Bytes per scheme."


LANES = ("compute", "send", "receive", "wait")


def timeline(results, path):
    """Two steps of one worker, ours beside backward-only overlap; of raw results, since none is recorded."""
    result = next((r for r in results if len(r.get("timeline") or {}) == 2), None)
    if not result:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(2, 1, figsize=(9, 4.2), sharex=True)
    layers = 1 + max(span[1] for spans in result["timeline"].values() for span in spans)
    colors = plt.get_cmap("turbo")
    for axis, (name, spans) in zip(axes, result["timeline"].items()):
        for lane, layer, begin, end in spans:
            if lane in LANES:
                axis.barh(LANES.index(lane), end - begin, left=begin, height=0.8, linewidth=0,
                          color="#bbbbbb" if lane == "wait" else colors(0.05 + 0.9 * layer / layers))
        axis.set(yticks=range(len(LANES)), yticklabels=LANES, ylim=(len(LANES) - 0.5, -0.5),
                 title=STYLES[name][0])
    axes[-1].set_xlabel("seconds")
    save(plt, figure, path)
    cell = result["cell"]
    return (f"Two steps of one worker, {cell['profile']}, P={cell['workers']}, "
            f"{cell['real_rate_bits'] / 1e9:.3g} Gbit/s, every layer in its color from blue (first) to "
            "red (last); a run of its own, not among the figures.")


PLOTS = {"speed-up.svg": speed_up, "bandwidth.svg": bandwidth, "bytes.svg": scheme_bytes}


def draw(results, folder):
    """All plots that the results allow, into a folder: (file name, caption), without a caption if too
    few results are there. Needs matplotlib."""
    drawn = []
    for name, plot in PLOTS.items():
        caption = plot(results, folder / name)
        drawn.append((name, caption))
        if not caption:
            (folder / name).unlink(missing_ok=True)
    return drawn
