# SPDX-License-Identifier: Apache-2.0
"""A calculated plot as a program: --json, --plot, and --from to plot what was calculated before."""
import json
import pathlib
import sys


class Failed(Exception):
    """A point could not be calculated; the message is one sentence."""


def add_outputs(parser, what):
    parser.add_argument("--from", dest="source", type=pathlib.Path, help=what)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)


def write(name, options, calculate, plot):
    """Reads or calculates the results, and writes what `options` ask for; the exit status."""
    try:
        document = json.loads(options.source.read_text()) if options.source else calculate(options)
    except (Failed, OSError) as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot:
        plot(document, options.plot)
    return 0
