#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Trainer and a small transformer of random weights, which learns of a sentence whether its words come in pairs
of the same letter: accumulation, a log, evaluation, checkpoints, resume. Nothing is downloaded.

  export PYTHONPATH=frontends/python
  poseidon run -n 2 .venv/bin/python3 examples/torch/with_trainer.py

Plain `python3 examples/torch/with_trainer.py` trains with one worker; a second run goes on where the last checkpoint is.
"""
import string
import sys

import numpy as np
import torch
from torch.utils.data import Dataset, Subset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import poseidon.torch
from poseidon.transformers import Trainer  # in place of: from transformers import Trainer

VOCABULARY = {word: number for number, word in enumerate(["[PAD]", "[CLS]", *string.ascii_lowercase])}
LENGTH = 9  # with [CLS]


class Sentences(Dataset):
    """`count` of them, drawn from a seed; in half of them letters 0 and 1, 2 and 3, ... are the same."""

    def __init__(self, count, seed=1):
        draw = torch.Generator().manual_seed(seed)
        letters = torch.randint(26, (count, LENGTH - 1), generator=draw)
        self.labels = torch.randint(2, (count,), generator=draw)
        letters[:, 1::2] = torch.where(self.labels[:, None] == 1, letters[:, ::2], letters[:, 1::2])
        self.sentences = [[string.ascii_lowercase[letter] for letter in row] for row in letters.tolist()]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        ids = [VOCABULARY[word] for word in ["[CLS]", *self.sentences[index]]]
        return {"input_ids": torch.tensor(ids), "labels": self.labels[index]}


def accuracy(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(1) == prediction.label_ids))}


def train(folder="runs/trainer", kind=Trainer, batch_size=64, epochs=2, workers=None, resume=None, **options):
    """The trainer after its training; `batch_size` samples over all workers, two of which make a step."""
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(VOCABULARY), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    own = batch_size // (workers or poseidon.torch.workers())
    arguments = TrainingArguments(
        folder, use_cpu=True, per_device_train_batch_size=own, per_device_eval_batch_size=own, gradient_accumulation_steps=2,
        num_train_epochs=epochs, learning_rate=0.05, lr_scheduler_type="constant", optim="sgd", max_grad_norm=1.0, seed=1,
        logging_steps=10, eval_strategy="epoch", save_strategy="epoch", report_to="none", disable_tqdm=True, **options)
    data = Sentences(4096 + 1000)
    trainer = kind(model=BertForSequenceClassification(config), args=arguments, train_dataset=Subset(data, range(4096)),
                   eval_dataset=Subset(data, range(4096, 5096)), compute_metrics=accuracy)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "runs/trainer"
    try:
        last = get_last_checkpoint(where)
    except FileNotFoundError:
        last = None
    trained = train(where, epochs=2 if last is None else 4, resume=last)
    if trained.is_world_process_zero():
        print(trained.state.log_history[-2])
