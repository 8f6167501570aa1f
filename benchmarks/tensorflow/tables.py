# SPDX-License-Identifier: Apache-2.0
"""The results of the trainings, as figures and as sections in Markdown. Needs no TensorFlow."""
import statistics

from benchmarks import cells
from benchmarks.tables import bullets, days, ms, not_measured, table, with_bounds, with_bounds_of

from . import grid

MOST_STRANGERS = 0.1  # of the cores, while the workers only computed; above it a cell is measured again


def turns_of(result, name):
    """All turns of a system, one start after another."""
    return [turn for start in result["systems"][name]["turns"] for turn in start]


def values(result, name, key="seconds"):
    return [turn[key] for turn in turns_of(result, name)]


def seconds_of(result, name):
    return statistics.median(values(result, name))


def ratios(result, name, to):
    """Steps of `to` in steps of `name`, turn by turn: the two of a round ran one right after the other, so that a
    machine that is slower for a while is slower for both."""
    return [ratio_of_round for start in by_start(result, name, to) for ratio_of_round in start]


def by_start(result, name, to):
    """The same, a list per start."""
    return [[theirs["seconds"] / ours["seconds"] for ours, theirs in zip(*pair)]
            for pair in zip(*(result["systems"][system]["turns"] for system in (name, to)))]


def ratio(result, name, to):
    """The median over starts of their medians, with the bounds of 95 %: starts are drawn again, and turns within them."""
    return with_bounds_of(tuple(((1.0,), tuple(start)) for start in by_start(result, name, to)))


def spread(numbers, form="{:.2f}"):
    return f"{form.format(min(numbers))} to {form.format(max(numbers))}"


def strangers(result):
    """The part of the cores that others took while the workers only computed."""
    return max(0.0, statistics.median(turn["machine_busy"] - turn["own_share"] for turn in turns_of(result, "local")))


def same_weights(result):
    """Whether Poseidon's and the stock peer's workers ended with the same bits, after the same steps."""
    ours, theirs = (result["systems"][name]["weights"] for name in ("poseidon", "stock"))
    return ours == theirs


def setting(result):
    cell = result["cell"]
    rate = "" if cell["rate"] == "unshaped" else f", {cell['rate'].removesuffix('G')} Gbit/s"
    return f"{grid.NETS[cell['net']]}, P={cell['workers']}{rate}"


def of_kind(results, kind):
    return [result for result in results if result["cell"]["kind"] == kind]


def count(result):
    starts = result["systems"]["poseidon"]["turns"]
    return f"{'' if len(starts) == 1 else f'{len(starts)} x '}{len(starts[0])} x {result['cell']['steps']}"


def step_table(results):
    rows = []
    for result in results:
        factors = [name for name, scheme in result["systems"]["poseidon"]["plan"].items() if scheme != "kv"]
        rows.append([setting(result), count(result), *(ms(seconds_of(result, name)) for name in ("local", "stock", "poseidon")),
                     with_bounds(ratio(result, "poseidon", "stock")), spread(ratios(result, "poseidon", "stock")),
                     f"{ratio(result, 'local', 'stock')[0]:.2f}",
                     *(ms(statistics.median(values(result, name, "cpu_seconds"))) for name in ("local", "stock", "poseidon")),
                     " and ".join(f"{statistics.median(values(result, name, 'sent_bytes')) / 1e6:.3g}"
                                  for name in ("stock", "poseidon")),
                     ", ".join(factors) or "none", "yes" if same_weights(result) else "no",
                     f"{strangers(result):.0%}"])
    return table(["net, workers, links", "turns x steps", "local, ms", "stock, ms", "Poseidon, ms", "stock / Poseidon [95 %]",
                  "of turns", "stock / local", "CPU ms of all workers: local", "stock", "Poseidon",
                  "MB sent by a worker: stock, Poseidon", "by factors", "same weights", "strangers"], rows)


