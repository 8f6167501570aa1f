# SPDX-License-Identifier: Apache-2.0
"""The networks of train_bench.py, with the shape of a sample and the number of classes."""
import torch
from torch import nn
from torch.nn import functional


def lenet():
    """Caffe's LeNet, 431080 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)), (1, 28, 28), 10


def mlp():
    """784-4096-4096-10, 20.0 million parameters."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 10)), (1, 28, 28), 10


def alexnet(side=227, features=9216):
    """Caffe's AlexNet without dropout, so that all runs of a seed compute the same; 61.0 million."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2, groups=2), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(features, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 1000)), (3, side, side), 1000


def small_alexnet():
    """The same on images of 67x67, which leave one place per filter to the Linears: 24.3 million."""
    return alexnet(67, 256)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.added or self.stride > 1:  # the parameterless shortcut
            x = functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.added))
        return functional.relu(x + y)


def resnet():
    """ResNet-20 for 32x32 images, 0.27 million parameters in 59 tensors."""
    blocks = [Block(inputs, outputs, stride)
              for inputs, outputs, first in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
              for inputs, stride in ((inputs, first), (outputs, 1), (outputs, 1))]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), (3, 32, 32), 10


class Bert(nn.Module):
    """Four layers of width 256 on 4000 words, 4.2 million parameters: an encoder as BERT's, small enough for two cores."""

    def __init__(self, words=4000, width=256, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, words):
        return self.head(self.encoder(self.words(words) + self.places).mean(1))


def bert():
    return Bert(), (32,), 10


WORDS = {"bert": 4000}  # of nets whose samples are numbers of words
NETS = {"bert": (bert, 4, 0.01), "lenet": (lenet, 64, 0.01), "mlp": (mlp, 64, 0.01), "alexnet": (alexnet, 16, 0.001),
        "alexnet-67": (small_alexnet, 16, 0.001), "resnet": (resnet, 32, 0.05)}  # makers, batch sizes, learning rates


def batches(seed, rank, count, size, shape, classes, words=None):
    """`count` batches of noisy class centres; the centres are the same on every rank. Of `words` numbers of them, half of which
    are the class's own."""
    few = min(classes, 10)
    centres = torch.randn(few, *shape, generator=torch.Generator().manual_seed(seed))
    draw = torch.Generator().manual_seed(seed * 1000003 + rank + 1)
    made = []
    for _ in range(count):
        labels = torch.randint(few, (size,), generator=draw)
        if words:
            own, others = torch.randint(words // few, (2, size, *shape), generator=draw)
            is_own = torch.rand(size, *shape, generator=draw) < 0.5
            made.append((torch.where(is_own, own + words // few * labels.view(-1, 1), others), labels))
            continue
        made.append((centres[labels] + torch.randn(size, *shape, generator=draw), labels))
    return made
