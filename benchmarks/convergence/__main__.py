# SPDX-License-Identifier: Apache-2.0
"""Loss and accuracy by iterations and seconds, of 1, 2, 4 and 8 workers at one global batch; writes docs/convergence.md.

  python3 -m benchmarks.convergence               # trains all, some minutes
  python3 -m benchmarks.convergence --only lenet
  python3 -m benchmarks.convergence --render      # trains nothing, writes the page from what was found

Needs build/release/bin/poseidon, Fashion-MNIST from Debian's package dataset-fashion-mnist, scikit-learn
(scripts/setup.sh develop), and for Keras .venv-tensorflow (scripts/setup.sh test). What was found is kept in
docs/convergence/found.json.
"""
import argparse
import json
import sys

from benchmarks.cells import FOLDER, ROOT
from benchmarks.claims.ours import found_now
from benchmarks.performance.record import rounded
from benchmarks.performance.standalone import Failed

from . import page, trained

PROGRAM = ROOT / "build/release/bin/poseidon"
WORK = FOLDER.parent / "convergence"
PICTURES = ROOT / "docs/convergence"
FOUND = PICTURES / "found.json"
PAGE = ROOT / "docs/convergence.md"


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.convergence", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(trained.NETS))
    parser.add_argument("--render", action="store_true")
    return parser.parse_args(arguments)


def train_all(net):
    WORK.mkdir(parents=True, exist_ok=True)
    net.make(PROGRAM, WORK)
    runs = []
    for workers in trained.WORKERS:
        runs.append(trained.train(PROGRAM, net, workers, WORK))
        runs[-1]["difference"] = trained.largest_difference(runs[0], runs[-1])
        print(f"{net.name}, {workers} workers: loss {runs[-1]['losses'][-1][2]:.4f}, {runs[-1]['seconds']:.1f} s", flush=True)
    return runs


def control_of(net, first):
    """One worker again, with noise in its first weights: how far roundings alone lead. None where the trainer has no such option."""
    if not net.script:
        return None
    again = trained.train(PROGRAM, net, 1, WORK, trained.NOISE)
    return again | {"difference": trained.largest_difference(first, again)}


def main(arguments):
    options = parse(arguments)
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    if not options.render:
        try:
            for net in trained.NETS.values():
                if options.only in (None, net.name):
                    runs = train_all(net)
                    found[net.name] = found_now() | {"runs": rounded(runs), "control": rounded(control_of(net, runs[0]))}
        except Failed as failure:
            print(f"convergence: {failure}", file=sys.stderr)
            return 1
        FOUND.write_text(json.dumps(found, sort_keys=True) + "\n")
    for name, of_net in found.items():
        page.plot(of_net["runs"], PICTURES / f"{name}.svg")
    PAGE.write_text(page.text_of(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
