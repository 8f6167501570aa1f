# SPDX-License-Identifier: Apache-2.0
"""What cores cost, simulated: fitted to two workers, compared with more of them on shared cores, and where an I/O thread ends.

  python3 -m benchmarks.simulate.cores --json cores.json           # measures in namespaces (root), two minutes, and calculates ten
  python3 -m benchmarks.simulate.cores --from cores.json           # calculates again from what was measured
  ... --plot cores.svg

The simulator charges a worker's I/O thread for each byte and each time that it is woken. Both costs come from
all-reduces of two workers on links without a limit: of 64 MiB, where a wake is little, and of 1 KiB, where a byte is nothing. Other
threads, whose time is not counted, wait for the I/O thread and wake. Four and
eight workers on the same cores are then predicted and measured: nothing is fitted to them. Last come clusters of machines that have a core
for the I/O thread, at rates that these machines do not have.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from benchmarks import cells
from benchmarks.performance import dense_path, grid, machine, measure
from benchmarks.performance.plots import pyplot, save
from benchmarks.performance.standalone import Failed, add_outputs, write

from .program import play

WIRES = {"poseidon": "plain", "tls": "encrypted"}
SMALL, LARGE = 1 << 10, 64 << 20
SIZES = (1 << 20, LARGE)     # of the comparison
FITTED, COMPARED = 2, (2, 4, 8)
ROUNDS = 5
IO_THREAD = "poseidon-io"    # as poseidon/transport/tcp names it
UNLIMITED, LOOPBACK = "1000Gbit", ("--latency", "5us", "--segment", str(64 << 10))
ENDS = {"resnet-50": (8, 16, 32, 64)}  # workers that are simulated, the last of which take a minute each
FURTHER = (256, 1024)        # that are calculated from these
RATES = ("10Gbit", "25Gbit", "100Gbit")


def simulate(profile, workers, rate, *options):
    return play(json.dumps(profile), workers, rate, "--steps", 3, *options, what=f"{workers} workers at {rate}")


def all_reduce(size):
    """The profile of an all-reduce: one layer, and as little computing as a program does that pushes and waits."""
    layer = {"name": "all", "shape": "all", "elements": size // 4, "forward_flops": 0, "forward_seconds": 1e-5, "backward_seconds": 1e-5,
             "tensors": [{"name": "all", "shape": [size // 4]}]}
    return {"format": 1, "name": "all-reduce", "batch": 1, "source": "no computing", "layers": [layer]}


def costs(fit):
    return "--cpu-per-byte", fit["nanoseconds_per_byte"], "--cpu-per-wake", fit["microseconds_per_wake"]


def io_seconds(system):
    """Processor seconds of the I/O threads of all ranks so far."""
    tasks = [task for program in system.programs for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks if (task / "comm").read_text().strip() == IO_THREAD)


def measured(options):
    """{workers: {size: {system: {"seconds", "cpu_seconds", "io_seconds"}}}}, medians over rounds in which every system has a turn.
    cpu_seconds are those of all threads, of all ranks together."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for workers in COMPARED:
            place = pathlib.Path(folder) / str(workers)
            place.mkdir()
            token = cells.token_in(place)
            sizes = (SMALL, *SIZES) if workers == FITTED else SIZES
            rows = {size: {name: {"seconds": [], "cpu_seconds": [], "io_seconds": []} for name in WIRES} for size in sizes}
            with measure.emulation.Cluster(workers, measure.emulation.Link(rate=None)) as cluster:
                systems = [dense_path.System(cluster, name, token, place) for name in WIRES]
                for _ in range(options.rounds):
                    for size in sizes:
                        for system in systems:
                            count = dense_path.repeats(size, workers)
                            before = io_seconds(system)
                            seconds, cpu = system.turn(size, count)
                            rows[size][system.name]["io_seconds"].append((io_seconds(system) - before) / (count + 1))
                            rows[size][system.name]["seconds"].append(seconds)
                            rows[size][system.name]["cpu_seconds"].append(cpu)
                for system in systems:
                    system.end()
            found[str(workers)] = {str(size): {name: {what: statistics.median(values) for what, values in row.items()}
                                               for name, row in by_system.items()} for size, by_system in rows.items()}
            print(f"measured {workers} workers", flush=True)
    return found


def fitted(rows, name):
    """The costs under which the simulator charges two workers what they took."""
    # Of large ones a turn has so few that one more, which every turn begins with, would count; nearly all of their time is the I/O threads'.
    taken = {size: rows[str(FITTED)][str(size)][name][what] for size, what in ((LARGE, "cpu_seconds"), (SMALL, "io_seconds"))}
    fit = {"nanoseconds_per_byte": taken[LARGE] / dense_path.payload(LARGE, FITTED) * 1e9, "microseconds_per_wake": 0}
    for _ in range(4):  # a thread that takes longer is woken less often
        wakes = {size: FITTED * simulate(all_reduce(size), FITTED, UNLIMITED, *LOOPBACK, *costs(fit))["io_wakes_per_step"]
                 for size in (SMALL, LARGE)}
        per_wake = taken[SMALL] / wakes[SMALL]
        per_byte = (taken[LARGE] - per_wake * wakes[LARGE]) / dense_path.payload(LARGE, FITTED)
        fit = {"nanoseconds_per_byte": per_byte * 1e9, "microseconds_per_wake": per_wake * 1e6}
    return fit


