# SPDX-License-Identifier: Apache-2.0
"""The forms in which Keras' data adapters take data, on TensorFlow: what a step is given of each, and how it trains. One worker is
plain Keras; two together are given the same."""
import importlib.util
import json
import sys

import keras
import numpy as np
import tensorflow as tf

import poseidon.keras as poseidon
from keras_cases import SGD, case, structure_of

SAMPLES, AT_ONCE = 19, 8  # the last 3 are a step of 1 and 2

NUMBERS = np.arange(SAMPLES * 3, dtype="float64").reshape(SAMPLES, 3) / 100
OTHERS = NUMBERS[:, :2].astype("float32") + 1
CLASSES = np.arange(SAMPLES) % 3
WEIGHTS = np.linspace(1, 2, SAMPLES)
WORDS = np.array([f"word {number}" for number in range(SAMPLES)], object)
RAGGED = tf.ragged.constant([[float(number)] * (1 + number % 3) for number in range(SAMPLES)])
SPARSE = tf.sparse.from_dense(np.where(np.arange(SAMPLES * 4).reshape(SAMPLES, 4) % 3, 0, 1.5).astype("float32"))

FORMS = {}  # by name: what is given to fit, by the names of its arguments
IN_GRAPH = []  # those that are trained on in a graph too


def form(make):
    FORMS[make.__name__] = make
    return make


def in_graph(make):
    IN_GRAPH.append(make.__name__)
    return form(make)


def size():
    return AT_ONCE // poseidon.workers()


def arrays(x, y=None, **words):
    return {"x": x, "y": y, "batch_size": size(), "shuffle": False, **words}


def dataset(given, change=lambda made: made):
    return {"x": poseidon.shard(change(tf.data.Dataset.from_tensor_slices(given).batch(size())))}


