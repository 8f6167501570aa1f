# SPDX-License-Identifier: Apache-2.0
"""Which cells are measured: a profile on a network, and the systems that run there by turns."""
import dataclasses
import functools
import math

from benchmarks.profiles import timing

# A port of the emulated network carries at most this, so that two cores carry all of them.
MOST_PORT_RATE = {2: 1e9, 4: 1e9, 8: 400e6}
DELAYED_PORT_RATE = 200e6  # what the delay stage carries
FULL_RATE = 2.5e9        # of two workers that are not scaled: what the gate passes on two cores
GATE_SECONDS = 21        # of calibrating before and after, and of making and removing the network
START_SECONDS = {"ours": 1.5, "ddp": 4.5, "mpi": 2}
WARM_UP = 5              # steps: the plan is final after the second, the link's rate is known by then
STEPS = (6, 20)          # measured steps of a turn, least and most
TURN_SECONDS = 7         # of measured steps, within those bounds
SEED = 1                 # of the order of turns; compute times draw from rank, step and layer alone


@dataclasses.dataclass(frozen=True)
class System:
    """Something that runs a profile: `options` of poseidon_replay, of ddp_replay.py or of mpi_replay.py."""
    name: str
    program: str  # ours, ddp, mpi
    options: tuple
    words: str


SYSTEMS = {system.name: system for system in (
    System("poseidon", "ours", ("--mode", "poseidon", "--policy", "time"),
           "Poseidon; key-value or factors by layer, as its plan chose"),
    System("dense", "ours", ("--mode", "poseidon", "--policy", "time", "--scheme", "kv"),
           "Poseidon, key-value for every layer"),
    System("tls", "ours", ("--mode", "poseidon", "--policy", "time", "--scheme", "kv", "--wire", "tls"),
           "as dense, encrypted"),
    System("wfbp", "ours", ("--mode", "wfbp", "--policy", "time", "--scheme", "kv"),
           "dense, overlap with the backward pass only, in order of arrival"),
    System("p3", "ours", ("--mode", "p3", "--policy", "time", "--scheme", "kv"),
           "dense, priority by layer"),
    System("dear", "ours", ("--mode", "dear", "--policy", "time", "--scheme", "kv"),
           "dense, reduce-scatter in backward, all-gather in forward"),
    System("ps-2017", "ours", ("--mode", "ps-2017"),
           "as the system of 2017: key-value pairs of 4 MB whole at servers in turn, factors where they "
           "are fewer bytes, order of arrival, a wait at the end of backward"),
    System("flat", "ours", ("--mode", "poseidon", "--scheme", "kv", "--levels", "flat"),
           "as dense, where workers share a machine"),
    System("levels", "ours", ("--mode", "poseidon", "--scheme", "kv", "--levels", "host"),
           "as flat, but workers of one machine combine through its memory first"),
    System("ddp-1", "ddp", ("--connections", 1), "PyTorch DDP over gloo, one connection"),
    System("ddp-4", "ddp", ("--connections", 4), "PyTorch DDP over gloo, four connections"),
    System("mpi", "mpi", (), "Open MPI's all-reduce, a ring, of DDP's buckets, by a thread beside backward"),
)}
FEW = ("poseidon", "dense", "ps-2017", "ddp-1", "ddp-4")
MAIN = ("poseidon", "dense", "wfbp", "ps-2017", "ddp-1", "ddp-4")
ENCRYPTED = (*FEW, "tls")  # every cell of the quick grid is encrypted as well, which is what users run
PEERS = (*FEW, "mpi")
SHARING = ("flat", "levels")
EVERY = tuple(name for name in SYSTEMS if name not in SHARING)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting. `rate` is a line rate in bit/s, or a multiple of the profile's ridge: '1x'."""
    profile: str
    workers: int
    rate: float | str
    queue: float = 0.050
    jitter: float = 0.0
    straggler: float = 1.0
    systems: tuple = MAIN
    repeats: int = 2
    timeline: bool = False  # also record one step of dense and of wfbp
    background: float = 0.0  # of the rate that others' traffic takes on every link
    latency: float = 0.0     # one way, in a delay stage, which carries ports of 200 Mbit/s
    compute: str = "sleep"  # or spin: it burns this machine's CPU time, beside the network's
    per_node: int = 1  # workers on each machine, which share its port
    full_size: bool = False  # nothing is scaled, whatever the machine carries

    @property
    def name(self):
        rate = self.rate if isinstance(self.rate, str) else f"{self.rate / 1e9:g}G"
        extra = [f"queue{self.queue * 1e3:g}ms"] if self.queue != 0.050 else []
        extra += [f"jitter{self.jitter * 100:g}"] if self.jitter else []
        extra += [f"straggler{self.straggler:g}"] if self.straggler != 1 else []
        extra += [f"background{self.background * 100:g}"] if self.background else []
        extra += [f"latency{self.latency * 1e3:g}ms"] if self.latency else []
        extra += [f"on{self.nodes}"] if self.per_node > 1 else []
        extra += ["full"] if self.full_size else []
        extra += [self.compute] if self.compute != "sleep" else []
        return "-".join([self.profile, f"p{self.workers}", rate, *extra])

    @property
    def nodes(self):
        return self.workers // self.per_node

    @property
    def real_rate(self):
        """Of a port, bit/s, before scaling."""
        if isinstance(self.rate, str):
            return float(self.rate.rstrip("x")) * timing.ridge(document(self.profile), self.workers)
        return self.rate

    @property
    def scale(self):
        most = DELAYED_PORT_RATE if self.latency else MOST_PORT_RATE[self.nodes]
        return 1.0 if self.full_size else max(1.0, self.real_rate / most)

    @property
    def port_rate(self):
        return round(self.real_rate / self.scale)

    @property
    def longest_step(self):
        """Seconds of a step whose computing and sending do not overlap: no system is slower for long."""
        profile = document(self.profile)
        elements = sum(layer["elements"] for layer in profile["layers"])
        share = 2 * self.per_node * (self.workers - 1) / self.workers
        return (timing.seconds_of(profile) * self.straggler
                + share * elements * 32 / (self.real_rate * (1 - self.background) * 0.956))

    @property
    def steps(self):
        return min(STEPS[1], max(STEPS[0], math.floor(TURN_SECONDS / self.longest_step)))

    @property
    def seconds(self):
        """The most seconds that the cell takes, about."""
        start = START_SECONDS | {"ddp": START_SECONDS["ddp"] * max(1, self.workers / 4)}
        turns = sum(start[SYSTEMS[system].program] + (WARM_UP + self.steps) * self.longest_step
                    for system in self.systems)
        return GATE_SECONDS + self.repeats * turns

    def described(self):
        """All that the result depends on, besides sources, machine and profile."""
        return {"profile": self.profile, "workers": self.workers, "rate": self.rate,
                "real_rate_bits": self.real_rate, "port_rate_bits": self.port_rate,
                "scale": self.scale, "per_node": self.per_node, "queue_seconds": self.queue, "jitter": self.jitter,
                "straggler": self.straggler, "background": self.background, "compute": self.compute,
                "latency_seconds": self.latency,
                "systems": list(self.systems), "repeats": self.repeats, "timeline": self.timeline,
                "steps": self.steps, "warm_up": WARM_UP, "seed": SEED}


