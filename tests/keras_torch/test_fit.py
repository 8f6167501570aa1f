# SPDX-License-Identifier: Apache-2.0
"""Two workers train what one does on their batches together (worker.py), with equal bits on both; or say why not."""
import functools
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys

import pytest

np = pytest.importorskip("numpy", reason="NumPy is not installed for this interpreter")
pytest.importorskip("torch", reason="torch is not installed for this interpreter")

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
import programs  # noqa: E402
import some_cases  # noqa: E402

PATIENCE = 400 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
STEPS = 30

# How far one process may be from two, of the largest weight: other sums have other roundings. Adam divides by the root of
# what may be nearly nothing.
EXACT = {"sgd": 1e-6, "adam": 1e-5, "adamw_ema_schedule": 1e-5, "clipnorm": 1e-6, "global_clipnorm": 1e-6, "loss_scale": 1e-6,
         "accumulation": 1e-6, "embedding": 1e-5, "attention": 1e-5, "a_model_in_a_model": 1e-6,
         "distributed_before_it_is_built": 1e-6, "thawed_and_compiled_again": 1e-6, "one_name_twice_and_one_unused": 1e-5,
         "normalized_per_share": 1e-5, "own_train_step": 1e-5, "two_nets_two_optimizers": 1e-5, "two_models_in_a_loop": 1e-6,
         "train_on_batch": 1e-6, "samples_left_over": 1e-6, "too_few_left_over": 1e-6, "masked": 1e-5, "masked_and_weighted": 1e-5,
         "sums_and_weighted_means": 1e-6,
         "batches_by_number": 1e-6, "batches_by_number_sharded": 1e-6, "batches_by_number_too_few_left_over": 1e-6,
         "batches_by_number_in_threads": 1e-6, "batches_by_number_in_processes": 1e-6,
         "batches_by_number_weighted_by_class": 1e-6, "batches_by_number_without_an_end": 1e-6, "epochs_of_another_length": 1e-6,
         "a_generator": 1e-6, "a_generator_sharded": 1e-6, "a_generator_in_epochs": 1e-6,
         "a_data_set_of_batches": 1e-6, "shuffled_by_a_seed": 1e-6, "arrays": 1e-6, "arrays_with_a_validation_split": 1e-6,
         "arrays_with_class_weights": 1e-6, "callbacks_that_decide": 1e-6, "restored_after_a_failure": 1e-6,
         "callbacks_that_write": 1e-6, "a_stop_on_one_worker": 1e-6, "forms_of_arrays": 1e-6, "a_stop_after_a_batch": 1e-6,
         "a_stop_by_nan": 0, "saved_and_loaded": 1e-5}
ALWAYS = ["seeds_stay_own"]  # its test has no parameter
BITS_ONLY = ["normalized_and_dropped", "shuffled", "shuffled_by_number", "batches_by_number_read_once",
             "goes_on_after_a_failure", "seeds_stay_own", "given_back"]


