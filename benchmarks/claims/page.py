# SPDX-License-Identifier: Apache-2.0
"""docs/claims.md, from what was found."""
from benchmarks.performance import grid
from benchmarks.profiles import timing
from benchmarks.tables import bullets, table

from .rows import CALCULATED, EMULATED, KINDS, NOT_SHOWN, REAL, ROWS, SIMULATED

HEAD = """# The published claims, and ours

What the documents of 2015 to 2017 claim, a row each, beside what this project shows. `python3 -m benchmarks.claims` finds every figure of ours
and writes this page; `--only ROW` finds one. Nothing of ours in it was typed by hand.

Five ways to show it:

"""
CURVES = """![Throughput over 1 to 32 workers.](claims/curves.svg)

Throughput as the papers plot it, at 10 and 40 Gbit/s. Hollow points are simulated or calculated, filled ones were measured over real sockets on an
emulated network, crosses are published. `python3 -m benchmarks.claims.curves` draws it.
"""
NETS_HEAD = """## The nets

The papers name the nets and data sets. `python3 -m benchmarks.profiles NET` prints the layers of ours, and `models/` has the files. A step alone takes a
published time of a GPU ([assumptions](performance.md#assumptions)).

"""
# Data sets of the papers; our profiles have none.
DATA = {"cifar10-quick": "CIFAR-10", "alexnet": "ImageNet-1K", "googlenet": "ImageNet-1K", "inception-v3": "ImageNet-1K", "vgg19": "ImageNet-1K",
        "vgg19-22k": "ImageNet-22K", "resnet-152": "ImageNet-1K"}
WAYS = {REAL: "real training, on this machine",
        EMULATED: "real sockets in network namespaces, computing is slept ([assumptions](performance.md#assumptions))",
        SIMULATED: "the product's own nodes on virtual time: the protocol is run, the network and computing are clocks; sizes and rate "
                   "divided by one number, 10 mostly",
        CALCULATED: "`poseidon plan`, by the cost model alone",
        NOT_SHOWN: "said so, with what is there instead"}


def summary(results):
    """A table of all rows: the claim, what was published, and ours."""
    lines = []
    for row in ROWS:
        found = results.get(row.name)
        lines.append([f"[{row.name}](#{row.name})", row.claim, row.published, found["figure"] if found else NOT_SHOWN if row.find is None else "-"])
    return table(["row", "claim", "published", "ours"], lines)


def nets():
    """A table of the papers' nets: parameters, data set, batch, and seconds of a step of one worker."""
    lines = []
    for name, data in DATA.items():
        document = grid.document(name)
        lines.append([name, f"{sum(layer['elements'] for layer in document['layers']) / 1e6:.3g} million", data, str(document["batch"]),
                      f"{timing.seconds_of(document):.3g} s"])
    return NETS_HEAD + table(["net", "parameters", "data set", "batch of a worker", "a step alone"], lines)


def row_text(row, found):
    if row.find is None:
        ours, where = f"not shown: {row.instead}", ""
    elif found is None:
        ours, where = f"not found yet, `python3 -m benchmarks.claims --only {row.name}` does", ""
    else:
        ours, where = f"**{found['figure']}**", f" ({found['date']}, {found['commit'] or 'an unknown commit'})"
    lines = [f"claimed: {row.published} ({row.source})", f"ours, {row.kind}: {ours}{where}"]
    if row.differs != "-":
        lines.append(f"what differs: {row.differs}")
    if found:
        lines.append(f"by hand: `{found['command']}`")
    return f"## {row.name}\n\n{row.claim}.\n\n{bullets(lines)}\n"


def text_of(results):
    """The page. `results`: what was found, by the row's name."""
    ways = bullets(f"{kind}: {WAYS[kind]}; {sum(row.kind == kind for row in ROWS)} rows" for kind in KINDS)
    return HEAD + ways + "\n\n" + summary(results) + "\n\n" + CURVES + "\n" + nets() + "\n\n" + "\n".join(row_text(row, results.get(row.name)) for row in ROWS)
