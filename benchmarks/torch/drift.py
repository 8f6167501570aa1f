#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far two workers drift from one process on the same batches, and why.

  drift.py                                   # all nets, 300 steps, five seeds
  drift.py --only autoencoder --seeds 1

An autoencoder (ReLU, Adam) and a WGAN (leaky ReLU, RMSprop, weights clipped at 0.01), of Linears alone, and a small GPT as
nanoGPT's (GELU, AdamW, a head tied to the words), with biases and without, in which no signs are counted. Each trains

  one       in one process: what the others are compared with
  noise     in one process, every gradient times 1 + 1e-7 * normal noise
  terms     in one process, gradients of Linears with the noise that adding their terms has: half an eps times the root of the
            sum of the terms' squares, times normal noise
  dense     in two workers, every gradient whole
  factors   in two workers, every Linear as factors

in float32, and all but factors, which are float32 alone, in float64 with the first seed. Printed per run: error, the median
relative error of the first step's gradients beside float64's; the distance of the weights from those of `one` after some
steps, largest difference over largest weight; the first step in which a hidden unit of any sample has another sign than in
`one`, how many have over all steps; and at the end the median and the range over the seeds of what a run's distance is in that
of `noise`.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "python"))

import ranks  # noqa: E402

ALL, PIXELS, LATENT = 128, 784, 100
WORDS, LENGTH, WIDTH, HEADS = 64, 16, 64, 4
RUNS = ["one", "noise", "terms", "dense", "factors"]


def workers_of(run):
    return 2 if run in ("dense", "factors") else 1


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=sorted(NETS), action="append")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
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
    has_kinks = True  # in its activation

    def __init__(self, torch, dtype):
        self.torch, self.dtype = torch, dtype
        sizes = [PIXELS, 128, 64, 12, 3]
        self.coder = layers(torch, sizes + sizes[-2::-1], torch.nn.ReLU, torch.nn.Tanh).to(dtype)
        self.models = [self.coder]
        self.optimizers = [torch.optim.Adam(self.coder.parameters(), lr=1e-3, weight_decay=1e-5)]

    def parts(self, step):
        """The work of one step: which model trains, and its loss on some of the batch."""
        batch = images(self.torch, step, self.dtype)
        return [(0, lambda some: (self.coder(batch[some]) - batch[some]).square().mean())]

    def updated(self, which):
        pass


class Wgan:
    has_kinks = True

    def __init__(self, torch, dtype):
        self.torch, self.dtype = torch, dtype
        leaky = lambda: torch.nn.LeakyReLU(0.2)
        self.generator = layers(torch, [LATENT, 128, 256, PIXELS], leaky, torch.nn.Tanh).to(dtype)
        self.critic = layers(torch, [PIXELS, 256, 128, 1], leaky).to(dtype)
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


def sentences(torch, step):
    """Of the step's whole batch: words that follow each other at distances of 1 to 3."""
    draw = torch.Generator().manual_seed(9000 + step)
    first = torch.randint(WORDS, (ALL, 1), generator=draw)
    return (first + torch.randint(1, 4, (ALL, LENGTH + 1), generator=draw).cumsum(1)) % WORDS


def gpt(torch, bias):
    """karpathy/nanoGPT, small: blocks behind norms, GELU, a head that is the table of words. `bias`: of Linears and norms."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=bias), nn.LayerNorm(WIDTH, bias=bias)
            self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH, bias), nn.Linear(WIDTH, WIDTH, bias)
            self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH, bias), nn.Linear(4 * WIDTH, WIDTH, bias)

        def forward(self, x):
            by_head = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.attend(self.norm1(x)).chunk(3, 2))
            attended = functional.scaled_dot_product_attention(*by_head, is_causal=True)
            x = x + self.project(attended.transpose(1, 2).flatten(2))
            return x + self.contract(functional.gelu(self.expand(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
            nn.init.normal_(self.words.weight, std=0.02)
            self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(WIDTH, bias=bias)

        def forward(self, words):
            return functional.linear(self.norm(self.blocks(self.words(words) + self.places)), self.words.weight)
    return Model()


class Gpt:
    has_kinks, bias = False, True

    def __init__(self, torch, dtype):
        self.torch = torch
        self.models = [gpt(torch, self.bias).to(dtype)]
        self.optimizers = [torch.optim.AdamW(self.models[0].parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)]

    def parts(self, step):
        words = sentences(self.torch, step)
        return [(0, lambda some: self.torch.nn.functional.cross_entropy(self.models[0](words[some, :-1]).flatten(0, 1),
                                                                        words[some, 1:].flatten()))]

    def updated(self, which):
        pass


class GptWithoutBiases(Gpt):
    bias = False


NETS = {"autoencoder": Autoencoder, "wgan": Wgan, "gpt": Gpt, "gpt-no-bias": GptWithoutBiases}


def observe(torch, net, with_squares):
    """Where the signs of the models' hidden units come to, and the sums of the squares of their Linears' gradients' terms."""
    signs, squares = [], {}

    def linear(module, inputs, result):
        if net.has_kinks:
            signs.append((result > 0).detach())
        if with_squares and result.requires_grad:
            x = inputs[0].detach().flatten(0, -2)

            def comes(dy):
                dy = dy.flatten(0, -2)
                of_bias = [] if module.bias is None else [(module.bias, dy.square().sum(0))]
                for parameter, terms in [(module.weight, dy.square().t().mm(x.square())), *of_bias]:
                    squares[parameter] = squares.get(parameter, 0) + terms
            result.register_hook(comes)
    for model in net.models:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(linear)
    return signs, squares


