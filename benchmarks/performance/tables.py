# SPDX-License-Identifier: Apache-2.0
"""docs/performance/details.md and the detail of all cells from the cells' results: tables in Markdown around the prose of
details.md and cells.md."""
import pathlib
import re
import statistics

from benchmarks.profiles import timing
from benchmarks.simulate import compare
from benchmarks.tables import bullets, days, not_measured, table

from . import dense_path, grid
from .figures import best_ddp, figures_of, thrown_away, usual, watched

TEMPLATES = pathlib.Path(__file__).resolve().parent
GOAL = 1.02       # of T*(trace)
SAME = 0.005      # two steps that differ by less are as long
PREDICTED = 0.05  # of the measured step, what a prediction may be off by
PREDICTED_SYSTEMS = ("poseidon", "dense", "tls", "flat", "levels")  # others play what the planner does not know
OVER_DDP = {"vgg19-22k-p8-10G": {"poseidon": 1.7, "dense": 1.2}}  # times, asked of a cell
OURS = {"poseidon": "Poseidon", "dense": "dense only"}  # the systems that the goals speak of


def rate_words(bits):
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def setting(result):
    """A cell in words: profile, workers, rate, and what differs from the usual."""
    cell = result["cell"]
    shared = cell.get("per_node", 1)
    many = f" ({cell['workers'] // shared} x {shared})" if shared > 1 else ""
    words = [f"{cell['profile']}, P={cell['workers']}{many}, {rate_words(cell['real_rate_bits'])}"]
    if isinstance(cell["rate"], str):
        words[0] += f" ({cell['rate']} ridge)"
    if cell["queue_seconds"] != 0.050:
        words.append(f"queue {cell['queue_seconds'] * 1e3:g} ms")
    if cell["jitter"]:
        words.append(f"jitter {cell['jitter']:.0%}")
    if cell["straggler"] != 1:
        words.append(f"straggler {cell['straggler']:g}x")
    if cell.get("background"):
        words.append(f"background {cell['background']:.0%}")
    if cell.get("latency_seconds"):
        words.append(f"latency {cell['latency_seconds'] * 1e3:g} ms")
    if cell.get("compute", "sleep") != "sleep":
        words.append("computing burns CPU")
    return ", ".join(words)


def number(value, places=3):
    return "-" if value is None else f"{value:.{places}f}"


def with_spread(figures):
    """A ratio to T* with its quartiles."""
    if figures is None or not figures.bound:
        return "-"
    low, high = figures.spread_to_bound
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
        cell = result["cell"]
        rows.append([setting(result), f"{cell['repeats']} x {cell['steps']}",
                     number(ours.first["single_worker_seconds"]), number(ours.bound),
                     number(ours.first["t_wfbp"]), number(ours.seconds), with_spread(ours), with_spread(dense),
                     number(ddp and ddp.seconds), over(ddp, ours), over(ddp, dense)])
    return table(["setting", "turns x steps", "computing, s", "T\\*, s", "T_wfbp, s", "Poseidon, s", "Poseidon / T\\*",
                  "dense / dense T\\*", "DDP, s", "DDP / Poseidon", "DDP / dense"], rows)


def prediction_table(results):
    rows = []
    for result in results:
        f = figures_of(result)
        row = [setting(result)]
        for name in ("poseidon", "dense"):
            row += [number(f[name].first["predicted_seconds"]) if name in f else "-",
                    " and ".join(map(number, predicted_to_measured(f, name))) or "-"]
        rows.append(row)
    return table(["setting", "Poseidon predicted, s", "/ measured, by turn", "dense predicted, s",
                  "/ measured, by turn"], rows)


SCHEDULES = ("dense", "tls", "wfbp", "p3", "dear", "ps-2017", "ddp-1", "ddp-4", "mpi")


