# SPDX-License-Identifier: Apache-2.0
"""Finds a figure of ours for each published claim, and writes docs/claims.md.

  python3 -m benchmarks.claims                  # all rows, some minutes
  python3 -m benchmarks.claims --only balance,alexnet-8
  python3 -m benchmarks.claims --render         # finds nothing, writes the page from what was found
  python3 -m benchmarks.claims --compare        # rows of a minute at most: those that got worse are red; writes nothing
  python3 -m benchmarks.claims --list           # the rows, and how long each takes

Needs build/release/bin/poseidon and poseidon_simulate. What was found is kept in docs/claims/found.json.
"""
import argparse
import json
import sys

from benchmarks.cells import ROOT
from benchmarks.performance.record import rounded
from benchmarks.performance.standalone import Failed

from . import compare, page
from .ours import found_now
from .rows import ROWS

FOUND = ROOT / "docs/claims/found.json"
PAGE = ROOT / "docs/claims.md"
QUICK = 1  # minutes of a row that --compare finds where no row is named


def parse(arguments):
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.claims", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), help="rows, by their names")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    if options.only is None:
        options.only = [row.name for row in ROWS if not options.compare or row.minutes <= QUICK]
    for name in options.only:
        if name not in names:
            parser.error(f"there is no row {name}, expected some of {', '.join(names)}")
    return options


def find(names, results):
    """Finds these rows and keeps each as it comes; the exit status."""
    failed = 0
    for row in ROWS:
        if row.name not in names or row.find is None:
            continue
        try:
            found = row.find()
        except Failed as failure:
            print(f"claims: {row.name}: {failure}", file=sys.stderr)
            failed = 1
            continue
        results[row.name] = rounded(found_now() | found)
        print(f"{row.name}: {found['figure']}", flush=True)
        FOUND.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return failed


def compared(names, results):
    """Finds these rows once more, and prints which got worse; the exit status. Rows that are read from what other benchmarks
    recorded have nothing to compare."""
    status = 0
    for row in ROWS:
        if row.name not in names or row.find is None:
            continue
        if row.name not in results:
            print(f"{row.name}: nothing is recorded to compare with")
            continue
        try:
            found = row.find()
        except Failed as failure:
            print(compare.red(f"{row.name}: NOT FOUND: {failure}"), flush=True)
            status = 1
            continue
        if "date" in found:
            continue
        sentences = list(compare.worse(results[row.name]["numbers"], found["numbers"]))
        print(compare.red(f"{row.name}: WORSE: {', '.join(sentences)}") if sentences else f"{row.name}: {found['figure']}", flush=True)
        status |= bool(sentences)
    return status


def main(arguments):
    options = parse(arguments)
    if options.list:
        for row in ROWS:
            print(f"{row.name:20} {row.kind:24} {row.minutes:4g} min  {row.claim}")
        return 0
    results = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    if options.compare:
        return compared(options.only, results)
    status = 0 if options.render else find(options.only, results)
    PAGE.write_text(page.text_of(results))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