def overhead_table(results):
    rows = []
    for result in results:
        value, low, high = ratio(result, "local", "poseidon")
        starts = map(statistics.median, by_start(result, "local", "poseidon"))
        rows.append([setting(result), count(result), ms(seconds_of(result, "local")), ms(seconds_of(result, "poseidon")),
                     f"{percent(value)} [{percent(low)}, {percent(high)}]",
                     " to ".join(percent(end(ratios(result, "local", "poseidon"))) for end in (min, max)),
                     ", ".join(map(percent, starts)), f"{strangers(result):.0%}"])
    return table(["net", "starts x turns x steps", "plain, ms", "one worker, ms", "more [95 %]", "of turns", "by start",
                  "strangers"], rows)


def percent(ratio_of_two):
    return f"{100 * (ratio_of_two - 1):+.1f} %"


def speed_ups(result, name):
    """P workers' steps in one's, of every turn; one's is that of the workers that synchronise nothing."""
    return [result["cell"]["workers"] * alone / taken
            for alone, taken in zip(values(result, "local"), values(result, name))]


def servers_table(results):
    names = ("stock", "split", "oldest", "mirrored", "poseidon")
    rows = []
    for result in results:
        def each(words_of, of=names):
            """`-` of a system that is not compared here."""
            return [words_of(name) if name in result["systems"] else "-" for name in of]
        middle = lambda name, key: statistics.median(values(result, name, key))
        rows.append([setting(result), count(result), *each(lambda name: ms(seconds_of(result, name)), ("local", *names)),
                     *each(lambda name: f"{statistics.median(speed_ups(result, name)):.2f} "
                                        f"({spread(speed_ups(result, name))})"),
                     *each(lambda name: f"{ratio(result, 'poseidon', name)[0]:.2f}", names[:-1]),
                     " ".join(each(lambda name: f"{middle(name, 'sent_bytes') / 1e6:.3g}")),
                     " ".join(each(lambda name: ms(middle(name, "cpu_seconds")))),
                     " ".join(each(lambda name: f"{max(values(result, name, 'machine_busy')):.0%}"))])
    titles = [*names[:-1], "Poseidon"]
    return table(["net, workers, links", "turns x steps", *(f"{title}, ms" for title in ("local", *titles)),
                  f"speed-up: {titles[0]}", *titles[1:], *(f"{title} / Poseidon" for title in titles[:-1]),
                  f"MB sent by the busiest node: {', '.join(titles)}", "CPU ms of all nodes", "machine busy, at most"], rows)


def with_system(results, net, rate, name):
    """Those of a net and its links that have a system."""
    return [result for result in results
            if (result["cell"]["net"], result["cell"]["rate"]) == (net, rate) and name in result["systems"]]


def scaling(results):
    """Whether more workers are slower, per net, links and system."""
    lines = []
    settings = dict.fromkeys((result["cell"]["net"], result["cell"]["rate"]) for result in results)
    for net, rate in settings:
        for name, words in (("stock", "variables whole"), ("split", "variables split"), ("oldest", "variables whole, 2.16.2"),
                            ("mirrored", "MultiWorkerMirroredStrategy"), ("poseidon", "Poseidon")):
            members = with_system(results, net, rate, name)
            if not members:
                continue
            workers = " ".join(str(result["cell"]["workers"]) for result in members)
            found = [statistics.median(speed_ups(result, name)) for result in members]
            lines.append(f"{grid.NETS[net]}, {rate.removesuffix('G')} Gbit/s, {words}: speed-up "
                         + " ".join(f"{value:.2f}" for value in found) + f" with {workers} workers"
                         + (", slower than one worker" if min(found) < 1 else "")
                         + (", falling with more of them" if any(b < a for a, b in zip(found, found[1:])) else ""))
    return bullets(lines)


