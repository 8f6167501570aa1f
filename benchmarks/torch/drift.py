#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far two workers drift from one process on the same batches, and why.

  drift.py                        # both nets, 300 steps, about 5 minutes
  drift.py --only autoencoder --steps 100

An autoencoder (ReLU, Adam) and a WGAN (leaky ReLU, RMSprop, weights clipped at 0.01), of Linears alone. Each trains

  one       in one process: what the others are compared with
  noise     in one process, every gradient times 1 + 1e-7 * normal noise
  terms     in one process, gradients with the noise that adding their terms in float32 has: 2**-24 times the root of the
            sum of the terms' squares, times normal noise
  halves    in one process that adds up the gradients of both workers' batches; no Poseidon
  dense     in two workers, every gradient whole
  factors   in two workers, every Linear as factors

in float32, and all but factors, which are float32 alone, in float64. Printed per run: error, the median relative error of the
first step's gradients, of float64's; the distance of the weights from `one` after some steps, largest difference over
largest weight; and flips, how many signs of hidden units differ from those of `one`, summed over the steps.
"""
import argparse
import multiprocessing
import pathlib
import socket
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "python"))

ALL, PIXELS, LATENT = 128, 784, 100
RUNS = ["one", "noise", "terms", "halves", "dense", "factors"]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=sorted(NETS), action="append")
    parser.add_argument("--steps", type=int, default=300)
    return parser.parse_args(arguments)


def images(torch, step, dtype):
    """Of the step's whole batch, in [-1, 1]: mixtures of 12 patterns."""
    patterns = torch.randn(12, PIXELS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draw = torch.Generator().manual_seed(1000 + step)
    return torch.tanh(torch.randn(ALL, 12, generator=draw, dtype=torch.float64) @ patterns / 3).to(dtype)


def noise(torch, step, dtype):
    return torch.randn(ALL, LATENT, generator=torch.Generator().manual_seed(5000 + step), dtype=torch.float64).to(dtype)


def layers(torch, sizes, between, last=None):
    made = [part for inputs, outputs in zip(sizes, sizes[1:]) for part in (torch.nn.Linear(inputs, outputs), between())]
    return torch.nn.Sequential(*made[:-1], *([last()] if last else []))


class Autoencoder:
    def __init__(self, torch, dtype):
        self.torch, self.dtype = torch, dtype
        sizes = [PIXELS, 128, 64, 12, 3]
        self.coder = layers(torch, sizes + sizes[-2::-1], torch.nn.ReLU, torch.nn.Tanh).to(dtype)
        self.models = [self.coder]
        self.optimizers = [torch.optim.Adam(self.coder.parameters(), lr=1e-3, weight_decay=1e-5)]

    def parts(self, step):
        """What one step does: which model trains, and its loss on some of the batch."""
        batch = images(self.torch, step, self.dtype)
        return [(0, lambda some: (self.coder(batch[some]) - batch[some]).square().mean())]

    def updated(self, which):
        pass


class Wgan:
    def __init__(self, torch, dtype):
        self.torch, self.dtype = torch, dtype
        leaky = lambda: torch.nn.LeakyReLU(0.2)
        self.generator = layers(torch, [LATENT, 128, 256, 512, PIXELS], leaky, torch.nn.Tanh).to(dtype)
        self.critic = layers(torch, [PIXELS, 512, 256, 1], leaky).to(dtype)
        self.models = [self.critic, self.generator]
        self.optimizers = [torch.optim.RMSprop(model.parameters(), lr=5e-5) for model in self.models]

    def parts(self, step):
        batch, latent = images(self.torch, step, self.dtype), noise(self.torch, step, self.dtype)
        made = [(0, lambda some: self.critic(self.generator(latent[some]).detach()).mean() - self.critic(batch[some]).mean())]
        return made + [(1, lambda some: -self.critic(self.generator(latent[some])).mean())] * (step % 5 == 4)

    def updated(self, which):
        if which == 0:
            with self.torch.no_grad():
                for parameter in self.critic.parameters():
                    parameter.clamp_(-0.01, 0.01)


NETS = {"autoencoder": Autoencoder, "wgan": Wgan}


def observe(torch, models):
    """Lists that the models' hidden signs, and the squares of the terms of their gradients, come to."""
    signs, squares = [], {}

    def linear(module, inputs, result):
        signs.append((result > 0).detach())
        if result.requires_grad:
            x = inputs[0].detach()

            def comes(dy):
                for parameter, terms in ((module.weight, dy.square().t().mm(x.square())), (module.bias, dy.square().sum(0))):
                    squares[parameter] = squares.get(parameter, 0) + terms
            result.register_hook(comes)
    for model in models:
        for module in model:
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(linear)
    return signs, squares


def train(net_name, run, dtype_name, steps, marks, rank, port, token, results):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dtype = getattr(torch, dtype_name)
    workers = 2 if run in ("dense", "factors") else 1
    net = NETS[net_name](torch, dtype)
    if workers > 1:
        import poseidon.torch
        scheme = {"dense": "kv", "factors": "sfb"}[run]
        names = {name for model in net.models for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        poseidon.torch.init(rank=rank, workers=workers, port=port, token_file=token, threads=1, final_plan_step=None,
                            schemes={name: scheme for name in names})
        for model, optimizer in zip(net.models, net.optimizers):
            poseidon.torch.distribute(model, optimizer)
    signs, squares = observe(torch, net.models)
    draw = torch.Generator().manual_seed(3)
    batches = [slice(0, ALL)]
    if workers > 1:
        batches = [slice(rank * ALL // 2, (rank + 1) * ALL // 2)]
    elif run == "halves":
        batches = [slice(0, ALL // 2), slice(ALL // 2, ALL)]
    first, weights, seen = None, {}, []
    for step in range(steps):
        signs.clear()
        for which, loss in net.parts(step):
            for optimizer in net.optimizers:
                optimizer.zero_grad()
            squares.clear()
            for some in batches:
                (loss(some) / len(batches)).backward()
            parameters = list(net.models[which].parameters())
            if first is None:
                first = [parameter.grad.double().clone() for parameter in parameters]
            for parameter in parameters:
                if run == "noise":
                    parameter.grad *= 1 + 1e-7 * torch.randn(parameter.shape, generator=draw, dtype=dtype)
                elif run == "terms":
                    size = 2.0 ** -24 if dtype == torch.float32 else 2.0 ** -53
                    parameter.grad += size * squares[parameter].sqrt() * torch.randn(parameter.shape, generator=draw, dtype=dtype)
            net.optimizers[which].step()
            net.updated(which)
        seen.append([sign.clone() for sign in signs])
        if step + 1 in marks:
            weights[step + 1] = [parameter.detach().double().clone() for model in net.models for parameter in model.parameters()]
    torch.save((first, weights, seen, [(some.start, some.stop) for some in batches]), f"{results}{run}-{dtype_name}-{rank}")
    if workers > 1:
        poseidon.torch.shutdown()


def start(folder, *case):
    """Runs it in one process or two."""
    from poseidon import make_token_file
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    make_token_file(folder + "/job.token")
    processes = [context.Process(target=train, args=(*case, rank, port, folder + "/job.token", folder + "/"))
                 for rank in range(2 if case[1] in ("dense", "factors") else 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode != 0 for process in processes):
        sys.exit(f"drift: {' '.join(map(str, case[:3]))} failed")


def flips(seen, batches, of_one):
    """Hidden signs that differ, those of one worker's samples beside the same samples of the whole batch. A run by halves has
    each half's signs one behind the other, which are not compared."""
    if len(batches) > 1:
        return None
    return sum(int((sign != other[slice(*batches[0])]).sum()) for step, step_of_one in zip(seen, of_one)
               for sign, other in zip(step, step_of_one))


def main(arguments):
    options = parse(arguments)
    import torch
    marks = sorted({step for step in (1, 10, 30, 100, 300, 1000) if step < options.steps} | {options.steps})
    for net in options.only or sorted(NETS):
        with tempfile.TemporaryDirectory() as folder:
            loaded = {}
            for dtype in ("float64", "float32"):
                for run in RUNS:
                    if (run, dtype) == ("factors", "float64"):
                        continue
                    start(folder, net, run, dtype, options.steps, marks)
                    ranks = [torch.load(f"{folder}/{run}-{dtype}-{rank}") for rank in range(2 if run in ("dense", "factors") else 1)]
                    loaded[run, dtype] = ranks
                    first, weights, _, _ = ranks[0]
                    exact = loaded["one", "float64"][0][0]
                    error = torch.cat([((one - other).abs() / other.abs())[other != 0] for one, other in zip(first, exact)]).median()
                    _, of_one, signs, _ = loaded["one", dtype][0]
                    far = [max(float((one - other).abs().max()) for one, other in zip(weights[mark], of_one[mark]))
                           / max(float(other.abs().max()) for other in of_one[mark]) for mark in marks]
                    differ = [flips(seen, batches, signs) for _, _, seen, batches in ranks]
                    print(f"{net:12} {dtype} {run:8} error {error:.1e}   "
                          + "  ".join(f"{mark}: {distance:.1e}" for mark, distance in zip(marks, far))
                          + ("" if None in differ else f"   flips {sum(differ)}"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