def mode_table(results):
    rows = []
    for result in results:
        f = figures_of(result)
        if any(name in f for name in ("tls", "wfbp", "p3", "dear", "ps-2017")):
            rows.append([setting(result), *(with_spread(f.get(name)) for name in SCHEDULES)])
    return table(["setting", *SCHEDULES], rows)


def mode_seconds_table(results):
    """The steps behind mode_table, which holds each to the bound of what it sends."""
    names = ("poseidon", *SCHEDULES)
    found = [(result, figures_of(result)) for result in results]
    return table(["step, s", *names],
                 [[setting(result), *(number(f[name].seconds) if name in f else "-" for name in names)]
                  for result, f in found if "ps-2017" in f])


def per_system(results, head, cells_of):
    """A table with a row per cell and system that ran."""
    rows = []
    for result in results:
        for name, f in figures_of(result).items():
            rows.append([setting(result), name, *cells_of(f, result)])
    return table(["setting", "system", *head], rows)


def whole_machine(f):
    """The share of the machine's cores that were not idle, and what other machines stole of it."""
    if f.first["machine_busy"] is None:
        return "-"
    return f"{f.first['machine_busy']:.0%}, {f.first['machine_stolen']:.1%} stolen"


def busy(f, result):
    """The share of the machine's cores that the workers' processes kept busy."""
    return f"{f.first['cpu_seconds_per_step'] / f.seconds / (result['machine'].get('cores') or 1):.0%}"


def core_wait(f, result):
    """For which part of a step a worker's threads, all together, were ready to run and had no core."""
    waited = f.first["core_wait_seconds_per_step"]
    return "-" if waited is None else f"{waited / result['cell']['workers'] / f.seconds:.1%}"


def cpu_table(results):
    def cells(f, result):
        workers, cpu = result["cell"]["workers"], f.first["cpu_seconds_per_step"]
        payload = payload_of(f, result)
        full = cpu * result["cell"]["scale"] / f.seconds / workers
        stolen = f.first["stolen"]
        return [number(cpu), busy(f, result), core_wait(f, result), "-" if stolen is None else f"{stolen:.1%}",
                number(payload and cpu / (payload * workers / 1e9), 2), number(full, 2)]
    return per_system(results, ["CPU s per step, all workers", "of the machine", "ready without a core, of a step",
                                "stolen by others", "CPU s per payload GB", "cores per worker at full size"], cells)


def payload_of(f, result):
    """Bytes that the busiest worker must send per step: by its plan; of an all-reduce what the dense plan has."""
    if f.plans:
        return statistics.fmean(payload for payload, _ in f.plans)
    dense = figures_of(result).get("dense")
    return dense.plans[-1][0] if dense and dense.plans else None


def burst_table(results):
    def cells(f, result):
        wire = f.first["wire_bytes_per_step"]
        return [number(wire and wire * result["cell"]["scale"] / 1e6, 1),
                number(f.first["peak_to_mean"], 2), number(f.first["max_to_mean_bytes"], 3),
                number(f.first["retransmits"], 0), number(f.first["dropped"], 0)]
    return per_system(results, ["MB sent per worker and step at full size", "peak / mean of 10 ms",
                                "max / mean bytes", "retransmits", "drops"], cells)


def evenness_table(results):
    """Ours beside the system of 2017: how bursty the links are, how even the nodes."""
    names = ("poseidon", "dense", "ps-2017")
    rows = []
    for result in results:
        f = figures_of(result)
        if "ps-2017" in f:
            chosen = [*(f.get(name) for name in names), best_ddp(f)]
            rows.append([setting(result),
                         *(number(c and c.first["peak_to_mean"], 2) for c in chosen),
                         *(number(c and c.first["max_to_mean_bytes"], 3) for c in chosen)])
    return table(["setting", *(f"{name}, peak / mean" for name in (*names, "DDP")),
                  *(f"{name}, max / mean bytes" for name in (*names, "DDP"))], rows)


