# SPDX-License-Identifier: Apache-2.0
"""One worker, or the only one, trains cases of Keras on torch, and saves the variables after each.

  worker.py RESULT STEPS CASE...

A case is a function that trains on `batches`: those of this worker, of 32 samples over all workers together.
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "torch"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from keras.src.trainers.data_adapters import get_data_adapter  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import poseidon.keras as poseidon  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))
import keras_cases  # noqa: E402
from keras_cases import (ALL, CASES, CLASSES, FEATURES, LOSS, SGD, Seen, case, counted, dense_net, fit, fit_arrays,  # noqa: E402
                         fit_of, goes_on, own_seed, samples, save_seen, sentences, structure_of)

torch.set_num_threads(1)


def loader(arrays, **words):
    return DataLoader(TensorDataset(*map(torch.from_numpy, arrays)), batch_size=ALL // poseidon.workers(), **words)


def batches(steps, of=samples, more=0):
    """This worker's."""
    return poseidon.shard(loader(of(steps, more)))


def gradients_of(net, loss):
    net.zero_grad()
    loss().backward()
    return [variable.value.grad.clone() for variable in net.trainable_variables]


keras_cases.batches, keras_cases.gradients_of, keras_cases.width = batches, gradients_of, 60


@case
def embedding(steps):
    own_seed()
    model = keras.Sequential([keras.layers.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8),
                              keras.layers.LSTM(12), keras.layers.Dense(CLASSES)])
    return fit(model, SGD(0.5), steps, of=sentences)


@case
def one_name_twice_and_one_unused(steps):
    class Scaled(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(), initializer=keras.initializers.Constant(1.0 + poseidon.rank()), name="w")
            self.shift = self.add_weight(shape=(CLASSES,), initializer="zeros", name="w")
            self.unused = self.add_weight(shape=(3,), initializer="ones", name="unused")
            self.net = dense_net()

        def call(self, x):
            return self.scale * self.net(x) + self.shift
    return fit(Scaled(), SGD(0.1), steps)


