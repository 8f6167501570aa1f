# SPDX-License-Identifier: Apache-2.0
"""LeNet in PyTorch on Fashion-MNIST, by all workers that start this script; rank 0 writes the curves.

  poseidon run -n 4 python -m benchmarks.convergence.with_torch CURVES.json BATCH ITERATIONS TESTS_EVERY
"""
import json
import pathlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import poseidon.torch as poseidon

from . import data

TESTED = 2000  # images


def tensors(part):
    images, labels = data.arrays(part)
    return torch.from_numpy(images.copy())[:, None].float() / 256, torch.from_numpy(labels.copy()).long()


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500),
                         nn.ReLU(), nn.Linear(500, 10))


def test(model, images, labels):
    """Loss and accuracy. The weights are those of all workers, and so is the answer."""
    with torch.no_grad():
        scores = model(images)
    return nn.functional.cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).float().mean().item()


def batches(loader):
    while True:
        yield from loader


def main(path, batch, iterations, tests_every):
    poseidon.seed(1)
    model = lenet()
    model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4))
    loader = batches(poseidon.loader(TensorDataset(*tensors("train")), batch_size=batch // poseidon.workers(), shuffle=True))
    held_out = [tensor[:TESTED] for tensor in tensors("t10k")]
    curves = {"losses": [], "accuracies": []}
    began = time.monotonic()
    for iteration in range(iterations + 1):
        if iteration % tests_every == 0 and poseidon.rank() == 0:
            for values, value in zip(curves.values(), test(model, *held_out)):
                values.append([iteration, time.monotonic() - began, value])
        images, labels = next(loader)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    seconds = time.monotonic() - began
    poseidon.check(model)  # raises where a bit differs
    if poseidon.rank() == 0:
        pathlib.Path(path).write_text(json.dumps(curves | {"workers": poseidon.workers(), "seconds": seconds, "equal": True}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
