# SPDX-License-Identifier: Apache-2.0
"""The nets of models/ that the trainer is timed on, as plain PyTorch: every layer at once, in the forms that eager users write.

`loss(net, images, labels)` is that of the net's train_val.prototxt, GoogLeNet's auxiliary heads included.
"""
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """1x1, 3x3, 1x1; the stride is in the first, as in the Caffe model of ResNet-50."""

    def __init__(self, inputs, width, stride, projects):
        super().__init__()
        outputs = 4 * width

        def convolution(come, go, kernel, step=1):
            return nn.Conv2d(come, go, kernel, stride=step, padding=kernel // 2, bias=False), nn.BatchNorm2d(go)
        self.deep = nn.Sequential(*convolution(inputs, width, 1, stride), nn.ReLU(inplace=True), *convolution(width, width, 3),
                                  nn.ReLU(inplace=True), *convolution(width, outputs, 1))
        self.short = nn.Sequential(*convolution(inputs, outputs, 1, stride)) if projects else nn.Identity()

    def forward(self, x):
        return functional.relu(self.short(x) + self.deep(x), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True)]
    inputs = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            layers.append(Residual(inputs, width, 2 if block == 0 and stage > 0 else 1, block == 0))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(2048, 1000))


def convolution(come, go, kernel, **options):
    return nn.Sequential(nn.Conv2d(come, go, kernel, padding=kernel // 2, **options), nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, inputs, one, three, five, pooled):
        super().__init__()
        self.paths = nn.ModuleList([
            convolution(inputs, one, 1), nn.Sequential(convolution(inputs, three[0], 1), convolution(*three, 3)),
            nn.Sequential(convolution(inputs, five[0], 1), convolution(*five, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, padding=1), convolution(inputs, pooled, 1))])

    def forward(self, x):
        import torch
        return torch.cat([path(x) for path in self.paths], 1)


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.first = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ReLU(inplace=True), pool, nn.LocalResponseNorm(5), convolution(64, 64, 1),
            convolution(64, 192, 3), nn.LocalResponseNorm(5), pool, Inception(192, 64, (96, 128), (16, 32), 32),
            Inception(256, 128, (128, 192), (32, 96), 64), pool, Inception(480, 192, (96, 208), (16, 48), 64))
        self.second = nn.Sequential(Inception(512, 160, (112, 224), (24, 64), 64), Inception(512, 128, (128, 256), (24, 64), 64),
                                    Inception(512, 112, (144, 288), (32, 64), 64))
        self.third = nn.Sequential(Inception(528, 256, (160, 320), (32, 128), 128), pool, Inception(832, 256, (160, 320), (32, 128), 128),
                                   Inception(832, 384, (192, 384), (48, 128), 128), nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.4),
                                   nn.Linear(1024, 1000))
        self.heads = nn.ModuleList([nn.Sequential(nn.AvgPool2d(5, 3, ceil_mode=True), convolution(inputs, 128, 1), nn.Flatten(),
                                                  nn.Linear(2048, 1024), nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000))
                                    for inputs in (512, 528)])

    def forward(self, x):
        first = self.first(x)
        second = self.second(first)
        return self.third(second), self.heads[0](first), self.heads[1](second)


def loss(net, images, labels):
    scores = net(images)
    if not isinstance(scores, tuple):
        return functional.cross_entropy(scores, labels)
    whole, *heads = (functional.cross_entropy(each, labels) for each in scores)
    return whole + 0.3 * sum(heads)
