# SPDX-License-Identifier: Apache-2.0
"""The networks of train_bench.py in Keras, as benchmarks/torch has them, and their data."""
import keras
import numpy as np
from keras import layers, ops


def lenet():
    """Caffe's LeNet, 431080 parameters."""
    return keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(20, 5), layers.MaxPooling2D(2), layers.Conv2D(50, 5),
        layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(500, activation="relu"), layers.Dense(10)])


def mlp():
    """784-4096-4096-10, 20.0 million parameters."""
    return keras.Sequential([
        layers.Input((28, 28, 1)), layers.Flatten(), layers.Dense(4096, activation="relu"),
        layers.Dense(4096, activation="relu"), layers.Dense(10)])


def block(x, filters, stride):
    y = layers.Conv2D(filters, 3, stride, "same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.BatchNormalization()(layers.Conv2D(filters, 3, 1, "same", use_bias=False)(y))
    if filters != x.shape[-1]:  # the parameterless shortcut
        x = ops.pad(x[:, ::stride, ::stride, :], ((0, 0), (0, 0), (0, 0), (0, filters - x.shape[-1])))
    return layers.ReLU()(x + y)


def resnet():
    """ResNet-20 for 32x32 images, 0.27 million parameters in 59 tensors."""
    images = layers.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, 1, "same", use_bias=False)(images)))
    for filters, first in ((16, 1), (32, 2), (64, 2)):
        for stride in (first, 1, 1):
            x = block(x, filters, stride)
    return keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


NETS = {"lenet": (lenet, 64, 0.01), "mlp": (mlp, 64, 0.01), "resnet": (resnet, 32, 0.05)}  # makers, batches, rates


def batches(seed, count, size, shape):
    """`count` batches of noisy class centres, the same on every worker: they take turns."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(10, *shape)).astype("float32")
    labels = draw.integers(0, 10, size=(count, size))
    return centres[labels] + draw.normal(size=(count, size, *shape)).astype("float32"), labels
