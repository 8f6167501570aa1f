# SPDX-License-Identifier: Apache-2.0
"""Writes the results that stay in the tree: docs/performance/recorded.json, the figures of every cell, a line per system.

Raw results, with every step of every turn, are in build/performance, where they were measured. The pages and --compare read
the record alone.
"""
import dataclasses
import json
import math

from . import figures

DIGITS = 7
HEAD = ("name", "date", "wall_seconds", "refused")
OF_CELL = ("profile", "workers", "rate", "real_rate_bits", "port_rate_bits", "scale", "per_node", "queue_seconds", "jitter",
           "straggler", "background", "compute", "latency_seconds", "repeats", "steps", "warm_up")
OF_GATE = ("round_trip_seconds", "attempts", "after")
PHASES = ("ring", "all_to_all", "incast")
OF_FIGURES = [field.name for field in dataclasses.fields(figures.Figures) if field.name != "first"]
COLUMNS = [*OF_FIGURES, "thrown_away", *figures.FIRST, "stolen"]  # of a system's line


def rounded(value):
    """The same with floats of DIGITS significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value


def line(value):
    return json.dumps(rounded(value), separators=(",", ":"))


def listed(document):
    """JSON of a document, rounded, with a line per entry of its lists."""
    parts = [f'{json.dumps(key)}:[\n {f",{chr(10)} ".join(map(line, value))}]' if isinstance(value, list) and value
             else f"{json.dumps(key)}:{line(value)}" for key, value in document.items()]
    return "{" + ",\n".join(parts) + "}\n"


def compact(result):
    """A result without its steps. figures.figures_of says the same of both."""
    found, systems = figures.figures_of(result), {}
    for name, system in result["systems"].items():
        kept = dataclasses.asdict(found[name]) if name in found else {}
        if kept:
            kept["first"] = {key: value for key, value in kept["first"].items() if value is not None}
        kept |= {key: system[key] for key in ("failed",) if key in system}
        if figures.watched({name: system}):
            kept["thrown_away"] = figures.thrown_away({name: system})
        systems[name] = kept
    gate, cell = result["gate"], result["cell"]
    return {**{key: result[key] for key in HEAD if key in result}, "machine": result["machine"],
            "versions": result["versions"], "cell": {key: cell[key] for key in OF_CELL if key in cell},
            "gate": {**{phase: {"least_share": gate[phase]["least_share"]} for phase in PHASES},
                     **{key: gate[key] for key in OF_GATE if key in gate}},
            "systems": systems}


def row_of(kept):
    """A system as a list in the order of COLUMNS; one that did not finish stays a dictionary."""
    if "medians" not in kept:
        return kept
    flat = kept | kept["first"]
    return [flat.get(name) for name in COLUMNS]


def system_of(row, columns):
    if isinstance(row, dict):
        return row
    flat = {name: value for name, value in zip(columns, row)}
    kept = {name: flat[name] for name in OF_FIGURES} | {"first": {
        name: flat[name] for name in (*figures.FIRST, "stolen") if flat.get(name) is not None}}
    return kept | ({"thrown_away": flat["thrown_away"]} if flat["thrown_away"] is not None else {})


def read(path):
    """The recorded results by name; none where there is no record."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    found = {}
    for one in document["cells"]:
        systems = {name: system_of(row, document["columns"]) for name, row in one["systems"].items()}
        found[one["name"]] = one | document["measured_with"][one.pop("with")] | {"systems": systems}
    return found


def text_of(results):
    """The record of results by name. What cells were measured with is written once."""
    measured_with, cells = [], []
    for name in sorted(results):
        one = dict(results[name])
        of_it = {key: one.pop(key) for key in ("machine", "versions")}
        if of_it not in measured_with:
            measured_with.append(of_it)
        systems = ",\n  ".join(f"{json.dumps(system)}:{line(row_of(kept))}" for system, kept in one.pop("systems").items())
        head = line({"with": measured_with.index(of_it), **one}).removesuffix("}")
        cells.append(f' {head},"systems":{{' + (f"\n  {systems}" if systems else "") + "}}")
    return (f'{{"columns":{line(COLUMNS)},\n"measured_with":[\n ' + ",\n ".join(map(line, measured_with))
            + '],\n"cells":[\n' + ",\n".join(cells) + "]}\n")


def merged(recorded, fresh):
    """`recorded` with results that were measured since; that the network was refused is recorded only where no result
    was."""
    kept = dict(recorded)
    for result in fresh:
        there = kept.get(result["name"])
        if not (result.get("refused") and there and not there.get("refused")):
            kept[result["name"]] = compact(result)
    return kept
