# SPDX-License-Identifier: Apache-2.0
"""One worker, or the only one, trains cases of Keras and TensorFlow, and saves the variables and the plans after each.

  worker.py RESULT STEPS CASE...

A case is a function that trains on `batches`: those of this worker, of 32 samples over all workers together. The variable
POSEIDON_TEST_INIT has arguments of init, as JSON.
"""
import contextlib
import io
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ON_GPU = os.environ.get("POSEIDON_TEST_DEVICE") == "cuda"
if ON_GPU:
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # workers share it
else:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # whose products depend on the number of rows
os.environ["COLUMNS"] = "1000"  # a report's table has a line a layer

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import context as tf_context  # noqa: E402

import poseidon.keras as poseidon  # noqa: E402
from poseidon import tensorflow as in_loops  # noqa: E402

if ON_GPU:
    tf.config.experimental.enable_tensor_float_32_execution(False)
    assert "GPU" in tf.Variable(1.0).device, "variables are not on the GPU"

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))
import keras_cases  # noqa: E402
from keras_cases import (ALL, CASES, CLASSES, FEATURES, LOSS, SGD, InRank1, Seen, an_exception_in_a_callback, case,  # noqa: E402
                         dense_net, fit, fit_arrays, fit_of, goes_on, own_seed, samples, save_seen, sentences)


def batches(steps, of=samples):
    """This worker's."""
    return poseidon.shard(tf.data.Dataset.from_tensor_slices(of(steps)).batch(ALL // poseidon.workers()))


def gradients_of(net, loss):
    with tf.GradientTape() as tape:
        value = loss()
    return list(map(tf.convert_to_tensor, tape.gradient(value, net.trainable_variables)))


keras_cases.batches, keras_cases.gradients_of = batches, gradients_of
import keras_forms  # noqa: E402, F401  # has a case


class Pair(keras.Model):
    """Two nets, each with an optimizer of its own, as a GAN has; neither is the one of compile."""

    def __init__(self, one, other, first, second):
        super().__init__()
        self.one, self.other, self.first, self.second = one, other, first, second

    def call(self, x):
        return self.one(x) + self.other(x)

    def train_step(self, data):
        x, y = data
        for net, optimizer in ((self.one, self.first), (self.other, self.second)):
            with tf.GradientTape() as tape:
                loss = LOSS(y, net(x))
            variables = net.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@case
def clipvalue(steps):
    return fit(dense_net(), SGD(0.1, clipvalue=0.003), steps)


@case
def several_steps_an_execution(steps):
    return fit(dense_net(), SGD(0.1, momentum=0.9), steps, steps_per_execution=4)


@case
def eagerly(steps):
    return fit(dense_net(), SGD(0.1, momentum=0.9), steps, run_eagerly=True)


@case
def distributed_before_compile(steps):
    model = poseidon.distribute(dense_net())
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    model.fit(batches(steps), verbose=0)
    poseidon.check(model)
    return model.variables


@case
def train_on_batch(steps):
    model = dense_net()
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    poseidon.distribute(model)
    for x, y in batches(steps):
        model.train_on_batch(x, y)
    model.compile(optimizer=SGD(0.1), loss=LOSS, run_eagerly=True)
    for x, y in batches(1).as_numpy_iterator():
        model.train_on_batch(x, y)
    return model.variables


@case
def frozen_and_shared(steps):
    own_seed()
    shared = keras.layers.Dense(40, activation="relu", name="shared")
    left, right = keras.Input((FEATURES,)), keras.layers.Dense(FEATURES, name="frozen", trainable=False)
    joined = keras.layers.Concatenate()([shared(left), shared(right(left))])
    return fit(keras.Model(left, keras.layers.Dense(CLASSES)(joined)), SGD(0.1), steps)


@case
def a_loss_added_by_a_layer(steps):
    class Small(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(x * x))
            return x
    own_seed()
    model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(200, activation="tanh", kernel_regularizer="l2"),
                              Small(), keras.layers.Dense(200, activation="tanh", kernel_regularizer="l2"),
                              keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.1), steps)


@case
def a_scalar_and_one_name_twice(steps):
    class Scaled(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(), initializer=keras.initializers.Constant(1.0 + poseidon.rank()), name="w")
            self.shift = self.add_weight(shape=(CLASSES,), initializer="zeros", name="w")
            self.net = dense_net()

        def call(self, x):
            return self.scale * self.net(x) + self.shift
    return fit(Scaled(), SGD(0.1), steps)


@case
def on_three_axes(steps):
    """Dense kernels whose gradients are products of reshaped tensors, in a model inside another."""
    def rows(steps):
        x, y = samples(steps)
        return x.reshape(-1, 4, 5), y
    own_seed()
    inside = keras.Sequential([keras.layers.Input((4, 180)), keras.layers.Dense(190, activation="tanh")])
    model = keras.Sequential([keras.layers.Input((4, 5)), keras.layers.Dense(180), inside, keras.layers.Flatten(),
                              keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.1), steps, of=rows)