def agreement(rows, fits, cores):
    """Step times of all-reduces on shared cores, measured and simulated."""
    for name, fit in fits.items():
        for workers in COMPARED:
            for size in SIZES:
                seconds = rows[str(workers)][str(size)][name]["seconds"]
                found = simulate(all_reduce(size), workers, UNLIMITED, *LOOPBACK, "--shared-cores", cores, *costs(fit))
                yield {"system": name, "workers": workers, "bytes": size, "measured_seconds": seconds,
                       "simulated_seconds": found["median_seconds"]}


def ends(fits):
    """Steps of clusters whose workers have a core for their I/O thread."""
    for profile, counts in ENDS.items():
        document = grid.document(profile)
        for name, fit in fits.items():
            for rate in RATES:
                points = []
                for workers in counts:
                    found = simulate(document, workers, rate, "--latency", "20us", *costs(fit))
                    points.append({"workers": workers, "seconds": found["median_seconds"], "t_star": found["t_star"],
                                   "io_seconds": found["io_seconds_per_step"], "io_wakes": found["io_wakes_per_step"], "simulated": True})
                    yield {"profile": profile, "system": name, "rate": rate} | points[-1]
                # Wakes grow with the workers, bytes hardly: a line through the last two. On fast links wakes fall at first, because more
                # comes with each, which does not go on.
                (a, b), compute = points[-2:], found["single_worker_seconds"]
                slope = max(0, (b["io_seconds"] - a["io_seconds"]) / (b["workers"] - a["workers"]))
                for workers in FURTHER:
                    io = b["io_seconds"] + slope * (workers - b["workers"])
                    yield {"profile": profile, "system": name, "rate": rate, "workers": workers, "io_seconds": io,
                           "seconds": max(b["seconds"], io, compute), "t_star": b["t_star"], "simulated": False}


def calculate(options):
    if os.geteuid() != 0:
        raise Failed("namespaces need root")
    try:
        rows = measured(options)
    except (measure.Failed, measure.emulation.Refused) as failure:
        raise Failed(str(failure)) from failure
    document = {"date": machine.today(), "machine": machine.machine(), "cores": os.cpu_count(), "rounds": options.rounds, "measured": rows}
    if options.json:  # what follows takes minutes more
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return from_rows(document)


def from_rows(document):
    rows = document["measured"]
    fits = {name: fitted(rows, name) for name in WIRES}
    for name, fit in fits.items():
        print(f"{WIRES[name]:10} {fit['nanoseconds_per_byte']:.3f} ns a byte, {fit['microseconds_per_wake']:.2f} us a wake")
    compared = []
    for row in agreement(rows, fits, document["cores"]):
        compared.append(row)
        print(f"{WIRES[row['system']]:10} P={row['workers']} {dense_path.size_words(row['bytes']):>8}  measured {row['measured_seconds']:.5f} s  "
              f"simulated {row['simulated_seconds']:.5f} s  {row['simulated_seconds'] / row['measured_seconds'] - 1:+.1%}", flush=True)
    further = []
    for row in ends(fits):
        further.append(row)
        print(f"{row['profile']} {WIRES[row['system']]:10} {row['rate']:>8} P={row['workers']:<5} {'' if row['simulated'] else '(calculated) '}"
              f"{row['seconds']:.4f} s  {row['seconds'] / row['t_star']:.3f} T*  I/O {row['io_seconds'] / row['seconds']:.0%} of a core", flush=True)
    return document | {"fits": fits, "agreement": compared, "ends": further}


def plot(document, path):
    plt = pyplot()
    figure, axes = plt.subplots(1, len(RATES), figsize=(3.6 * len(RATES), 3), squeeze=False, sharey=True)
    for axis, rate in zip(axes.flat, RATES):
        for name, color in zip(WIRES, ("#4c72b0", "#dd8452")):
            points = [row for row in document["ends"] if row["rate"] == rate and row["system"] == name]
            axis.plot([row["workers"] for row in points], [row["seconds"] / row["t_star"] for row in points], color=color,
                      marker="o", markersize=3, linewidth=1.2, label=WIRES[name])
        axis.set_xscale("log", base=2)
        axis.set(title=rate, xlabel="workers", ylabel="step / T*")
        axis.legend(frameon=False, fontsize=7)
    save(plt, figure, path)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.simulate.cores", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_outputs(parser, "take what was measured from here")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if not options.source:
        return write("cores", options, calculate, plot)
    document = json.loads(options.source.read_text())
    options.source = None
    return write("cores", options, lambda _: from_rows(document), plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
