# SPDX-License-Identifier: Apache-2.0
"""The results of the trainings, as figures and as a section in Markdown. Needs no torch."""
import itertools
import math
import statistics

from benchmarks import cells
from benchmarks.tables import bullets, days, ms, not_measured, table, with_bounds, with_bounds_of

from . import grid

LEAST_SHARE = 0.9  # of the cores; below it a cell is measured again
TOLERANCE = 0.02  # of the loss of the first step: sums in another order drift apart


def seconds_of(result, name):
    """The median of all counted steps."""
    return statistics.median(step for turn in result["systems"][name]["turns"] for step in turn)


def undisturbed(result):
    """The part of the cores that the workers had while they only computed; the rest went to strangers."""
    cores = min(result["cell"]["workers"], result["machine"]["cores"])
    return result["systems"]["local"]["cpu_seconds_per_step"] / (seconds_of(result, "local") * cores)


def best(result):
    """DDP's quicker variant here."""
    return min(("ddp", "ddp4"), key=lambda name: seconds_of(result, name))


def ratio(result, name, to):
    """Steps of `to` in steps of `name`: the median over turns of a turn's medians, which followed one another, so
    that a machine that is slower for a while is slower for both. With the bounds of 95 %: turns are drawn again,
    and steps within them."""
    return with_bounds_of(tuple(zip(*(map(tuple, result["systems"][system]["turns"]) for system in (name, to)))))


def most_possible(result):
    """DDP's steps in steps that synchronise nothing: what a network that costs nothing would give."""
    return ratio(result, "local", best(result))[0]


def most_by_bytes(result, name):
    """DDP's step in what the factors of a step take on a worker's link alone, at 0.956 of its rate; no limit where
    none are sent or the link has no rate."""
    cell, system = result["cell"], result["systems"][name]
    numbers = sum(of_a_row for layer, of_a_row in grid.FACTORS.get(cell["net"], {}).items()
                  if system["schemes"].get(layer, "kv") != "kv")
    if not numbers or not cell["rate_bits"]:
        return math.inf
    seconds = 32 * numbers * system["batch"] * (cell["workers"] - 1) / (0.956 * cell["rate_bits"])
    return seconds_of(result, best(result)) / seconds


def most_by_cores(result, name):
    """DDP's step in what the processor time of all workers' step takes on the cores that they share."""
    cores = min(result["cell"]["workers"], result["machine"]["cores"])
    return seconds_of(result, best(result)) * cores / result["systems"][name]["cpu_seconds_per_step"]


def bounds(result, name):
    """What a step of the system cannot be below, as DDP's steps in it, and how that is said."""
    yield most_possible(result), "without any synchronising it would be {:.2f}"
    yield most_by_bytes(result, name), "its factors alone, without any computing, let it be {:.2f} at most"
    took = 1e3 * result["systems"][name]["cpu_seconds_per_step"]
    yield (most_by_cores(result, name),
           f"its {took:.0f} ms of processor time, on the cores that all workers share, let it be {{:.2f}} at most")


def steps_words(result, *names):
    """How many steps a turn counted of these systems, which is few where a step is long."""
    counts = [statistics.median(map(len, result["systems"][name]["turns"])) for name in names]
    return f"{len(result['systems'][names[0]]['turns'])} x " + ", ".join(f"{count:g}" for count in counts)


def losses(result, name, to="ddp"):
    """The step to which both have come, its two losses, and the largest difference up to there, in parts of
    the loss of the first step."""
    one, other = (result["systems"][system]["losses"] for system in (name, to))
    steps = min(len(one), len(other))
    most = max(abs(a - b) for a, b in zip(one, other)) / other[0]
    return steps, one[steps - 1], other[steps - 1], most


def setting(result):
    cell = result["cell"]
    rate = {"1G": ", 1 Gbit/s"}.get(cell["rate"], "")
    return f"{grid.NETS[cell['net']]}, P={cell['workers']}{rate}"


def step_table(results):
    rows = []
    for result in results:
        rows.append([setting(result), steps_words(result, "overlap", "ddp"),
                     *(ms(seconds_of(result, name)) for name in ("local", "ddp", "ddp4", "waiting", "overlap")),
                     *(with_bounds(ratio(result, name, best(result))) for name in ("waiting", "overlap")),
                     f"{most_possible(result):.2f}", *map(prediction(result), ("waiting", "overlap"))])
    return table(["net, workers, links", "turns x steps of overlap, DDP", "local, ms", "DDP, ms", "DDP on four, ms", "waiting, ms",
                  "overlap, ms", "DDP / waiting [95 %]", "DDP / overlap [95 %]", "DDP / local", "predicted: waiting",
                  "overlap"], rows)


def prediction(result):
    """By system: what the final plan says that a step takes, and how far the measured one is from it."""
    def words(name):
        predicted = result["systems"][name]["predicted_seconds"]
        return f"{ms(predicted)} ms, {seconds_of(result, name) / predicted - 1:+.0%}" if predicted else "none"
    return words


def overhead(result, name):
    """A system's step more than a plain one, in percent, with the bounds of 95 %."""
    value, low, high = (100 * (1 / found - 1) for found in ratio(result, name, "local"))
    return f"{value:+.1f} % [{high:+.1f} %, {low:+.1f} %]"


def one_worker_table(results):
    return table(["net", "turns x steps", "plain, ms", "distribute, ms", "more [95 %]", "wrap, ms", "more [95 %]",
                  "starts of plain apart"],
                 [[grid.NETS[result["cell"]["net"]], steps_words(result, "local"), ms(seconds_of(result, "local")),
                   ms(seconds_of(result, "alone")), overhead(result, "alone"), ms(seconds_of(result, "waiting")),
                   overhead(result, "waiting"), f"{apart(result):.1%}"] for result in results])


