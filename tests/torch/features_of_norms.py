# SPDX-License-Identifier: Apache-2.0
"""Features of batch norms: statistics of each worker, and of all together."""
import torch
from feature import EPS, Feature, noise
from features_of_steps import Accumulation
from torch import nn
from torch.utils.checkpoint import checkpoint


class Statistics(Feature):
    """Batch norms use each rank's own batch, and keep rank 0's statistics everywhere."""

    by_rank = True

    def model(self):
        return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24, eps=EPS), nn.Tanh(), nn.Linear(24, 3))


class Synchronized(Feature):
    """Batch norms of all ranks' samples together, of which one has no parameters and one does not add up statistics by a
    momentum; the model is used for validation between steps."""

    def model(self):
        model = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Unflatten(1, (2, 4, 3)), nn.Conv2d(2, 5, 2),
                              nn.BatchNorm2d(5, momentum=None), nn.ReLU(), nn.BatchNorm2d(5, affine=False),
                              nn.BatchNorm2d(5, track_running_stats=False), nn.Flatten(), nn.Linear(30, 3))
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)

    def prepare(self, model, optimizer, step, ranks):
        with torch.no_grad():
            model.eval()
            model(noise(step, (0, 1), 10, stream=2))
            model.train()


class SynchronizedAndAccumulated(Synchronized):
    backward = Accumulation.backward


class SynchronizedAndCompiled(Synchronized):
    def model(self):
        model = super().model()
        model.compile(backend="aot_eager")
        return model


class SynchronizedInHalf(Feature):
    tolerance = 4e-2
    optimizer_arguments = {"lr": 0.05}

    def model(self):
        return nn.SyncBatchNorm.convert_sync_batchnorm(
            nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 3))).bfloat16()

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 10).bfloat16()).float() - noise(step, ranks, 3, stream=1)).square().mean()


class SynchronizedInCheckpoints(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block, self.last = nn.Linear(10, 24), nn.Sequential(nn.BatchNorm1d(24), nn.Tanh()), nn.Linear(24, 3)

        def forward(self, x):
            return self.last(checkpoint(self.block, self.first(x), use_reentrant=False))

    def model(self):
        return nn.SyncBatchNorm.convert_sync_batchnorm(self.Net())