def beside_table(beside, results):
    """Cells beside the grid: every system, and where the grid has the same setting undisturbed, that."""
    usual = {result["name"]: figures_of(result) for result in results}
    rows = []
    for result in beside:
        cell, found = result["cell"], figures_of(result)
        name = grid.Cell(cell["profile"], cell["workers"], cell["rate"]).name
        for system, f in found.items():
            undisturbed = usual.get(name, {}).get(system) if cell.get("background") else None
            wire = f.first["wire_bytes_per_step"]
            predicted = f.first["predicted_seconds"] if system in PREDICTED_SYSTEMS else None
            rows.append([setting(result), system, number(f.seconds), with_spread(f),
                         number(predicted and predicted / f.seconds), number(undisturbed and undisturbed.seconds),
                         number(wire and wire * cell["scale"] / 1e6, 1),
                         number(f.first["peak_to_mean"], 2), number(f.first["max_to_mean_bytes"], 3),
                         number(f.first["retransmits"], 0),
                         busy(f, result), number(f.first["cpu_seconds_per_step"]),
                         f"{f.first['background_share']:.1%}" if f.first["background_share"] else "-"])
    return table(["setting", "system", "step, s", "/ T\\*", "predicted / measured", "undisturbed, s",
                  "MB sent per machine and step at full size", "peak / mean of 10 ms", "max / mean bytes",
                  "retransmits", "of the machine", "CPU s per step, all workers", "background that arrived"], rows)


def beside_part(beside, results):
    """The table of the cells beside the grid, and which of them the gate refused."""
    if not beside:
        return "Not measured yet."
    refused = [f"- `{result['name']}` was refused by the gate: {result['refused']}."
               for result in beside if result.get("refused")]
    return "\n".join([beside_table([result for result in beside if result["systems"]], results),
                      *([""] if refused else []), *refused])


def dense_path_table(measured):
    """All-reduces over unshaped links, P by P and size by size."""
    rows = []
    for nodes, sizes in measured["rows"].items():
        for row in sizes:
            gloo = dense_path.best_gloo(row)
            payload = dense_path.payload(row["bytes"], int(nodes)) / 1e9
            per_gigabyte = [dense_path.median(row, name, "cpu_seconds") / payload
                            for name in ("poseidon", gloo, "tls", "bare")]
            large = row["bytes"] >= 1 << 20
            rows.append([f"P={nodes}, {dense_path.size_words(row['bytes'])}",
                         *(microseconds(dense_path.median(row, name)) for name in ("poseidon", gloo, "tls")),
                         microseconds(dense_path.median(row, "bare")) if large else "-",
                         gloo.removeprefix("gloo-"),
                         number(dense_path.ratio(row), 2), number(dense_path.ratio(row, "tls"), 2),
                         *(number(x, 2) if large else "-" for x in per_gigabyte),
                         number(1 / dense_path.cpu_ratio(row), 2)])
    return table(["all-reduce of", "Poseidon", "gloo", "encrypted", "bare TCP", "gloo's connections", "gloo / Poseidon",
                  "gloo / encrypted", "CPU s per payload GB, Poseidon", "gloo", "encrypted", "bare TCP",
                  "CPU, Poseidon / gloo"], rows)


def microseconds(seconds):
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


def machine_words(result):
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"