@case
def normalized_per_share(steps):
    """One worker normalizes each half of its batch as two workers do theirs."""
    class PerShare(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.norm = keras.layers.BatchNormalization()

        def build(self, shape):
            self.norm.build(shape)

        def call(self, x, training=False):
            shares = torch.split(x, ALL // 2) if training else [x]
            return torch.cat([self.norm(share, training=training) for share in shares])
    model = dense_net(PerShare())
    fit(model, SGD(0.1), steps)
    return model.trainable_variables  # moving statistics are updated twice a step in one process


@case
def a_model_in_a_model(steps):
    inputs, twice = keras.Input((FEATURES,)), keras.layers.Dense(FEATURES, activation="tanh")
    return fit(keras.Model(inputs, dense_net()(twice(twice(inputs)))), SGD(0.1), steps)


@case
def distributed_before_it_is_built(steps):
    """And before compile: the first fit builds it."""
    own_seed()
    model = poseidon.distribute(keras.Sequential([keras.layers.Dense(60, activation="tanh"), keras.layers.Dense(CLASSES)]))
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    model.fit(batches(steps), verbose=0)
    return model.variables


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
            self.zero_grad()
            loss = LOSS(y, self(x))
            loss.backward()
            with torch.no_grad():
                self.optimizer.apply([variable.value.grad for variable in self.trainable_variables], self.trainable_variables)
            return {"loss": loss}
    return fit(Own(dense_net()), keras.optimizers.Adam(1e-3), steps)


@case
def train_on_batch(steps):
    model = poseidon.distribute(dense_net())
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    for x, y in batches(steps):
        model.train_on_batch(x, y)
    poseidon.check(model)
    assert ("sequential/dense" in poseidon.report()) == (poseidon.workers() > 1), poseidon.report()
    assert "sequential/dense" in poseidon.plan(model) or poseidon.workers() == 1, poseidon.plan(model)
    return model.variables


class Pair(keras.Model):
    """Two nets, each with an optimizer of its own, as a GAN has; neither is the one of compile."""

    def __init__(self):
        super().__init__()
        self.one, self.other = dense_net(), dense_net()
        self.optimizers = SGD(0.1), keras.optimizers.Adam(1e-3)

    def call(self, x):
        return self.one(x) + self.other(x)

    def train_step(self, data):
        x, y = data
        for net, optimizer in zip((self.one, self.other), self.optimizers):
            self.zero_grad()
            loss = LOSS(y, net(x))
            loss.backward()
            with torch.no_grad():
                optimizer.apply([variable.value.grad for variable in net.trainable_variables], net.trainable_variables)
        return {"loss": loss}


@case
def two_nets_two_optimizers(steps):
    return fit(Pair(), "rmsprop", steps)


def in_a_loop(models, data):
    """A loop of the user's own."""
    optimizer = SGD(0.1)
    for x, y in data:
        for model in models:
            model.zero_grad()
        LOSS(y, sum(model(x) for model in models)).backward()
        variables = [variable for model in models for variable in model.trainable_variables]
        optimizer.apply([variable.value.grad for variable in variables], variables)
    return [variable for model in models for variable in model.variables]


@case
def two_models_in_a_loop(steps):
    return in_a_loop([poseidon.distribute(dense_net()), poseidon.distribute(dense_net())], batches(steps))


@case
def samples_left_over(steps):
    """A batch of 16 and one of 5 are left over where one worker has batches of 32 and one of 21."""
    return fit_of(batches(steps, more=21))


@case
def too_few_left_over(steps):
    """One sample is nobody's."""
    of_all = batches(steps, more=1)
    return fit_of(of_all if poseidon.workers() > 1 else loader(samples(steps, 1), drop_last=True))


@case
def a_data_set_of_batches(steps):
    return fit_of(poseidon.shard(DataLoader(list(loader(samples(steps))), batch_size=None)))


@case
def shuffled_by_a_seed(steps):
    """A generator of the user's own: the order of samples is that of one process."""
    return fit_of(poseidon.shard(loader(samples(steps), shuffle=True, generator=torch.Generator().manual_seed(5))))


@case
def arrays(steps):
    """The last 21 samples are a step of 10 and 11; 51 are validated on 25 and 26."""
    x, y = samples(2)
    return fit_arrays(steps, 21, validation_data=(x[:51], y[:51]))[0]


@case
def arrays_with_a_validation_split(steps):
    return fit_arrays(steps, validation_split=0.1)[0]


class Looking(keras.Model):
    """Keeps the forms of what its steps are given, and trains one weight on all numbers in it."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built, self.seen = True, []

    def train_step(self, data):
        self.zero_grad()
        self.seen.append(form_of(data))
        loss = sum(self.scale.value * torch.mean(leaf.float()) for leaf in keras.tree.flatten(data))
        loss.backward()
        with torch.no_grad():
            self.optimizer.apply([self.scale.value.grad], [self.scale])
        return {"loss": loss}


def form_of(data):
    """Its structure, and the type of each part beside what a sample has."""
    return structure_of(data, lambda part: [type(part).__name__, str(part.dtype), list(part.shape[1:])])


@case
def forms_of_arrays(steps):
    """A step is given what it is by Keras' own adapter."""
    x, y = samples(2, 5)
    forms = [(x,), (x.astype("float64"), y), ([x, x[:, :3]], y), ({"b": x, "a": (x, y)}, [y, x]), (x, [y, y], np.ones(len(x)))]
    models = []
    for arrays in forms:
        model = Looking()
        model.compile(optimizer=SGD(0.1))
        x, y, weights = (*arrays, None, None)[:3]
        poseidon.distribute(model).fit(x, y, sample_weight=weights, batch_size=ALL // poseidon.workers(), shuffle=False, verbose=0)
        plain = get_data_adapter(x, y, weights, batch_size=ALL).get_torch_dataloader()
        assert model.seen == [form_of(batch) for batch in plain], model.seen
        models.append(model)
    return [model.scale for model in models]


@case
def arrays_with_class_weights(steps):
    return fit_arrays(steps, class_weight={number: 1 + number / CLASSES for number in range(CLASSES)})[0]


@case
def callbacks_that_decide(steps):
    """By metrics of all workers: the rate changes, and training stops, after the same epochs."""
    decide = [keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=0, factor=0.5, min_delta=0.05),
              keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, min_delta=0.02, restore_best_weights=True)]
    return fit_arrays(steps // 5, epochs=30, callbacks=decide, validation_split=0.25)[0]


@case
def saved_and_loaded(steps):
    """A saved model has nothing of Poseidon in it, and trains on as any model does."""
    model = dense_net()
    with tempfile.TemporaryDirectory() as folder:
        model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=LOSS)
        poseidon.distribute(model).fit(batches(steps), verbose=0)
        model.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    before = model.get_weights()
    assert all(np.array_equal(one, other) for one, other in zip(loaded.get_weights(), before))
    loaded.fit(loader(samples(1)), verbose=0)  # on each worker alone
    assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights()))
    poseidon.check(model)
    return model.variables


# ---- one process would see other samples together

@case
def normalized_and_dropped(steps):
    """Moving statistics become means; dropout is each worker's own."""
    return fit(dense_net(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)), SGD(0.1), steps, epochs=2)


