#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole script: training, evaluation by all workers, a checkpoint after every epoch, and a run that goes on from it.

  poseidon run -n 2 python quickstart.py
"""
import os
import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset

import poseidon.torch as poseidon

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
FILE = "quickstart.pt"


def points(samples, seed):
    """Points of a plane, and in which of three rings each is. The same on all workers."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randn(samples, 2, generator=draw)
    return TensorDataset(places, (places.norm(dim=1) > torch.tensor([[0.8], [1.5]])).sum(0))


def evaluate(model, loader):
    """The share that is right, of all workers' parts together."""
    counts = torch.zeros(2, dtype=torch.int64)
    with torch.no_grad():
        for x, y in loader:
            counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    right, all_of_them = poseidon.all_reduce(counts, "sum").tolist()
    return right / all_of_them


def main():
    poseidon.seed(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer = poseidon.distribute(model, optimizer, factors=False)  # whole gradients: a resumed run has the same bits
    train = poseidon.loader(points(4000, seed=1), batch_size=50, shuffle=True)
    test = poseidon.loader(points(1000, seed=2), batch_size=50)
    if os.path.exists(FILE):
        saved = torch.load(FILE)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["train"])  # the epoch that comes next, and the order of its samples
    for epoch in range(train.epoch, EPOCHS):
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        share = evaluate(model, test)
        if poseidon.rank() == 0:
            print(f"epoch {epoch}: {100 * share:.1f} % right, weights sum to {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "train": train.state_dict()}, FILE + ".new")
            os.replace(FILE + ".new", FILE)


if __name__ == "__main__":
    main()
