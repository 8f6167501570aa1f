#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A perceptron on ten noisy clusters under Lightning: validation, metrics, accumulation, clipping, checkpoints and a log.

  export PYTHONPATH=frontends/python
  poseidon run -n 2 .venv/bin/python3 examples/torch/with_lightning.py

Plain `python3 examples/torch/with_lightning.py` trains with one worker.
"""
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from mlp import clusters
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchmetrics import Accuracy

import poseidon.lightning  # strategy="poseidon" is known from here on
import poseidon.torch


class Perceptron(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(100, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
        self.accuracy = Accuracy("multiclass", num_classes=10)

    def forward(self, samples):
        return self.layers(samples)

    def training_step(self, batch, number):
        samples, labels = batch
        loss = nn.functional.cross_entropy(self(samples), labels)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, number):
        samples, labels = batch
        scores = self(samples)
        self.log("val_loss", nn.functional.cross_entropy(scores, labels), sync_dist=True)
        self.accuracy(scores, labels)
        self.log("val_accuracy", self.accuracy)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9)


def train(folder="runs/lightning", workers=None, strategy="poseidon", epochs=2, batch_size=128, resume=None,
          accelerator="cpu"):
    """The trainer after its fit; `batch_size` samples a step over all workers, twice as many with the accumulation."""
    workers = workers or poseidon.torch.workers()
    lightning.seed_everything(1, verbose=False)
    data = clusters(samples=8192)
    training = DataLoader(Subset(data, range(7168)), batch_size // workers, shuffle=True)
    validation = DataLoader(Subset(data, range(7168, 8192)), batch_size // workers)
    trainer = lightning.Trainer(
        strategy=strategy, accelerator=accelerator, devices=workers, max_epochs=epochs, accumulate_grad_batches=2,
        gradient_clip_val=1.0, default_root_dir=folder, logger=CSVLogger(folder), log_every_n_steps=10,
        callbacks=[ModelCheckpoint(monitor="val_loss")], enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Perceptron(), training, validation, ckpt_path=resume)
    return trainer


if __name__ == "__main__":
    last = train()
    if last.is_global_zero:
        print(f"accuracy {last.callback_metrics['val_accuracy']:.3f}, weights in {last.checkpoint_callback.best_model_path}")
