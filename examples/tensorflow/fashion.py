#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small convolutional net on Fashion-MNIST: a script of Keras with two lines changed."""
import argparse

import keras
from fashion_mnist import read

import poseidon.keras as poseidon

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, help="of the training set, and of the test images; all where it is not given")
options = parser.parse_args()
keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential([
    layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
    layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.3), layers.Dense(128, activation="relu"), layers.Dense(10)])
model.compile(optimizer=keras.optimizers.Adam(1e-3), metrics=["accuracy"],
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model = poseidon.distribute(model)                              # 1
history = model.fit(*read("train", options.samples), validation_data=read("t10k", options.samples), epochs=options.epochs,
                    verbose=2 if poseidon.rank() == 0 else 0,
                    batch_size=128 // poseidon.workers(),       # 2: of each worker
                    callbacks=[keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.CSVLogger("fashion.csv")])
if poseidon.rank() == 0:
    print(f"accuracy on the test images: {history.history['val_accuracy'][-1]:.4f}")
