# SPDX-License-Identifier: Apache-2.0
"""Cases of Keras that train the same on every backend: what the workers in tensorflow/ and keras_torch/ share.

A case is a function that trains on `batches`: those of this worker, of 32 samples over all workers together. A worker sets
`batches`, `gradients_of`, and `width` where its layers may be smaller, and adds cases of its backend.
"""
import contextlib
import os
import sys
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
gradients_of = None  # of a net's trainable variables, and of a function that gives a loss
width = 200  # of a layer whose kernel may go as factors


def case(function):
    CASES[function.__name__] = function
    return function


def structure_of(data, part):
    """That of a batch, with what `part` says of each leaf."""
    if isinstance(data, dict):
        return {name: structure_of(within, part) for name, within in data.items()}
    if isinstance(data, (list, tuple)):
        return [type(data).__name__, *(structure_of(within, part) for within in data)]
    return part(data)


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


def fit_of(data, epochs=2, **words):
    model = dense_net()
    model.compile(optimizer=SGD(0.1, momentum=0.9), loss=LOSS)
    poseidon.distribute(model).fit(data, epochs=epochs, verbose=0, **words)
    return model.variables


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


# ---- masks: a loss is each worker's mean over its own valid steps, and gradients are means of the workers' by their samples

LENGTH = 6  # of a sequence
MASKED_STEPS = 15


def valid_steps(count):
    """1 where a sequence goes on. Those in the first half of a step are much shorter than those in the second: the mean over
    the shares and the mean over all are far apart."""
    shorter = np.arange(count) % ALL < ALL // 2
    lengths = np.random.default_rng(8).integers(1, 3, count) + np.where(shorter, 0, LENGTH - 2)
    return (np.arange(LENGTH) < lengths[:, None]).astype("float32")


def masked_words(steps, more=0):
    """The last samples are shared as 16 and 5."""
    source, count = np.random.default_rng(7), steps * ALL + 21
    words = source.integers(1, 50, (count, LENGTH)) * valid_steps(count).astype("int64")
    return words, source.integers(0, CLASSES, (count, LENGTH))


def masked_and_weighted_rows(steps, more=0):
    """Weights are of steps."""
    source, count = np.random.default_rng(7), steps * ALL + 21
    rows = source.normal(size=(count, LENGTH, 4)).astype("float32") * valid_steps(count)[:, :, None]
    weights = source.uniform(0.1, 3, (count, LENGTH)).astype("float32")
    return rows, source.integers(0, CLASSES, (count, LENGTH)), weights


def loss_over_valid(net, x, y, weights):
    valid = keras.ops.cast(x != 0, "float32")
    valid = valid if len(valid.shape) == 2 else keras.ops.max(valid, axis=2)
    each = keras.losses.sparse_categorical_crossentropy(y, net(x, training=True), from_logits=True)
    return keras.ops.sum(each * valid * (1 if weights is None else weights)) / keras.ops.sum(valid)