def dense_path_goals(measured):
    """Which sizes miss what is asked of the dense path."""
    lines = []
    for nodes, sizes in measured["rows"].items():
        goal, tls_goal = dense_path.GOALS[int(nodes)], dense_path.TLS_GOALS[int(nodes)]
        large = [row for row in sizes if row["bytes"] >= dense_path.LARGE]
        lines.append(f"P={nodes}: {sum(dense_path.ratio(row) >= goal for row in large)} of {len(large)} sizes from "
                     f"{dense_path.size_words(dense_path.LARGE)} at {goal:g} times gloo's rate or more, "
                     f"{sum(dense_path.cpu_ratio(row) > 1 for row in large)} at fewer CPU seconds; "
                     + slower_words([row for row in sizes if dense_path.ratio(row) < 1]))
        for row in large:
            bare = dense_path.ratio(row, "bare")
            if bare < goal:
                lines.append(f"P={nodes}, {dense_path.size_words(row['bytes'])}: the bytes alone, neither summed nor "
                             f"checked, would be {bare:.2f} times gloo's rate.")
            tls = (dense_path.median(row, "tls", "cpu_seconds")
                   / (dense_path.payload(row["bytes"], int(nodes)) / 1e9))
            if tls > tls_goal:
                plain, bare = (dense_path.median(row, name, "cpu_seconds") * tls
                               / dense_path.median(row, "tls", "cpu_seconds") for name in ("poseidon", "bare"))
                lines.append(f"P={nodes}, {dense_path.size_words(row['bytes'])}: encrypted, a payload GB takes {tls:.2f} "
                             f"CPU seconds, the goal is {tls_goal:g}; {bare:.2f} of them are those of the "
                             f"bytes alone, {plain - bare:.2f} of checking and summing, {tls - plain:.2f} of encryption.")
    return bullets(lines)


def slower_words(rows):
    if not rows:
        return "no size slower."
    return "slower at " + ", ".join(f"{dense_path.size_words(row['bytes'])} ({dense_path.ratio(row):.2f})"
                                    for row in rows) + "."


def scheme_table(results):
    rows = []
    for result in results:
        f, scale = figures_of(result), result["cell"]["scale"]
        ours, dense = f.get("poseidon"), f.get("dense")
        if not ours or not dense:
            continue
        for sent, by_factors in ours.plans:
            [(most, _), *_] = dense.plans
            rows.append([setting(result), number(most * scale / 1e6, 1), number(sent * scale / 1e6, 1),
                         number(most / sent, 2), " ".join(by_factors) or "none"])
    return table(["setting", "dense, MB", "Poseidon, MB", "dense / Poseidon", "layers by factors"], rows)


def thrown_away_words(systems):
    """How many turns were run again; "-" where nobody watched what others took."""
    return str(thrown_away(systems)) if watched(systems) else "-"


def gate_table(results):
    rows = []
    for result in results:
        gate, cell = result["gate"], result["cell"]
        share = lambda phase: "-" if gate[phase]["least_share"] is None else f"{gate[phase]['least_share']:.1%}"
        rows.append([setting(result), result["machine"]["cpu"], rate_words(cell["port_rate_bits"]),
                     f"{cell['scale']:.3g}",
                     *(share(phase) for phase in ("ring", "all_to_all", "incast")),
                     *(f"{gate['after'][phase]:.1%}" if gate.get("after", {}).get(phase) else "-"
                       for phase in ("ring", "all_to_all")),
                     thrown_away_words(result["systems"]), f"{gate['round_trip_seconds'] * 1e6:.0f}",
                     str(gate.get("attempts", 1)),
                     "refused" if result.get("refused") else "passed",
                     str(result["versions"]["poseidon"])])
    return table(["setting", "CPU", "port", "sizes divided by", "ring", "all to all", "incast", "ring afterwards",
                  "all to all afterwards", "turns thrown away", "round trip, us", "attempts", "gate", "commit"], rows)


def coverage(cells, results):
    """How many cells of the grids were measured, which of `cells` are missing, and what was refused or failed."""
    measured = {result["name"] for result in results if not result.get("refused")}
    full = {cell.name for cell in grid.full()}
    lines = [f"{len(measured & {cell.name for cell in cells})} of the {len(cells)} cells that are here in detail "
             f"were measured, and {len(measured & full)} of the {len(full)} of the full grid."]
    took = [result.get("wall_seconds") for result in results if result["name"] in {cell.name for cell in cells}]
    if took and all(took):
        lines.append(f"Measuring those in detail took {sum(took) / 60:.0f} minutes, gates and repeated turns included.")
    if missing := not_measured(cells, results):
        lines.append(f"Not measured yet: {missing}.")
    for result in results:
        if result.get("refused"):
            lines.append(f"`{result['name']}` was refused by the gate: {result['refused']}.")
        for name, system in result["systems"].items():
            if "failed" in system:
                lines.append(f"In `{result['name']}`, {name} did not finish: {system['failed']}.")
    return bullets(lines)


