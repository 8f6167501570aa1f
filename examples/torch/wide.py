#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wide perceptron on Fashion-MNIST with a head of 22,000 classes, as of a large catalogue, of which ten come. Its weights
have 58 million numbers; their factors, of 32 samples a worker, a thousandth of that.

  poseidon run -n 2 python3 wide.py                 # the plan takes what is faster on this machine
  poseidon run -n 2 python3 wide.py --policy bytes  # factors wherever they are fewer bytes
"""
import argparse

import torch
from data import fashion_mnist
from torch import nn

import poseidon.torch as poseidon

CLASSES = 22000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--policy", choices=("time", "bytes"), default="time")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    poseidon.init(policy=options.policy)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                          nn.Linear(2048, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model, optimizer = poseidon.distribute(model, optimizer)
    loader = poseidon.loader(fashion_mnist("train"), batch_size=64 // poseidon.workers(), shuffle=True)
    for step, (images, labels) in zip(range(options.steps), loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and poseidon.rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if poseidon.rank() == 0:
        for name, (scheme, reason) in poseidon.plan(model).items():
            print(f"layer {name}: {scheme}, {reason}")


if __name__ == "__main__":
    main()
