#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop of one's own on Fashion-MNIST: gradients become means over all workers by one call."""
import argparse

import keras
import tensorflow as tf
from fashion_mnist import read

import poseidon.tensorflow as poseidon

BATCH = 128

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
options = parser.parse_args()
poseidon.init()
keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential([layers.Input((28, 28, 1)), layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(10)])
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
batches = tf.data.Dataset.from_tensor_slices(read("train")).shuffle(60000, seed=1).batch(BATCH // poseidon.workers())


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images))
    variables = model.trainable_variables
    for variable, mean in zip(variables, poseidon.reduce(tape.gradient(loss, variables), variables)):
        variable.assign_sub(0.1 * mean)
    return loss


for number, (images, labels) in enumerate(poseidon.shard(batches).take(options.steps)):
    loss = step(images, labels)
    if number % 50 == 0 and poseidon.rank() == 0:
        print(f"step {number} loss {float(loss):.4f}", flush=True)
