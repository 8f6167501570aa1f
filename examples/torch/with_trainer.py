#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Trainer and a small GPT-2 of random weights, which learns words in which every letter comes twice:
accumulation, clipping, a log, evaluation, checkpoints, resume. Nothing is downloaded.

  export PYTHONPATH=frontends/python
  poseidon run -n 2 .venv/bin/python3 examples/torch/with_trainer.py

Plain `python3 examples/torch/with_trainer.py` trains with one worker; a second run goes on from the last checkpoint.
"""
import string
import sys

import torch
from torch.utils.data import Dataset, Subset
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.trainer_utils import get_last_checkpoint

import poseidon.torch
from poseidon.transformers import Trainer, TrainingArguments  # in place of: from transformers import Trainer, TrainingArguments

VOCABULARY = {letter: number for number, letter in enumerate(" " + string.ascii_lowercase)}
LENGTH = 16
IGNORED = -100  # a label that counts in no loss


class Words(Dataset):
    """`count` of them, of 2 to 8 letters drawn from a seed, each followed by itself; the model has to repeat the letters."""

    def __init__(self, count, seed=1):
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, LENGTH // 2 + 1, (count,), generator=draw).tolist()
        self.words = ["".join(2 * string.ascii_lowercase[letter] for letter in torch.randint(26, (length,), generator=draw))
                      for length in lengths]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        ids = torch.tensor([VOCABULARY[letter] for letter in self.words[index].ljust(LENGTH)])
        labels = ids.clone()
        labels[::2] = labels[len(self.words[index]):] = IGNORED
        return {"input_ids": ids, "labels": labels}


def accuracy(prediction):
    said, labels = prediction.predictions[:, :-1].argmax(-1), prediction.label_ids[:, 1:]
    return {"accuracy": float((said == labels)[labels != IGNORED].mean())}


def train(folder="runs/trainer", kind=Trainer, workers=None, epochs=2, batch_size=64, resume=None):
    """The trainer after its training; `batch_size` words over all workers, twice as many a step."""
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=len(VOCABULARY), n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, bos_token_id=0,
                        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    own = batch_size // (workers or poseidon.torch.workers())
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=own, per_device_eval_batch_size=own, gradient_accumulation_steps=2,
        num_train_epochs=epochs, learning_rate=3e-3, lr_scheduler_type="constant", max_grad_norm=1.0, seed=1, logging_steps=10,
        eval_strategy="epoch", save_strategy="epoch", report_to="none", disable_tqdm=True)
    data = Words(4096 + 1024)
    trainer = kind(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Subset(data, range(4096)),
                   eval_dataset=Subset(data, range(4096, 5120)), compute_metrics=accuracy)
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
