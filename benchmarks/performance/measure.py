# SPDX-License-Identifier: Apache-2.0
"""Measures a cell: its systems by turns in one emulated network that passed the gate."""
import hashlib
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks import cells

from . import figures, grid, machine

ROOT = machine.ROOT
CLUSTER = ROOT / "benchmarks" / "cluster"
sys.path.insert(0, str(CLUSTER))
import background   # noqa: E402
import calibration  # noqa: E402
import cores        # noqa: E402
import emulation    # noqa: E402
import mpi          # noqa: E402
import sampler      # noqa: E402

REPLAY = ROOT / "build" / "release" / "bin" / "poseidon_replay"
ATTEMPTS = 6     # of the gate, before a cell is refused
GATE_WINDOW = 1.0
UNDISTURBED = ("ring", "all_to_all")  # of the gate, what must hold after the turns as well
THROWN_AWAY = 2  # turns of a cell because others took too much of the machine, per turn that it needs
PORT = 29500
PATIENCE = 30    # seconds beyond three times what a turn should take


class Failed(Exception):
    """A system did not finish; the message is one sentence."""


class Disturbed(Exception):
    """Others took too much of the machine for a cell to be measured; the message is one sentence."""


def key_of(cell, sources, on):
    """The hash of everything that a cell's result depends on."""
    profile = json.dumps(grid.document(cell.profile), sort_keys=True)
    inputs = {"cell": cell.described(), "sources": sources, "machine": on,
              "profile": hashlib.sha256(profile.encode()).hexdigest(),
              "systems": [[str(word) for word in grid.SYSTEMS[name].options] for name in cell.systems]}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:24]


def measure(cell, say):
    """A cell's result as a JSON object without key and machine; with "refused" if the network did not pass, before
    its turns and after them. Raises emulation.Refused where none can be made at all."""
    result = {"cell": cell.described(), "name": cell.name, "date": machine.today(), "systems": {}}
    link = emulation.Link(rate=cell.port_rate, queue=cell.queue, latency=cell.latency)
    for attempt in range(ATTEMPTS):
        with emulation.Cluster(cell.nodes, link) as cluster:
            gate = calibrate(cluster, attempt)
            say(calibration.line(gate))
            result["gate"] = gate_in_short(gate) | {"attempts": attempt + 1}
            refused = gate["reason"]
            if not gate["passed"]:
                continue
            try:
                measured = measure_between_gates(cell, cluster, say)
            except Disturbed as why:
                return result | {"refused": str(why)}
            after = calibrate_after(cluster)
            result["gate"]["after"] = {phase: after[phase].get("least_share") for phase in UNDISTURBED}
            refused = disturbed(after)
            if not refused:
                return result | measured
            say(f"  not taken: {refused}")
    return result | {"refused": refused}


def measure_between_gates(cell, cluster, say):
    """The part of a result that is measured: systems, and the timeline if the cell has one."""
    measured = {"systems": {}}
    with tempfile.TemporaryDirectory() as folder:
        take_turns(cell, cluster, pathlib.Path(folder), measured["systems"], say)
        if cell.timeline:
            measured["timeline"] = timeline(cell, cluster, pathlib.Path(folder), say)
    return measured


def calibrate(cluster, attempt):
    """A calibration; where one failed before it, when others leave the machine alone."""
    if attempt > 0:
        cores.await_quiet()
    return calibration.calibrate(cluster, seconds=GATE_WINDOW)


def calibrate_after(cluster):
    """The calibration after the turns. As before them it has some attempts: what lasts as long as they do was
    there during the turns too, a second's hiccup of the machine says nothing about them."""
    for attempt in range(ATTEMPTS):
        after = calibrate(cluster, attempt)
        if not disturbed(after):
            break
    return after


def disturbed(after):
    """Why what was measured before this calibration is not taken, as a sentence; empty if it is. An incast has no
    say: it begins with losses, whose luck differs without any disturbance."""
    for phase in UNDISTURBED:
        share = after[phase].get("least_share")
        if share is not None and share < calibration.LEAST:
            return (f"after the turns the goodput in the {phase} measurement was {share:.1%} of the rate, expected at "
                    f"least {calibration.LEAST:.0%}")
    return ""


