# SPDX-License-Identifier: Apache-2.0
"""How a figure of ours is found: simulated, calculated, or read from what other benchmarks recorded.

Each function returns {"figure": words for the table, "numbers": {...}, "command": how to find it by hand}, and "date" and "commit" where it was
measured before. Raises Failed.
"""
import functools
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

from benchmarks import cells
from benchmarks.cells import PAGES, ROOT
from benchmarks.performance import grid, machine, record
from benchmarks.performance.standalone import Failed
from benchmarks.profiles import timing
from benchmarks.simulate.curves import SYSTEMS, profile_of
from benchmarks.simulate.program import SIMULATE, play

POSEIDON = SIMULATE.parent / "poseidon"
RECORDED = PAGES / "recorded.json"
TENSORFLOW = PAGES / "tensorflow.md"  # written by benchmarks.tensorflow, and tensorflow.json
LATENCY = "50us"
FITTED_NET, FITTED_RATES = "vgg19-22k", ("40Gbit", "10Gbit")  # of whole_variables
GOODPUT = 0.956  # of a link's rate, that payload gets
BACKWARD_ONLY = SYSTEMS["wfbp"][0]  # options of the simulator


def found_now():
    """When, and at which commit, what is found here is found."""
    return {"date": machine.today(), "commit": machine.git("rev-parse", "--short=8", "HEAD")}


def simulate_words(scale, *options):
    return ["--latency", LATENCY, "--scale", f"{scale}", "--steps", "2", *options]


@functools.cache
def simulated(profile, workers, rate, scale, *options):
    """A job of so many workers on virtual time; sizes and rate divided by `scale`."""
    return play(profile_of(profile), workers, rate, *simulate_words(scale, *options), what=f"{profile}, {workers} workers")


def simulate_command(profile, workers, rate, scale, *options):
    return (f"python3 -m benchmarks.profiles {profile} | build/release/bin/poseidon_simulate --profile - --workers {workers} --rate {rate} "
            + " ".join(simulate_words(scale, *options)))


def plan_by(words):
    """What `poseidon plan` says by these arguments, as a JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "plan.json")
        done = subprocess.run([POSEIDON, "plan", *words, "--json", out], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"poseidon plan {words[0]}: {done.stderr.strip()}")
        return json.loads(out.read_text())


@functools.cache
def planned(profile, workers, rate, images=1_281_167, epochs=1.0):
    """`poseidon plan --budget`, as a JSON object."""
    return plan_by(plan_words(profile, workers, rate, images, epochs))


def cluster_words(profile, workers, rate):
    return [profile, "--workers", f"{workers}", "--rate", rate, "--latency", LATENCY]


def plan_words(profile, workers, rate, images, epochs):
    return [*cluster_words(profile, workers, rate), "--budget", "--images", f"{images}", "--epochs", f"{epochs:g}"]


def plan_command(profile, workers, rate, images, epochs):
    return "poseidon plan " + " ".join(plan_words(profile, workers, rate, images, epochs))


def speedup(profile, workers, rate, scale=10):
    found = simulated(profile, workers, rate, scale)
    return {"figure": f"{found['speedup']:.1f}x (bound {found['speedup'] * found['ratio']:.1f}x)",
            "numbers": {"speedup": found["speedup"], "step_seconds": found["median_seconds"], "t_star": found["t_star"]},
            "command": simulate_command(profile, workers, rate, scale)}


def managed():
    """A job that is held to a bandwidth, by the counters of its links. Needs root."""
    from benchmarks import bandwidth  # which needs what emulated clusters need
    if why := bandwidth.emulation.missing():
        raise Failed(str(why))
    job = next(job for job in bandwidth.JOBS if job.name == "tls")
    with tempfile.TemporaryDirectory() as folder:
        cells.token_in(pathlib.Path(folder))
        try:
            found = bandwidth.played(job, pathlib.Path(folder))
        except bandwidth.measure.Failed as failure:
            raise Failed(str(failure)) from None
    return {"figure": f"at most {found['of_bandwidth']:.2f} of the budget in any 100 ms, a step of {found['seconds'] / found['t_star']:.3f} T\\*",
            "numbers": {name: found[name] for name in ("of_bandwidth", "seconds", "t_star", "predicted")},
            "command": f"python3 -m benchmarks.bandwidth --only {job.name}"}


def one_node(pairs=100):
    """A single worker through Poseidon beside the plain engine: the trainer measured now, PyTorch and Keras as recorded."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "overhead.json")
        done = subprocess.run([sys.executable, "-B", ROOT / "benchmarks/trainer_bench.py", "--only", "overhead", "--pairs", f"{pairs}", "--json", out],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"benchmarks/trainer_bench.py ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}")
        trainer = json.loads(out.read_text())["overhead"]
    # Of a plain step in that of a worker: above 1 Poseidon is the faster one.
    recorded = {f"{name}, {row['setting']}": 1 / row["ratio"][0] for name, file in (("PyTorch", "torch.json"), ("Keras", "tensorflow.json"))
                for row in json.loads((PAGES / file).read_text())["rows"] if row["compared"].startswith("A plain step")}
    least, most = min(recorded.values()), max(recorded.values())
    return {"figure": f"the trainer {100 * (trainer['median'] - 1):+.2f} % of a step ({100 * (trainer['low95'] - 1):+.2f} to "
                      f"{100 * (trainer['high95'] - 1):+.2f} at 95 %); PyTorch and Keras, {len(recorded)} nets recorded, "
                      f"{100 * (least - 1):+.1f} to {100 * (most - 1):+.1f} %",
            "numbers": {"seconds": trainer["median"]} | recorded,
            "command": f"benchmarks/trainer_bench.py --only overhead --pairs {pairs}; python3 -m benchmarks.torch, python3 -m benchmarks.tensorflow"}


