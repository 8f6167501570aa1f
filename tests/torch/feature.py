# SPDX-License-Identifier: Apache-2.0
"""A feature of training scripts: what all of them have in common, and what a step and a batch are.

A feature trains a model for some steps on the batches of `ranks`: a worker on its own, the reference on all at once. Where
that is another thing (one rank alone does something, statistics of a batch) the reference computes every rank's gradients by
itself and applies their mean.
"""
import os

import torch
from torch import nn

BATCH = 3  # so few that factors are fewer bytes with four workers too
LATE = 6  # the step at which something begins; the plan is final at step 3
# For nets in which rounding grows with larger steps of the weights: beyond the tolerance in 100 steps, in one process too.
SLOWLY = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}
EPS = 0.1  # of norms of a few rows, for the same reason: where these nearly agree, rounding is divided by almost nothing
STEPS = int(os.environ.get("POSEIDON_FEATURE_STEPS", "0"))  # that every feature trains at least


def device_type():
    """Of the device that trains, as autocast and a scaler want it: it is torch's default device."""
    return torch.get_default_device().type


def noise(step, ranks, *shape, stream=0):
    """Of the batches of all `ranks`, one behind the other, on torch's default device."""
    return torch.cat([torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1000 * stream + 10 * step + rank),
                                  device="cpu") for rank in ranks]).to(torch.get_default_device())


class Feature:
    steps = 6
    goes_on = True  # where the tests are to train for longer
    tolerance = 1e-5
    by_rank = False  # the reference averages gradients
    lacks = ""  # why the machine does not show what the feature is about; it trains there all the same
    optimizer_arguments = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}

    def model(self):
        return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 3))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), **self.optimizer_arguments)

    def prepare(self, model, optimizer, step, ranks):
        pass

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 10)) - noise(step, ranks, 3, stream=1)).square().mean()

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        self.loss(model, step, ranks).backward()

    def update(self, model, optimizer, step):
        optimizer.step()