def apart(result):
    """By how much the slowest start of the plain program took longer than the quickest."""
    turns, many = result["systems"]["local"]["turns"], result["cell"]["turns"]
    medians = [statistics.median(itertools.chain(*turns[begin:begin + many])) for begin in range(0, len(turns), many)]
    return max(medians) / min(medians) - 1


def other_table(results):
    rows = []
    for result in results:
        systems = result["systems"]
        cpu = [ms(systems[name]["cpu_seconds_per_step"]) for name in ("local", "ddp", "ddp4", "waiting", "overlap")]
        steps, ours, theirs, most = losses(result, "overlap")
        factors = [name for name, scheme in systems["overlap"]["schemes"].items() if scheme != "kv"]
        rows.append([setting(result), *cpu, f"{undisturbed(result):.0%}", " ".join(factors) or "none",
                     f"{ours:.4f} and {theirs:.4f}", str(steps), f"{most:.1e}"])
    return table(["net, workers, links", "local: CPU ms of all workers", "DDP", "DDP on four", "waiting", "overlap",
                  "cores for the workers", "by factors", "loss, ours and DDP's", "at step",
                  "largest difference so far"], rows)


def goals(results):
    """The cells that meet their goals and those that miss them."""
    asked = {cell.name: cell for cell in grid.cells()}
    missed, met = [], []
    for result in results:
        cell = asked[result["name"]]
        if cell.workers == 1:
            reached = ratio(result, "alone", "local")[0]
            (met if reached >= cell.goal else missed).append(f"{setting(result)}: {overhead(result, 'alone')} more than a plain step, asked "
                                                             f"{100 * (1 / cell.goal - 1):.1f} % at most")
            continue
        for name in ("overlap", "waiting"):
            value, low, _ = ratio(result, name, best(result))
            if cell.goal and (name == "overlap" or cell.no_slower):
                reached = low if cell.no_slower else value
                (met if reached >= cell.goal else missed).append(
                    f"{setting(result)}, {name}: {reached:.2f}, asked {cell.goal:g}"
                    + (" (lower bound)" if cell.no_slower else "")
                    + "".join(f"; {words.format(most)}" for most, words in bounds(result, name) if most < cell.goal))
            if losses(result, name)[3] > TOLERANCE:
                missed.append(f"{setting(result)}, {name}: its losses differ from DDP's by more than "
                              f"{TOLERANCE:.0%} of the first")
    lines = [f"{len(met)} of {len(met) + len(missed)} goals are reached.", *(f"missed: {line}" for line in missed),
             *(f"to be measured again: {setting(result)}: strangers used the cores, {undisturbed(result):.0%} "
               "were left"
               for result in results if undisturbed(result) < LEAST_SHARE)]
    return bullets(lines)


def summary(results):
    """Rows for cells.summary_of: the quicker DDP in steps of the overlap mode, of one worker a plain step in ours."""
    for result in results:
        if result["cell"]["workers"] > 1:
            yield (result, setting(result), "DDP's step in Poseidon's, with `overlap=\"forward\"`",
                   ratio(result, "overlap", best(result)), 1)
        else:
            yield result, setting(result), "A plain step in that of a single worker through `distribute`", ratio(result, "alone", "local"), 0.98


def coverage(results):
    missing = not_measured(grid.cells(), results)
    return bullets([f"{len(results)} of {len(grid.cells())} cells were measured." + (f" Not yet: {missing}." if missing else "")])


def section(folder):
    """All of it, for a document that has its own heading."""
    results = cells.results_in(folder, grid.cells())
    if not results:
        return "Nothing was measured yet."
    machine = results[0]["machine"]
    words = bullets(f"*{name}*: {what}" for name, what in grid.SYSTEMS.items())
    several, one = ([result for result in results if (result["cell"]["workers"] > 1) == many] for many in (True, False))
    turns = sorted({len(result["systems"]["local"]["turns"]) for result in several})
    return f"""Real training, computed on the cores that serve the network. One process per worker holds a copy of the net
per system; the systems train by turns, {" or ".join(map(str, turns))} each (more where the goal is to be no slower), in an
order drawn from the seed. One thread per worker, SGD with momentum, nothing encrypted. Times are medians of all
turns' steps and the mean of the workers. A ratio is the median over turns of the ratio within a turn, whose
systems ran one right after another, the first step of a turn not counted; its bounds are bootstrapped over turns and steps,
and say little where there are few of them. Every process keeps the memory that it frees, which glibc else gives back and gets again
by luck. DDP / local: what a network that costs nothing would give; a small factor above it is what turns
differ by, and that factors also spare products; the ratios are to the quicker of DDP's two. *Predicted*: the final plan's
step, and how far the measured one is from it; the plan knows nothing of cores that compute and send at once. *Cores for the workers*: what computing alone got of them; below
90 % a cell is measured again. *At step*: how far both had come, and with losses of which difference. Measured {days(results)} on {machine["cpu"]},
{machine["cores"]} cores for all workers.

{words}

{coverage(results)}
{goals(results)}

{step_table(several)}

{other_table(several)}

One worker, beside a plain program: through `distribute`, which leaves one worker alone, and through `wrap`, which does all that
several workers need. The three train by turns in each of {grid.STARTS} processes, one after the other.

{one_worker_table(one)}
"""