def objectives():
    """What `benchmarks.convergence` found: the largest difference of a test loss from one worker's, beside that of noise in its first weights."""
    found = json.loads((ROOT / "docs/convergence/found.json").read_text())
    differences = {name: max(run["difference"] for run in of_net["runs"]) for name, of_net in found.items()}
    words = [f"{name} {differences[name]:.1e}" + (f" (noise {of_net['control']['difference']:.1e})" if of_net.get("control") else "")
             for name, of_net in found.items()]
    return {"figure": "largest difference of a test loss from one worker's: " + ", ".join(words), "numbers": {"largest_error": max(differences.values())},
            "command": "python3 -m benchmarks.convergence", "date": max(of_net["date"] for of_net in found.values()),
            "commit": ", ".join(sorted({of_net["commit"] for of_net in found.values()}))}


def factors(profile, workers, rate):
    """What a worker sends in a step: all gradients whole, and the fewest bytes."""
    words = [*cluster_words(profile, workers, rate), "--policy", "bytes"]
    document = plan_by(words)
    sent = sum(layer["predicted_bytes"]["sent"] for layer in document["prediction"]["plan"]["layers"])
    whole = 4 * document["parameters"] * 2 * (workers - 1) / workers
    return {"figure": f"{sent / 1e6:.0f} MB a step instead of {whole / 1e6:.0f} MB, {whole / sent:.1f} times fewer",
            "numbers": {"sent_bytes": sent, "whole_bytes": whole}, "command": "poseidon plan " + " ".join(words)}


def three_systems(profile, workers, rate, scale=10):
    """Factors and overlap, overlap in the backward pass only, and a parameter server that overlaps nothing."""
    ours = simulated(profile, workers, rate, scale)
    backward = simulated(profile, workers, rate, scale, *BACKWARD_ONLY)
    server = planned(profile, workers, rate)["budget"]["ways"]["whole_layers"]
    return {"figure": f"{ours['speedup']:.1f}x / {backward['speedup']:.1f}x / {server['speedup']:.1f}x (the last one calculated)",
            "numbers": {"poseidon": ours["speedup"], "backward_only": backward["speedup"], "server": server["speedup"]},
            "command": simulate_command(profile, workers, rate, scale) + "; the same with " + " ".join(BACKWARD_ONLY) + "; " +
            plan_command(profile, workers, rate, 1_281_167, 1)}


def sweep(profile, workers, rates, scale=10):
    """Speed-up by rate, with overlap in both passes, and in the backward pass only."""
    ours = [simulated(profile, workers, rate, scale)["speedup"] for rate in rates]
    only = [simulated(profile, workers, rate, scale, *BACKWARD_ONLY)["speedup"] for rate in rates]
    pairs = ", ".join(f"{rate.removesuffix('bit')}: {a:.1f}x ({b:.1f}x)" for rate, a, b in zip(rates, ours, only))
    return {"figure": f"{pairs}; in brackets key-value only with overlap in the backward pass only",
            "numbers": {rate: a for rate, a in zip(rates, ours)}, "command": simulate_command(profile, workers, rates[0], scale)}


