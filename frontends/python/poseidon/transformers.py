# SPDX-License-Identifier: Apache-2.0
"""Poseidon under the Hugging Face Trainer.

    from poseidon.transformers import Trainer, TrainingArguments
    trainer = Trainer(model=model, args=TrainingArguments(...), ...)

and the script as it was, started by `poseidon run`, torchrun or mpirun. One worker trains as always.
"""
from __future__ import annotations

import functools
from typing import Any

import torch
import transformers

import poseidon.torch

from .accelerate import Accelerator, on, own_accelerator

__all__ = ["Trainer", "TrainingArguments"]


class TrainingArguments(transformers.TrainingArguments):  # type: ignore[misc]  # read as one without annotations
    """transformers.TrainingArguments. With several workers models and batches are on the accelerator (GPU) with the worker's
    number on its host, and on the CPU where there is none or use_cpu says so. All workers make them."""

    @functools.cached_property
    def _setup_devices(self) -> torch.device:
        if poseidon.torch.workers() == 1:
            return super()._setup_devices  # type: ignore[no-any-return]  # see above
        asked: bool = self.use_cpu  # type: ignore[has-type]  # see above
        device = None if asked else own_accelerator()
        self.use_cpu = True  # how Accelerate is asked for gloo
        try:
            with on(device):
                return super()._setup_devices  # type: ignore[no-any-return]  # see above
        finally:
            self.use_cpu = asked


class Trainer(transformers.Trainer):  # type: ignore[misc]  # read as one without annotations
    """transformers.Trainer on poseidon.accelerate.Accelerator. Before another Trainer among a class' bases it puts that one on
    it: class Mine(poseidon.transformers.Trainer, transformers.Seq2SeqTrainer)."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.__class__ = Accelerator  # as the Trainer has set it up
        self.accelerator.check()

    def _maybe_log_save_evaluate(self, tr_loss: torch.Tensor, *arguments: Any, **words: Any) -> None:
        """Gathers the loss from the memory of the host, whatever gloo takes of the device's; called after every step."""
        if not self.control.should_log or not self.accelerator.gathers_by_host:
            super()._maybe_log_save_evaluate(tr_loss, *arguments, **words)
            return
        loss = tr_loss.cpu()
        super()._maybe_log_save_evaluate(loss, *arguments, **words)
        tr_loss.copy_(loss)  # 0, where it was logged

    def store_flos(self) -> None:
        """As above: the sum over all workers."""
        if not self.accelerator.gathers_by_host:
            super().store_flos()
            return
        self.state.total_flos += poseidon.torch.all_reduce(float(self.current_flos), "sum").item()  # type: ignore[has-type]
        self.current_flos = 0
