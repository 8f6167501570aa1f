# SPDX-License-Identifier: Apache-2.0
"""A net in PyTorch, trained by all workers that start this script; rank 0 writes the curves.

  poseidon run -n 4 python -m benchmarks.convergence.with_torch lenet CURVES.json BATCH ITERATIONS TESTS_EVERY NOISE
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


def tensors(images, labels, most):
    return torch.from_numpy(images.copy())[:, None].float() / most, torch.from_numpy(labels.copy()).long()


def lenet():
    """LeNet, Fashion-MNIST, and the solver's rate."""
    net = nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500),
                        nn.ReLU(), nn.Linear(500, 10))
    return net, *(tensors(*data.arrays(part), 256) for part in ("train", "t10k")), 0.01


def digits():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, *(tensors(*part, 16) for part in data.digits()), 0.1


def test(model, images, labels):
    """Loss and accuracy. The weights are those of all workers, and so is the answer."""
    with torch.no_grad():
        scores = model(images)
    return nn.functional.cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).float().mean().item()


def add_noise(model, noise):
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + noise * torch.randn(weight.shape, generator=draw))


def batches(loader):
    while True:
        yield from loader


def main(net, path, batch, iterations, tests_every, noise):
    poseidon.seed(1)
    model, train, held_out, rate = {"lenet": lenet, "digits": digits}[net]()
    add_noise(model, noise)
    model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=5e-4))
    # What is left over of an epoch is left out: a batch of another size would be divided otherwise by each number of workers.
    loader = batches(poseidon.loader(TensorDataset(*train), batch_size=batch // poseidon.workers(), shuffle=True, drop_last=True))
    held_out = [tensor[:TESTED] for tensor in held_out]
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
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6]))
