# SPDX-License-Identifier: Apache-2.0
"""docs/convergence.md and its plots, from what was trained."""
from benchmarks.performance.plots import pyplot, save
from benchmarks.tables import table

from .trained import NETS, NOISE, WORKERS

COLORS = dict(zip(WORKERS, ("#333333", "#0b5fa5", "#dd8452", "#55a868")))
HEAD = """# Convergence

What one worker trains is what any number of workers train: at one global batch the mean gradient is the gradient of the whole batch, and all
workers update with the same bits. Sums over workers have another order than a sum over one batch, so losses differ by roundings at first, and
training amplifies these, as it does noise in one process ([drift](drift.md)): where the last row of a table is one worker with noise of 1e-7 in its
first weights, it says how far roundings alone lead. `python3 -m benchmarks.convergence` trains the nets below and writes this page.

"""
TAIL = """
All workers of a run share this machine's cores, so seconds show what dividing costs here, and no speed-up: what a network of machines gains is
in [performance](performance.md) and [claims](claims.md). The Caffe trainer has no run with noise: it adds none to the weights that it draws.
"""


def row_of(name, run, one):
    """`one`: the run that it is compared with. The first test is before all training, the second one is compared."""
    first, second = (each["losses"][1][2] for each in (one, run))
    return [name, f"{run['losses'][-1][2]:.4f}", f"{run['accuracies'][-1][2]:.4f}", "-" if run is one else f"{abs(second - first) / first:.1e}",
            "-" if run is one else f"{run['difference']:.1e}", "yes" if run["equal"] else "no", f"{run['seconds']:.1f} s"]


def rows_of(runs, control):
    rows = [row_of(str(run["workers"]), run, runs[0]) for run in runs]
    return rows + [row_of(f"1, noise of {NOISE:.0e} in the first weights", control, runs[0])] if control else rows


def text_of(found):
    """The page. `found`: what __main__ keeps."""
    text = HEAD
    for name, net in NETS.items():
        if name not in found:
            continue
        of_net = found[name]
        text += f"## {net.title}\n\n![Loss and accuracy of {net.title} by iterations and seconds.](convergence/{name}.svg)\n\n"
        text += f"Global batch {net.batch}, {net.iterations} iterations, loss and accuracy over {net.tested:,} images of the test ({of_net['date']}, " \
                f"{of_net['commit'] or 'an unknown commit'}).\n\n"
        text += table(["workers", "last test loss", "last accuracy", f"difference of the test loss from one worker at iteration {net.tests_every}",
                       "largest difference", "equal bits on all workers",
                       "time"], rows_of(of_net["runs"], of_net.get("control"))) + "\n\n"
    return text.rstrip() + "\n" + TAIL


def plot(runs, path):
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(8, 5))
    for run in runs:
        for down, values in enumerate(("losses", "accuracies")):
            for across in range(2):
                axes[down][across].plot([one[across] for one in run[values]], [one[2] for one in run[values]], linewidth=1,
                                        color=COLORS[run["workers"]], label=f"{run['workers']} worker" + "s" * (run["workers"] > 1))
    for across, label in enumerate(("iterations", "seconds")):
        axes[0][across].set(ylabel="test loss", xlabel=label)
        axes[1][across].set(ylabel="accuracy", xlabel=label)
    axes[0][0].legend(frameon=False, fontsize=7)
    save(plt, figure, path)
