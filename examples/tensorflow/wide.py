#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wide classifier on Fashion-MNIST. Its kernels have 18 million numbers; their factors, of 64 samples, a fraction of that."""
import argparse

import keras
from fashion_mnist import read

import poseidon.keras as poseidon

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("policy", nargs="?", choices=("time", "bytes"), default="time", help="bytes: factors wherever they are fewer bytes")
parser.add_argument("--samples", type=int, default=12800)
options = parser.parse_args()
poseidon.init(policy=options.policy)
keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential([layers.Input((28, 28, 1)), layers.Flatten(), layers.Dense(3072, activation="relu"),
                          layers.Dense(3072, activation="relu"), layers.Dense(3072, activation="relu"), layers.Dense(10)])
model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), metrics=["accuracy"],
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
poseidon.distribute(model)
model.fit(*read("train", options.samples), batch_size=64, verbose=2 if poseidon.rank() == 0 else 0)
if poseidon.rank() == 0:
    for name, (scheme, reason) in poseidon.plan(model).items():
        print(f"{name}: {scheme}, {reason}")
