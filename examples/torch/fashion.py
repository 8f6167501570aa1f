#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small convolutional net, or a perceptron, on Fashion-MNIST, evaluated by all workers together after every epoch.

  poseidon run -n 2 python3 fashion.py
  poseidon run -n 2 python3 fashion.py --net mlp
"""
import argparse

import torch
from data import fashion_mnist
from torch import nn

import poseidon.torch as poseidon


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


NETS = {"cnn": cnn, "mlp": mlp}


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = samples = 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        samples += len(labels)
    model.train()
    return float(poseidon.all_reduce(right, "sum") / poseidon.all_reduce(samples, "sum"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--net", choices=NETS, default="cnn")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, help="of the training set; all where it is not given")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = NETS[options.net]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    model, optimizer = poseidon.distribute(model, optimizer)
    training = poseidon.loader(fashion_mnist("train", options.samples), batch_size=128 // poseidon.workers(), shuffle=True)
    test = poseidon.loader(fashion_mnist("t10k"), batch_size=500)
    for epoch in range(options.epochs):
        for images, labels in training:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        right = accuracy(model, test)
        if poseidon.rank() == 0:
            print(f"epoch {epoch}: {right:.2%} of the test images", flush=True)


if __name__ == "__main__":
    main()
