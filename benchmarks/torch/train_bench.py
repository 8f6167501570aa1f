#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real training of small networks, through Poseidon and through PyTorch's DDP over gloo, by turns.

  train_bench.py --net mlp --systems overlap,waiting,ddp,local --workers 2 --rank {rank} \\
      --listen {address} --coordinator {coordinator} --token-file FILE

One process per worker trains a copy of the net per system: same seed, data and optimizer. Turns of all
systems follow one another in an order drawn from the seed, so that what disturbs the machine disturbs all.
Prints one JSON object per counted step, {"rank", "system", "turn", "step", "seconds", "cpu_seconds"}, and a
summary per system with the loss curve (mean over workers) and a hash of the parameters, which is the same on
every rank. The token file is made by rank 0 where there is none.

  overlap   Poseidon, each layer waited for before it runs in the next forward pass
  waiting   Poseidon, all waited for at the end of backward
  whole     the same with all gradients whole
  ddp       DistributedDataParallel over gloo, bucket views, static graph
  ddp4      the same with four connections between two ranks
  local     nothing is synchronised: what computing alone takes while all workers compute
  alone     one worker that calls poseidon.torch.distribute

The first step of a turn is not counted: it finds the caches full of another system's, and with overlap nothing under way.
"""
import argparse
import copy
import ctypes
import hashlib
import inspect
import json
import os
import pathlib
import random
import resource
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import nets  # noqa: E402

MOST_STEPS = 25  # of a turn
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--net", choices=nets.NETS, required=True)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=["overlap", "waiting", "ddp"])
    parser.add_argument("--batch", type=int, help="per worker (default: the net's own)")
    parser.add_argument("--turns", type=int, default=3, help="of every system")
    parser.add_argument("--turn-seconds", type=float, default=2.0, help="of counted steps, at least one step")
    parser.add_argument("--plan-step", type=int, default=6, help="Poseidon's final plan; 0: the first stays")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--listen", help="own address")
    parser.add_argument("--coordinator", default="127.0.0.1", help="rank 0's address")
    parser.add_argument("--port", type=int, default=29500, help="rank 0's first port; each system takes one")
    parser.add_argument("--token-file", help="of the job, for Poseidon")
    parser.add_argument("--wire", default="plain", help="plain: not protected, as DDP; auth, tls, auto")
    parser.add_argument("--schemes", help="layer=kv or layer=sfb, ';' between")
    parser.add_argument("--no-factors", action="store_true", help="Poseidon: all gradients whole")
    parser.add_argument("--interface", default="eth0", help="of gloo, beyond loopback")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where the nets are; {rank} is this worker's number (cuda:{rank})")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if unknown := set(options.systems) - set(SYSTEMS):
        parser.error(f"there is no system {sorted(unknown)[0]}, expected some of {', '.join(SYSTEMS)}")
    return options


def say(line):
    print(json.dumps(line), flush=True)


def keep_freed_memory():
    """Of this process. Whether glibc gives memory back to the kernel when a step ends, and gets it again page by page in the next
    one, depends on which addresses are free: on luck, which some systems would have and others not, and which costs ResNet-20 up to
    a tenth of its step."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # another C library
    mallopt(M_TRIM_THRESHOLD, 2 ** 30)
    mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Local:
    """A system's copy of the net, how it trains, and the losses of all its steps."""

    warm_up = 2

    def __init__(self, options, model, port):
        self.options, self.model = options, copy.deepcopy(model).to(options.device)
        self.module = self.model
        rate = nets.NETS[options.net][2]
        kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9, weight_decay=5e-4, fused=True),
                 "adam": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True)}
        self.optimizer = kinds[options.optimizer](self.model.parameters())
        self.losses = []
        self.begin(options, port)

    def begin(self, options, port):
        pass

    def run(self, data, steps):
        """Seconds and CPU seconds of each step, from the end of the step before."""
        took = []
        began, used = time.monotonic(), cpu_seconds()
        for _ in range(steps):
            samples, labels = (part.to(self.options.device) for part in data[len(self.losses) % len(data)])
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.module(samples), labels)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
            if self.options.device != "cpu":  # else a host that only launches would end its steps before the device does
                torch.accelerator.synchronize(self.options.device)
            now, now_used = time.monotonic(), cpu_seconds()
            took.append((now - began, now_used - used))
            began, used = now, now_used
        self.land()
        return took

    def land(self):
        pass

    def end(self):
        return {}