def goals(results):
    """How many cells keep what the goals ask; `missed_table` names the others."""
    lines = []
    for system, words in OURS.items():
        found = [(result, figures_of(result)) for result in results]
        found = [(result, f[system], best_ddp(f)) for result, f in found if system in f]
        if not found:
            continue
        within = sum(not f.bound or f.to_bound <= GOAL for _, f, _ in found)
        slower = [(r, f, d) for r, f, d in found if d and f.seconds > d.seconds]
        lines.append(f"{words}: {within} of {len(found)} cells within {GOAL:g} T\\*, median "
                     f"{statistics.median(f.to_bound for _, f, _ in found):.3f} T\\*; "
                     f"slower than DDP in {len(slower)}.")
        lines += [f"a turn slower than DDP, {words}: {setting(r)}: {max(turns) / d.seconds:.3f} of its step"
                  for r, f, d in found
                  if d and max(turns := f.medians) > d.seconds >= f.seconds]
        lines += [f"slower than DDP, {words}: {setting(r)}: {f.seconds / d.seconds:.3f} of its step"
                  for r, f, d in slower]
    lines += over_ddp_goals(results) + [line for line in (against("ps-2017", results), against("dense", results)) if line]
    predicted = [ratio for result in results for name in OURS
                 for ratio in predicted_to_measured(figures_of(result), name)]
    if predicted:
        lines.append(f"prediction within {PREDICTED * 100:g} % in {sum(abs(p - 1) <= PREDICTED for p in predicted)} of "
                     f"{len(predicted)} turns of Poseidon and of dense.")
    return bullets(lines)


def over_ddp_goals(results):
    lines = []
    for result in results:
        f = figures_of(result)
        for system, goal in OVER_DDP.get(result["name"], {}).items():
            ddp = best_ddp(f)
            if system in f and ddp:
                lines.append(f"{setting(result)}, {OURS[system]}: {ddp.seconds / f[system].seconds:.2f} times DDP, asked "
                             f"{goal:g}.")
    return lines


def against(system, results):
    """Poseidon beside `system`, another way through the same core: what its plan and order are worth, cell by
    cell."""
    ratios = [(f[system].seconds / f["poseidon"].seconds, setting(result))
              for result, f in ((r, figures_of(r)) for r in results) if system in f and "poseidon" in f]
    if not ratios:
        return None
    behind = [f"{words} ({ratio:.3f})" for ratio, words in sorted(ratios) if ratio < 1 - SAME]
    return (f"{system} takes {statistics.median(ratio for ratio, _ in ratios):.3f} of Poseidon's step in the median, at "
            f"most {max(ratio for ratio, _ in ratios):.2f}, within {SAME:.1%} in "
            f"{sum(abs(ratio - 1) <= SAME for ratio, _ in ratios)} of {len(ratios)} cells, less in "
            + (f"{len(behind)}: {', '.join(behind)}." if behind else "none."))


def predicted_to_measured(figures, system):
    """Of every turn."""
    f = figures.get(system)
    return [predicted / median for predicted, median in zip(f.predicted, f.medians)] if f else []


