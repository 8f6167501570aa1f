#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A perceptron on ten noisy clusters under Hugging Face Accelerate: accumulation, clipping, a schedule, metrics, a saved state.

  export PYTHONPATH=frontends/python
  poseidon run -n 2 .venv/bin/python3 examples/torch/with_accelerate.py

Plain `python3 examples/torch/with_accelerate.py` trains with one worker.
"""
import torch
from accelerate.utils import set_seed
from mlp import clusters
from torch import nn
from torch.utils.data import DataLoader, Subset

from poseidon.accelerate import Accelerator  # in place of: from accelerate import Accelerator


def train(folder="runs/accelerate", accelerator=None, epochs=2, batch_size=128):
    """The accelerator, the model, and its loss and accuracy on the validation set; `batch_size` samples over all workers."""
    accelerator = accelerator or Accelerator(gradient_accumulation_steps=2)
    set_seed(1)
    data = clusters(samples=8292)
    own = batch_size // accelerator.num_processes
    training = DataLoader(Subset(data, range(7168)), own, shuffle=True, generator=torch.Generator().manual_seed(1))
    validation = DataLoader(Subset(data, range(7168, 8292)), own)
    model = nn.Sequential(nn.Linear(100, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
    model.to(accelerator.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20 * accelerator.num_processes, 0.9)  # each worker's step counts
    model, optimizer, schedule, training, validation = accelerator.prepare(model, optimizer, schedule, training, validation)
    for epoch in range(epochs):
        model.train()
        for step, (samples, labels) in enumerate(training):
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(samples), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {accelerator.reduce(loss.detach(), 'mean').item():.4f}")
    measured = validate(accelerator, model, validation)
    accelerator.save_state(folder)  # rank 0's, and every rank's random numbers
    return accelerator, model, measured


def validate(accelerator, model, loader):
    model.eval()
    losses, hits = [], []
    for samples, labels in loader:
        with torch.no_grad():
            scores = model(samples)
        one_each = nn.functional.cross_entropy(scores, labels, reduction="none"), scores.argmax(1) == labels
        for every, gathered in zip((losses, hits), accelerator.gather_for_metrics(one_each)):
            every.append(gathered)
    return torch.cat(losses).mean().item(), torch.cat(hits).float().mean().item()


if __name__ == "__main__":
    used, _, (_, accuracy) = train()
    used.print(f"accuracy {accuracy:.3f}")
    used.end_training()