@case
def shuffled(steps):
    """By a loader, and by fit: in an epoch every sample comes once, on one worker."""
    x, _ = counted(steps)
    models = [Seen(), Seen()]
    everything = [models[0].fit_seen(poseidon.shard(loader((x, x), shuffle=True)), shuffle=False),
                  models[1].fit_seen(x, x, batch_size=ALL // 2)]
    save_seen("shuffled", everything)
    return models[1].variables


@case
def goes_on_after_a_failure(steps):
    return goes_on(steps, lambda data: {"x": poseidon.shard(loader(data, shuffle=True))})


@case
def seeds_stay_own(steps):
    model = dense_net(keras.layers.Dropout(0.5))
    fit_into(model, steps)
    np.savez(f"{sys.argv[1]}-seeds-{poseidon.rank()}.npz",
             *[np.asarray(variable) for variable in model.variables if "seed_generator" in variable.path])
    return model.variables


def fit_into(model, steps):
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    poseidon.distribute(model).fit(batches(steps), verbose=0)


@case
def given_back(steps):
    """The last case of a job: after shutdown a model trains alone."""
    model = dense_net()
    fit_into(model, steps)
    variables = [np.array(variable) for variable in model.variables]
    rank = poseidon.rank()
    poseidon.shutdown()
    assert not {"fit", "evaluate", "train_step", "make_train_function"} & set(vars(model))
    x, y = samples(1)
    model.fit(x, y, verbose=0)
    np.savez(f"{sys.argv[1]}-given_back-{rank}.npz", *variables)
    sys.exit()


# ---- what is refused on all workers, after which they go on

@case
def refusals(steps):
    """The sentences, by the names of the cases."""
    said = {}
    for name in REFUSED:
        keras.backend.clear_session()
        try:
            CASES[name](4)
        except poseidon.PoseidonError as error:
            said[name] = str(error)
    with open(f"{sys.argv[1]}-refusals-{poseidon.rank()}.json", "w") as file:
        json.dump(said, file)


REFUSED = ["compiled_whole", "a_loop_of_an_unbuilt_model", "gradients_of_autograd", "a_distributed_sampler", "an_iterable_data_set",
           "a_loader_without_a_length", "one_batch", "a_batch_for_one", "fewer_batches_on_one", "a_list_of_batches", "an_undivided_loader",
           "weights_that_part"]


@case
def compiled_whole(steps):
    fit(dense_net(), SGD(0.1), steps, jit_compile=True)


@case
def a_loop_of_an_unbuilt_model(steps):
    in_a_loop([poseidon.distribute(keras.Sequential([keras.layers.Dense(CLASSES)]))], batches(steps))


@case
def gradients_of_autograd(steps):
    model = poseidon.distribute(dense_net())
    x, y = next(iter(batches(steps)))
    values = [variable.value for variable in model.trainable_variables]
    SGD(0.1).apply(torch.autograd.grad(LOSS(y, model(x)), values), model.trainable_variables)


@case
def a_distributed_sampler(steps):
    data = loader(samples(steps)).dataset
    poseidon.shard(DataLoader(data, 4, sampler=torch.utils.data.DistributedSampler(data, 2, 0)))


@case
def an_iterable_data_set(steps):
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(1)
    poseidon.shard(DataLoader(Endless(), 4))


@case
def a_loader_without_a_length(steps):
    class Each(torch.utils.data.IterableDataset):
        def __iter__(self):
            return zip(*samples(1 + poseidon.rank()))
    fit_of(DataLoader(Each(), 4))


@case
def one_batch(steps):
    poseidon.shard(DataLoader(list(loader(samples(1), drop_last=True))[:1], batch_size=None))


@case
def fewer_batches_on_one(steps):
    model = dense_net()
    model.compile(optimizer=SGD(0.1), loss=LOSS)
    poseidon.distribute(model).fit(poseidon.shard(loader(samples(steps - poseidon.rank()))), verbose=0)


@case
def an_undivided_loader(steps):
    fit_of(loader(samples(steps)))


# ---- what ends badly

@case
def a_variable_made_in_a_step(steps):
    """Keras' optimizer itself refuses it one step later, once it has a gradient."""
    class Growing(keras.Sequential):
        def train_step(self, data):
            logs = super().train_step(data)
            self.add_weight(shape=(1,), name="late")
            return logs
    fit(Growing([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES)]), SGD(0.1), steps)


def main():
    result, steps, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    poseidon.init()
    for name in names:
        keras.backend.clear_session()
        variables = CASES[name](steps) or []
        np.savez(f"{result}-{name}-{poseidon.rank()}.npz", *[np.asarray(variable, "float64") for variable in variables
                                                             if "seed_generator" not in getattr(variable, "path", "")])


if __name__ == "__main__":
    main()