def missed_table(results, unscaled=None, agreement=None):
    """The cells above GOAL or predicted badly. Each has the same setting simulated at full size and as it was scaled,
    which separates what scaling leaves as it is from what the cores and the machine's neighbours cost."""
    full_size = {(found["profile"], found["workers"], found["rate"]): found["ratio"]
                 for found in (unscaled or {"points": []})["points"]}
    scaled = {(run["cell"], run["system"]): run["simulated_seconds"] for run in (agreement or {"runs": []})["runs"]}
    rows = []
    for result in results:
        cell = result["cell"]
        found = figures_of(result)
        for system, f in found.items():
            if system not in OURS:
                continue
            predicted = predicted_to_measured(found, system)
            if f.to_bound <= GOAL and all(abs(p - 1) <= PREDICTED for p in predicted):
                continue
            ideal = full_size.get((cell["profile"], cell["workers"], cell["rate"])) if usual(cell) else None
            as_scaled = scaled.get((result["name"], system))
            rows.append([setting(result), OURS[system], with_spread(f), number(as_scaled and as_scaled / f.bound),
                         number(ideal if system == "poseidon" else None), f"{cell['scale']:.3g}", busy(f, result),
                         whole_machine(f), core_wait(f, result), number(f.first["retransmits"], 0),
                         " and ".join(map(number, predicted))])
    return table(["setting", "system", "/ T\\*", "simulated, scaled", "simulated at full size", "sizes divided by",
                  "workers' share of the CPU", "the machine", "ready without a core, of a step", "retransmits",
                  "predicted / measured, by turn"],
                 rows) if rows else "None."


RATES = ("0.5x", "1x", "2x", 10e9)  # of the full grid, at every P


def matrix(results, head, text_of):
    """Profiles by workers and rate, of the cells that nothing disturbs."""
    of = {(r["cell"]["profile"], r["cell"]["workers"], r["cell"]["rate"]): text_of(figures_of(r))
          for r in results if usual(r["cell"])}
    columns = [(workers, rate) for workers in (2, 4, 8) for rate in RATES]
    profiles = [name for name in grid.GOALS + grid.OTHERS if any((name, *column) in of for column in columns)]
    rows = [[name, *(of.get((name, *column), "-") for column in columns)] for name in profiles]
    return table([head, *map(column_words, columns)], rows)


def column_words(column):
    workers, rate = column
    return f"P={workers}, {rate if isinstance(rate, str) else f'{rate / 1e9:g}G'}"


def to_bound(system):
    def text_of(figures):
        f = figures.get(system)
        return "-" if f is None else emphasized(f.to_bound, f.to_bound > GOAL)
    return text_of


def emphasized(ratio, stands_out, places=3):
    return f"**{ratio:.{places}f}**" if stands_out else f"{ratio:.{places}f}"


def ddp_over_ours(figures):
    ours, ddp = figures.get("poseidon"), best_ddp(figures)
    return "-" if not ours or not ddp else emphasized(ddp.seconds / ours.seconds, ddp.seconds < ours.seconds, 2)


def system_over_ours(system):
    def text_of(figures):
        ours, other = figures.get("poseidon"), figures.get(system)
        return "-" if not ours or not other else emphasized(other.seconds / ours.seconds, other.seconds < ours.seconds, 2)
    return text_of


def settings_part(results):
    """All cells of the full grid, a number each."""
    of = {r["name"]: figures_of(r) for r in results}
    disturbed = [[setting({"cell": cell}), to_bound("poseidon")(f), to_bound("dense")(f), ddp_over_ours(f)]
                 for cell, f in ((one.described(), of.get(one.name, {})) for one in grid.full())
                 if not usual(cell) or cell["rate"] not in RATES]
    parts = [matrix(results, "Poseidon / T\\*", to_bound("poseidon")),
             matrix(results, "dense / dense T\\*", to_bound("dense")),
             matrix(results, "DDP / Poseidon", ddp_over_ours),
             matrix(results, "ps-2017 / Poseidon", system_over_ours("ps-2017"))]
    if disturbed:
        parts.append(table(["disturbed or at another rate", "Poseidon / T\\*", "dense / dense T\\*",
                            "DDP / Poseidon"], disturbed))
    return "\n\n".join(parts)