@pytest.fixture(scope="module", autouse=True)
def keras_is_there():
    """It is not imported here, where it would want a backend."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed for this interpreter")


def start(folder, workers, *command):
    return programs.start(sys.executable, folder, workers, *command, KERAS_BACKEND="torch", KERAS_HOME=str(folder))


ended = functools.partial(programs.ended, patience=PATIENCE)


def train(folder, workers, *names, steps=STEPS):
    return start(folder, workers, HERE / "worker.py", folder / f"of{workers}", str(steps), *names)


@pytest.fixture(scope="module")
def trained(request, tmp_path_factory):
    """The folder with the variables of those cases that tests ask for, of one worker and of two."""
    folder = tmp_path_factory.mktemp("trained")
    asked = some_cases.names(request)
    exact, bits_only = ([name for name in some if name in asked or name in ALWAYS] for some in (EXACT, BITS_ONLY))
    for workers in 1, 2:
        processes = train(folder, workers, *exact, *(["refusals"] if workers > 1 else []), *bits_only)
        for process, errors in zip(processes, ended(processes)):
            assert process.returncode == 0, errors[-3000:]
    return folder


def variables(folder, workers, name, rank):
    with np.load(folder / f"of{workers}-{name}-{rank}.npz") as saved:
        return [saved[key] for key in saved.files]


@pytest.mark.parametrize("name", [*EXACT, *BITS_ONLY])
def test_workers_end_with_the_same_bits(trained, name):
    one, other = (variables(trained, 2, name, rank) for rank in range(2))
    assert len(one) == len(other) > 0
    assert all(np.array_equal(mine, yours) for mine, yours in zip(one, other))


@pytest.mark.parametrize("name", EXACT)
def test_two_workers_train_what_one_does(trained, name):
    alone, shared = variables(trained, 1, name, 0), variables(trained, 2, name, 0)
    largest = max(np.abs(variable).max() for variable in alone)
    apart = max(np.abs(one - two).max() for one, two in zip(alone, shared, strict=True)) / largest
    print(f"{name}: {apart:.1e}")
    assert apart <= EXACT[name]


@pytest.mark.parametrize("name", ["shuffled", "shuffled_by_number"])
def test_shuffled_samples_come_once_an_epoch(trained, name):
    seen = [variables(trained, 2, f"seen-{name}", rank) for rank in range(2)]
    for one, other in zip(*seen, strict=True):
        epochs = [np.concatenate(both) for both in zip(np.split(one, 2), np.split(other, 2))]
        assert all(np.array_equal(np.sort(epoch), np.arange(len(epoch))) for epoch in epochs)
        assert not np.array_equal(*epochs)


def test_workers_drop_out_by_seeds_of_their_own(trained):
    one, other = (variables(trained, 2, "seeds", rank) for rank in range(2))
    assert len(one) == len(other) == 1 and not np.array_equal(one[0], other[0])


@pytest.mark.parametrize("name, sentence", [
    ("compiled_whole", r"the model is compiled with jit_compile=True, expected False"),
    ("a_loop_of_an_unbuilt_model", r"the gradient of variable 'sequential/dense/kernel' comes to the optimizer without"),
    ("gradients_of_autograd", r"the gradient of variable 'sequential/dense/kernel' comes to the optimizer without"),
    ("a_distributed_sampler", r"the loader has a DistributedSampler, expected one that gives the samples of all"),
    ("an_iterable_data_set", r"the data set of the loader is an IterableDataset"),
    ("a_loader_without_a_length", r"the number of batches of the loader is not known on every worker before it ends"),
    ("one_batch", r"the data set has 1 batches, expected at least one for each of 2 workers"),
    ("a_batch_for_one", r"the data set has 1 batches, expected at least one sample for each of 2 workers"),
    ("fewer_batches_on_one", r"the workers' data sets differ in their batches: rank 0 has 4, rank 1 has 3"),
    ("a_list_of_batches", r"shard was given a builtins.list, expected a torch.utils.data.DataLoader"),
    ("an_undivided_loader", r"fit was given a torch.utils.data.dataloader.DataLoader that nobody has divided"),
    ("weights_that_part", r"variable 'sequential/middle/kernel' is not the same on all workers after an epoch")])
def test_what_would_go_wrong_in_silence_is_refused(trained, name, sentence):
    for rank in range(2):
        said = json.loads((trained / f"of2-refusals-{rank}.json").read_text())
        assert re.match(sentence, said[name])


def test_a_setting_that_several_workers_refuse_is_refused_by_one(tmp_path):
    [process] = train(tmp_path, 1, "compiled_whole", steps=4)
    [errors] = ended([process])
    assert process.returncode != 0 and "PoseidonError: the model is compiled with jit_compile=True, expected False" in errors, errors[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("name, rank, sentence", [
    ("a_variable_made_in_a_step", 0, r"the model's trainable variables have changed in a training step"),
    ("other_models", 1, r"the models differ: rank 1 has sequential/dense/kernel 20x11 float32 where rank 0 has "
                        r"sequential/dense/kernel 20x10 float32")])
def test_what_ends_a_job_is_named(tmp_path, name, rank, sentence):
    processes = train(tmp_path, 2, name, steps=4)
    errors = ended(processes)
    assert all(process.returncode != 0 for process in processes)
    assert re.search(f"PoseidonError: .*{sentence}", errors[rank]), errors[rank][-2000:]


@pytest.mark.long
def test_an_exception_of_one_worker_ends_all_with_its_words(tmp_path):
    processes = train(tmp_path, 2, "an_exception_in_a_callback")
    other, raised = ended(processes)
    assert all(process.returncode != 0 for process in processes)
    assert "ValueError: the disk is full" in raised
    assert re.search(r"worker 1 .*ValueError: the disk is full", other, re.DOTALL), other[-2000:]


def test_other_objects_are_refused(tmp_path):
    """A model of tf_keras is none either, and neither is torch's."""
    errors, = ended(start(tmp_path, 1, "-c", "import torch, poseidon.keras as p; p.distribute(torch.nn.Linear(1, 1))"))
    assert "PoseidonError: distribute was given a torch.nn.modules.linear.Linear, expected a keras.Model of Keras 3" in errors


def test_other_backends_are_refused(tmp_path):
    """They need not be installed for this."""
    errors, = ended(start(tmp_path, 1, "-c", "import keras; keras.backend.backend = lambda: 'jax'; import poseidon.keras"))
    assert "PoseidonError: Keras' backend is jax, expected tensorflow or torch" in errors, errors[-2000:]


def test_the_quick_start_goes_on_to_the_bit(tmp_path):
    prepared = programs.Prepared(sys.executable, "torch", "keras", KERAS_BACKEND="torch", KERAS_HOME=str(tmp_path))
    programs.check_goes_on(prepared, tmp_path, HERE.parents[1] / "examples/tensorflow/quickstart.py",
                           lambda: shutil.rmtree(tmp_path / "quickstart.saved"), PATIENCE)


RECORDED = """
import keras, numpy as np
import poseidon.keras as poseidon
poseidon.init(run_dir="run")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
model = poseidon.distribute(model)
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
draw = np.random.default_rng(1)
x, y = draw.random((64, 4), dtype="float32"), draw.integers(0, 3, 64)
model.fit(x, y, batch_size=16, epochs=2, validation_data=(x, y), verbose=0)
poseidon.shutdown()
"""


def test_a_run_directory_has_what_epochs_end_with(tmp_path):
    processes = start(tmp_path, 2, "-c", RECORDED)
    for process, errors in zip(processes, ended(processes)):
        assert process.returncode == 0, errors[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["train", "test"] * 2
    assert [line["iteration"] for line in lines] == [2, 2, 4, 4]
    assert 0 <= lines[2]["accuracy"] <= 1 and lines[3]["outputs"]["loss"] > 0
