# SPDX-License-Identifier: Apache-2.0
"""The figures of a cell from its raw or recorded result (record.py), and what got worse between two results."""
import dataclasses
import statistics

from . import grid

LEAST_SPREAD = 0.01  # of a ratio: what two runs on a quiet machine differ by
OVERLAPPING = ("poseidon", "dense", "tls", "p3", "dear", "flat", "levels")  # a step's bytes reach into the next


@dataclasses.dataclass
class Figures:
    """Of one system in one cell, over all its turns.

    seconds     median over turns of the median step; quartiles are those of all steps
    bound       T*(trace) of the schemes it used; that of all-reduces is the dense run's
    to_bound    median over turns of the median step over the turn's own bound: turns may differ in their plans
    spread_to_bound  quartiles of all steps, each over its turn's bound
    spread      half of what the middle half of the steps, or the turns, differ by, relative
    plans       what the turns sent, (payload bytes per step, layers by factors), each plan once
    medians, predicted  by turn: the median step, and the step that the final plan predicted, which only ours do
    """
    seconds: float
    quartiles: tuple
    bound: float | None
    to_bound: float | None
    spread_to_bound: tuple | None
    spread: float
    plans: list
    medians: list
    predicted: list
    first: dict

FIRST = ("predicted_seconds", "cpu_seconds_per_step", "core_wait_seconds_per_step", "retransmits", "dropped", "peak_to_mean",
         "max_to_mean_bytes", "wire_bytes_per_step", "t_wfbp", "single_worker_seconds", "background_share", "machine_busy",
         "machine_stolen")


def median_of(turns, name):
    found = [turn[name] for turn in turns if turn.get(name) is not None]
    return statistics.median(found) if found else None


def stolen_from(turn):
    """The share of the machine that others took while a turn's steps were measured; of a turn whose steps were not
    watched, their share over the whole run, None where nobody counted."""
    return turn.get("window_stolen", turn.get("machine_stolen"))


def quartiles_of(values):
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def figures_of(result):
    """Figures by system of a cell's result; what did not finish is left out."""
    found = {name: recorded_figures(system) for name, system in result["systems"].items() if "medians" in system}
    turns_of = {name: system["turns"] for name, system in result["systems"].items() if system.get("turns")}
    dense = median_of(turns_of.get("dense", []), "t_star")
    for name in sorted(turns_of, key=list(grid.SYSTEMS).index):
        turns = turns_of[name]
        medians = [turn["median_seconds"] for turn in turns]
        seconds = statistics.median(medians)
        low, high = quartiles_of([s for turn in turns for s in turn["seconds"]])
        spread = max((high - low) / 2, (max(medians) - min(medians)) / 2) / seconds
        ours = grid.SYSTEMS[name].program == "ours"
        bounds = [turn.get("t_star") if ours else dense for turn in turns]
        to_bound = spread_to_bound = None
        if all(bounds):
            to_bound = statistics.median(median / bound for median, bound in zip(medians, bounds))
            spread_to_bound = quartiles_of([s / bound for turn, bound in zip(turns, bounds) for s in turn["seconds"]])
        first = {key: median_of(turns, key) for key in FIRST}
        stolen = [share for share in map(stolen_from, turns) if share is not None]
        first["stolen"] = statistics.median(stolen) if stolen else None
        first |= {key: None for key in unsure(result, name, turns)}
        found[name] = Figures(seconds, (low, high), statistics.median(bounds) if all(bounds) else None, to_bound,
                              spread_to_bound, spread, plans_of(turns), medians,
                              [turn["predicted_seconds"] for turn in turns if "predicted_seconds" in turn], first)
    return {name: found[name] for name in sorted(found, key=list(grid.SYSTEMS).index)}


def recorded_figures(system):
    """Of one system as record.py keeps it."""
    of = {field.name: system[field.name] for field in dataclasses.fields(Figures)}
    of["plans"] = [(sent, tuple(by_factors)) for sent, by_factors in of["plans"]]
    of["first"] = dict.fromkeys((*FIRST, "stolen")) | of["first"]
    for name in ("quartiles", "spread_to_bound"):
        of[name] = of[name] and tuple(of[name])
    return Figures(**of)


def unsure(result, name, turns):
    """The figures that are not shown of turns whose links were not yet read between the ends of two steps: then what
    overlaps counted as one step more, and others' traffic went on after the last."""
    if all("window_seconds" in turn for turn in turns):
        return ()
    if result["cell"].get("background"):
        return "wire_bytes_per_step", "peak_to_mean", "max_to_mean_bytes"
    return ("wire_bytes_per_step",) if name in OVERLAPPING else ()


def thrown_away(systems):
    """How many turns of a cell's systems were run again because others took too much of the machine."""
    found = [system.get("thrown_away", []) for system in systems.values()]
    return sum(one if isinstance(one, int) else len(one) for one in found)


def watched(systems):
    """Whether what others took of the machine was counted while the steps were measured."""
    return any(isinstance(system.get("thrown_away"), int) or any("window_stolen" in turn for turn in system.get("turns", []))
               for system in systems.values())


def plans_of(turns):
    plans = [(turn["payload_bytes_per_step"], tuple(turn["by_factors"])) for turn in turns
             if turn.get("payload_bytes_per_step")]
    return list(dict.fromkeys(plans))


def usual(cell):
    """Whether nothing disturbs a cell, and every worker has a port of its own."""
    return (cell["queue_seconds"] == 0.050 and not cell["jitter"] and cell["straggler"] == 1
            and not cell.get("background") and not cell.get("latency_seconds") and cell.get("per_node", 1) == 1)


def best_ddp(figures):
    """DDP with the connections that serve it best; None if it did not run."""
    return min((f for name, f in figures.items() if name.startswith("ddp")),
               key=lambda f: f.seconds, default=None)


def ratios_of(result):
    """The figures that are compared between machines and days; lower is better: name -> (ratio, spread)."""
    figures = figures_of(result)
    ddp = best_ddp(figures)
    ratios = {}
    for name in ("poseidon", "dense"):
        if name in figures:
            f = figures[name]
            if f.bound:
                ratios[f"{name} / T*"] = (f.to_bound, f.spread)
            if ddp:
                ratios[f"{name} / DDP"] = (f.seconds / ddp.seconds, f.spread + ddp.spread)
    return ratios


def worse(recorded, measured):
    """Sentences on the ratios of `measured` that exceed the recorded ones by more than both spreads,
    and on what was recorded and is missing."""
    before, now = ratios_of(recorded), ratios_of(measured)
    for name, (ratio, spread) in before.items():
        if name not in now:
            yield f"{name} was {ratio:.3f} and is missing"
            continue
        limit = ratio * (1 + max(spread, LEAST_SPREAD) + max(now[name][1], LEAST_SPREAD))
        if now[name][0] > limit:
            yield f"{name} was {ratio:.3f} and is {now[name][0]:.3f}, allowed was {limit:.3f}"
