# SPDX-License-Identifier: Apache-2.0
"""Poseidon under the Hugging Face Trainer.

  from poseidon.transformers import Trainer
  trainer = Trainer(model=model, args=TrainingArguments(..., use_cpu=True), ...)

and the script as it was, started by `poseidon run`, torchrun or mpirun. One worker trains as always.
"""
from __future__ import annotations

import transformers

from .accelerate import Accelerator

__all__ = ["Trainer"]


class Trainer(transformers.Trainer):  # type: ignore[misc]  # read as one without annotations
    """transformers.Trainer on poseidon.accelerate.Accelerator. Before another Trainer among a class' bases it puts that one on
    it: class Mine(poseidon.transformers.Trainer, transformers.Seq2SeqTrainer)."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.__class__ = Accelerator  # as the Trainer has set it up
        self.accelerator.check()
