# SPDX-License-Identifier: Apache-2.0
"""Features of what is trained: weights that are shared, unused, frozen, thawed and added."""
import contextlib

import torch
from feature import LATE, SLOWLY, Feature, noise
from torch import nn


class Tied(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 24)
            self.inner = nn.Linear(24, 24)
            self.decoder = nn.Linear(24, 10, bias=False)
            self.decoder.weight = self.embedding.weight

        def forward(self, words):
            return self.decoder(torch.tanh(self.inner(self.embedding(words))))

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        words = noise(step, ranks, 5).abs().mul(4).long().clamp(0, 9)
        return nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


class Twice(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.again, self.last = nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 3)

        def forward(self, x):
            return self.last(torch.tanh(self.again(torch.tanh(self.again(self.first(x))))))

    def model(self):
        return self.Net()


class Unused(Feature):
    """A layer that never runs and one that runs on rank 1 alone in every second step."""

    by_rank = True

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.never, self.some, self.last = (
                nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 3))

        def forward(self, x, some):
            x = torch.tanh(self.first(x))
            return self.last(self.some(x) if some else x)

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        result = model(noise(step, ranks, 10), step % 2 == 1 and 1 in ranks)
        return (result - noise(step, ranks, 3, stream=1)).square().mean()


class Frozen(Feature):
    steps = LATE + 3

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            model[2].requires_grad_(False)


class Thawed(Feature):
    """The last layer alone, then one more, then all but a bias, which is frozen again."""

    steps = LATE + 7

    def model(self):
        model = super().model().requires_grad_(False)
        model[4].requires_grad_(True)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == 2:
            model[2].requires_grad_(True)
        elif step == LATE:
            model.requires_grad_(True)
            model[2].bias.requires_grad_(False)


class ThawedInBetween(Feature):
    """While gradients of two backward passes add up."""

    steps = LATE + 4

    def model(self):
        model = super().model()
        model[2].requires_grad_(False)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE + 1:
            model[2].requires_grad_(True)

    def backward(self, model, optimizer, step, ranks):
        if step % 2 == 0:
            optimizer.zero_grad()
        self.loss(model, step, ranks).backward()

    def update(self, model, optimizer, step):
        if step % 2 == 1:
            optimizer.step()


class ThawedBehindNoSync(ThawedInBetween):
    """The first of both stays on its worker."""

    def backward(self, model, optimizer, step, ranks):
        from poseidon.torch import job
        with job.no_sync(model) if step % 2 == 0 else contextlib.nullcontext():
            super().backward(model, optimizer, step, ranks)


class ThawedBetweenForwards(Feature):
    """Of one backward pass."""

    steps = LATE + 4

    def model(self):
        model = nn.Sequential(*super().model(), nn.PReLU())
        model[5].requires_grad_(False)
        return model

    def loss(self, model, step, ranks):
        first = super().loss(model, step, ranks)
        if step == LATE:
            model[5].requires_grad_(True)
        return first + super().loss(model, 100 + step, ranks)


class Grown(Feature):
    """A module that replaces another, and its parameters join the optimizer."""

    optimizer_arguments = SLOWLY
    steps = LATE + 3

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            model[4] = nn.Linear(16, 3)  # rank 0's has to reach all
            torch.manual_seed(5 + ranks[0])
            nn.init.normal_(model[4].weight)
            nn.init.zeros_(model[4].bias)
            optimizer.add_param_group({"params": model[4].parameters(), "lr": 0.01})