def gate_in_short(gate):
    short = {"passed": gate["passed"], "reason": gate["reason"],
             "round_trip_seconds": gate["round_trip"]["median_seconds"]}
    for phase in ("ring", "all_to_all", "incast"):
        short[phase] = {"least_share": gate[phase].get("least_share"),
                        "retransmits": gate[phase]["retransmits"],
                        "machine_busy": gate[phase]["machine_busy"]}
    return short


def take_turns(cell, cluster, folder, systems, say):
    """Runs every system once per repeat, in an order drawn anew; a system that fails is not run again. A turn of
    which others took too much is run again at once. Raises Disturbed."""
    (folder / "profile.json").write_text(json.dumps(grid.document(cell.profile)))
    cells.token_in(folder)
    draw = random.Random(grid.SEED)
    for repeat in range(cell.repeats):
        for name in draw.sample(cell.systems, len(cell.systems)):
            system = systems.setdefault(name, {"turns": []})
            if "failed" in system:
                continue
            try:
                system["turns"].append(undisturbed_turn(cell, cluster, folder, name, systems, say))
            except Failed as failure:
                system["failed"] = str(failure)
                say(f"  {name}: {failure}")


def undisturbed_turn(cell, cluster, folder, name, systems, say):
    """The first turn of which others took no more than they may; those before it are noted beside the system's turns.
    Raises Failed, and Disturbed where the cell has thrown away too many."""
    system = systems[name]
    while True:
        turn = run_turn(cell, cluster, folder, grid.SYSTEMS[name])
        stolen = figures.stolen_from(turn)  # alone it decides whether the turn counts, whatever its figures are
        say(f"  {name} {len(system['turns']) + 1}/{cell.repeats}: {in_words(turn)}, {stolen:.1%} stolen")
        if stolen <= cores.MOST_STOLEN:
            return turn
        system.setdefault("thrown_away", []).append(
            {key: turn[key] for key in ("median_seconds", "t_star") if key in turn} | {"stolen": stolen})
        thrown_away = figures.thrown_away(systems)
        if thrown_away > THROWN_AWAY * cell.repeats * len(cell.systems):
            raise Disturbed(f"others took more than {cores.MOST_STOLEN:.0%} of the machine during {thrown_away} turns, "
                            f"the last one {stolen:.1%}")
        cores.await_quiet()


def in_words(turn):
    bound = f", {turn['median_seconds'] / turn['t_star']:.3f} T*" if "t_star" in turn else ""
    return f"{turn['median_seconds']:.4f} s{bound}"


def timeline(cell, cluster, folder, say):
    """The spans of one step of rank 1, dense beside backward-only overlap. Not a part of any figure:
    recording costs time."""
    found = {}
    for name in ("dense", "wfbp"):
        try:
            run_all(cell, cluster, folder, grid.SYSTEMS[name], traced=True)
            found[name] = merged(json.loads((folder / "trace1").read_text()))
        except Failed as failure:
            say(f"  timeline of {name}: {failure}")
    return found


def merged(spans, gap=0.002):
    """Spans of frames joined to one per lane and layer where they are no more than `gap` seconds apart,
    as [lane, layer, begin, end], of the last two steps, from the first forward pass on."""
    start = min(begin for lane, label, _, _, begin, _, _ in spans if label == "forward")
    open_spans, done = {}, []
    for lane, label, layer, _, begin, end, _ in sorted(spans, key=lambda span: span[4]):
        place = (lane, label if lane == "compute" else "", layer)
        before = open_spans.get(place)
        if before and begin - before[3] <= gap:
            before[3] = max(before[3], end)
            continue
        open_spans[place] = [lane, layer, begin, end]
        done.append(open_spans[place])
    return [[lane, layer, round(begin - start, 5), round(end - start, 5)]
            for lane, layer, begin, end in done if end > start]


