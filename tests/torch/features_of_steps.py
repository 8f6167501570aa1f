# SPDX-License-Identifier: Apache-2.0
"""Features of how a step is made: accumulated, scaled, clipped."""
import torch
from feature import Feature, device_type, noise
from torch import nn


class Plain(Feature):
    pass


class Accumulation(Feature):
    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        for micro in range(3):
            (self.loss(model, 100 + 3 * step + micro, ranks) / 3).backward()


class Autocast(Feature):
    tolerance = 1e-2  # both round products to bfloat16

    def begins(self, step, ranks):
        return True

    def loss(self, model, step, ranks):
        begun = self.begins(step, ranks)
        with torch.autocast(device_type(), torch.bfloat16, enabled=begun):
            result = model(noise(step, ranks, 10))
        assert result.dtype == (torch.bfloat16 if begun else torch.float32), "autocast is of another device"
        return (result.float() - noise(step, ranks, 3, stream=1)).square().mean()


class Scaled(Feature):
    """A loss scale that is found: an overflow on rank 1 alone skips the step everywhere."""

    steps = 8

    def optimizer(self, model):
        self.scaler = torch.amp.GradScaler(device_type(), init_scale=2.0 ** 8, growth_interval=2)
        return super().optimizer(model)

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        loss = self.loss(model, step, ranks)
        if step == 4 and 1 in ranks:
            loss = loss * float("inf")
        self.scaler.scale(loss).backward()

    def update(self, model, optimizer, step):
        self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        self.scaler.step(optimizer)
        self.scaler.update()


class ClippedByNorm(Feature):
    def update(self, model, optimizer, step):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


class ClippedByValue(Feature):
    def update(self, model, optimizer, step):
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
