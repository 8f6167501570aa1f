#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small transformer that guesses from 32 words of Python's language reference on which page they are. Its embedding is
sparse: only the rows of words that came are exchanged."""
import argparse

import torch
from data import reference, vocabulary
from torch import nn
from torch.utils.data import TensorDataset, random_split

import poseidon.torch as poseidon

WORDS, LENGTH, WIDTH = 8000, 32, 64


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, sparse=True)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, words):
        return self.head(self.encoder(self.words(words) + self.places).mean(1))


def excerpts(samples=None):
    """(words [samples, LENGTH], pages [samples]) of the pages that have a thousand words or more, and how many those are."""
    pages = {name: words for name, words in reference().items() if len(words) >= 1000}
    numbers = vocabulary(pages, WORDS)
    windows, labels = [], []
    for label, words in enumerate(pages.values()):
        encoded = torch.tensor([numbers.get(word, 0) for word in words])
        windows.append(encoded.unfold(0, LENGTH, LENGTH // 2))
        labels += [label] * len(windows[-1])
    return TensorDataset(torch.cat(windows)[:samples], torch.tensor(labels)[:samples]), len(pages)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, help="of the excerpts; all where it is not given")
    options = parser.parse_args()
    torch.manual_seed(1 + poseidon.rank())  # dropout differs between workers
    data, classes = excerpts(options.samples)
    training, test = random_split(data, [0.9, 0.1], generator=torch.Generator().manual_seed(1))
    model = poseidon.distribute(Classifier(classes))
    dense = [parameter for name, parameter in model.named_parameters() if name != "words.weight"]
    optimizers = torch.optim.SparseAdam(model.words.parameters(), 2e-3), torch.optim.AdamW(dense, 2e-3)
    loader = poseidon.loader(training, batch_size=64 // poseidon.workers(), shuffle=True)
    for epoch in range(options.epochs):
        for words, pages in loader:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), pages)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        with torch.no_grad():
            model.eval()
            words, pages = next(iter(poseidon.loader(test, batch_size=len(test) // poseidon.workers())))
            right = float(poseidon.all_reduce(float((model(words).argmax(1) == pages).float().mean())))
            model.train()
        if poseidon.rank() == 0:
            print(f"epoch {epoch}: right about {right:.1%} of the excerpts that it has not seen, of {classes} pages", flush=True)


if __name__ == "__main__":
    main()
