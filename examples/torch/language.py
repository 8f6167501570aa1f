#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model: an LSTM that learns Python's language reference word by word, with clipped gradients."""
import argparse
import math

import torch
from data import reference, vocabulary
from torch import nn
from torch.utils.data import TensorDataset

import poseidon.torch as poseidon

WORDS, LENGTH, WIDTH = 4000, 24, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.memory = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.memory(self.words(words))[0])


def sentences(samples=None):
    """[samples, LENGTH + 1]: of each row all but the last word predict all but the first."""
    pages = reference()
    numbers = vocabulary(pages, WORDS)
    text = torch.tensor([numbers.get(word, 0) for words in pages.values() for word in words])
    return TensorDataset(text.unfold(0, LENGTH + 1, LENGTH)[:samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, help="of the rows; all where it is not given")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    model, optimizer = poseidon.distribute(model, optimizer)
    loader = poseidon.loader(sentences(options.samples), batch_size=32 // poseidon.workers(), shuffle=True)
    for epoch in range(options.epochs):
        total = steps = 0
        for (words,) in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        perplexity = math.exp(float(poseidon.all_reduce(total / steps)))
        if poseidon.rank() == 0:
            print(f"epoch {epoch}: perplexity {perplexity:.1f}", flush=True)


if __name__ == "__main__":
    main()
