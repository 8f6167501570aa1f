#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real training of small networks, through Poseidon or through PyTorch's DDP over gloo.

  train_bench.py --backend poseidon --net mlp --workers 2 --rank {rank} --listen {address} \\
      --coordinator {coordinator} --token-file FILE
  train_bench.py --backend ddp --net mlp --workers 2 --rank {rank} --coordinator {coordinator}

One process per worker, the same seed, data and optimizer for both. Prints one JSON object per measured
step, {"rank", "step", "seconds", "cpu_seconds"} as benchmarks/cluster says, and a summary with the loss
curve (mean over workers) and a hash of the parameters, which is the same on every rank. The token file
is made by rank 0 where there is none.
"""
import argparse
import ctypes
import hashlib
import json
import os
import pathlib
import resource
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "torch"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import nets  # noqa: E402


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", choices=("poseidon", "ddp"), required=True)
    parser.add_argument("--net", choices=nets.NETS, required=True)
    parser.add_argument("--batch", type=int, help="per worker (default: the net's own)")
    parser.add_argument("--steps", type=int, default=20, help="measured ones")
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--plan-step", type=int, default=6, help="Poseidon's final plan; 0: the first stays")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--listen", help="own address")
    parser.add_argument("--coordinator", default="127.0.0.1", help="rank 0's address")
    parser.add_argument("--port", type=int, default=29500, help="rank 0's port")
    parser.add_argument("--token-file", help="of the job, for Poseidon")
    parser.add_argument("--wire", default="auto", help="auto, tls or auth")
    parser.add_argument("--schemes", help="layer=kv or layer=sfb, ';' between")
    parser.add_argument("--no-overlap", action="store_true", help="Poseidon: wait at the end of backward")
    parser.add_argument("--no-factors", action="store_true", help="Poseidon: all gradients whole")
    parser.add_argument("--interface", default="eth0", help="of gloo, beyond loopback")
    parser.add_argument("--connections", type=int, default=1, help="gloo's between two ranks")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def say(line):
    print(json.dumps(line), flush=True)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Poseidon:
    """The module to call, and what a run needs beside it."""

    def __init__(self, options, model, optimizer):
        import poseidon.torch
        self.poseidon, self.module = poseidon.torch, model
        if options.workers > 1:
            if not options.token_file:
                sys.exit("train_bench: --token-file is missing, expected a path that all workers share")
            self.meet(options)
        poseidon.torch.init(
            rank=options.rank, workers=options.workers, coordinator=options.coordinator, port=options.port,
            listen=options.listen, token_file=options.token_file, wire=options.wire, schemes=options.schemes,
            threads=options.threads, cores=max(1, os.cpu_count() // options.workers),
            final_plan_step=options.plan_step or None)
        self.exchange = poseidon.torch.wrap(model, optimizer, overlap=not options.no_overlap,
                                            factors=not options.no_factors)

    @staticmethod
    def meet(options):
        path = pathlib.Path(options.token_file)
        if options.rank == 0 and not path.exists():
            import poseidon
            poseidon.make_token_file(path)
        until = time.monotonic() + 60
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)

    def finish(self, losses):
        from poseidon.torch.layers import view_of
        self.exchange.synchronize()
        self.exchange.session.sum(view_of(losses))
        known = self.exchange.session.statistics()
        told = {"plan": {name: scheme for name, (scheme, _) in self.exchange.plan().items()},
                "wire_bytes_sent": known.wire_bytes_sent, "hidden_share": known.hidden_share,
                "link_bytes_per_second": known.link_bytes_per_second}
        self.poseidon.shutdown()
        return told


class Ddp:
    def __init__(self, options, model, optimizer):
        if options.coordinator != "127.0.0.1":
            os.environ["GLOO_SOCKET_IFNAME"] = ",".join([options.interface] * options.connections)
        dist.init_process_group("gloo", rank=options.rank, world_size=options.workers,
                                init_method=f"tcp://{options.coordinator}:{options.port}")
        self.module = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, forward_sync_buffers=False, static_graph=True)

    def finish(self, losses):
        dist.all_reduce(losses)
        dist.destroy_process_group()
        return {}


def train(options, module, optimizer, data):
    """Losses of all steps; seconds and CPU seconds of the measured ones."""
    losses, seconds, cpu = [], [], []
    began, used = time.monotonic(), cpu_seconds()
    for step in range(options.warm_up + options.steps):
        samples, labels = data[step % len(data)]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(samples), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        now, now_used = time.monotonic(), cpu_seconds()
        if step >= options.warm_up:
            seconds.append(now - began)
            cpu.append(now_used - used)
        began, used = now, now_used
    return torch.stack(losses), seconds, cpu


def hash_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        tensor = parameter.detach().contiguous()
        digest.update(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    return digest.hexdigest()[:16]


def main(arguments):
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    make, batch, rate = nets.NETS[options.net]
    model, shape, classes = make()
    data = nets.batches(options.seed, options.rank, 8, options.batch or batch, shape, classes)
    kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9, weight_decay=5e-4, fused=True),
             "adam": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True)}
    optimizer = kinds[options.optimizer](model.parameters())
    backend = {"poseidon": Poseidon, "ddp": Ddp}[options.backend](options, model, optimizer)
    losses, seconds, cpu = train(options, backend.module, optimizer, data)
    told = backend.finish(losses)
    for step, (took, used) in enumerate(zip(seconds, cpu)):
        say({"rank": options.rank, "step": step, "seconds": took, "cpu_seconds": used})
    curve = [round(loss, 6) for loss in (losses / options.workers).tolist()]
    say({"rank": options.rank, "summary": {
        "backend": options.backend, "net": options.net, "batch": options.batch or batch,
        "workers": options.workers, "overlap": options.backend == "poseidon" and not options.no_overlap,
        "median_seconds": statistics.median(seconds), "least_seconds": min(seconds),
        "most_seconds": max(seconds), "median_cpu_seconds": statistics.median(cpu),
        "final_loss": curve[-1], "losses": curve, "weights": hash_of(model),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
        "torch": torch.__version__, **told}})


if __name__ == "__main__":
    main(sys.argv[1:])