class Parts(keras.utils.PyDataset):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def __len__(self):
        return -(-SAMPLES // size())

    def __getitem__(self, number):
        return self.of(slice(number * size(), (number + 1) * size()))


def parts(of):
    return {"x": Parts(of), "shuffle": False}


def stream(of):
    return {"x": (Parts(of)[number] for number in range(-(-SAMPLES // size())))}


# ---- arrays

@in_graph
def array_alone():
    return arrays(NUMBERS)


@form
def array_and_classes():
    return arrays(NUMBERS, CLASSES)


@form
def array_with_weights():
    return arrays(NUMBERS, CLASSES, sample_weight=WEIGHTS)


@form
def array_with_class_weights():
    return arrays(NUMBERS, CLASSES, class_weight={0: 1.0, 2: 3.0})


@in_graph
def list_of_arrays():
    return arrays([NUMBERS, OTHERS], CLASSES)


@form
def list_of_equal_arrays_alone():
    return arrays([NUMBERS, NUMBERS + 1])


@form
def tuple_of_arrays():
    return arrays((NUMBERS, OTHERS), CLASSES)


@form
def dict_of_arrays():
    return arrays({"b": NUMBERS, "a": OTHERS}, {"one": CLASSES, "two": OTHERS})


@form
def dict_alone():
    return arrays({"b": NUMBERS, "a": OTHERS})


@form
def nested_arrays():
    return arrays({"pair": [NUMBERS, (OTHERS,)], "word": WORDS}, [CLASSES, OTHERS])


@form
def weights_for_each_output():
    return arrays(NUMBERS, [CLASSES, OTHERS], sample_weight=WEIGHTS)


@form
def tensors():
    return arrays(tf.constant(NUMBERS), tf.constant(CLASSES))


@form
def one_axis():
    return arrays(CLASSES, CLASSES)


@in_graph
def ragged_array():
    return arrays(RAGGED, CLASSES)


@in_graph
def sparse_array():
    return arrays([SPARSE, NUMBERS], CLASSES)


@form
def as_many_steps():
    return {"x": NUMBERS, "y": CLASSES, "steps_per_epoch": 3, "shuffle": False}


@form
def split_off():
    return arrays([NUMBERS, RAGGED], CLASSES, validation_split=0.3)


if importlib.util.find_spec("scipy"):
    @form
    def scipy_matrix():
        import scipy.sparse
        return arrays(scipy.sparse.coo_matrix(tf.sparse.to_dense(SPARSE).numpy()), CLASSES)

if importlib.util.find_spec("pandas"):
    @form
    def data_frame():
        import pandas
        return arrays(pandas.DataFrame(OTHERS), pandas.Series(CLASSES))


# ---- tf.data.Dataset

@form
def dataset_alone():
    return dataset(NUMBERS)


@form
def dataset_of_dicts():
    return dataset(({"b": NUMBERS, "a": (OTHERS, WORDS)}, CLASSES))


@in_graph
def dataset_with_a_scalar_first():
    return dataset((NUMBERS, CLASSES), lambda made: made.map(lambda x, y: ({"a": tf.constant(0.5), "b": x}, y)))


@in_graph
def dataset_with_none():
    return dataset((NUMBERS, CLASSES), lambda made: made.map(lambda x, y: (x, None, tf.cast(y, tf.float32))))


@form
def dataset_of_ragged_and_sparse():
    return dataset(((RAGGED, SPARSE), CLASSES))


@form
def dataset_of_unknown_length():
    return dataset((NUMBERS, CLASSES), lambda made: made.filter(lambda x, y: True))


# ---- PyDataset and generator

@form
def batches_alone():
    return parts(lambda part: OTHERS[part])


@form
def batches_of_dicts():
    return parts(lambda part: {"b": OTHERS[part], "a": NUMBERS[part]})


@form
def batches_in_a_list():
    return parts(lambda part: [[OTHERS[part], NUMBERS[part]][0], CLASSES[part], WEIGHTS[part]])


@form
def batches_of_ragged_and_sparse():
    sparse = lambda part: tf.sparse.from_dense(tf.sparse.to_dense(SPARSE)[part])
    return parts(lambda part: ((RAGGED[part], sparse(part)), CLASSES[part]))


@in_graph
def generator_alone():
    return stream(lambda part: (OTHERS[part],))


@form
def generator_of_dicts():
    return stream(lambda part: ({"b": OTHERS[part], "a": NUMBERS[part]}, CLASSES[part]))


# ---- what is seen of them

def numbers_in(leaf):
    """As lists, for each sample; None, and a scalar as it is."""
    if leaf is None:
        return None
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.to_list()
    dense = tf.sparse.to_dense(leaf) if isinstance(leaf, tf.SparseTensor) else leaf
    return dense.numpy().astype(str).tolist() if dense.dtype == tf.string else dense.numpy().tolist()


def kind_in(leaf):
    return None if leaf is None else [type(leaf).__name__, leaf.dtype.name, list(leaf.shape[1:])]


class Looking(keras.Model):
    """Keeps what steps are given, where they run eagerly. The loss is of all numbers in it, times the weight that is trained."""

    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built = True
        self.seen = []

    def look_at(self, data):
        if tf.executing_eagerly():
            self.seen.append({"structure": structure_of(data, kind_in), "values": list(map(numbers_in, keras.tree.flatten(data)))})

    def test_step(self, data):
        self.look_at(data)
        return {"seen": 0.0}

    def train_step(self, data):
        self.look_at(data)
        leaves = keras.tree.flatten(data)
        with tf.GradientTape() as tape:
            loss = self.scale * tf.add_n([mean_in(leaf) for leaf in leaves if leaf is not None and leaf.dtype != tf.string])
        self.optimizer.apply(tape.gradient(loss, [self.scale]), [self.scale])
        return {"seen": loss}


def mean_in(leaf):
    """Of the samples' sums."""
    if isinstance(leaf, tf.RaggedTensor):
        return tf.reduce_mean(tf.reduce_sum(leaf, 1))
    dense = tf.cast(tf.sparse.to_dense(leaf) if isinstance(leaf, tf.SparseTensor) else leaf, tf.float32)
    return tf.reduce_mean(tf.reduce_sum(tf.reshape(dense, [tf.shape(dense)[0], -1]), 1)) if dense.shape.rank else dense


def train_on(name, eagerly):
    model = Looking()
    model.compile(optimizer=SGD(0.01), run_eagerly=eagerly)
    poseidon.distribute(model).fit(verbose=0, **FORMS[name]())
    return model


@case
def forms(steps):
    """What the steps are given of each form, beside what they end with."""
    models = {name: train_on(name, eagerly=True) for name in FORMS}
    with open(f"{sys.argv[1]}-seen-forms-{poseidon.rank()}.json", "w") as file:
        json.dump({name: model.seen for name, model in models.items()}, file)
    return [*(model.scale for model in models.values()), *(train_on(name, eagerly=False).scale for name in IN_GRAPH)]