def burstiness(profile, workers, rate, scale=10):
    found = simulated(profile, workers, rate, scale)
    return {"figure": f"busiest link over the mean {found['max_to_mean_bytes']:.3f}; busiest 10 ms over the mean {found['peak_to_mean']:.2f}",
            "numbers": {key: found[key] for key in ("max_to_mean_bytes", "peak_to_mean")},
            "command": simulate_command(profile, workers, rate, scale)}


def stalls(settings, scale=10):
    """The share of a step in which the worker does not compute."""
    shares = {}
    for profile, workers, rate in settings:
        found = simulated(profile, workers, rate, scale)
        shares[f"{profile}, {workers} workers"] = 1 - found["single_worker_seconds"] / found["median_seconds"]
    return {"figure": "; ".join(f"{name} {max(0.0, share) * 100:.1f} %" for name, share in shares.items()), "numbers": shares,
            "command": simulate_command(*settings[0], scale)}


def budget(profile, workers, rate, images, epochs):
    found = planned(profile, workers, rate, images, epochs)["budget"]["ways"]
    ours, alone, server = found["plan"], found["one_worker"], found["whole_layers"]
    return {"figure": f"{ours['days']:.2f} days on {workers} machines; {alone['days']:.1f} on one; {server['days']:.2f} with a parameter server "
                      "of whole layers",
            "numbers": {"days": ours["days"], "days_alone": alone["days"], "machine_hours": ours["machine_hours"]},
            "command": plan_command(profile, workers, rate, images, epochs)}


def emulated(cell, *others):
    """What `benchmarks.performance` recorded of a setting: Poseidon, and other systems by their names there."""
    kept = record.read(RECORDED).get(cell)
    if kept is None or "poseidon" not in kept["systems"]:
        raise Failed(f"{RECORDED.relative_to(ROOT)} has no setting {cell}")
    workers = kept["cell"]["workers"]
    alone = kept["systems"]["poseidon"]["first"]["single_worker_seconds"]
    speedups = {name: workers * alone / kept["systems"][name]["seconds"] for name in ("poseidon", *others)}
    beside = ", ".join(f"{name} {speedups[name]:.2f}x" for name in others)
    return {"figure": f"{speedups['poseidon']:.2f}x" + (f"; {beside}" if others else ""), "numbers": speedups,
            "command": f"python3 -m benchmarks.performance --only {cell}", "date": kept["date"],
            "commit": kept["versions"]["poseidon"]}


def emulated_speedups(net, rate, workers):
    """Poseidon's that were recorded over real sockets, by the number of workers; those that there are."""
    kept = record.read(RECORDED)
    cells = {count: f"{net}-p{count}-{rate.removesuffix('bit')}" for count in workers}
    return {count: emulated(cell)["numbers"]["poseidon"] for count, cell in cells.items() if "poseidon" in kept.get(cell, {}).get("systems", {})}


@functools.cache
def stock_tensorflow():
    """Speed-ups that `benchmarks.tensorflow` measured over real sockets, stock TensorFlow's servers and Poseidon in TensorFlow: by (net, rate),
    then "whole" or "split" variables or "poseidon", then workers."""
    found = {}
    for net, rate, system, speedups, workers in re.findall(
            r"^- ([\w-]+), (\d+) Gbit/s, (variables whole|variables split|Poseidon): speed-up ([\d. ]+) with ([\d ]+) workers",
            TENSORFLOW.read_text(), re.M):
        of_setting = found.setdefault((net.lower(), f"{rate}Gbit"), {})
        of_setting[system.removeprefix("variables ").lower()] = dict(zip(map(int, workers.split()), map(float, speedups.split())))
    return found


def busiest_server(variables, servers):
    """Bytes of the variables of the server that has most, where they go to servers in turn in the order of their creation, as
    replica_device_setter puts them: with an even number of servers all weights are on every second one."""
    return max(sum(variables[server::servers]) for server in range(servers))


