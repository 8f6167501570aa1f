#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A perceptron on ten noisy clusters, trained by several processes: a PyTorch script and three lines more.

  export PYTHONPATH=frontends/python
  .venv/bin/torchrun --nproc-per-node 2 examples/torch/mlp.py
"""
import torch
from torch import nn

import poseidon.torch


def batches(rank, size=64, features=100, classes=10):
    """Endless; every worker draws its own samples around the same centres."""
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(1000 + rank)
    while True:
        labels = torch.randint(classes, (size,), generator=draw)
        yield centres[labels] + 6 * torch.randn(size, features, generator=draw), labels


def main(steps=100):
    poseidon.torch.init()
    model = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    for step, (samples, labels) in zip(range(steps), batches(poseidon.torch.rank())):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(samples), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and poseidon.torch.rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    exchange.synchronize()
    if poseidon.torch.rank() == 0:
        for name, (scheme, reason) in exchange.plan().items():
            print(f"layer {name}: {scheme}, {reason}")
    poseidon.torch.shutdown()


if __name__ == "__main__":
    main()