@case
def a_kernel_used_twice(steps):
    own_seed()
    inputs, twice = keras.Input((FEATURES,)), keras.layers.Dense(200, activation="tanh")
    inside = twice(twice(keras.layers.Dense(200)(inputs)))
    return fit(keras.Model(inputs, keras.layers.Dense(CLASSES)(inside)), SGD(0.1), steps)


@case
def regularized(steps):
    """Large kernels with terms of their own, one of them used twice; the last batches differ in size."""
    own_seed()
    layer = lambda: keras.layers.Dense(200, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01))
    inputs, twice = keras.Input((FEATURES,)), layer()
    inside = twice(twice(layer()(keras.layers.Dense(200)(inputs))))
    return fit(keras.Model(inputs, keras.layers.Dense(CLASSES)(inside)), SGD(0.1, momentum=0.9), steps,
               of=lambda steps: samples(steps, more=21))


@case
def regularized_otherwise(steps):
    """By products of the kernel with itself, and scaled with the loss: such gradients go whole."""
    own_seed()
    layer = lambda kind: keras.layers.Dense(200, activation="tanh", kernel_regularizer=kind)
    model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(200),
                              layer(keras.regularizers.OrthogonalRegularizer(1e-3)), layer("l2"), keras.layers.Dense(CLASSES)])
    return fit(model, keras.optimizers.LossScaleOptimizer(SGD(0.1), initial_scale=64.0), steps)


@case
def regularized_in_executions(steps):
    own_seed()
    model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(200),
                              keras.layers.Dense(200, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.1), steps, steps_per_execution=4)


@case
def a_short_last_batch(steps):
    """Of two workers the second has 5 samples in the last step, the first 16."""
    return fit(dense_net(), SGD(0.1, momentum=0.9), steps, epochs=2, of=lambda steps: samples(steps, more=21))


@case
def a_batch_left_over(steps):
    """The last 5 samples are one step of all workers."""
    return fit(dense_net(), SGD(0.1, momentum=0.9), steps, epochs=2, of=lambda steps: samples(steps, more=5))


@case
def arrays(steps):
    """Their metrics and those of the validation are of all samples, each counted once."""
    return fit_arrays(steps, 5, 2, validation_data=samples(1, more=9))[0]


@case
def arrays_with_a_validation_split(steps):
    return fit_arrays(steps, 21, 2, validation_split=0.1)[0]


