#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole script: training, evaluation by all workers, a checkpoint after every epoch, and a run that goes on from it.

  poseidon run -n 2 python quickstart.py
"""
import sys

import keras
import numpy as np

import poseidon.keras as poseidon

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


def points(samples, seed):
    """Points of a plane, and in which of three rings each is. The same on all workers."""
    places = np.random.default_rng(seed).standard_normal((samples, 2)).astype("float32")
    distances = np.linalg.norm(places, axis=1)
    return places, (distances > 0.8).astype(int) + (distances > 1.5)


def say(epoch, logs):
    """What all workers' samples together say, of which fit tells every worker; and the weights, which are the same on all."""
    if poseidon.rank() == 0:
        weights = sum(float(weight.sum()) for weight in model.get_weights())
        print(f"epoch {epoch}: {100 * logs['val_accuracy']:.1f} % right, weights sum to {weights:.6f}", flush=True)


keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(3)])
model.compile(optimizer=keras.optimizers.Adam(0.01), metrics=["accuracy"],
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model = poseidon.distribute(model)
places, rings = points(4000, seed=1)
model.fit(places, rings, batch_size=50, epochs=EPOCHS, verbose=0, validation_data=points(1000, seed=2), callbacks=[
    keras.callbacks.BackupAndRestore("quickstart.saved", delete_checkpoint=False),  # weights, optimizer and epoch; written by rank 0
    keras.callbacks.LambdaCallback(on_epoch_end=say)])
