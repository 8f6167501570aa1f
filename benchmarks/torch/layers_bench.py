#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a layer costs in hooks and calls: a net of many small Linears that do not join, wrapped beside plain.

  layers_bench.py                     # one worker, then two on loopback
  layers_bench.py --workers 2 --only factors,dense-overlap

Both nets train by turns in the same process with the same batches. Counted is the processor time of the thread that
trains, so waiting for the network is in neither; what the wrapped net takes more, by layers and steps, is the figure.
Printed: us per layer and step, median and quartiles over the turns, of rank 0. With one worker then the same where the
core's functions are nothing: what of it is Python's and torch's.

  dense     every gradient whole
  factors   every gradient as factors
  whole     as dense, with wrap(factors=False)

each as it is, waited for at the end of backward, and with -overlap.
"""
import argparse
import gc
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "python"))

import ranks  # noqa: E402

WIDTH, BATCH = 16, 4
CASES = [kind + mode for kind in ("dense", "factors", "whole") for mode in ("", "-overlap")]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    parser.add_argument("--only", type=lambda text: text.split(","), default=CASES, help=", ".join(CASES))
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--turns", type=int, default=15, help="of each net")
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(CASES):
        parser.error(f"there is no case {sorted(unknown)[0]}, expected some of {', '.join(CASES)}")
    return options


def turn(torch, net, optimizer, batch, steps):
    """Microseconds of the training thread per step."""
    began = time.thread_time_ns()
    for _ in range(steps):
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
    return (time.thread_time_ns() - began) / 1000 / steps


def worker(case, options, workers, results, rank, port, token):
    import torch

    import poseidon.torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    kind, _, overlap = case.partition("-")
    layers = range(options.layers)
    scheme = "sfb" if kind == "factors" else "kv"
    poseidon.torch.init(rank=rank, workers=workers, port=port, token_file=token, threads=1, final_plan_step=3,
                        schemes={str(layer): scheme for layer in layers})  # one that is named joins no other
    nets = [torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in layers)) for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in nets]
    exchange = poseidon.torch.wrap(nets[0], optimizers[0], overlap=bool(overlap), factors=kind != "whole")
    batch = torch.ones(BATCH, WIDTH)
    took, gone = [], []
    gc.collect()
    for number in range(2 + options.turns * (2 if workers == 1 else 1)):
        both = []
        for net, optimizer in zip(nets, optimizers):
            both.append(turn(torch, net, optimizer, batch, options.steps))
            exchange.synchronize()
        if number >= 2:  # else with the first plan, and warming up
            (took if len(took) < options.turns else gone).append((both[0] - both[1]) / options.layers)
        if len(took) == options.turns:
            exchange.push_whole = exchange.push_product = exchange.wait = lambda *_: None
    if rank == 0:
        results.put((took, gone, both[1] / options.layers))
    poseidon.torch.shutdown()


def measure(case, options, workers):
    results = ranks.CONTEXT.Queue()
    ranks.run(f"layers_bench: case {case} with {workers} workers", worker, workers, case, options, workers, results)
    return results.get()


def spread(took):
    low, median, high = statistics.quantiles(took, n=4)
    return f"{median:6.1f}  ({low:.1f} to {high:.1f})"


def main(arguments):
    options = parse(arguments)
    print(f"us per layer and step, {options.layers} layers of {WIDTH}x{WIDTH}+{WIDTH}, beside the plain net's own")
    for workers in options.workers:
        for case in options.only:
            took, gone, plain = measure(case, options, workers)
            print(f"{workers} workers  {case:16} {spread(took)}" + (f"   without the core {spread(gone)}" if gone else "")
                  + f"   plain {plain:.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
