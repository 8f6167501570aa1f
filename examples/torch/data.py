# SPDX-License-Identifier: Apache-2.0
"""Data that is on the machine: Fashion-MNIST from Debian's package dataset-fashion-mnist or the folder FASHION_MNIST, and
Python's own language reference, which pydoc has with it."""
import collections
import gzip
import os
import pathlib
import re
from pydoc_data.topics import topics

import torch
from torch.utils.data import TensorDataset

FASHION_MNIST = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def fashion_mnist(part, samples=None):
    """Images [samples, 1, 28, 28] as float32 between 0 and 1, and labels; `part` is train or t10k."""
    with gzip.open(FASHION_MNIST / f"{part}-images-idx3-ubyte.gz") as file:
        images = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
    with gzip.open(FASHION_MNIST / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=8)
    return TensorDataset(images[:samples] / 255, labels[:samples].long())


def reference():
    """The words and signs of every page of the reference, by its name."""
    return {name: re.findall(r"\w+|[^\w\s]", text.lower()) for name, text in topics.items()}


def vocabulary(pages, most):
    """A number for each of the words that come most often, from 1; 0 is any other."""
    counts = collections.Counter(word for words in pages.values() for word in words)
    return {word: number for number, (word, _) in enumerate(counts.most_common(most - 1), 1)}
