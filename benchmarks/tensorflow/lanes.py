# SPDX-License-Identifier: Apache-2.0
"""Draws a trace of poseidon.tensorflow.trace as SVG: the ops of TensorFlow's threads by what they are for, and the sends and
receives of the core by layer.

  python3 -m benchmarks.tensorflow.lanes TRACE PICTURE.svg [--steps 2]
"""
import argparse
import collections
import json
import pathlib
import sys

from benchmarks.performance.plots import pyplot, save

COLORS = {"forward": "#7fb77e", "backward": "#0b5fa5", "update": "#dd8452"}
MOVED = ("send", "receive")
THREADS = 2  # the busiest
FINEST = 1 / 2000  # of the picture's width: what is nearer is drawn as one


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.tensorflow.lanes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2, help="how many, from the middle of the trace")
    return parser.parse_args(arguments)


def boxes_of(trace, steps):
    """(row, color's key, begin, end) in milliseconds, the rows and the number of layers, of some steps in the middle and the
    forward pass behind them."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"]
             if event["name"] == "thread_name"}
    sent = [event for event in events if event["cat"] == "send"]
    first_of = {}
    for event in sorted(sent, key=lambda event: event["ts"]):
        first_of.setdefault(event["args"]["step"], event["ts"])
    known = sorted(first_of)
    if len(known) < steps + 2:
        sys.exit(f"the trace has {len(known)} steps, expected {steps + 2} or more to draw {steps}")
    at = (len(known) - steps) // 2
    # A forward pass after a step's first send is of the next step.
    begin = min(event["ts"] for event in events if event["cat"] == "forward" and event["ts"] > first_of[known[at - 1]])
    end = first_of[known[at + steps]]
    busy, found = collections.Counter(), []
    for event in events:
        start, stop = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
        if start < stop:
            key = event["args"]["layer"] if event["cat"] in MOVED else event["cat"]
            row = event["cat"] if event["cat"] in MOVED else lanes[event["pid"], event["tid"]]
            found.append((row, key, (start - begin) / 1000, (stop - begin) / 1000))
            if event["cat"] in COLORS:
                busy[row] += stop - start
    rows = [*sorted(row for row, _ in busy.most_common(THREADS)), *MOVED]
    layers = 1 + max(event["args"]["layer"] for event in sent)
    return [box for box in found if box[0] in rows and (box[0] in MOVED or box[1] in COLORS)], rows, layers


def joined(boxes, gap):
    """Boxes of one row and color are one where they are no more than `gap` apart."""
    open_boxes, done = {}, []
    for row, key, begin, end in sorted(boxes, key=lambda box: box[2]):
        before = open_boxes.get((row, key))
        if before and begin - before[3] <= gap:
            before[3] = max(before[3], end)
        else:
            open_boxes[row, key] = box = [row, key, begin, end]
            done.append(box)
    return done


def draw(trace, steps, path):
    boxes, rows, layers = boxes_of(trace, steps)
    last = max(end for _, _, _, end in boxes)
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(9, 2.6))
    colors = plt.get_cmap("turbo")
    for row, key, begin, end in joined(boxes, last * FINEST):
        axis.barh(rows.index(row), end - begin, left=begin, height=0.8, linewidth=0,
                  color=COLORS.get(key) or colors(0.05 + 0.9 * key / layers))
    names = [f"thread {at + 1}" if row not in MOVED else row for at, row in enumerate(rows)]
    axis.set(yticks=range(len(rows)), yticklabels=names, ylim=(len(rows) - 0.5, -0.5), xlim=(0, last), xlabel="milliseconds")
    axis.legend([plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()], COLORS, frameon=False, fontsize=7,
                loc="lower left", bbox_to_anchor=(0, 1), ncol=3)
    save(plt, figure, path)


def main():
    options = parse()
    draw(json.loads(options.trace.read_text()), options.steps, options.picture)


if __name__ == "__main__":
    main()