def unscaled_part(document):
    """Of simulations at full size and rate: how many keep the goal, and all ratios to T*."""
    points = document["points"]
    ratios = [found["ratio"] for found in points]
    good = sum(ratio <= GOAL for ratio in ratios)
    lines = [f"{good} of {len(ratios)} settings within {GOAL:g} T\\*; median {statistics.median(ratios):.3f}."]
    columns = list(dict.fromkeys((found["workers"], found["rate"]) for found in points))
    near = sum(abs(found["median_seconds"] / found["predicted_seconds"] - 1) <= 0.05 for found in points)
    lines.append(f"Predicted within 5 %: {near} of {len(points)}.")
    lines += [f"{found['profile']}, {column_words((found['workers'], found['rate']))}: {found['ratio']:.3f} T\\*, "
              f"{found['median_seconds'] / found['predicted_seconds']:.3f} of the predicted step."
              for found in points if found["ratio"] > GOAL]
    by_profile = {}
    for found in points:
        by_profile.setdefault(found["profile"], {})[found["workers"], found["rate"]] = (
            emphasized(found["ratio"], found["ratio"] > GOAL))
    head = ["step / T\\*", *map(column_words, columns)]
    rows = [[profile, *(of.get(column, "-") for column in columns)] for profile, of in by_profile.items()]
    return bullets(lines) + "\n\n" + table(head, rows)


def agreement_goals(document):
    """How far the simulator is off over all runs, and which runs by more than PREDICTED."""
    errors = [compare.off(run) for run in document["runs"]]
    near = sum(abs(error) <= PREDICTED for error in errors)
    lines = [f"{near} of {len(errors)} runs of {len({run['cell'] for run in document['runs']})} cells within "
             f"{PREDICTED * 100:g} % of the emulated step; mean of the errors' size "
             f"{statistics.fmean(map(abs, errors)):.1%}."]
    lines += [f"`{run['cell']}`, {run['system']}: {error:+.1%}"
              for run, error in zip(document["runs"], errors) if abs(error) > PREDICTED]
    return bullets(lines)


def agreement_table(results, document):
    """Simulated in emulated steps, by cell and system."""
    off = {(run["cell"], run["system"]): f"{1 + compare.off(run):.3f}" for run in document["runs"]}
    systems = [name for name in grid.SYSTEMS if any(name == system for _, system in off)]
    rows = [[setting(result), *(off.get((result["name"], name), "-") for name in systems)]
            for result in results if any((result["name"], name) in off for name in systems)]
    return table(["simulated / emulated", *systems], rows)


def same(results, name, part):
    """The values of `part` in all results, without those that do not say."""
    found = sorted({str(result[name][part]) for result in results if result[name].get(part)})
    return " and ".join(found) or "unknown"


def head(results):
    return table(["", ""], [
        ["measured", days(results)],
        ["CPU", f"{same(results, 'machine', 'cpu')}, {same(results, 'machine', 'cores')} cores, "
                f"{same(results, 'machine', 'memory_gib')} GiB"],
        ["kernel", same(results, "machine", "kernel")],
        ["Poseidon", "commit " + same(results, "versions", "poseidon")],
        ["compiler, Python, PyTorch, Open MPI", f"GCC {same(results, 'versions', 'gcc')}, "
         f"{same(results, 'versions', 'python')}, {same(results, 'versions', 'torch')}, "
         f"{same(results, 'versions', 'open_mpi')}"],
        ["network", network_words(results)],
        ["seed", str(grid.SEED)]])


def network_words(results):
    """Which links were emulated; the gate's table has each cell's."""
    rates = sorted(result["cell"]["port_rate_bits"] for result in results)
    queues = sorted({result["cell"]["queue_seconds"] for result in results}, reverse=True)
    return (f"network namespaces of one machine, ports of {rate_words(rates[0])} to {rate_words(rates[-1])} (tbf at both "
            f"ends), queues of {' or '.join(f'{queue * 1e3:g}' for queue in queues)} ms")