def words_of(cell, cluster, folder, system, rank, traced):
    """The command line of a rank; of an MPI's ranks it is the same."""
    network = ["--workers", cell.workers, "--rank", rank, "--coordinator", cluster.addresses[0],
               "--port", PORT]
    # Ours measures its last step until everything has landed, a step that none follows; it is left out.
    steps = cell.steps + (system.program == "ours")
    play = ["--profile", folder / "profile.json", "--scale", cell.scale, "--steps", steps,
            "--warm-up", grid.WARM_UP, "--jitter", cell.jitter, "--straggler", cell.straggler,
            "--compute", cell.compute]
    if system.program == "ddp":
        return [sys.executable, "-B", CLUSTER / "ddp_replay.py", *network, *play, *system.options]
    if system.program == "mpi":
        return [sys.executable, "-B", CLUSTER / "mpi_replay.py", *play, *system.options]
    node = rank // cell.per_node
    machine_of = ["--machine", f"node{node}"] if cell.per_node > 1 else []
    return [REPLAY, *network, *play, "--listen", cluster.addresses[node], *machine_of, "--token-file",
            folder / "token", "--rate",
            f"{rate_of_a_worker(cell, system) / 1e6:.6f}Mbit",
            *(["--trace", folder / f"trace{rank}"] if traced else []), *system.options]


def rate_of_a_worker(cell, system):
    """Bit/s at which a worker's bytes move while all send: what others' traffic leaves of a port, or where flat
    workers share one and some of their bytes stay on the machine, what that comes to."""
    rate = cell.port_rate * (1 - cell.background)
    if cell.per_node == 1 or system.name != "flat":
        return rate
    return rate * (cell.workers - 1) / (cell.per_node * (cell.workers - cell.per_node))


def run_turn(cell, cluster, folder, system):
    """One run of one system on all nodes. Raises Failed."""
    before, spent = cluster.counters(), cores.so_far()
    with (background.Background(cluster, cell.background) as others,
          sampler.Sampler(cluster) as samples):
        outputs = run_all(cell, cluster, folder, system)
    traffic = emulation.difference(cluster.counters(), before)
    turn = turn_of(cell, outputs, samples.samples, traffic) | cores.shares_since(spent)
    if arrived := others.summary():
        turn["background_share"] = arrived["arrived_share"]
        if "window_seconds" in turn:
            others_bytes = arrived["arrived_share"] * cell.port_rate / 8 * turn["window_seconds"] / cell.steps
            turn["wire_bytes_per_step"] = round(turn["wire_bytes_per_step"] - others_bytes)
    return turn