@case
def callbacks_that_decide(steps):
    """Both by metrics of all workers: the rate falls, and training stops, in the same epoch."""
    decide = [keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=1.0),
              keras.callbacks.EarlyStopping(monitor="val_loss", patience=4, min_delta=1.0, restore_best_weights=True)]
    variables, history = fit_arrays(steps // 5, 5, 20, decide, validation_data=samples(1, more=9))
    assert len(history["loss"]) == 5 and history["learning_rate"][-1] < 0.01, history
    return variables


@case
def a_callback_on_batches(steps):
    """Reads weights and sets the rate: updates are not late then."""
    class Acting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weight = self.model.trainable_variables[0].numpy()
            assert not np.array_equal(weight, getattr(self, "before", None))
            self.before = weight
            self.model.optimizer.learning_rate = 0.1 / (1 + batch)
    return fit_arrays(steps, 0, 1, [Acting()])[0]


@case
def evaluated_and_saved(steps):
    """After every epoch, by callbacks: what they see are the weights after the last step."""
    class Looking(keras.callbacks.Callback):
        seen = []

        def on_epoch_end(self, epoch, logs=None):
            self.model.save("looked.keras")  # of all workers, at once
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.model.summary()
            assert bool(printed.getvalue()) == (poseidon.rank() == 0)
            self.seen += [*self.model.evaluate(*samples(1), verbose=0), *self.model.predict(samples(1)[0], verbose=0).reshape(-1)]
    Looking.seen = []
    variables, _ = fit_arrays(steps // 5, 0, 3, [Looking()])
    loaded = keras.models.load_model("looked.keras")
    assert all(np.array_equal(one, other) for one, other in zip(loaded.get_weights(), variables))
    return [*variables, np.array(Looking.seen)]


# ---- the order of a tf.data set

Dataset = tf.data.Dataset


def in_batches(dataset):
    """Without the thread that tunes buffers, which the end of an epoch may wait for: see docs/keras/limits.md."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.batch(ALL // poseidon.workers()).with_options(options)


def parts(count, of_part):
    """`count` numbers in four parts, each a data set that `of_part` may give another order."""
    return Dataset.range(4).interleave(lambda part: of_part(Dataset.range(part * count // 4, (part + 1) * count // 4)))


@case
def goes_on_after_a_failure(steps):
    return goes_on(steps)


@case
def shuffled_by_seeds(steps):
    """In an epoch every sample comes once, on one worker, however the data set is shuffled, also of a batch that is left over."""
    count, own = steps // 5 * ALL + 5, (poseidon.workers(), poseidon.rank())
    keras.utils.set_random_seed(1)
    numbers, shuffled_parts = Dataset.range(count), parts(count, lambda part: part.shuffle(count, seed=2))
    divided = [poseidon.shard(in_batches(numbers.shuffle(count, seed=1))),
               poseidon.shard(in_batches(numbers.shuffle(count))),  # by the global seed
               poseidon.shard(in_batches(shuffled_parts.shuffle(2, seed=1).apply(tf.data.experimental.assert_cardinality(count)))),
               in_batches(numbers.shuffle(count, seed=1)).shard(*own)]
    tf.random.set_seed(None)
    divided.append(in_batches(numbers.shard(*own).shuffle(count)))  # of each worker's own samples
    model = Seen()
    seen = model.fit_seen(divided[0].map(lambda x: (tf.cast(x[:, None], tf.float32),) * 2))
    save_seen("shuffled_by_seeds", [seen, *(np.concatenate([batch for _ in range(2) for batch in one.as_numpy_iterator()])
                                            for one in divided[1:])])
    return model.variables


def of_unknown_kind():
    def fail():
        raise NotImplementedError
    dataset = Dataset.range(100)
    dataset._inputs = fail
    return dataset


def without_order(dataset):
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


def other_seeds():
    keras.utils.set_random_seed(1 + poseidon.rank())
    try:
        return Dataset.range(100).shuffle(8, seed=1)
    finally:
        tf.random.set_seed(None)


# Data sets, each by what is said of it.
ORDERS = {
    "none": lambda: Dataset.range(100),
    "seeded": lambda: Dataset.range(100).shuffle(8, seed=0, reshuffle_each_iteration=False).repeat(2),
    "unknown": of_unknown_kind,
    "in_threads": lambda: Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2),
    "several_seeded": lambda: Dataset.sample_from_datasets([Dataset.range(50)] * 2, seed=3),
    "random_numbers_beside": lambda: Dataset.zip((Dataset.range(100), Dataset.random())).map(lambda x, y: x),
    "unseeded": lambda: Dataset.range(100).shuffle(8),
    "unseeded_once": lambda: Dataset.range(100).shuffle(8, reshuffle_each_iteration=False).cache().map(lambda x: x).prefetch(1),
    "unseeded_within": lambda: parts(100, lambda part: part.shuffle(8)),
    "unseeded_far_within": lambda: parts(100, lambda part: part.flat_map(lambda x: Dataset.range(x, x + 1).shuffle(8))),
    "unseeded_files": lambda: Dataset.list_files(f"{os.path.dirname(__file__)}/*.py"),
    "unseeded_in_one_of_two": lambda: Dataset.range(100).concatenate(Dataset.range(100).shuffle(8)),
    "unseeded_of_the_first_api": lambda: tf.compat.v1.data.Dataset.range(100).shuffle(8),
    "several_unseeded": lambda: Dataset.sample_from_datasets([Dataset.range(50)] * 2),
    "overtaking": lambda: Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2, deterministic=False),
    "overtaking_by_options": lambda: without_order(Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2)),
    "overtaking_within": lambda: parts(100, lambda part: part.map(lambda x: x, num_parallel_calls=2, deterministic=False)),
    "other_seeds": other_seeds,
    "other_seeds_within": lambda: parts(100, lambda part: part.shuffle(8, seed=poseidon.rank())),
    "shuffled_on_one": lambda: Dataset.range(100).shuffle(8, seed=1) if poseidon.rank() == 1 else Dataset.range(100)}


@case
def orders(steps):
    """What is said of each by shard, and by fit where Dataset.shard has divided it."""
    said = {}
    tf.random.set_seed(None)

    def note(name, take):
        try:
            take()
            said[name] = None
        except poseidon.PoseidonError as refused:
            said[name] = str(refused)
    for name, make in ORDERS.items():
        note(name, lambda: poseidon.shard(make().apply(tf.data.experimental.assert_cardinality(100)).batch(5)))
    both = in_batches(Dataset.from_tensor_slices(samples(4)))
    divided = in_batches(Dataset.from_tensor_slices(samples(4)).shuffle(8)).shard(poseidon.workers(), poseidon.rank())
    of_first_api = in_batches(tf.compat.v1.data.Dataset.from_tensor_slices(samples(4))).shard(poseidon.workers(), poseidon.rank())
    uneven = in_batches(Dataset.from_tensor_slices(samples(4))).filter(lambda x, y: True)
    note("uneven_for_fit", lambda: fit_of(uneven.shard(poseidon.workers(), poseidon.rank()), epochs=1))
    note("filtered_after_shard", lambda: fit_of(poseidon.shard(both).filter(lambda x, y: True).prefetch(1), epochs=1))
    note("divided_in_the_first_api", lambda: fit_of(of_first_api, epochs=1))
    note("unseeded_for_fit", lambda: fit_of(divided, epochs=1))
    note("unseeded_for_validation", lambda: fit_of(poseidon.shard(both), epochs=1, validation_data=divided))
    note("each_workers_own", lambda: fit_of(in_batches(Dataset.from_tensor_slices(samples(4)).shuffle(8)).shard(1, 0)))
    with open(f"{sys.argv[1]}-said-orders-{poseidon.rank()}.json", "w") as file:
        json.dump(said, file)


@case
def a_board_is_written(steps):
    """What TensorBoard reads of rank 0 are the means over all workers."""
    with tempfile.TemporaryDirectory() as folder:
        variables, history = fit_arrays(steps // 5, 5, 2, [keras.callbacks.TensorBoard(folder)], validation_data=samples(1, more=9))
        if poseidon.rank() > 0:
            assert not os.listdir(folder)
            return variables
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        for part, prefix in ("train", ""), ("validation", "val_"):
            events = EventAccumulator(f"{folder}/{part}").Reload()
            for name in "loss", "accuracy":
                read = [float(tf.make_ndarray(event.tensor_proto)) for event in events.Tensors(f"epoch_{name}")]
                assert np.allclose(read, history[prefix + name], rtol=1e-6), (read, history)
    return variables


@case
def per_share(steps):
    """BatchNorm and Dropout are of each worker's own samples. The reference has a model for each share, and means of their
    gradients; at the end of the epoch means of their moving statistics."""
    def net(share):
        keras.utils.set_random_seed(3)
        return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(40), keras.layers.BatchNormalization(),
                                 keras.layers.Activation("tanh"), keras.layers.Dropout(0.3, seed=share),
                                 keras.layers.Dense(CLASSES)])
    if poseidon.workers() > 1:
        return fit(net(poseidon.rank()), SGD(0.1), steps)
    nets, optimizers = [net(0), net(1)], [SGD(0.1), SGD(0.1)]
    for x, y in batches(steps):
        halves = [slice(number * ALL // 2, (number + 1) * ALL // 2) for number in range(2)]
        gradients = [gradients_of(one, lambda: LOSS(y[half], one(x[half], training=True))) for half, one in zip(halves, nets)]
        for one, optimizer in zip(nets, optimizers):
            optimizer.apply([(first + second) / 2 for first, second in zip(*gradients)], one.trainable_variables)
    for first, second in zip(*(one.non_trainable_variables for one in nets)):
        if "seed_generator" not in first.path:
            first.assign((first + second) / 2)
    return nets[0].variables


def train_halves(model, steps, choose):
    """On those batches of both halves that `choose` takes."""
    poseidon.distribute(model).fit(choose(batches(2 * steps)), verbose=0)
    return model.variables


def compiled_net():
    model = dense_net()
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=LOSS)
    return model


@case
def the_first_half(steps):
    model = compiled_net()
    train_halves(model, steps, lambda halves: halves.take(steps))
    if poseidon.rank() == 0:
        model.save("half.keras")


@case
def the_second_half(steps):
    return train_halves(keras.models.load_model("half.keras"), steps, lambda halves: halves.skip(steps))


@case
def both_halves(steps):
    return train_halves(compiled_net(), steps, lambda halves: halves)


@case
def a_model_built_in_its_first_step(steps):
    """By a step of its own: no call of the model would."""
    class Late(Pair):
        def call(self, x):
            return self.one(x)
    built = dense_net()
    late = keras.Sequential([keras.layers.Dense(30, activation="tanh"), keras.layers.Dense(CLASSES)])
    pair = Late(built, late, SGD(0.1), SGD(0.05))
    fit(pair, "rmsprop", steps)
    return pair.variables


@case
def a_variable_made_in_a_step(steps):
    model = keras.Sequential([keras.layers.Dense(CLASSES)])
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    poseidon.distribute(model).train_on_batch(*samples(1))


@case
def arrays_that_differ(steps):
    """As those of a split without a seed."""
    x, y = samples(steps)
    chosen = np.random.default_rng(poseidon.rank()).permutation(len(x))[:ALL]
    fit_of(x[chosen], y=y[chosen])


def fit_words(optimizer, steps, more=0, **words):
    own_seed()
    model = keras.Sequential([keras.layers.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8), keras.layers.Flatten(),
                              keras.layers.Dense(40, activation="tanh"), keras.layers.Dense(CLASSES)])
    variables = fit(model, optimizer, steps, of=lambda steps: sentences(steps, more), **words)
    if poseidon.workers() > 1:
        assert any(scheme == "sfb" for scheme, _ in in_loops.exchanges()[-1].plan().values()), in_loops.exchanges()[-1].plan()
        *_, table = (line for line in poseidon.report().splitlines() if "embedding/embeddings" in line)
        assert "  rows  " in table and " 0 B " not in table, table
    return variables


@case
def embedding(steps):
    own_seed()
    model = keras.Sequential([keras.layers.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8),
                              keras.layers.LSTM(12, return_sequences=True), keras.layers.GRU(12), keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.5), steps, of=sentences)


@case
def embedding_sgd(steps):
    return fit_words(SGD(0.2, momentum=0.9), steps, epochs=2)


@case
def embedding_adam(steps):
    return fit_words(keras.optimizers.Adam(1e-3), steps)


@case
def embedding_clipnorm(steps):
    """Keras takes the norm of rows that are not merged, which is smaller where some point another way."""
    return fit_words(SGD(0.5, clipnorm=0.05), steps)


@case
def embedding_several_steps_an_execution(steps):
    return fit_words(SGD(0.5, clipnorm=0.05), steps, steps_per_execution=4)


@case
def embedding_uneven(steps):
    return fit_words(SGD(0.2, momentum=0.9), steps, more=21, epochs=2)


@case
def embedding_accumulation(steps):
    return fit_words(SGD(0.2, gradient_accumulation_steps=4), steps)


@case
def embedding_loss_scale(steps):
    return fit_words(keras.optimizers.LossScaleOptimizer(SGD(0.2), initial_scale=64.0), steps)


@case
def embedding_global_clipnorm(steps):
    return fit_words(SGD(0.5, global_clipnorm=0.1), steps)


@case
def embedding_in_half_precision(steps):
    keras.config.set_dtype_policy("mixed_float16")
    return fit_words(SGD(0.2), steps)


@case
def embedding_eagerly(steps):
    return fit_words(SGD(0.2), steps, run_eagerly=True)


@case
def embedding_used_twice(steps):
    own_seed()
    words = keras.Input((6,), dtype="int32")
    shared = keras.layers.Embedding(50, 8)
    joined = keras.layers.Concatenate(1)([shared(words), shared(words[:, ::2])])
    out = keras.layers.Dense(CLASSES)(keras.layers.Dense(40, activation="tanh")(keras.layers.Flatten()(joined)))
    return fit(keras.Model(words, out), SGD(0.2), steps, of=sentences)


@case
def embedding_of_many_rows(steps):
    """So many that TensorFlow's threads add rows of one entry in an order of their own."""
    def words(steps, more=0):
        source = np.random.default_rng(7)
        return source.integers(0, 40, (2 * ALL, 512)), source.integers(0, CLASSES, 2 * ALL)
    own_seed()
    model = keras.Sequential([keras.layers.Input((512,), dtype="int32"), keras.layers.Embedding(4000, 64),
                              keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.5), steps, epochs=3, of=words)


@case
def rows_in_a_loop(steps):
    """The mean's rows are those of one process on all batches, in its order; entries may be matrices."""
    table = tf.Variable(tf.random.stateless_normal((50, 2, 4), (1, 2)), name="table")
    bias = tf.Variable(tf.zeros(CLASSES), name="bias")

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, tf.reshape(tf.gather(table, x), [-1, 48])[:, :CLASSES] + bias)
        return in_loops.reduce(tape.gradient(loss, [table, bias]), [table, bias])
    seen = []
    for x, y in batches(steps, of=sentences):
        rows, whole = step(x, y)
        assert isinstance(rows, tf.IndexedSlices) and rows.indices.dtype == tf.int64 and rows.values.shape[1:] == (2, 4)
        table.scatter_sub(tf.IndexedSlices(0.5 * rows.values, rows.indices))
        bias.assign_sub(0.5 * whole)
        seen += [rows.indices.numpy(), rows.values.numpy()]
    return [table, bias, *seen]


@case
def own_train_step(steps):
    class Own(keras.Model):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def call(self, x):
            return self.net(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = LOSS(y, self(x))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}
    return fit(Own(dense_net()), keras.optimizers.Adam(1e-3), steps)


class Largest(keras.metrics.Metric):
    """No sum: the largest error; and how many samples there were, as the variable itself."""

    def __init__(self, **words):
        super().__init__(name="largest", **words)
        self.error = self.add_weight(name="error", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros", dtype="int32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = keras.ops.cast(keras.ops.reshape(y_true, [-1]), "float32")
        self.error.assign(keras.ops.maximum(self.error, keras.ops.max(keras.ops.abs(y_true - y_pred[:, 0]))))
        self.count.assign(self.count + keras.ops.shape(y_pred)[0])

    def result(self):
        return {"error": self.error * 1.0, "samples": self.count}


class Counted(keras.layers.Layer):
    """Counts samples, keeps the largest input and a moving mean."""

    def build(self, shape):
        self.count, self.largest, self.moving = (self.add_weight(shape=(), trainable=False, initializer="zeros", dtype=dtype)
                                                 for dtype in ("int32", "float32", "float32"))

    def call(self, x, training=False):
        if training:
            self.count.assign_add(keras.ops.shape(x)[0])
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(x)))
            self.moving.assign(self.moving + 0 * (keras.ops.mean(x) - self.moving))
        return x