def profiles_table():
    rows = []
    for name in grid.GOALS + grid.OTHERS:
        profile = grid.document(name)
        layers = profile["layers"]
        rows.append([name, str(profile["batch"]), str(len(layers)), str(sum(len(layer["tensors"]) for layer in layers)),
                     number(sum(layer["elements"] for layer in layers) / 1e6, 1), number(timing.seconds_of(profile)),
                     *(rate_words(timing.ridge(profile, workers)) for workers in (2, 4, 8)), profile["source"]])
    return table(["profile", "batch per worker", "layers", "tensors", "million parameters", "computing, s",
                  *(f"ridge at P={workers}" for workers in (2, 4, 8)), "time from"], rows)


def systems_table(results):
    ran = {name for result in results for name in result["systems"]}
    return table(["system", "what it is"],
                 [[name, system.words] for name, system in grid.SYSTEMS.items() if name in ran])


def plots_in(plots, folder=""):
    """Plots with their captions, from a page in whose `folder` they are; without one, that more cells are needed."""
    parts = [f"![{caption}]({folder}{name})\n\n{caption}" if caption
             else f"`{name}` needs results that are not there." for name, caption in plots]
    return "\n\n".join(parts)


def in_detail(results):
    """The tables with a row for every cell, or for every cell and system."""
    passed = [result for result in results if result["systems"]]
    return {"steps": step_table(passed), "modes": mode_table(passed), "predictions": prediction_table(passed),
            "mode_seconds": mode_seconds_table(passed), "schemes": scheme_table(passed), "cpu": cpu_table(passed),
            "bursts": burst_table(passed), "evenness": evenness_table(passed)}


def document(cells, results, plots, beside=(), measured_path=None, unscaled=None, agreement=None):
    """The text of the details: all `results` in the sums and matrices, those of `cells` in detail. `plots` are names of
    SVG files beside the results, in order, with a caption, or None where there were too few results; `beside` are
    results of cells beside the grid, `measured_path` those of the dense path, `unscaled` and `agreement` those of
    benchmarks/simulate, settings.py and compare.py."""
    passed = [result for result in results if result["systems"]]
    names = {cell.name for cell in cells}
    shown = [result for result in results if result["name"] in names]
    return filled("details.md", in_detail(shown) | {
        "head": head([*results, *beside]) if results else "", "coverage": coverage(cells, results),
        "profiles": profiles_table(),
        "goals": goals(passed), "missed": missed_table(passed, unscaled, agreement),
        "settings": settings_part(passed), "systems": systems_table([*passed, *beside]),
        "rounds": str(dense_path.ROUNDS),
        "gate": gate_table([*shown, *beside]),
        "beside": beside_part(beside, passed),
        "dense_path_machine": machine_words(measured_path) if measured_path else "",
        "dense_path": dense_path_table(measured_path) if measured_path else "Not measured yet.",
        "dense_path_goals": dense_path_goals(measured_path) if measured_path else "",
        "unscaled": unscaled_part(unscaled) if unscaled else "Not simulated yet.",
        "agreement": agreement_goals(agreement) if agreement else "Not simulated yet.",
        "plots": plots_in(plots)})


def every_cell(results, agreement=None):
    """The second document: the detail of all results, profile by profile."""
    profiles = grid.GOALS + grid.OTHERS
    ordered = sorted(results, key=lambda r: (profiles.index(r["cell"]["profile"]), r["cell"]["workers"],
                                             r["cell"]["real_rate_bits"], not usual(r["cell"]), r["name"]))
    return filled("cells.md", in_detail(ordered) | {
        "gate": gate_table(ordered),
        "agreement": agreement_table(ordered, agreement) if agreement else "Not simulated yet."})


def filled(template, parts):
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], (TEMPLATES / template).read_text())
