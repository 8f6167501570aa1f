#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training that is stopped anywhere and goes on: on as many workers with the bits of a run that was never stopped, on another number
of them with the same batches.

  export PYTHONPATH=frontends/python
  .venv/bin/torchrun --nproc-per-node 2 examples/torch/resume.py --stop-after 30
  .venv/bin/torchrun --nproc-per-node 2 examples/torch/resume.py
"""
import argparse
import hashlib
import os

import torch
from mlp import clusters
from torch import nn

import poseidon.torch as poseidon

ALL = 120  # samples of a step, over all workers


def save(path, model, optimizer, batches):
    """All workers call it after a step; rank 0 writes. A job that ends meanwhile leaves the last file whole."""
    random = poseidon.all_gather(torch.get_rng_state())  # of dropout, which each rank draws for itself
    if poseidon.rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "batches": batches.state_dict(),
                    "random": random}, path + ".new")
        os.replace(path + ".new", path)


def load(path, model, optimizer, batches):
    """All workers call it, and see the same file. A rank that was not there keeps the random numbers it has."""
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    batches.load_state_dict(saved["batches"])
    if poseidon.rank() < len(saved["random"]):
        torch.set_rng_state(saved["random"][poseidon.rank()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", default="resume.pt")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=6050)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--stop-after", type=int, help="steps of this run")
    options = parser.parse_args()
    poseidon.seed(1)
    model = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # Which layers go as factors follows from measured times, and changes the last bits of their gradients.
    model, optimizer = poseidon.distribute(model, optimizer, factors=False)
    batches = poseidon.loader(clusters(options.samples), batch_size=ALL // poseidon.workers(), shuffle=True)
    if os.path.exists(options.file):
        load(options.file, model, optimizer, batches)
    steps = 0
    for _ in range(batches.epoch, options.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            steps += 1
            if steps % options.save_every == 0 or steps == options.stop_after:
                save(options.file, model, optimizer, batches)
            if steps == options.stop_after:
                return
    if poseidon.rank() == 0:
        weights = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
        print(f"{steps} steps, weights {weights.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
