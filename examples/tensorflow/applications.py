#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A net of keras.applications with random weights on small random images: images a second, and on several workers its plan, how much of
the exchange is hidden, and a trace of a few steps (InceptionV3.json) for Perfetto.

  applications.py [InceptionV3 | VGG19 | VGG19-22K | ResNet152] [STEPS]

VGG19-22K is VGG19 with the 21,841 classes of ImageNet-22K: 229 million parameters on images of 224x224, 128 million on those here.
"""
import sys
import time

import keras
import numpy as np

import poseidon.keras as poseidon
from poseidon import tensorflow

SIZES = {"InceptionV3": 75, "VGG19": 32, "VGG19-22K": 32, "ResNet152": 32}
CLASSES = {"VGG19-22K": 21_841}
BATCH = 2  # images of every worker


class Clock(keras.callbacks.Callback):
    """Of the last epoch, in which the final plan holds and nothing is traced."""

    def on_epoch_begin(self, epoch, logs=None):
        tensorflow.joined().reset_timings()
        self.began = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.monotonic() - self.began
        self.known = tensorflow.joined().statistics()

    def images_a_second(self, images):
        """Of all workers. Several compare all weights at the end of an epoch, which is no part of a step."""
        steps = self.known.measured_steps
        return BATCH * poseidon.workers() * steps / self.known.measured_seconds if steps else images / self.seconds


def main():
    name, steps = (sys.argv[1:] + ["InceptionV3"])[0], int((sys.argv[2:] + ["12"])[0])
    poseidon.init(trace_spans=500_000)
    keras.utils.set_random_seed(1)
    size, clock = SIZES[name], Clock()
    classes = CLASSES.get(name, 100)
    model = getattr(keras.applications, name.split("-")[0])(weights=None, classes=classes, input_shape=(size, size, 3))
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="sparse_categorical_crossentropy")
    poseidon.distribute(model)
    draw = np.random.default_rng(1)  # the same on all workers, of which fit gives each its part
    images, labels = draw.normal(size=(BATCH * steps, size, size, 3)).astype("float32"), draw.integers(0, classes, BATCH * steps)
    model.fit(images, labels, batch_size=BATCH, epochs=3, shuffle=False,
              verbose=0, callbacks=[clock])
    if poseidon.rank() == 0:
        print(f"{name}: {clock.images_a_second(len(images)):.2f} images a second on {poseidon.workers()} workers, "
              f"{model.count_params() / 1e6:.1f} million parameters")
    if poseidon.workers() == 1:
        return
    few = 5 * BATCH * poseidon.workers()
    with poseidon.trace(f"{name}.json"):
        model.fit(images[:few], labels[:few], batch_size=BATCH, shuffle=False, verbose=0)
    if poseidon.rank() == 0:
        plan = poseidon.plan(model)
        for layer, (scheme, reason) in plan.items():
            if scheme != "kv" or "not a product" not in reason:
                print(f"{layer}: {scheme}, {reason}")
        schemes, of_last = [scheme for scheme, _ in plan.values()], steps // poseidon.workers()
        print(f"{name}: {len(model.trainable_variables)} variables in {len(plan)} layers, {schemes.count('kv')} by kv and "
              f"{schemes.count('sfb')} by sfb")
        for exchange in tensorflow.exchanges():
            dense, planned = exchange.bytes_of_plan()
            print(f"a worker sends {dense / 1e6:.1f} MB a step, were all gradients sent whole, "
                  f"{planned / 1e6:.1f} MB as planned")
        busy, waited = 1000 * clock.known.busy_seconds / of_last, 1000 * clock.known.waited_seconds / of_last
        print(f"the last epoch took {clock.seconds:.1f} s: {of_last} steps and a comparison of all weights; in a step "
              f"layers were on their way for {busy:.0f} ms, {waited:.0f} ms waiting; {100 * clock.known.hidden_share:.0f} % hidden")


if __name__ == "__main__":
    main()