class WholeVariables:
    """What a step takes on synchronous parameter servers that place variables whole, in steps of one worker alone.

    Of a step of P workers the busiest server sends L bytes to P - 1 others before and during their forward passes, and receives as many from
    them: t = (P - 1) L / B each way. Computing hides `pulled` of what is sent and `pushed` of what is received:
    step = 1 + max(0, t - pulled) + max(0, t - pushed). Both are fitted to two workers alone, at a fast and at a slow rate."""

    def __init__(self, profile, fast, slow):
        """`fast` and `slow`: (rate in bytes per second, the step of two workers in steps of one), of which the fast one hides all that is received."""
        document = grid.document(profile)
        self.seconds = timing.seconds_of(document)
        self.variables = [4 * math.prod(tensor["shape"]) for layer in document["layers"] for tensor in layer["tensors"]]
        self.pulled = self.transfer(2, fast[0]) - (fast[1] - 1)
        self.pushed = self.transfer(2, slow[0]) - ((slow[1] - 1) - (self.transfer(2, slow[0]) - self.pulled))

    def transfer(self, workers, rate):
        return (workers - 1) * busiest_server(self.variables, workers) / rate / self.seconds

    def step(self, workers, rate):
        each_way = self.transfer(workers, rate)
        return 1 + max(0.0, each_way - self.pulled) + max(0.0, each_way - self.pushed)


def fitted():
    """The model of stock TensorFlow's servers, the rates that it is fitted at in bytes per second, and what was measured there."""
    measured = {rate: stock_tensorflow()[FITTED_NET, rate]["whole"] for rate in FITTED_RATES}
    rates = {rate: float(rate.removesuffix("Gbit")) * 1e9 / 8 * GOODPUT for rate in FITTED_RATES}
    return WholeVariables(FITTED_NET, *((rates[rate], 2 / measured[rate][2]) for rate in FITTED_RATES)), rates, measured


def fitted_speedups(rate, workers):
    model, rates, _ = fitted()
    return [count / model.step(count, rates[rate]) for count in workers]


def whole_variables():
    """The speed-ups of stock TensorFlow's servers with 4 and 8 workers, from those with 2, beside what was measured."""
    model, rates, measured = fitted()
    fast, slow = FITTED_RATES
    figures, numbers = [], {"largest_error": 0.0}
    for rate in measured:
        for workers in (4, 8):
            found, real = workers / model.step(workers, rates[rate]), measured[rate][workers]
            figures.append(f"{found:.2f}x for {real:.2f}x")
            numbers[f"{workers} workers at {rate}"] = found
            numbers["largest_error"] = max(numbers["largest_error"], abs(found / real - 1))
    at_32 = 32 / model.step(32, rates[fast])
    return {"figure": f"at {fast} with 4 and 8 workers {figures[0]}, {figures[1]}; at {slow} {figures[2]}, {figures[3]}; with 32 at {fast} {at_32:.1f}x",
            "numbers": numbers | {f"32 workers at {fast}": at_32}, "command": "python3 -m benchmarks.claims --only whole-variables"}


def beside_stock_tensorflow(settings):
    """Poseidon in TensorFlow beside stock TensorFlow's parameter servers with variables whole, with 2, 4 and 8 workers."""
    measured = stock_tensorflow()
    figures, numbers = [], {}
    for net, rate in settings:
        if (net, rate) not in measured:
            raise Failed(f"{TENSORFLOW.relative_to(ROOT)} has nothing of {net} at {rate}")
        lines = measured[net, rate]
        words = {name: ", ".join(f"{value:.2f}" for value in lines[name].values()) for name in ("whole", "poseidon")}
        figures.append(f"{net}, {rate.removesuffix('bit')}: {words['poseidon']}x, stock {words['whole']}x")
        numbers[f"{net} {rate}"] = {name: {str(count): value for count, value in lines[name].items()} for name in ("whole", "poseidon")}
    kept = [row for row in json.loads(TENSORFLOW.with_suffix(".json").read_text())["rows"] if "parameter servers" in row["compared"]]
    return {"figure": "; ".join(figures), "numbers": numbers, "command": "python3 -m benchmarks.tensorflow --only servers",
            "date": max(row["date"] for row in kept), "commit": ", ".join(sorted({row["commit"] for row in kept}))}