def run_all(cell, cluster, folder, system, traced=False):
    """The lines that each rank printed. Raises Failed if one fails or takes too long."""
    by_mpirun = system.program == "mpi"
    files = [(folder / f"out{number}", folder / f"error{number}") for number in range(1 if by_mpirun else cell.workers)]
    processes = []
    for rank, (out, error) in enumerate(files):
        words = words_of(cell, cluster, folder, system, rank, traced)
        with open(out, "w") as to, open(error, "w") as errors:
            processes.append(by_mpi(cluster, words, stdout=to, stderr=errors) if by_mpirun else
                             cluster.run(rank // cell.per_node, words, stdout=to, stderr=errors))
    deadline = time.monotonic() + PATIENCE + 3 * (grid.WARM_UP + cell.steps) * cell.longest_step
    late = await_all(processes, deadline)
    codes = [process.poll() for process in processes]
    cluster.end(*processes)
    if late:
        raise Failed("it had not finished when three times the expected time was over")
    for rank, code in enumerate(codes):
        if code:
            told = files[rank][1].read_text(errors="replace").strip().splitlines()
            raise Failed(f"{'mpirun' if by_mpirun else f'rank {rank}'} ended with {code}"
                         + (f": {without_paths(told[-1])}" if told else ""))
    return by_rank([line for out, _ in files for line in lines_of(out.read_text())], cell.workers)


def by_mpi(cluster, words, **options):
    """mpi.run(); without an MPI one system is missing, not all."""
    try:
        return mpi.run(cluster, words, **options)
    except emulation.Refused as refusal:
        raise Failed(str(refusal)) from None


def by_rank(lines, workers):
    return [[line for line in lines if line["rank"] == rank] for rank in range(workers)]


def without_paths(text):
    """Results are published: words with a folder in them keep only their last part."""
    return re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", text)


def await_all(processes, deadline):
    """Until all have ended or one has failed; whether the deadline came first."""
    for process in processes:
        while True:
            try:
                process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if any(other.poll() for other in processes):
                    return False
                if time.monotonic() > deadline:
                    return True
        if process.returncode:
            return False
    return False


def lines_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def turn_of(cell, ranks, samples, traffic):
    """A turn's figures from what the ranks printed: a step is the mean of the ranks' times for it."""
    steps = [[line["seconds"] for line in lines if "seconds" in line] for lines in ranks]
    cpu = [[line["cpu_seconds"] for line in lines if "cpu_seconds" in line] for lines in ranks]
    core_wait = [[line["core_wait_seconds"] for line in lines if "core_wait_seconds" in line] for lines in ranks]
    summaries = [line["summary"] for lines in ranks for line in lines if "summary" in line]
    printed = min(map(len, steps), default=0)
    count = cell.steps
    if len(summaries) < cell.workers or printed < count:
        raise Failed(f"{printed} steps were printed, expected {count}")
    seconds = [statistics.fmean(rank[i] for rank in steps) for i in range(count)]
    first = summaries[0]
    turn = {"median_seconds": statistics.median(seconds), "seconds": [round(s, 6) for s in seconds],
            "cpu_seconds_per_step": sum(statistics.median(rank) for rank in cpu),
            "core_wait_seconds_per_step": sum(statistics.median(rank) for rank in core_wait),
            "retransmits": sum(node["retransmits"] for node in traffic),
            "dropped": sum(node["dropped_at_sender"] + node["dropped_at_port"] for node in traffic)}
    for name in ("t_star", "t_wfbp", "predicted_seconds", "single_worker_seconds",
                 "link_bytes_per_second"):
        if name in first:
            turn[name] = first[name]
    if "payload_bytes_per_step" in first:
        turn["payload_bytes_per_step"] = max(s["payload_bytes_per_step"] for s in summaries)
        turn["by_factors"] = sorted(layer for layer, scheme in first["schemes"].items() if scheme != "kv")
    ended = [[line["ended"] for line in lines if "ended" in line] for lines in ranks]
    begin = statistics.fmean(rank[0] for rank in ended) - seconds[0]
    end = statistics.fmean(rank[count - 1] for rank in ended)
    cut = between(samples, begin, end)
    if cut:
        turn["window_stolen"] = cores.shares_between(cut[0][3], cut[-1][3])["machine_stolen"]
    return turn | burstiness(cut, cell.nodes, count)


def between(samples, begin, end):
    """The samples from `begin` to `end`, with one made at each of these moments by going straight from the sample
    before it to the one after; none if the samples do not reach that far."""
    if not samples or begin < samples[0][0] or end > samples[-1][0]:
        return []
    inside = [sample for sample in samples if begin < sample[0] < end]
    return [sample_at(samples, begin), *inside, sample_at(samples, end)]


def sample_at(samples, when):
    after = next(i for i, sample in enumerate(samples) if sample[0] >= when)
    (t0, *before), (t1, *behind) = samples[max(0, after - 1)], samples[after]
    share = (when - t0) / (t1 - t0) if t1 > t0 else 0
    return [when, *([a + share * (b - a) for a, b in zip(*totals)] for totals in zip(before, behind))]


def burstiness(cut, nodes, steps):
    """Of samples from the first measured step's begin to the last one's end, so that what one step leaves to the
    next counts as often as it happens: the highest peak of 10 ms against that link's mean, bytes per step of the
    mean node, and the busiest node's against the mean, in the direction where that is more."""
    if len(cut) < 3:
        return {}
    links = [sampler.link_summary(cut, which, node) for which in (1, 2) for node in range(nodes)]
    sent = [link["bytes"] for link in links[:nodes]]
    received = [link["bytes"] for link in links[nodes:]]
    if not all(sent) or not all(received):
        return {}
    return {"window_seconds": round(cut[-1][0] - cut[0][0], 4),
            "wire_bytes_per_step": round(statistics.fmean(sent) / steps),
            "max_to_mean_bytes": round(max(max(way) / statistics.fmean(way) for way in (sent, received)), 4),
            "peak_to_mean": max(link["peak_to_mean"] or 0 for link in links)}