class Waiting(Local):
    overlap = False
    factors = True

    def begin(self, options, port):
        self.warm_up = options.plan_step + 3
        from poseidon.launch import Place
        from poseidon.session import Session, open_options
        from poseidon.torch.exchange import Exchange
        self.session = Session(open_options(
            Place.find(options.rank, options.workers, options.coordinator, port, options.listen),
            options.token_file, wire=options.wire, schemes=options.schemes, threads=options.threads,
            cores=max(1, os.cpu_count() // options.workers), final_plan_step=options.plan_step or None))
        # Without buffers: DDP is measured without them too, each at its best.
        self.exchange = Exchange(self.session, self.model, self.optimizer, self.overlap,
                                 factors=self.factors and not options.no_factors, buffers=False)

    def land(self):
        self.exchange.synchronize()

    def end(self):
        known = self.session.statistics()
        told = {"schemes": {name: scheme for name, (scheme, _) in self.exchange.plan().items()},
                "wire_bytes_sent": known.wire_bytes_sent, "hidden_share": known.hidden_share,
                "link_bytes_per_second": known.link_bytes_per_second,
                "predicted_seconds": self.session.model_plan(self.exchange.model.core.model).step_seconds}
        self.exchange.detach()
        self.session.leave()
        return told


class Whole(Waiting):
    factors = False


class Overlap(Waiting):
    overlap = True


class Alone(Local):
    def begin(self, options, port):
        import poseidon.torch
        poseidon.torch.init(rank=0, workers=1)
        self.model, self.optimizer = poseidon.torch.distribute(self.model, self.optimizer)

    def end(self):
        import poseidon.torch
        poseidon.torch.shutdown()
        return {}


class Ddp(Local):
    connections = 1

    def begin(self, options, port):
        name_interfaces(options, self.connections)
        kind = torch.nn.parallel.DistributedDataParallel
        switch = "forward_sync_buffers"  # which older torches do not have
        if switch not in inspect.signature(kind).parameters:
            switch = "broadcast_buffers"
        self.module = kind(self.model, gradient_as_bucket_view=True, static_graph=True,
                           process_group=dist.new_group(backend="gloo"), **{switch: False})


class Ddp4(Ddp):
    connections = 4


SYSTEMS = {"overlap": Overlap, "waiting": Waiting, "whole": Whole, "ddp": Ddp, "ddp4": Ddp4, "local": Local, "alone": Alone}


def name_interfaces(options, connections):
    """Of groups that are made from now on: gloo makes a connection for each."""
    interface = "lo" if options.coordinator == "127.0.0.1" else options.interface
    os.environ["GLOO_SOCKET_IFNAME"] = ",".join([interface] * connections)


def join_gloo(options):
    """DDP's group, which also counts the steps of a turn and adds up losses."""
    name_interfaces(options, 1)
    dist.init_process_group("gloo", rank=options.rank, world_size=options.workers,
                            init_method=f"tcp://{options.coordinator}:{options.port}")


def mean_of_workers(numbers):
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


def meet(options):
    """Waits for the job's secret, which rank 0 makes where there is none."""
    path = pathlib.Path(options.token_file or sys.exit(
        "train_bench: --token-file is missing, expected a path that all workers share"))
    if options.rank == 0 and not path.exists():
        import poseidon
        poseidon.make_token_file(path)
    dist.barrier()


def hash_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        tensor = parameter.detach().cpu().contiguous()
        digest.update(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    return digest.hexdigest()[:16]


def take_turns(options, systems, data):
    """The counted steps by system, as (turn, seconds, CPU seconds)."""
    steps, counted = {}, {name: [] for name in systems}
    for name, system in systems.items():
        least = min(seconds for seconds, _ in system.run(data, system.warm_up)[1:])
        steps[name] = max(1, min(MOST_STEPS, round(options.turn_seconds / mean_of_workers([least])[0])))
    draw = random.Random(options.seed)
    for turn in range(options.turns):
        for name in draw.sample(list(systems), len(systems)):
            dist.barrier()
            counted[name] += [(turn, *each) for each in systems[name].run(data, 1 + steps[name])[1:]]
    return counted


def main(arguments):
    options = parse(arguments)
    keep_freed_memory()
    options.device = options.device.format(rank=options.rank)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    make, batch, _ = nets.NETS[options.net]
    model, shape, classes = make()
    data = nets.batches(options.seed, options.rank, 8, options.batch or batch, shape, classes, nets.WORDS.get(options.net))
    join_gloo(options)
    meet(options)
    systems = {name: SYSTEMS[name](options, model, options.port + number)
               for number, name in enumerate(options.systems, 1)}
    counted = take_turns(options, systems, data)
    for name, system in systems.items():
        for step, (turn, seconds, cpu) in enumerate(counted[name]):
            say({"rank": options.rank, "system": name, "turn": turn, "step": step,
                 "seconds": round(seconds, 6), "cpu_seconds": round(cpu, 6)})
        curve = [round(loss, 6) for loss in mean_of_workers([loss.item() for loss in system.losses])]
        dist.barrier()
        say({"rank": options.rank, "system": name, "summary": {
            "net": options.net, "batch": options.batch or batch, "workers": options.workers,
            "median_seconds": statistics.median(seconds for _, seconds, _ in counted[name]),
            "median_cpu_seconds": statistics.median(cpu for _, _, cpu in counted[name]),
            "final_loss": curve[-1], "losses": curve, **system.end(), "weights": hash_of(system.model),
            "gradient_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "torch": torch.__version__}})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
