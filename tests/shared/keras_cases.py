# SPDX-License-Identifier: Apache-2.0
"""Cases of Keras that train the same on every backend: what the workers in tensorflow/ and keras_torch/ share.

A case is a function that trains on `batches`: those of this worker, of 32 samples over all workers together. A worker sets
`batches`, and `width` where its layers may be smaller, and adds cases of its backend.
"""
import os
import tempfile

import keras
import numpy as np

import poseidon.keras as poseidon

ALL = 32  # samples of a step
FEATURES, CLASSES = 20, 10
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SGD = keras.optimizers.SGD
CASES = {}

batches = None  # of a number of steps, and of a function that makes their samples
width = 200  # of a layer whose kernel may go as factors


def case(function):
    CASES[function.__name__] = function
    return function


def samples(steps, more=0):
    source, count = np.random.default_rng(7), steps * ALL + more
    return source.normal(size=(count, FEATURES)).astype("float32"), source.integers(0, CLASSES, count)


def sentences(steps, more=0):
    """Of few words: in a batch many come several times."""
    source, count = np.random.default_rng(7), steps * ALL + more
    return source.integers(0, 50, (count, 6)), source.integers(0, CLASSES, count)


def own_seed():
    keras.utils.set_random_seed(1 + poseidon.rank())  # distribute makes variables equal


def dense_net(*last):
    """Without kinks: where a rounding decides on which side of one a sample is, two workers part from one for good."""
    own_seed()
    return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(width, activation="tanh"), *last,
                             keras.layers.Dense(width, activation="tanh", name="middle"), keras.layers.Dense(CLASSES)])


def fit(model, optimizer, steps, epochs=1, of=samples, callbacks=None, **compiled):
    model.compile(optimizer=optimizer, loss=LOSS, **compiled)
    poseidon.distribute(model)
    model.fit(batches(steps, of), epochs=epochs, verbose=0, callbacks=callbacks)
    return model.variables


def fit_arrays(steps, more=0, epochs=2, callbacks=(), **words):
    """The variables, and what the history says of loss and accuracy, of validation too; and that history."""
    model = dense_net()
    model.compile(optimizer=SGD(0.05, momentum=0.9), loss=LOSS, metrics=["accuracy"])
    poseidon.distribute(model)
    history = model.fit(*samples(steps, more), batch_size=ALL // poseidon.workers(), epochs=epochs, shuffle=False, verbose=0,
                        callbacks=list(callbacks), **words).history
    return [*model.variables, *(np.array(history[name]) for name in sorted(history))], history


class InRank1(keras.callbacks.Callback):
    """Does something after the third batch, in one worker."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 and poseidon.rank() == 1:
            self.act()


# ---- optimizers

@case
def sgd(steps):
    return fit(dense_net(), SGD(0.1, momentum=0.9), steps, epochs=2)


@case
def adam(steps):
    return fit(dense_net(), keras.optimizers.Adam(1e-3), steps)


@case
def adamw_ema_schedule(steps):
    rate = keras.optimizers.schedules.ExponentialDecay(1e-3, 5, 0.9)
    return fit(dense_net(), keras.optimizers.AdamW(rate, weight_decay=0.01, use_ema=True), steps)


@case
def clipnorm(steps):
    return fit(dense_net(), SGD(0.1, clipnorm=0.05), steps)


@case
def global_clipnorm(steps):
    return fit(dense_net(), SGD(0.1, global_clipnorm=0.1), steps)


@case
def accumulation(steps):
    return fit(dense_net(), SGD(0.1, gradient_accumulation_steps=4), steps)


@case
def loss_scale(steps):
    return fit(dense_net(), keras.optimizers.LossScaleOptimizer(SGD(0.1), initial_scale=64.0), steps)


# ---- layers

@case
def attention(steps):
    own_seed()
    inputs = keras.Input((FEATURES,))
    tokens = keras.layers.Reshape((5, 4))(inputs)
    mixed = keras.layers.MultiHeadAttention(2, 8)(tokens, tokens)
    outputs = keras.layers.Dense(CLASSES)(keras.layers.Flatten()(keras.layers.LayerNormalization()(mixed)))
    return fit(keras.Model(inputs, outputs), SGD(0.1), steps)


@case
def thawed_and_compiled_again(steps):
    """Variables that train later are exchanged later."""
    model = dense_net()
    model.get_layer("middle").trainable = False
    fit(model, SGD(0.1), steps)
    model.get_layer("middle").trainable = True
    model.compile(optimizer=SGD(0.05), loss=LOSS)
    model.fit(batches(steps), verbose=0)
    return model.variables


# ---- callbacks

@case
def a_stop_on_one_worker(steps):
    """Ends training on all, after the same epoch."""
    class Stopping(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1 and poseidon.rank() == poseidon.workers() - 1
    return fit_arrays(steps // 5, epochs=4, callbacks=[Stopping()])[0]


@case
def callbacks_that_write(steps):
    """In a folder of each worker's own: only rank 0 writes."""
    with tempfile.TemporaryDirectory() as folder:
        write = [keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras"), keras.callbacks.CSVLogger(f"{folder}/log.csv")]
        variables, _ = fit_arrays(steps // 5, callbacks=write)
        assert sorted(os.listdir(folder)) == (["1.keras", "2.keras", "log.csv"] if poseidon.rank() == 0 else [])
        if poseidon.rank() == 0:
            loaded = keras.models.load_model(f"{folder}/2.keras")
            assert all(np.array_equal(one, other) for one, other in zip(loaded.get_weights(), variables))
    return variables


@case
def restored_after_a_failure(steps):
    """Rank 0's file is everybody's."""
    class Failing(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise ArithmeticError
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit_arrays(steps // 5, 0, 4, [keras.callbacks.BackupAndRestore(folder), Failing()])
        except ArithmeticError:
            pass
        keras.backend.clear_session()
        return fit_arrays(steps // 5, 0, 4, [keras.callbacks.BackupAndRestore(folder)])[0]


# ---- what is refused, and what ends badly

@case
def a_stop_after_a_batch(steps):
    fit(dense_net(), SGD(0.1), steps, callbacks=[keras.callbacks.TerminateOnNaN()])


@case
def weights_that_part(steps):
    class Changing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if poseidon.rank() == 1 and batch == 2:
                self.model.trainable_variables[2].assign_add(self.model.trainable_variables[2] * 0 + 1e-6)
    fit(dense_net(), SGD(0.1), steps, callbacks=[Changing()])


@case
def other_models(steps):
    fit(keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES + poseidon.rank())]), SGD(0.1), steps)


@case
def an_exception_in_a_callback(steps):
    def fail():
        raise ValueError("the disk is full")
    fit(dense_net(), SGD(0.1), steps, callbacks=[InRank1(fail)])
