# SPDX-License-Identifier: Apache-2.0
"""Prints a model's profile as JSON (benchmarks/profiles/README.md), or without a name lists the models."""
import argparse
import sys

from .architectures import ARCHITECTURES
from .timing import profile, ridge, seconds_of, text_of


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value
    parse.__name__ = "positive number"
    return parse


def table():
    lines = [f"{'name':19} {'parameters':>11} {'tensors':>7} {'layers':>6} {'GFLOP':>7} {'batch':>5} "
             f"{'step, s':>8} {'TFLOP/s':>7}  ridge at 8 workers"]
    for name in ARCHITECTURES:
        document = profile(name)
        layers = document["layers"]
        lines.append(
            f"{name:19} {sum(layer['elements'] for layer in layers):11,} "
            f"{sum(len(layer['tensors']) for layer in layers):7} {len(layers):6} "
            f"{sum(layer['forward_flops'] for layer in layers) / 1e9:7.2f} {document['batch']:5} "
            f"{seconds_of(document):8.3f} {document['product_flops'] / 1e12:7.2f}  "
            f"{ridge(document, 8) / 1e9:.1f} Gbit/s")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.profiles", description=__doc__)
    parser.add_argument("name", nargs="?", choices=ARCHITECTURES, metavar="NAME", help=", ".join(ARCHITECTURES))
    parser.add_argument("--batch", type=positive(int), metavar="K", help="samples per worker and step")
    parser.add_argument("--seconds", type=positive(float), metavar="T",
                        help="of a step on one worker, in place of the published time")
    args = parser.parse_args()
    if not args.name:
        print(table())
        return
    try:
        document = profile(args.name, args.batch, args.seconds)
    except ValueError as error:
        sys.exit(f"profiles: {args.name}: {error}")
    sys.stdout.write(text_of(document))


if __name__ == "__main__":
    main()