def goals(results):
    """The cells that meet their goals and those that miss them."""
    asked = {cell.name: cell for cell in grid.cells()}
    missed, met, again = [], [], []
    for result in results:
        cell = asked[result["name"]]
        if cell.goal:
            value, low, _ = ratio(result, "poseidon", cell.against)
            reached = low if cell.bound else value
            (met if reached >= cell.goal else missed).append(
                f"{setting(result)}: {cell.against} / Poseidon {reached:.3g}, asked {cell.goal:.3g}"
                + (" (lower bound)" if cell.bound else ""))
        if cell.kind != "servers" and strangers(result) > MOST_STRANGERS:
            again.append(f"to be measured again: {cell.kind}, {setting(result)}: strangers had {strangers(result):.0%} of the "
                         "cores")
    return bullets([f"{len(met)} of {len(met) + len(missed)} goals are reached.", *(f"reached: {line}" for line in met),
                    *(f"missed: {line}" for line in missed), *again])


def summary(results):
    """Rows for cells.summary_of, by kind of comparison."""
    kinds = {"train": ("stock", "The step of MultiWorkerMirroredStrategy in Poseidon's", 1),
             "overhead": ("local", "A plain step of `fit` in that of a single worker", 0.98),
             "servers": ("stock", "The step of synchronous parameter servers in Poseidon's, eight workers, computing slept", 1)}
    for result in results:
        if result["cell"]["kind"] == "servers" and result["cell"]["workers"] < 8:
            continue
        against, words, goal = kinds[result["cell"]["kind"]]
        yield result, setting(result), words, ratio(result, "poseidon", against), goal


def systems_of(kind):
    return bullets(f"*{'plain' if (kind, name) == ('overhead', 'local') else name}*: {words}"
                   for name, words in grid.SYSTEMS[kind].items())


def missing(results):
    names = not_measured(grid.cells(), results)
    return f"Not measured yet: {names}." if names else ""


def section(folder, plot=None):
    """All of it, for a document that has its own heading. `plot`: the file of the speed-ups, beside the document."""
    results = cells.results_in(folder, grid.cells())
    if not results:
        return "Nothing was measured yet."
    last = max(results, key=lambda result: result["date"])
    commits = dict.fromkeys(result["versions"]["poseidon"] for result in results)
    train, overhead, servers = (of_kind(results, kind) for kind in grid.SYSTEMS)
    parts = [f"""Measured {days(results)} on {last["machine"]["cpu"]}, {last["machine"]["cores"]} cores for all
workers, with TensorFlow {last["versions"]["tensorflow"]} and Keras {last["versions"]["keras"]}, at {", ".join(f"`{commit}`" for commit in commits)}.
Processes of all systems of a comparison live side by side and run by turns, in an order drawn from the seed. A ratio
is the median over turns of the ratio within a round, whose systems ran one right after another (of several starts the
median of their medians), its bounds are bootstrapped. *Strangers*: what others had of the cores while the workers only computed. {missing(results)}

{goals(results)}"""]
    if train:
        parts.append(f"""## Beside MultiWorkerMirroredStrategy

{systems_of("train")}

Same initial weights, data, optimizer (SGD, momentum 0.9), threads and steps; after {grid.WARM_UP} steps or more of warm-up, in which
Poseidon makes its plan. Nothing is encrypted. *Same weights*: bit for bit, at the end.

{step_table(train)}""")
    if overhead:
        parts.append(f"""## One worker

{systems_of("overhead")}

{overhead_table(overhead)}""")
    if servers:
        parts.append(f"""## Synchronous parameter servers

{systems_of("servers")}

The profiles of `benchmarks/profiles` (batches and times as published for one Titan X), computing slept, sizes and link
rates divided by {grid.SCALE}: transfers take what they would at full size, and TensorFlow's calls cost this machine's cores what
they cost. Speed-up: P times the step that synchronises nothing, in steps; median and range of turns. Every run's
weights are compared with what they have to be. ParameterServerStrategy is not here: it is asynchronous, its steps
do not wait for one another and lose updates, so that its seconds are not those of the same training.

{scaling(servers)}

{f"![Speed-up over one worker]({plot})" if plot else ""}

{servers_table(servers)}""")
    return "\n\n".join(parts) + "\n"
