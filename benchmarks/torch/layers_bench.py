#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a layer costs in hooks and calls: a net of many small Linears, wrapped beside plain.

  layers_bench.py                     # one worker, then two on loopback
  layers_bench.py --workers 2 --only factors,dense-overlap
  layers_bench.py --before ../other   # beside another checkout, which is built: each case there and here, one after the other

The nets train by turns in the same process with the same batches. Counted is the processor time of the thread that
trains, so waiting for the network is in none; what the wrapped net takes more than the plain one, by layers and steps, is the
figure. Printed: us per layer and step, median and quartiles over the turns, of rank 0. With one worker then the same where the
core's functions are nothing: what of it is Python's and torch's. Then what a net takes more whose hooks do the least that they
can: they copy each layer's gradients into one piece and show them as views of it.

  joined    as it is where nothing is said of them: many share a message
  dense     every gradient whole, in a message of its own, as those of large layers
  factors   every gradient as factors, likewise
  whole     as dense, with wrap(factors=False)

each as it is, waited for at the end of backward, and with -overlap.
"""
import argparse
import gc
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The checkout whose package the workers train with, which main sets for them.
sys.path.insert(0, str(pathlib.Path(os.environ.get("LAYERS_BENCH_ROOT", ROOT)) / "frontends" / "python"))

import ranks  # noqa: E402

WIDTH, BATCH = 16, 4
CASES = [kind + mode for kind in ("joined", "dense", "factors", "whole") for mode in ("", "-overlap")]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    parser.add_argument("--only", type=lambda text: text.split(","), default=CASES, help=", ".join(CASES))
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--turns", type=int, default=15, help="of each net")
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--before", type=pathlib.Path, help="another checkout with its build in build/release")
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


def copying(torch, layer):
    """Hooks of one Linear that do the least."""
    parameters = list(layer.parameters())
    flat = torch.empty(sum(parameter.numel() for parameter in parameters))
    views = [piece.view(p.shape) for piece, p in zip(flat.split([p.numel() for p in parameters]), parameters)]
    missing = len(parameters)

    def arrived(_):
        nonlocal missing
        missing -= 1
        if missing == 0:
            missing = len(parameters)
            torch._foreach_copy_(views, [parameter.grad for parameter in parameters])
            for parameter, view in zip(parameters, views):
                parameter.grad = view
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(arrived)


def worker(case, options, workers, results, rank, port, token):
    import torch

    import poseidon.torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    kind, _, overlap = case.partition("-")
    layers = range(options.layers)
    # A layer that is named joins no other.
    schemes = None if kind == "joined" else {str(layer): "sfb" if kind == "factors" else "kv" for layer in layers}
    poseidon.torch.init(rank=rank, workers=workers, port=port, token_file=token, threads=1, final_plan_step=3, schemes=schemes)
    nets = [torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in layers)) for _ in range(3)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in nets]
    exchange = poseidon.torch.wrap(nets[0], optimizers[0], overlap=bool(overlap), factors=kind != "whole")
    for layer in nets[2]:
        copying(torch, layer)
    batch = torch.ones(BATCH, WIDTH)
    took, gone, least = [], [], []
    gc.collect()
    for number in range(2 + options.turns * (2 if workers == 1 else 1)):
        both = []
        for net, optimizer in zip(nets, optimizers):
            both.append(turn(torch, net, optimizer, batch, options.steps))
            exchange.synchronize()
        if number >= 2:  # else with the first plan, and warming up
            (took if len(took) < options.turns else gone).append((both[0] - both[1]) / options.layers)
            least.append((both[2] - both[1]) / options.layers)
        if len(took) == options.turns:
            core = getattr(exchange, "model", exchange)
            core = getattr(core, "core", exchange)  # of a checkout that has none
            core.push_whole = core.push_product = core.wait = lambda *_: None
    if rank == 0:
        results.put((took, gone, least, both[1] / options.layers))
    poseidon.torch.shutdown()


def measure(case, options, workers, root):
    os.environ["LAYERS_BENCH_ROOT"] = str(root)
    os.environ["POSEIDON_LIBRARY"] = str(root / "build/release/poseidon/c/libposeidon.so")
    results = ranks.CONTEXT.Queue()
    ranks.run(f"layers_bench: case {case} with {workers} workers", worker, workers, case, options, workers, results)
    return results.get()


def spread(took):
    low, median, high = statistics.quantiles(took, n=4)
    return f"{median:6.1f}  ({low:.1f} to {high:.1f})"


def main(arguments):
    options = parse(arguments)
    print(f"us per layer and step, {options.layers} layers of {WIDTH}x{WIDTH}+{WIDTH}, beside the plain net's own")
    roots = [("", ROOT)] if options.before is None else [("before ", options.before.resolve()), ("after  ", ROOT)]
    for workers in options.workers:
        for case in options.only:
            for name, root in roots:
                took, gone, least, plain = measure(case, options, workers, root)
                print(f"{name}{workers} workers  {case:16} {spread(took)}" + (f"   without the core {spread(gone)}" if gone else "")
                      + f"   hooks that copy {spread(least)}   plain {plain:.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
