# SPDX-License-Identifier: Apache-2.0
"""A training script with layers of each kind, which profiles and jobs are compared of: profiled.py [STEPS [EXIT CODE]]."""
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import poseidon.torch as poseidon  # noqa: E402
import profiles  # noqa: E402

WORDS, BATCH = 8, 16


class Net(nn.Module):
    """Of two workers, where the fewest bytes count, `words` sends rows, `wide` factors, and all others gradients."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(3000, 64, sparse=True)
        self.tokens = nn.Linear(64, 256)  # a row for every word
        self.wide = nn.Linear(256 * WORDS, 512)
        self.norm = nn.LayerNorm(512)  # joins `gate`
        self.gate = nn.Linear(512, 4)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        hidden = self.norm(torch.tanh(self.wide(torch.tanh(self.tokens(self.words(x))).flatten(1))))
        return self.head(hidden) * self.gate(hidden).mean()


def train(model, optimizer, steps):
    source = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = torch.randint(3000, (BATCH, WORDS), generator=source), torch.randint(10, (BATCH,), generator=source)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def on_a_device(file):
    """In a process of its own: what knows the device once does so to its end."""
    import accelerator
    accelerator.load()
    poseidon.init(rank=0, workers=1)
    model = nn.Sequential(nn.Linear(300, 400), nn.Tanh(), nn.Linear(400, 10)).to(accelerator.KIND)
    with poseidon.profile(model, file):
        for _ in range(12):
            model(torch.ones(BATCH, 300).to(accelerator.KIND)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.01).step()
    poseidon.shutdown()


def main(steps=8, code=0):
    torch.set_num_threads(1)
    poseidon.init(policy="bytes", final_plan_step=3)
    model = Net()
    model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    try:
        train(model, optimizer, int(steps))
    finally:
        print("cleaned up", flush=True)
    if poseidon.workers() > 1 and poseidon.rank() == 0:
        exchange = poseidon.job.exchange_of(model)
        print(json.dumps(profiles.of_job(exchange.session, exchange.model.core.model, exchange.layers)))
    sys.exit(int(code))


if __name__ == "__main__":
    main(*sys.argv[1:])
