# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md from the cells' results: tables in Markdown around the prose of template.md."""
import pathlib
import re
import statistics

from . import grid
from .figures import best_ddp, figures_of

TEMPLATE = pathlib.Path(__file__).resolve().parent / "template.md"
GOAL = 1.02  # of T*(trace)


def table(head, rows):
    """A Markdown table; the first column is left, the others right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def rate_words(bits):
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def setting(result):
    """A cell in words: profile, workers, rate, and what differs from the usual."""
    cell = result["cell"]
    words = [f"{cell['profile']}, P={cell['workers']}, {rate_words(cell['real_rate_bits'])}"]
    if isinstance(cell["rate"], str):
        words[0] += f" ({cell['rate']} ridge)"
    if cell["queue_seconds"] != 0.050:
        words.append(f"queue {cell['queue_seconds'] * 1e3:g} ms")
    if cell["jitter"]:
        words.append(f"jitter {cell['jitter']:.0%}")
    if cell["straggler"] != 1:
        words.append(f"straggler {cell['straggler']:g}x")
    return ", ".join(words)


def number(value, places=3):
    return "-" if value is None else f"{value:.{places}f}"


def with_spread(figures):
    """A ratio to T* with its quartiles."""
    if figures is None or not figures.bound:
        return "-"
    low, high = (q / figures.bound for q in figures.quartiles)
    return f"{figures.to_bound:.3f} [{low:.3f}, {high:.3f}]"


def over(a, b):
    return "-" if a is None or b is None else f"{a.seconds / b.seconds:.2f}"


def step_table(results):
    rows = []
    for result in results:
        f = figures_of(result)
        ours, dense, ddp = f.get("poseidon"), f.get("dense"), best_ddp(f)
        if not ours:
            continue
        rows.append([setting(result), number(ours.first["single_worker_seconds"]), number(ours.bound),
                     number(ours.seconds), with_spread(ours), with_spread(dense),
                     number(ddp and ddp.seconds), over(ddp, ours), over(ddp, dense)])
    return table(["setting", "computing, s", "T\\*, s", "Poseidon, s", "Poseidon / T\\*",
                  "dense / dense T\\*", "DDP, s", "DDP / Poseidon", "DDP / dense"], rows)


def prediction_table(results):
    rows = []
    for result in results:
        f = figures_of(result)
        row = [setting(result)]
        for name in ("poseidon", "dense"):
            turns = result["systems"].get(name, {"turns": []})["turns"]
            row += [number(f[name].first["predicted_seconds"]) if name in f else "-",
                    " and ".join(number(t["predicted_seconds"] / t["median_seconds"]) for t in turns) or "-"]
        rows.append(row)
    return table(["setting", "Poseidon predicted, s", "/ measured, by turn", "dense predicted, s",
                  "/ measured, by turn"], rows)


def mode_table(results):
    names = ("dense", "tls", "wfbp", "p3", "dear", "ddp-1", "ddp-4")
    rows = []
    for result in results:
        f = figures_of(result)
        if any(name in f for name in ("tls", "wfbp", "p3", "dear")):
            rows.append([setting(result), *(with_spread(f.get(name)) for name in names)])
    return table(["setting", *names], rows)


def per_system(results, head, cells_of):
    """A table with a row per cell and system that ran."""
    rows = []
    for result in results:
        for name, f in figures_of(result).items():
            rows.append([setting(result), name, *cells_of(f, result)])
    return table(["setting", "system", *head], rows)


def cpu_table(results):
    def cells(f, result):
        wire, cpu = f.first["wire_bytes_per_step"], f.first["cpu_seconds_per_step"]
        total = wire * result["cell"]["workers"] if wire else None
        share = cpu / f.seconds / (result.get("machine", {}).get("cores") or 1)
        full = cpu * result["cell"]["scale"] / f.seconds / result["cell"]["workers"]
        return [number(cpu), f"{share:.0%}", number(total and cpu / (total / 1e9), 2), number(full, 2)]
    return per_system(results, ["CPU s per step, all workers", "of the machine", "CPU s per wire GB",
                                "cores per worker at full size"], cells)


def burst_table(results):
    def cells(f, result):
        wire = f.first["wire_bytes_per_step"]
        return [number(wire and wire * result["cell"]["scale"] / 1e6, 1),
                number(f.first["peak_to_mean"], 2), number(f.first["max_to_mean_bytes"], 3),
                number(f.first["retransmits"], 0), number(f.first["dropped"], 0)]
    return per_system(results, ["MB sent per worker and step at full size", "peak / mean of 10 ms",
                                "max / mean bytes", "retransmits", "drops"], cells)


def scheme_table(results):
    rows = []
    for result in results:
        f, scale = figures_of(result), result["cell"]["scale"]
        ours, dense = f.get("poseidon"), f.get("dense")
        if not ours or not dense:
            continue
        sent = [x.first["payload_bytes_per_step"] for x in (ours, dense)]
        if all(sent):
            rows.append([setting(result), number(sent[1] * scale / 1e6, 1), number(sent[0] * scale / 1e6, 1),
                         number(sent[1] / sent[0], 2), " ".join(ours.first["by_factors"]) or "none"])
    return table(["setting", "dense, MB", "Poseidon, MB", "dense / Poseidon", "layers by factors"], rows)


def gate_table(results):
    rows = []
    for result in results:
        gate, cell = result["gate"], result["cell"]
        share = lambda phase: "-" if gate[phase]["least_share"] is None else f"{gate[phase]['least_share']:.1%}"
        rows.append([setting(result), rate_words(cell["port_rate_bits"]), f"{cell['scale']:.3g}",
                     *(share(phase) for phase in ("ring", "all_to_all", "incast")),
                     f"{gate['round_trip_seconds'] * 1e6:.0f}", str(gate.get("attempts", 1)),
                     "refused" if result.get("refused") else "passed",
                     str(result["versions"]["poseidon"])])
    return table(["setting", "port", "sizes divided by", "ring", "all to all", "incast",
                  "round trip, us", "attempts", "gate", "commit"], rows)



def coverage(cells, results):
    """Which cells of the grid stand here, which were refused or failed, and which are missing."""
    by_name = {result["name"]: result for result in results}
    lines = [f"{len([r for r in results if not r.get('refused')])} of the {len(cells)} cells of the grid "
             "were measured."]
    if missing := [cell.name for cell in cells if cell.name not in by_name]:
        lines.append("Not measured yet: " + ", ".join(f"`{name}`" for name in missing) + ".")
    for result in results:
        if result.get("refused"):
            lines.append(f"`{result['name']}` was refused by the gate: {result['refused']}.")
        for name, system in result["systems"].items():
            if "failed" in system:
                lines.append(f"In `{result['name']}`, {name} did not finish: {system['failed']}.")
    return "\n".join(f"- {line}" for line in lines)


def medians_of(result, system):
    return [turn["median_seconds"] for turn in result["systems"][system]["turns"]]


def goals(results):
    """What the goals ask of these cells, and which of them miss it."""
    lines = []
    for system, words in (("poseidon", "Poseidon"), ("dense", "dense only")):
        found = [(result, figures_of(result)) for result in results]
        found = [(result, f[system], best_ddp(f)) for result, f in found if system in f]
        if not found:
            continue
        above = [(r, f) for r, f, _ in found if f.bound and f.to_bound > GOAL]
        slower = [(r, f, d) for r, f, d in found if d and f.seconds > d.seconds]
        lines.append(f"{words}: {len(found) - len(above)} of {len(found)} cells within {GOAL:g} T\\*, median "
                     f"{statistics.median(f.to_bound for _, f, _ in found):.3f} T\\*; "
                     f"slower than DDP in {len(slower)}.")
        lines += [f"a turn slower than DDP, {words}: {setting(r)}: {max(turns) / d.seconds:.3f} of its step"
                  for r, f, d in found
                  if d and max(turns := medians_of(r, system)) > d.seconds >= f.seconds]
        lines += [f"above {GOAL:g} T\\*, {words}: {setting(r)}: {f.to_bound:.3f}" for r, f in above]
        lines += [f"slower than DDP, {words}: {setting(r)}: {f.seconds / d.seconds:.3f} of its step"
                  for r, f, d in slower]
    predicted = [turn["predicted_seconds"] / turn["median_seconds"] for result in results
                 for name in ("poseidon", "dense")
                 for turn in result["systems"].get(name, {"turns": []})["turns"]]
    if predicted:
        good = sum(abs(p - 1) <= 0.05 for p in predicted)
        lines.append(f"prediction within 5 % in {good} of {len(predicted)} turns of Poseidon and of dense.")
    return "\n".join(f"- {line}" for line in lines)


def same(results, name, part):
    """What all results agree on, or all that they have."""
    found = sorted({str(result[name].get(part)) for result in results})
    return " and ".join(found)


def head(results):
    dates = sorted({result["date"] for result in results})
    measured = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return table(["", ""], [
        ["measured", measured],
        ["CPU", f"{same(results, 'machine', 'cpu')}, {same(results, 'machine', 'cores')} cores, "
                f"{same(results, 'machine', 'memory_gib')} GiB"],
        ["kernel", same(results, "machine", "kernel")],
        ["Poseidon", "commit " + same(results, "versions", "poseidon")],
        ["compiler, Python, PyTorch", f"GCC {same(results, 'versions', 'gcc')}, "
         f"{same(results, 'versions', 'python')}, {same(results, 'versions', 'torch')}"],
        ["seed", str(grid.SEED)]])


def systems_table(results):
    ran = {name for result in results for name in result["systems"]}
    return table(["system", "what it is"],
                 [[name, system.words] for name, system in grid.SYSTEMS.items() if name in ran])


def plots_in(plots):
    """Plots with their captions; without one, that more cells are needed."""
    parts = [f"![{caption}](performance/{name})\n\n{caption}" if caption
             else f"`{name}` needs cells that were not measured." for name, caption in plots]
    return "\n\n".join(parts)


def document(cells, results, plots):
    """The whole text. `plots` are names of SVG files beside the results, in order, with a caption,
    or None where there were too few results."""
    passed = [result for result in results if result["systems"]]
    parts = {"head": head(results) if results else "", "coverage": coverage(cells, results),
             "goals": goals(passed), "systems": systems_table(passed), "steps": step_table(passed),
             "modes": mode_table(passed), "predictions": prediction_table(passed),
             "schemes": scheme_table(passed), "cpu": cpu_table(passed), "bursts": burst_table(passed),
             "gate": gate_table(results),
             "plots": plots_in(plots)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], TEMPLATE.read_text())
