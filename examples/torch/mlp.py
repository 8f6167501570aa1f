#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A perceptron on ten noisy clusters, trained by several processes: a PyTorch script and two lines more.

  export PYTHONPATH=frontends/python
  .venv/bin/torchrun --nproc-per-node 2 examples/torch/mlp.py
"""
import torch
from torch import nn
from torch.utils.data import TensorDataset

import poseidon.torch as poseidon


def clusters(samples=12800, features=100, classes=10):
    """The same on all workers, of which each gets its part from the loader."""
    draw = torch.Generator().manual_seed(1)
    centres, labels = torch.randn(classes, features, generator=draw), torch.randint(classes, (samples,), generator=draw)
    return TensorDataset(centres[labels] + 6 * torch.randn(samples, features, generator=draw), labels)


def main(epochs=2):
    model = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = poseidon.distribute(model, optimizer)
    loader = poseidon.loader(clusters(), batch_size=64, shuffle=True)
    for epoch in range(epochs):
        for step, (samples, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(samples), labels)
            loss.backward()
            optimizer.step()
            if step % 20 == 0 and poseidon.rank() == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if poseidon.rank() == 0:
        for name, (scheme, reason) in poseidon.plan(model).items():
            print(f"layer {name}: {scheme}, {reason}")


if __name__ == "__main__":
    main()