def train(net_name, run, dtype_name, seed, steps, marks, results, rank, port, token):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dtype = getattr(torch, dtype_name)
    workers = workers_of(run)
    net = NETS[net_name](torch, dtype)
    if workers > 1:
        import poseidon.torch
        scheme = {"dense": "kv", "factors": "sfb"}[run]
        names = {name for model in net.models for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        poseidon.torch.init(rank=rank, workers=workers, port=port, token_file=token, threads=1, final_plan_step=None,
                            schemes={name: scheme for name in names})
        for model, optimizer in zip(net.models, net.optimizers):
            poseidon.torch.distribute(model, optimizer)
    signs, squares = observe(torch, net, run == "terms")
    draw = torch.Generator().manual_seed(3)
    own = slice(rank * ALL // workers, (rank + 1) * ALL // workers)
    first, weights, seen = None, {}, []
    for step in range(steps):
        signs.clear()
        for which, loss in net.parts(step):
            for optimizer in net.optimizers:
                optimizer.zero_grad()
            squares.clear()
            loss(own).backward()
            parameters = list(net.models[which].parameters())
            if first is None:
                first = [parameter.grad.double().clone() for parameter in parameters]
            for parameter in parameters:
                if run == "noise":
                    parameter.grad *= 1 + 1e-7 * torch.randn(parameter.shape, generator=draw, dtype=dtype)
                elif run == "terms" and parameter in squares:
                    size = 2.0 ** -24 if dtype == torch.float32 else 2.0 ** -53
                    drawn = torch.randn(parameter.shape, generator=draw, dtype=dtype)
                    parameter.grad += size * squares[parameter].sqrt() * drawn
            net.optimizers[which].step()
            net.updated(which)
        seen.append([sign.clone() for sign in signs])
        if step + 1 in marks:
            known = [parameter for model in net.models for parameter in model.parameters()]
            weights[step + 1] = [parameter.detach().double().clone() for parameter in known]
    torch.save((first, weights, seen), f"{results}/{run}-{dtype_name}-{rank}")
    if workers > 1:
        poseidon.torch.shutdown()


def flips(torch, found, of_one):
    """By step: how many signs of hidden units differ from those of `one`, over all workers' samples."""
    steps = zip(of_one, *(seen for _, _, seen in found))
    return [sum(int((torch.cat(signs) != sign).sum()) for sign, *signs in zip(*step)) for step in steps]


def compare(net, seed, dtype, options, marks, exact=None):
    """By run, distances from `one` at the last mark; and the first step's gradients of `one`."""
    import torch
    last = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS[:-1] if dtype == "float64" else RUNS:
            ranks.run(f"drift: {net} {run} {dtype}", train, workers_of(run), net, run, dtype, seed, options.steps, marks, folder)
            found = [torch.load(f"{folder}/{run}-{dtype}-{rank}") for rank in range(workers_of(run))]
            first, weights, _ = found[0]
            if run == "one":
                gradients, of_one, signs = found[0]
            errors = [((one - other).abs() / other.abs())[other != 0] for one, other in zip(first, exact or gradients)]
            far = [max(float((one - other).abs().max()) for one, other in zip(weights[mark], of_one[mark]))
                   / max(float(other.abs().max()) for other in of_one[mark]) for mark in marks]
            last[run], differ = far[-1], flips(torch, found, signs)
            begins = next((step for step, count in enumerate(differ) if count), "none")
            error = f"error {float(torch.cat(errors).median()):.1e}" if exact or dtype == "float64" else ""
            print(f"{net:12} seed {seed} {dtype} {run:8} {error:14} "
                  + "  ".join(f"{mark}: {distance:.1e}" for mark, distance in zip(marks, far))
                  + f"   first flip {begins}, all {sum(differ)}", flush=True)
    return last, gradients


def main(arguments):
    options = parse(arguments)
    marks = sorted({step for step in (1, 10, 30, 100, 300, 1000) if step < options.steps} | {options.steps})
    for net in options.only or sorted(NETS):
        _, exact = compare(net, 1, "float64", options, marks)
        lasts = [compare(net, seed, "float32", options, marks, exact if seed == 1 else None)[0]
                 for seed in range(1, options.seeds + 1)]
        for run in RUNS[2:]:
            ratios = sorted(last[run] / last["noise"] for last in lasts)
            print(f"{net:12} {run:8} {statistics.median(ratios):.2g} of noise's distance ({ratios[0]:.2g} to {ratios[-1]:.2g})")


if __name__ == "__main__":
    main(sys.argv[1:])
