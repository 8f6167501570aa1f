# SPDX-License-Identifier: Apache-2.0
"""One worker of the demonstration: a perceptron on ten noisy clusters. A PyTorch script and one line more."""
from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import sys
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's; nothing here needs it
import torch
from torch import nn

import poseidon.torch

STEPS = 200
KILLED_AT = 60


def batch(draw: torch.Generator, centres: torch.Tensor, size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(len(centres), (size,), generator=draw)
    return centres[labels] + 3 * torch.randn(size, centres.shape[1], generator=draw), labels


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(ctypes.string_at(parameter.data_ptr(), parameter.numel() * parameter.element_size()))
    return digest.hexdigest()[:16]


def main() -> None:
    torch.manual_seed(1)
    rank = poseidon.torch.rank()
    centres = torch.randn(10, 100, generator=torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(1000 + rank)
    model = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = poseidon.torch.distribute(model, optimizer, overlap="forward")  # the line
    for step in range(STEPS):
        samples, labels = batch(draw, centres)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(samples), labels)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step:3} loss {loss.item():.3f}")
        if rank == 1 and step == KILLED_AT and "--kill" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
    poseidon.torch.synchronize(model)
    samples, labels = batch(torch.Generator().manual_seed(7), centres, 1000)
    right = (model(samples).argmax(1) == labels).float().mean().item()
    print(f"accuracy {right:.3f}, hash of the weights {hash_of(model)}")


if __name__ == "__main__":
    try:
        main()
    except poseidon.torch.PoseidonError as error:
        sys.exit(f"PoseidonError: {error}")