def of_validation(history):
    return [np.array(history[name]) for name in sorted(history)]


@case
def metrics_of_all_kinds(steps):
    """Sums, a maximum, a variable as a result, of arrays and of a data set that every worker evaluates whole."""
    own_seed()
    model = keras.Sequential([keras.layers.Input((FEATURES,)), Counted(), keras.layers.Dense(CLASSES)])
    model.compile(optimizer=SGD(0.05), loss=LOSS, metrics=["accuracy", Largest()])
    poseidon.distribute(model)
    x, y = samples(1, more=9)
    histories = [model.fit(*samples(4, 5), batch_size=ALL // poseidon.workers(), epochs=2, shuffle=False, verbose=0,
                           validation_data=validation).history
                 for validation in (None, (x, y), tf.data.Dataset.from_tensor_slices((x, y)).batch(16))]
    assert histories[0]["samples"] == [133, 133] and histories[2]["val_samples"] == [41, 41], histories
    for history in histories[1:]:
        del history["samples"]  # of the validation in Keras, which reads the variable after it
    return [*model.variables, *(values for history in histories for values in of_validation(history))]


@case
def the_step_of_keras_guide(steps):
    """Gives the results of metrics, one of them a dict, by their names; another one of its own."""
    class Guide(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            for metric in self.metrics:
                metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, y_pred)
            return {**{metric.name: metric.result() for metric in self.metrics}, "own": {"of all": tf.reduce_mean(y_pred)}}
    own_seed()
    inputs = keras.Input((FEATURES,))
    model = Guide(inputs, keras.layers.Dense(CLASSES)(inputs))
    model.compile(optimizer=SGD(0.05), loss=LOSS, metrics=["accuracy", Largest()])
    history = poseidon.distribute(model).fit(batches(steps), epochs=2, verbose=0).history
    assert sorted(history) == ["accuracy", "error", "loss", "of all", "samples"], history
    return [*model.variables, *of_validation(history)]


