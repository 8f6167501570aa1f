# SPDX-License-Identifier: Apache-2.0
"""A training script of Keras, whatever its backend, which profiles and jobs are compared of: keras_profiled.py [call FILE]."""
import collections
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.append(str(pathlib.Path(__file__).resolve().parent))

import keras  # noqa: E402
import numpy as np  # noqa: E402

import poseidon.keras as poseidon  # noqa: E402
import profiles  # noqa: E402

BATCH = 16
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def made():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Embedding(3000, 64, name="words"), keras.layers.Flatten(),
                              keras.layers.Dense(512, activation="tanh", name="wide"), keras.layers.Dense(10, name="head")])
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=LOSS)
    return model


def samples(steps):
    source, count = np.random.default_rng(7), steps * BATCH * poseidon.workers()
    return source.integers(0, 3000, (count, 8)), source.integers(0, 10, count)


def train():
    options = {"final_plan_step": 3} if keras.backend.backend() == "tensorflow" else {}
    poseidon.init(policy="bytes", **options)
    model = poseidon.distribute(made())
    model.fit(*samples(1000 if poseidon.workers() == 1 else 8), batch_size=BATCH, verbose=0)
    if poseidon.rank() == 0:
        print(json.dumps(of_job(model)))


def of_job(model):
    if keras.backend.backend() == "tensorflow":
        from poseidon.tensorflow import exchanges
        exchange = exchanges()[0]
        return profiles.of_job(exchange.session, exchange.model, exchange.layers)
    from poseidon.torch import job
    exchange = job.exchanges()[0]
    return profiles.of_job(exchange.session, exchange.model.core.model, exchange.layers)


def call(file):
    """In a notebook; the model trains on as before."""
    poseidon.init()
    model = made()
    with poseidon.profile(model, file, steps=4):
        model.fit(*samples(12), batch_size=BATCH, verbose=0)
    model.fit(*samples(2), batch_size=BATCH, verbose=0)
    assert not {"train_step", "make_train_function"} & set(vars(model)), vars(model)
    try:
        with poseidon.profile(model, file) as profile:
            model.fit(*samples(2), batch_size=BATCH, verbose=0)
            if keras.backend.backend() == "torch":
                spans = profile.measurement.session.take_trace()
                passes = collections.Counter((span.layer, span.step) for span in spans if span.label == "forward")
                assert len(passes) == 6 and min(passes.values()) > 1, passes  # the layer's own, and the update
    except poseidon.PoseidonError as error:
        print(error)


if __name__ == "__main__":
    call(sys.argv[2]) if sys.argv[1:2] == ["call"] else train()