def fit_masked(make, of):
    """One worker keeps the shares of two apart. The mean over all valid steps, which one batch of all has, ends elsewhere."""
    own_seed()
    net = make()
    if poseidon.workers() > 1:
        return fit(net, SGD(0.5, momentum=0.9), MASKED_STEPS, of=of)
    optimizer = SGD(0.5, momentum=0.9)
    for x, y, *weights in batches(MASKED_STEPS, of):
        shares = [slice(0, ALL // 2), slice(ALL // 2, len(x))]
        gradients = [gradients_of(net, lambda: loss_over_valid(net, x[share], y[share], weights[0][share] if weights else None))
                     for share in shares]
        counts = [len(x[share]) for share in shares]
        means = [sum(count * one for count, one in zip(counts, of_shares)) / sum(counts) for of_shares in zip(*gradients)]
        optimizer.apply(means, net.trainable_variables)
    own_seed()
    over_all = fit(make(), SGD(0.5, momentum=0.9), MASKED_STEPS, of=of)
    assert max(np.abs(np.array(one) - np.array(other)).max() for one, other in zip(net.variables, over_all)) > 0.01
    return net.variables


@case
def masked(steps):
    return fit_masked(lambda: keras.Sequential([
        keras.layers.Input((LENGTH,), dtype="int32"), keras.layers.Embedding(50, 8, mask_zero=True),
        keras.layers.LSTM(12, return_sequences=True), keras.layers.Dense(CLASSES)]), masked_words)


@case
def masked_and_weighted(steps):
    return fit_masked(lambda: keras.Sequential([
        keras.layers.Input((LENGTH, 4)), keras.layers.Masking(), keras.layers.LSTM(12, return_sequences=True),
        keras.layers.Dense(CLASSES)]), masked_and_weighted_rows)


@case
def sums_and_weighted_means(steps):
    """That are the same in one process: sums by weights of the loss, and means of weights that are 1. By weights of other samples the
    second fit has another mean, which is said; it changes nothing here."""
    model = dense_net()
    x, y = samples(steps)
    at_once = ALL // poseidon.workers()
    losses = keras.losses.SparseCategoricalCrossentropy
    for words in ({"loss": losses(True, reduction="sum"), "loss_weights": 1 / at_once},
                  {"loss": losses(True, reduction="mean_with_sample_weight")}):
        model.compile(optimizer=SGD(0.05), **words)
        poseidon.distribute(model).fit(x, y, batch_size=at_once, shuffle=False, verbose=0, sample_weight=np.ones(len(x)))
    ends = [np.array(variable) for variable in model.variables]
    model.compile(optimizer=SGD(0.0), loss=losses(True, reduction="sum"))
    for _ in range(2):
        model.fit(x, y, batch_size=at_once, verbose=0)
    return ends


# ---- PyDatasets and generators

class Numbered(keras.utils.PyDataset):
    """Batches of arrays, which fit is given for all workers. Counts the ends of epochs."""

    def __init__(self, arrays, **words):
        super().__init__(**words)
        self.arrays, self.size, self.ended = arrays, ALL // poseidon.workers(), 0

    def __len__(self):
        return -(-len(self.arrays[0]) // self.size)

    def __getitem__(self, index):
        return tuple(array[index * self.size:(index + 1) * self.size] for array in self.arrays)

    def on_epoch_end(self):
        self.ended += 1


@case
def batches_by_number_read_once(steps):
    """In each epoch, by one worker or by all; of the last batch, which is left over, all have a share."""
    class Counting(Numbered):
        def __getitem__(self, index):
            if noting:
                read.append(index)
            return super().__getitem__(index)
    read, noting = [], True
    data = Counting(samples(2, ALL // 2))
    ends = fit_of(data, epochs=2)
    noting = False
    whole = len(data) - len(data) % poseidon.workers()
    mine = [number for number in range(len(data)) if number >= whole or number % poseidon.workers() == poseidon.rank()]
    if poseidon.workers() > 1:
        assert sorted(number for number in read if number >= whole) == [number for number in mine if number >= whole for _ in range(2)], read
        assert 0 <= len(read) - 2 * len(mine) <= 2, read  # TensorFlow's loop looks at two before
    return ends


class Endless(Numbered):
    """Begins anew at its end."""
    num_batches = None

    def __getitem__(self, index):
        return super().__getitem__(index % len(self))


def stream(arrays):
    """A generator of batches."""
    of_all = Numbered(arrays)
    for index in range(len(of_all)):
        yield of_all[index]


@case
def batches_by_number(steps):
    """Given to fit as they are; the last batches have 16 samples and 5."""
    numbered = Numbered(samples(steps, 21))
    variables = fit_of(numbered, shuffle=False)
    assert numbered.ended >= 2
    return variables


@case
def batches_by_number_sharded(steps):
    """The last batch of 5 is divided."""
    return fit_of(poseidon.shard(Numbered(samples(steps, 5))), shuffle=False)


@case
def batches_by_number_too_few_left_over(steps):
    """One sample is nobody's."""
    given = steps * ALL + poseidon.workers() - 1
    return fit_of(poseidon.shard(Numbered([array[:given] for array in samples(steps, 1)])), shuffle=False)


def several(**words):
    """Where there are several workers: on torch Keras hands some of the first batches out twice to threads."""
    return words if poseidon.workers() > 1 else {}


@case
def batches_by_number_in_threads(steps):
    return fit_of(Numbered(samples(steps, 5), **several(workers=3)), shuffle=False)


@case
def batches_by_number_in_processes(steps):
    return fit_of(Numbered(samples(steps, 5), **several(workers=2, use_multiprocessing=True)), shuffle=False)


@case
def batches_by_number_weighted_by_class(steps):
    return fit_of(Numbered(samples(steps)), shuffle=False, class_weight={one: 1 + one / CLASSES for one in range(CLASSES)})


@case
def batches_by_number_without_an_end(steps):
    return fit_of(Endless(samples(steps)), epochs=3, steps_per_epoch=steps // 2)


@case
def epochs_of_another_length(steps):
    """An epoch ends in the middle of the batches, the next one goes on there."""
    return fit_of(Numbered(samples(steps)), epochs=2, steps_per_epoch=steps // 2, shuffle=False)


@case
def a_generator(steps):
    """Its last batches have 16 samples and 5."""
    return fit_of(stream(samples(steps, 21)), epochs=1)


@case
def a_generator_sharded(steps):
    """Its last batch of 5 is divided."""
    return fit_of(poseidon.shard(stream(samples(steps, 5))), epochs=1)


@case
def a_generator_in_epochs(steps):
    return fit_of(stream(samples(steps)), epochs=2, steps_per_epoch=steps // 2)


class Seen(keras.Model):
    """Keeps what it is trained on, in steps that run eagerly."""

    def __init__(self):
        inputs = keras.Input((1,))
        super().__init__(inputs, keras.layers.Dense(1)(keras.layers.Rescaling(1 / ALL)(inputs)))
        self.seen = []

    def train_step(self, data):
        self.seen.append(keras.ops.convert_to_numpy(data[0]).reshape(-1))
        return super().train_step(data)

    def fit_seen(self, *data, **words):
        """The samples of two epochs, as they came."""
        self.compile(optimizer=SGD(1e-6), loss="mse", run_eagerly=True)
        poseidon.distribute(self).fit(*data, epochs=2, verbose=0, **words)
        return np.concatenate(self.seen)


def counted(steps):
    """Samples that are numbers."""
    x = np.arange(steps * ALL).reshape(-1, 1).astype("float32")
    return x, x


def save_seen(name, seen):
    """By case; beside what the case returns."""
    np.savez(f"{sys.argv[1]}-seen-{name}-{poseidon.rank()}.npz", *seen)


@case
def shuffled_by_number(steps):
    """By fit, in this thread and in others: in an epoch every batch comes once, on one worker."""
    models = [Seen(), Seen()]
    seen = [model.fit_seen(Numbered(counted(steps), workers=threads)) for threads, model in enumerate(models, 1)]
    save_seen("shuffled_by_number", seen)
    return [variable for model in models for variable in model.variables]


# ---- callbacks

@case
def a_stop_on_one_worker(steps):
    """Ends training on all, after the same epoch."""
    class Stopping(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1 and poseidon.rank() == poseidon.workers() - 1
    return fit_arrays(steps // 5, epochs=4, callbacks=[Stopping()])[0]


@case
def a_stop_after_a_batch(steps):
    """Of one worker, whose own loss decides: all stop after it."""
    class Stopping(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch >= 3 + 2 * (poseidon.workers() - 1 - poseidon.rank())
    return fit(dense_net(), SGD(0.1), steps, epochs=2, callbacks=[Stopping()])


@case
def a_stop_by_nan(steps):
    """In the last sample of the third step, which only the last worker has."""
    def with_one(steps, more=0):
        x, y = samples(steps)
        x[3 * ALL - 1] = np.nan
        return x, y
    model = dense_net()
    fit(model, SGD(0.1), steps, epochs=2, of=with_one, callbacks=[keras.callbacks.TerminateOnNaN()])
    return [np.array(model.optimizer.iterations)]


@case
def callbacks_that_write(steps):
    """In a folder of each worker's own: only rank 0 writes."""
    with tempfile.TemporaryDirectory() as folder:
        write = [keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras", monitor="loss"),
                 keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras", monitor="loss", save_best_only=True),
                 keras.callbacks.CSVLogger(f"{folder}/log.csv")]
        variables, history = fit_arrays(steps // 5, callbacks=write)
        assert write[1].best == min(history["loss"])
        assert sorted(os.listdir(folder)) == (["1.keras", "2.keras", "log.csv"] if poseidon.rank() == 0 else [])
        if poseidon.rank() == 0:
            loaded = keras.models.load_model(f"{folder}/2.keras")
            assert all(np.array_equal(one, other) for one, other in zip(loaded.get_weights(), variables))
    return variables


@case
def loaded_by_rank_0(steps):
    """A checkpoint, which no other worker has: its weights go to all."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/model.weights.h5"
        fit(dense_net(), SGD(0.05), steps, callbacks=[keras.callbacks.ModelCheckpoint(file, save_weights_only=True)])
        keras.backend.clear_session()
        model = dense_net()
        if poseidon.rank() == 0:
            model.load_weights(file)
        return fit(model, SGD(0.05), steps)


@case
def restored_after_a_failure(steps):
    """Rank 0's file is everybody's, in a folder of each worker's own."""
    class Failing(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise ArithmeticError
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit_arrays(steps // 5, 0, 4, [keras.callbacks.BackupAndRestore(folder), Failing()])
        except ArithmeticError:
            assert bool(os.listdir(folder)) == (poseidon.rank() == 0)
        keras.backend.clear_session()
        return fit_arrays(steps // 5, 0, 4, [keras.callbacks.BackupAndRestore(folder)])[0]


def goes_on(steps, *more):
    """The ends of fits that were stopped in their third epoch and restored: on several workers with the bits of fits that were not. By
    arrays, by a PyDataset, and by `more`, each of which makes the arguments of a fit of samples."""
    class Failing(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise ArithmeticError

    def of_arrays(data):
        return {"x": data[0], "y": data[1], "batch_size": ALL // poseidon.workers()}

    def of_batches(data):
        return {"x": Numbered(data, workers=2)}

    def ended(make, *callbacks):
        keras.backend.clear_session()
        own_seed()
        # So small that no gradient goes as factors, which a plan of measured times would change between two fits.
        model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(30, activation="tanh"), keras.layers.Dense(CLASSES)])
        model.compile(optimizer=SGD(0.05, momentum=0.9), loss=LOSS)
        poseidon.distribute(model)
        model.fit(**make(samples(steps // 5, 5)), epochs=4, verbose=0, callbacks=list(callbacks))
        return [np.array(variable) for variable in model.variables]
    ends = []
    for make in of_arrays, of_batches, *more:
        whole = ended(make)
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(ArithmeticError):
                ended(make, keras.callbacks.BackupAndRestore(folder), Failing())
            after = ended(make, keras.callbacks.BackupAndRestore(folder))
        assert poseidon.workers() == 1 or all(np.array_equal(one, other) for one, other in zip(whole, after, strict=True)), make
        ends += after
    return ends


# ---- what is refused, and what ends badly

@case
def a_list_of_batches(steps):
    poseidon.shard([samples(1)] * steps)


@case
def a_batch_for_one(steps):
    fit_of(Numbered([array[:1] for array in samples(1)]))




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
