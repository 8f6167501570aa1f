# SPDX-License-Identifier: Apache-2.0
"""The dense path over unshaped links: all-reduces of 1 KiB to 256 MiB, ours and gloo's by turns.

All systems are alive in the same namespaces and compute only while it is their turn; a turn is some
all-reduces of one size behind one another. The figures of a size are medians over rounds, in each of
which every system had a turn, in an order drawn anew.
"""
import contextlib
import hashlib
import json
import pathlib
import random
import select
import statistics
import subprocess
import sys
import tempfile

from benchmarks import cells

from . import grid, machine, measure

emulation = measure.emulation

ALLREDUCE = measure.REPLAY.parent / "poseidon_allreduce"
BARE_STREAM = measure.REPLAY.parent / "poseidon_bare_stream"
NODES = (2, 4)
SIZES = tuple(1024 * 4 ** n for n in range(10))  # 1 KiB to 256 MiB
LARGE = 64 << 20         # from here on the goals of rate and CPU hold
ROUNDS = 5
TURN = 0.15              # seconds of all-reduces, about
PATIENCE = 60            # seconds until a turn is over
SYSTEMS = {"poseidon": "Poseidon", "auth": "Poseidon, authenticated", "tls": "Poseidon, encrypted", "gloo-1": "gloo, one connection",
           "gloo-4": "gloo, four connections", "bare": "the bytes alone, through plain TCP"}
PORTS = {name: 29500 + i for i, name in enumerate(SYSTEMS)}
GOALS = {2: 1.3, 4: 1.1}        # gloo's time over ours, on an EPYC
TLS_GOALS = {2: 0.65, 4: 0.75}  # CPU seconds per payload GB, both ends


def described(nodes=NODES, sizes=SIZES, rounds=ROUNDS):
    return {"nodes": list(nodes), "sizes": list(sizes), "rounds": rounds, "systems": list(SYSTEMS),
            "turn_seconds": TURN, "seed": grid.SEED}


def key_of(sources, on):
    inputs = {"setting": described(), "sources": sources, "machine": on}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:24]


def payload(size, workers):
    """Bytes that all workers together send for one all-reduce that wastes nothing."""
    return 2 * size * (workers - 1)


def repeats(size, workers):
    """How many all-reduces fill a turn, at least two."""
    return max(2, min(500, round(TURN / (2e-4 + size * (workers - 1) / 2e9))))


class System:
    """One system's programs, a rank in every node."""

    def __init__(self, cluster, name, token, folder):
        self.name = name
        self.errors = [folder / f"{name}-{rank}" for rank in range(cluster.nodes)]
        self.programs = []
        for rank, path in enumerate(self.errors):
            with open(path, "w") as errors:
                self.programs.append(cluster.run(
                    rank, words(name, cluster, rank, token), text=True, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=errors))

    def turn(self, size, count):
        """Mean seconds over the ranks of one all-reduce, and CPU seconds of all ranks. Raises
        measure.Failed."""
        with contextlib.suppress(OSError):  # the answer will be missing
            for program in self.programs:
                print(size, count, file=program.stdin, flush=True)
        answers = []
        for program, errors in zip(self.programs, self.errors):
            ready, _, _ = select.select([program.stdout], [], [], PATIENCE)
            line = program.stdout.readline() if ready else ""
            if not line:
                told = errors.read_text(errors="replace").strip().splitlines()
                raise measure.Failed(f"{self.name} did not finish a turn of {size} bytes"
                              + (f": {measure.without_paths(told[-1])}" if told else ""))
            answers.append(json.loads(line))
        return (statistics.fmean(a["seconds"] for a in answers), sum(a["cpu_seconds"] for a in answers))

    def end(self):
        for program in self.programs:
            with contextlib.suppress(OSError):
                program.stdin.close()
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(5)
            program.stdout.close()


def words(name, cluster, rank, token):
    if name == "bare":
        return [BARE_STREAM, "--peers", ",".join(cluster.addresses), "--rank", rank,
                "--port", PORTS[name]]
    place = ["--workers", cluster.nodes, "--rank", rank, "--coordinator", cluster.addresses[0],
             "--port", PORTS[name]]
    if name.startswith("gloo"):
        return [sys.executable, "-B", measure.CLUSTER / "ddp_replay.py", "--orders", *place,
                "--connections", name.removeprefix("gloo-")]
    return [ALLREDUCE, "--sizes", ",".join(map(str, SIZES)), *place, "--listen", cluster.addresses[rank],
            "--token-file", token, "--wire", "plain" if name == "poseidon" else name]


def measure_nodes(nodes, folder, say, sizes=SIZES, rounds=ROUNDS):
    """Rows of one cluster: {"bytes", system: {"seconds": [...], "cpu_seconds": [...]}} by size."""
    token = cells.token_in(folder)
    draw = random.Random(grid.SEED)
    rows = []
    with emulation.Cluster(nodes, emulation.Link(rate=None)) as cluster:
        systems = [System(cluster, name, token, folder) for name in SYSTEMS]
        for size in sizes:
            row = {"bytes": size} | {name: {"seconds": [], "cpu_seconds": []} for name in SYSTEMS}
            for _ in range(rounds):
                for system in draw.sample(systems, len(systems)):
                    seconds, cpu = system.turn(size, repeats(size, nodes))
                    row[system.name]["seconds"].append(float(f"{seconds:.6g}"))
                    row[system.name]["cpu_seconds"].append(float(f"{cpu:.6g}"))
            rows.append(row)
            say(f"  P={nodes}, {size_words(size)}: gloo / Poseidon {ratio(row):.2f}, "
                f"CPU {cpu_ratio(row):.2f}")
        for system in systems:
            system.end()
    return rows


def measure_all(say):
    """The result as a JSON object. Raises measure.Failed or emulation.Refused."""
    result = {"date": machine.today(), "setting": described(), "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in NODES:
            place = pathlib.Path(folder) / str(nodes)
            place.mkdir()
            result["rows"][str(nodes)] = measure_nodes(nodes, place, say)
    return result


def median(row, system, what="seconds"):
    return statistics.median(row[system][what])


def best_gloo(row):
    """The gloo that is faster at this size."""
    return min((name for name in row if name.startswith("gloo")), key=lambda name: median(row, name))


def ratio(row, system="poseidon"):
    """gloo's time over ours: median of the rounds' ratios."""
    peer = best_gloo(row)
    return statistics.median(g / s for g, s in zip(row[peer]["seconds"], row[system]["seconds"]))


def cpu_ratio(row, system="poseidon"):
    return median(row, best_gloo(row), "cpu_seconds") / median(row, system, "cpu_seconds")


def text_of(result):
    """JSON with a line per size, so that differences can be read."""
    head = json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=1)
    clusters = ",\n".join(f'  {json.dumps(nodes)}: [\n   ' + ",\n   ".join(map(json.dumps, rows)) + "\n  ]"
                          for nodes, rows in result["rows"].items())
    return head.removesuffix("\n}") + ',\n "rows": {\n' + clusters + "\n }\n}\n"


def size_words(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