@case
def seeds_by_name(steps):
    """A name says nothing of what a variable is."""
    class SeedNet(keras.Sequential):
        pass
    own_seed()
    return fit(SeedNet([keras.layers.Input((FEATURES,)), keras.layers.Dense(40, activation="tanh", name="seeds_hidden"),
                        keras.layers.Dropout(0.0), keras.layers.Dense(CLASSES)]), SGD(0.1), steps)


@case
def compiled_beside_a_gpu(steps):
    """Where there is one, Keras' jit_compile="auto" is True."""
    plain = tf.config.list_physical_devices
    gpu = type("Device", (), {"name": "/physical_device:GPU:0", "device_type": "GPU"})
    tf.config.list_physical_devices = lambda kind=None: plain(kind) if kind else [*plain(), gpu]
    try:
        model = dense_net()
        model.compile(optimizer=SGD(0.1), loss=LOSS)
        assert model.jit_compile
        model.jit_compile = poseidon.workers() > 1
        poseidon.distribute(model).fit(batches(steps), verbose=0)
        return model.variables
    finally:
        tf.config.list_physical_devices = plain


@case
def trained_alone_before(steps):
    """And distributed twice."""
    model = dense_net()
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    model.fit(*samples(1), batch_size=ALL, verbose=0)
    poseidon.distribute(poseidon.distribute(model)).fit(*samples(steps), batch_size=ALL // poseidon.workers(), shuffle=False, verbose=0)
    return model.variables


@case
def whole_batches_left_over(steps):
    """One process with batches of all workers' samples leaves them out too; the second time only the end shows that there are some."""
    numbers, batch = Dataset.from_tensor_slices(samples(steps, ALL // 2)), ALL // poseidon.workers()
    trained = []
    for dataset in numbers, numbers.filter(lambda x, y: True):
        divided = poseidon.shard(dataset.batch(batch, drop_remainder=True))
        assert divided.element_spec[0].shape == (batch, FEATURES)
        trained += fit_of(divided)
    return trained


@case
def of_unknown_length(steps):
    """Only its end shows how many batches there are: 5 samples are left over."""
    return fit_of(poseidon.shard(in_batches(Dataset.from_tensor_slices(samples(steps, 5)).filter(lambda x, y: True))))


@case
def built_by_the_first_batch(steps):
    """In the step of fit, and in an eager one."""
    def trained(eagerly):
        own_seed()
        model = keras.Sequential([keras.layers.Dense(40, activation="tanh"), keras.layers.BatchNormalization(),
                                  keras.layers.Dense(CLASSES)])
        fit(model, SGD(0.1), 4, of=lambda steps: (np.ones((steps * ALL, FEATURES), "float32"), samples(steps)[1]),
            run_eagerly=eagerly)
        return model.variables
    return [*trained(False), *trained(True)]


@case
def each_sample_is_read_once(steps):
    """By each worker, also where batches are left over; what of them is its own comes from the same pass."""
    read = []
    tf.random.set_seed(None)

    def note(number):
        read.append(int(number))
        return number
    numbers = Dataset.range(3 * ALL + 5).shuffle(200, seed=1).map(
        lambda number: tf.ensure_shape(tf.numpy_function(note, [number], tf.int64), []))
    own = [batch for batch in poseidon.shard(in_batches(numbers)).as_numpy_iterator()]
    assert len(own) == 4, own
    return [np.sort(read)]


@case
def two_models_two_optimizers(steps):
    pair = Pair(dense_net(), dense_net(), SGD(0.1), keras.optimizers.Adam(1e-3))
    fit(pair, "rmsprop", steps)
    return [*pair.one.variables, *pair.other.variables]


@case
def an_optimizer_assigned_later(steps):
    model = dense_net()
    model.compile(optimizer=SGD(100.0), loss=LOSS)
    poseidon.distribute(model)
    model.optimizer = SGD(0.1)
    model.fit(batches(steps), verbose=0)
    return model.variables


def in_a_loop(steps, wrap):
    """A loop of TensorFlow's own; `wrap` makes one step's gradients of a model's variables."""
    poseidon.init()
    model = dense_net()

    @tf.function
    def step(x, y):
        gradients = wrap(lambda: LOSS(y, model(x)), model.trainable_variables)
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(0.1 * gradient)
    for x, y in batches(steps):
        step(x, y)
    return model.variables


@case
def reduce_in_a_loop(steps):
    def wrap(loss, variables):
        with tf.GradientTape() as tape:
            value = loss()
        return in_loops.reduce(tape.gradient(value, variables), variables)
    return in_a_loop(steps, wrap)


def reduce_with(penalty, steps):
    """A loop whose loss has a penalty of the large kernel."""
    def wrap(loss, variables):
        with tf.GradientTape() as tape:
            value = loss() + penalty(tf.convert_to_tensor(variables[2]))
        return in_loops.reduce(tape.gradient(value, variables), variables)
    return in_a_loop(steps, wrap)


@case
def a_penalty_in_a_loop(steps):
    return reduce_with(lambda kernel: 0.01 * tf.reduce_sum(kernel * kernel), steps)


@case
def a_penalty_of_each_workers_own(steps):
    """No term of the kernel alone."""
    own = tf.Variable(0.03 if poseidon.workers() == 1 else 0.02 * (1 + poseidon.rank()))
    return reduce_with(lambda kernel: own * tf.reduce_sum(kernel * kernel), steps)


@case
def a_tape_in_a_loop(steps):
    def wrap(loss, variables):
        with in_loops.GradientTape(tf.GradientTape()) as tape:
            value = loss()
        return tape.gradient(value, variables)
    return in_a_loop(steps, wrap)


@case
def a_product_only_where_it_is_sent_whole(steps):
    """The executed graph makes a large kernel's gradient nowhere but in the branch for the key-value store."""
    context = tf_context.context()
    context.enable_graph_collection()
    context.enable_run_metadata()
    variables = reduce_in_a_loop(steps)
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    context.disable_graph_collection()
    products = {node.name for graph in graphs for node in graph.node
                if node.op == "MatMul" and node.attr["transpose_a"].b}
    if poseidon.workers() > 1:
        assert any("/else/" in name for name in products), products
        assert len([name for name in products if "/else/" not in name]) == 2, products  # the two small kernels'
    return variables


def fail_to_save(model, path):
    """A file is whole at any moment: one that another worker is writing too, and one that cannot be written to its end."""
    def fail(store):
        raise OSError("the disk is full")
    if poseidon.workers() > 1:  # Keras itself leaves half a file
        model.layers[-1].save_own_variables = fail
        try:
            model.save(path)
        except OSError:
            del model.layers[-1].save_own_variables
        assert len(os.listdir(os.path.dirname(path))) == 3


@case
def saved_and_loaded(steps):
    """A saved model has nothing of Poseidon in it, and trains on as any model does."""
    model = dense_net()
    variables = fit(model, keras.optimizers.Adam(1e-3), steps)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        model.export(f"{folder}/exported")
        files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
        assert len(files) > 3 and not any(b"oseidon" in path.read_bytes() for path in files)
        fail_to_save(model, f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    assert all(np.array_equal(one, other) for one, other in zip(loaded.get_weights(), model.get_weights()))
    for plain in loaded, type(model).from_config(model.get_config()):
        assert "make_train_function" not in vars(plain)
    before = [variable.numpy() for variable in variables]
    loaded.fit(*samples(1), verbose=0)  # on each worker alone
    assert all(np.array_equal(one, other) for one, other in zip(before, variables))
    return variables


@case
def traced(steps):
    """Some steps after the final plan; the small layers below the top have enough to compute for the top's gradient to leave
    meanwhile."""
    own_seed()
    model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Reshape((5, 4, 1)),
                              keras.layers.Conv2D(32, 3, padding="same", name="bottom"), keras.layers.Flatten(),
                              *(keras.layers.Dense(512, activation="tanh", name=name) for name in ("low", "middle", "top")),
                              keras.layers.Dense(CLASSES)])
    fit(model, SGD(0.1), 12)
    with poseidon.trace("trace.json"):
        model.fit(batches(steps), verbose=0)
    return model.variables


@case
def in_half_precision(steps):
    keras.config.set_dtype_policy("mixed_float16")
    return fit(dense_net(), SGD(0.1), steps)


@case
def an_overflow_on_one_worker(steps):
    """All skip the step together, or weights differ."""
    keras.config.set_dtype_policy("mixed_float16")

    def with_one(steps):
        x, y = samples(steps)
        x[ALL // 2 * 3] = 6e4  # of rank 1 in the second step, of two workers
        return x, y
    return fit(dense_net(), SGD(0.1), steps, of=with_one)


# ---- what is refused, and what ends badly

@case
def a_model_of_tf_keras(steps):
    poseidon.distribute(type("Sequential", (), {"__module__": "tf_keras.src.engine.sequential"})())


@case
def made_in_a_scope_of_a_strategy(steps):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = dense_net()
    poseidon.distribute(model)


@case
def an_optimizer_with_its_own_apply(steps):
    class Own(SGD):
        def apply(self, grads, trainable_variables=None):
            self.build(trainable_variables)
            self._backend_update_step(grads, trainable_variables, self.learning_rate)
    return fit(dense_net(), Own(0.1), steps)


@case
def weights_that_part_at_once(steps):
    class Parting(SGD):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate)
            self.assign_add(variable, variable * 0 + 1e-6 * poseidon.rank())
    return fit(dense_net(), Parting(0.1), steps)


@case
def compiled_by_xla(steps):
    return fit(dense_net(), SGD(0.1), steps, jit_compile=True)


@case
def compiled_by_xla_later(steps):
    model = poseidon.distribute(dense_net())
    model.compile(optimizer=SGD(0.1), loss=LOSS, jit_compile=True)
    model.fit(batches(steps), verbose=0)


@case
def fewer_batches_on_one(steps):
    model = dense_net()
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    poseidon.distribute(model).fit(batches(steps).take(steps - poseidon.rank()), verbose=0)


@case
def an_undivided_data_set(steps):
    fit_of(tf.data.Dataset.from_tensor_slices(samples(steps)).batch(ALL // 2).prefetch(1))


@case
def a_trace_without_spans(steps):
    poseidon.init()
    poseidon.trace("trace.json").__enter__()


@case
def an_exception_and_shutdown(steps):
    try:
        an_exception_in_a_callback(steps)
    finally:
        poseidon.shutdown()


@case
def a_script_that_exits(steps):
    fit(dense_net(), SGD(0.1), steps, callbacks=[InRank1(lambda: sys.exit(3))])


class Lost(keras.callbacks.Callback):
    """Rank 1 sends itself a signal at any moment of its third epoch, and says before when that is."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def end(self):
        print(time.monotonic(), flush=True)
        os.kill(os.getpid(), self.number)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and poseidon.rank() == 1:
            threading.Timer(np.random.default_rng().uniform(0, 0.3), self.end).start()


def lose(number, steps, **compiled):
    """The other says when it has heard of it, in a step or as weights are compared after an epoch: the clock is the machine's."""
    model = dense_net()
    model.compile(optimizer=SGD(0.1), loss=LOSS, **compiled)
    try:
        poseidon.distribute(model).fit(*samples(steps), batch_size=ALL // 2, epochs=100_000, verbose=0, callbacks=[Lost(number)])
    except (tf.errors.AbortedError, poseidon.PoseidonError):
        print(time.monotonic(), flush=True)
        raise


@case
def a_killed_worker(steps):
    lose(signal.SIGKILL, steps)


@case
def a_killed_worker_of_eager_ones(steps):
    lose(signal.SIGKILL, steps, run_eagerly=True)


@case
def a_frozen_worker(steps):
    lose(signal.SIGSTOP, steps)


@case
def a_frozen_worker_of_eager_ones(steps):
    lose(signal.SIGSTOP, steps, run_eagerly=True)


def main():
    result, steps, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    poseidon.init(**json.loads(os.environ.get("POSEIDON_TEST_INIT", "{}")))
    for name in names:
        keras.backend.clear_session()
        keras.config.set_dtype_policy("float32")
        before = len(in_loops.exchanges())
        variables = CASES[name](steps) or []
        np.savez(f"{result}-{name}-{poseidon.rank()}.npz", *[np.asarray(variable, "float64") for variable in variables
                                                             if "seed_generator" not in getattr(variable, "path", "")])
        with open(f"{result}-{name}-{poseidon.rank()}.json", "w") as file:
            json.dump([exchange.plan() for exchange in in_loops.exchanges()[before:]], file)


if __name__ == "__main__":
    main()
