# SPDX-License-Identifier: Apache-2.0
"""How bursty a program's traffic is: bytes of every link in each 10 ms, and what the machine did meanwhile.

As a program (in the hub's namespace, `sampler.py FILE NODES`) it reads the interface counters at
absolute deadlines until SIGTERM, then writes a JSON list of [seconds, [from node...], [to node...], cores]
with running totals in bytes and what cores.so_far() said.
"""
import json
import pathlib
import re
import signal
import sys
import tempfile
import time

import cores

PERIOD = 0.010
HELD = 0.001  # seconds that no reading takes
SELF = pathlib.Path(__file__).resolve()


class Sampler:
    """Samples a cluster's links during a block; a context manager."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile(suffix=".json")
        self.program = self.cluster.spawn(
            self.cluster.hub, [sys.executable, "-B", SELF, self.file.name, self.cluster.nodes])
        return self

    def __exit__(self, *_):
        self.cluster.end(self.program)
        text = pathlib.Path(self.file.name).read_text()
        self.samples = json.loads(text) if text else []
        self.file.close()

    def summary(self):
        """Per node and direction: bytes, the mean rate while the link was in use (between the first
        and the last 10 ms with traffic) and the highest rate of 10 ms, in bits per second; and the
        largest node's bytes against the mean node's. None if the program was too short."""
        if len(self.samples) < 3:
            return None
        found = {"period_seconds": PERIOD}
        for which, name in ((1, "sent"), (2, "received")):
            links = [link_summary(self.samples, which, i) for i in range(self.cluster.nodes)]
            total = sum(link["bytes"] for link in links)
            found[name] = links
            found[f"{name}_max_to_mean_bytes"] = (
                round(max(link["bytes"] for link in links) * len(links) / total, 4) if total else None)
        return found


def line(summary):
    """A summary in one line for people."""
    if not summary:
        return "burstiness: the program was too short to tell"
    peaks = [link["peak_to_mean"] for way in ("sent", "received") for link in summary[way]
             if link["peak_to_mean"]]
    most = max(summary["sent_max_to_mean_bytes"] or 1, summary["received_max_to_mean_bytes"] or 1)
    return (f"burstiness: peak/mean of {1e3 * PERIOD:g} ms {max(peaks, default=0):.2f}, max/mean bytes of the "
            f"nodes {most:.3f}")


def link_summary(samples, which, node):
    """Of one link and direction. Rates come from the samples' own times: a late sample is not a
    burst."""
    steps = [(b[0] - a[0], b[which][node] - a[which][node]) for a, b in zip(samples, samples[1:])]
    used = [i for i, (_, count) in enumerate(steps) if count > 0]
    if not used:
        return {"bytes": 0, "mean_bits": 0.0, "peak_bits": 0.0, "peak_to_mean": None}
    steps = steps[used[0]:used[-1] + 1]
    mean = 8 * sum(count for _, count in steps) / sum(seconds for seconds, _ in steps)
    peak = max(8 * count / max(seconds, PERIOD / 2) for seconds, count in steps)
    return {"bytes": sum(count for _, count in steps), "mean_bits": round(mean),
            "peak_bits": round(peak), "peak_to_mean": round(peak / mean, 3)}


def counters(nodes):
    """Running totals of the hub's ports; what a port receives, its node has sent."""
    text = pathlib.Path("/proc/net/dev").read_text()
    ports = {int(i): fields.split() for i, fields in re.findall(r"port(\d+):(.*)", text)}
    return [int(ports[i][0]) for i in range(nodes)], [int(ports[i][8]) for i in range(nodes)]


def sample(path, nodes):
    class Ended(Exception):
        pass

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal does not write the file again
        raise Ended
    signal.signal(signal.SIGTERM, end)
    samples = []
    deadline = time.monotonic()
    try:
        while True:
            begin = time.monotonic()
            links = counters(nodes)
            if time.monotonic() - begin > HELD:  # others had the processor meanwhile: the time would not be the counters'
                continue
            samples.append([round(begin, 6), *links, cores.so_far()])
            deadline += PERIOD
            time.sleep(max(0, deadline - time.monotonic()))
    except Ended:
        pathlib.Path(path).write_text(json.dumps(samples))


if __name__ == "__main__":
    sample(sys.argv[1], int(sys.argv[2]))
