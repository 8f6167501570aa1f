# SPDX-License-Identifier: Apache-2.0
"""LeNet in Keras on TensorFlow on Fashion-MNIST, by all workers that start this script; rank 0 writes the curves.

  poseidon run -n 4 python -m benchmarks.convergence.with_keras CURVES.json BATCH ITERATIONS TESTS_EVERY NOISE
"""
import json
import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import poseidon.keras as poseidon

from . import data

TESTED = 2000  # images


def images_of(part):
    images, labels = data.arrays(part)
    return images[..., None].astype(np.float32) / 256, labels.astype(np.int64)


def lenet():
    layers = keras.layers
    return keras.Sequential([layers.Input((28, 28, 1)), layers.Conv2D(20, 5), layers.MaxPooling2D(), layers.Conv2D(50, 5),
                             layers.MaxPooling2D(), layers.Flatten(), layers.Dense(500, activation="relu"), layers.Dense(10)])


def add_noise(model, noise):
    draw = np.random.default_rng(2)
    model.set_weights([weight * (1 + noise * draw.standard_normal(weight.shape)) for weight in model.get_weights()])


def test(model, images, labels):
    """Loss and accuracy. The weights are those of all workers, and so is the answer."""
    scores = model(images, training=False)
    loss = keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
    return float(tf.reduce_mean(loss)), float(np.mean(np.argmax(scores, 1) == labels))


def main(path, batch, iterations, tests_every, noise):
    poseidon.init()
    keras.utils.set_random_seed(1)
    model = lenet()
    add_noise(model, noise)
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model = poseidon.distribute(model)
    images, labels = images_of("train")
    order = np.random.default_rng(3).permutation(len(labels))
    held_out = [array[:TESTED] for array in images_of("t10k")]
    curves = {"losses": [], "accuracies": []}
    began = time.monotonic()
    for iteration in range(0, iterations + 1, tests_every):
        if poseidon.rank() == 0:
            for values, value in zip(curves.values(), test(model, *held_out)):
                values.append([iteration, time.monotonic() - began, value])
        if iteration < iterations:
            chosen = order[batch * iteration:batch * (iteration + tests_every)]
            dataset = tf.data.Dataset.from_tensor_slices((images[chosen], labels[chosen])).batch(batch // poseidon.workers())
            model.fit(poseidon.shard(dataset), verbose=0)
    seconds = time.monotonic() - began
    poseidon.check(model)  # raises where a bit differs
    if poseidon.rank() == 0:
        pathlib.Path(path).write_text(json.dumps(curves | {"workers": poseidon.workers(), "seconds": seconds, "equal": True}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5]))