@functools.cache
def document(profile):
    return timing.profile(profile)


def quick():
    """Twelve cells: speed-up against P, step time against bandwidth, and one of every kind."""
    return [
        Cell("resnet-50", 4, "1x", systems=EVERY),
        Cell("vgg19-22k", 8, 10e9, systems=ENCRYPTED),
        Cell("vgg19-22k", 4, 10e9, systems=ENCRYPTED, timeline=True),
        Cell("mlp", 2, 1e9, systems=ENCRYPTED),
        Cell("vgg19-22k", 2, 10e9, systems=ENCRYPTED),
        Cell("resnet-50", 4, "2x", systems=(*MAIN, "tls")),
        Cell("resnet-50", 4, "0.5x", systems=(*MAIN, "tls")),
        Cell("resnet-50", 4, "1x", jitter=0.05, straggler=1.2, systems=ENCRYPTED),
        Cell("resnet-50", 4, "1x", queue=0.001, systems=ENCRYPTED),
        Cell("bert-base", 4, "1x", systems=ENCRYPTED),
        Cell("alexnet", 4, 10e9, systems=ENCRYPTED),
        Cell("inception-v3", 2, "1x", systems=ENCRYPTED),
    ]


def beside():
    """Measured with the quick and the full grid, and not among their twelve or hundred: others' traffic
    on every link, links of 5 ms, a job at full size and rate, computing slept and burning the machine's
    own cores, and two machines of two and of four workers."""
    full = {"full_size": True, "systems": FEW, "repeats": 1}
    return [Cell("resnet-50", 4, "1x", background=0.2, systems=FEW, repeats=1),
            Cell("vgg19-22k", 2, "1x", latency=0.005, systems=FEW, repeats=1),
            Cell("resnet-50", 2, FULL_RATE, **full),
            Cell("resnet-50", 2, FULL_RATE, compute="spin", **full),
            Cell("vgg19-22k", 4, 10e9, per_node=2, systems=SHARING, repeats=1),
            Cell("vgg19-22k", 8, 10e9, per_node=4, systems=SHARING, repeats=1)]


GOALS = ("vgg19", "vgg19-22k", "resnet-50", "inception-v3", "alexnet", "bert-base")
OTHERS = ("googlenet", "vgg16", "resnet-152", "mlp", "lstm")


def full():
    """The goals' profiles at every P and rate, the others at P=4, and what disturbs."""
    cells = quick()
    cells += [Cell(profile, workers, rate, systems=PEERS if rate == "1x" and workers < 8 else FEW)
              for profile in GOALS for workers in (2, 4, 8) for rate in ("0.5x", "1x", "2x", 10e9)]
    cells += [Cell(profile, 4, rate, systems=FEW)
              for profile in OTHERS for rate in ("0.5x", "1x", 10e9)]
    cells += [Cell(profile, workers, "1x", systems=FEW, **disturbed)
              for profile in ("vgg19-22k", "resnet-50") for workers in (4, 8)
              for disturbed in ({"queue": 0.001}, {"jitter": 0.02}, {"jitter": 0.05},
                                {"straggler": 1.2})]
    found = {}
    for cell in cells:  # the first of a name counts
        found.setdefault(cell.name, cell)
    return list(found.values())


def smoke():
    """Two cells of the quick grid whose ratios `make bench` compares, each system once."""
    return [Cell("resnet-50", 4, "1x", systems=FEW, repeats=1),
            Cell("mlp", 2, 1e9, systems=FEW, repeats=1)]


GRIDS = {"smoke": smoke, "quick": quick, "full": full}
