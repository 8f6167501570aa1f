# SPDX-License-Identifier: Apache-2.0
"""Two workers train what one does on their batches together (worker.py), with equal bits on both; or say why not."""
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import programs
import some_cases
from conftest import FRONT_END, HERE, PATIENCE, PREPARED, PYTHON, TIMEOUT_FACTOR, ended, needs_tensorboard, needs_tensorflow, start

STEPS = 50

pytestmark = needs_tensorflow

# How far one process may be from two, of the largest weight: other sums have other roundings. Adam divides by the root of
# what may be nearly nothing; half precision rounds each worker's gradient before the mean is taken, to 11 bits.
EXACT = {"sgd": 1e-6, "adam": 1e-5, "adamw_ema_schedule": 1e-5, "clipnorm": 1e-6, "clipvalue": 1e-6,
         "global_clipnorm": 1e-6, "accumulation": 1e-6, "several_steps_an_execution": 1e-6, "eagerly": 1e-6,
         "distributed_before_compile": 1e-6, "train_on_batch": 1e-6, "loss_scale": 1e-6, "frozen_and_shared": 1e-6,
         "thawed_and_compiled_again": 1e-6, "a_loss_added_by_a_layer": 1e-6,
         "a_scalar_and_one_name_twice": 1e-6, "embedding": 1e-5, "embedding_sgd": 1e-6, "embedding_adam": 1e-5, "embedding_clipnorm": 1e-6,
         "embedding_several_steps_an_execution": 1e-6, "embedding_uneven": 1e-6, "embedding_accumulation": 1e-6,
         "embedding_loss_scale": 1e-6, "embedding_eagerly": 1e-6, "embedding_used_twice": 1e-6,
         "embedding_global_clipnorm": 1e-6, "embedding_in_half_precision": 2e-2, "rows_in_a_loop": 1e-6,
         "attention": 1e-5, "own_train_step": 1e-5,
         "saved_and_loaded": 1e-5, "on_three_axes": 1e-6, "a_kernel_used_twice": 1e-6, "two_models_two_optimizers": 1e-5,
         "an_optimizer_assigned_later": 1e-6, "reduce_in_a_loop": 1e-6, "a_tape_in_a_loop": 1e-6,
         "a_product_only_where_it_is_sent_whole": 1e-6, "regularized": 1e-6, "regularized_otherwise": 1e-6,
         "regularized_in_executions": 1e-6,
         "a_penalty_in_a_loop": 1e-6, "a_penalty_of_each_workers_own": 1e-6,
         "a_short_last_batch": 1e-6, "a_batch_left_over": 1e-6, "whole_batches_left_over": 1e-6, "arrays": 1e-6, "arrays_with_a_validation_split": 1e-6,
         "callbacks_that_decide": 1e-6, "callbacks_that_write": 1e-6, "a_callback_on_batches": 1e-6,
         "a_stop_on_one_worker": 1e-6, "evaluated_and_saved": 1e-6, "restored_after_a_failure": 1e-6,
         "loaded_by_rank_0": 1e-6, "per_share": 1e-6,
         "masked": 1e-5, "masked_and_weighted": 1e-5,
         "batches_by_number": 1e-6, "batches_by_number_sharded": 1e-6, "batches_by_number_too_few_left_over": 1e-6,
         "batches_by_number_in_threads": 1e-6, "batches_by_number_in_processes": 1e-6,
         "batches_by_number_weighted_by_class": 3e-6, "batches_by_number_without_an_end": 1e-6, "epochs_of_another_length": 1e-6,
         "a_generator": 1e-6, "a_generator_sharded": 1e-6, "a_generator_in_epochs": 1e-6,
         "forms": 1e-6, "embedding_of_many_rows": 1e-5, "metrics_of_all_kinds": 2e-6, "the_step_of_keras_guide": 2e-6,
         "seeds_by_name": 1e-6, "sums_and_weighted_means": 1e-6, "compiled_beside_a_gpu": 1e-6, "trained_alone_before": 1e-6, "of_unknown_length": 1e-6,
         "built_by_the_first_batch": 1e-6, "a_model_built_in_its_first_step": 1e-5, "each_sample_is_read_once": 0,
         "a_stop_after_a_batch": 1e-6, "a_stop_by_nan": 0,
         "in_half_precision": 2e-2}
# One process would skip another step, or have another order.
BITS_ONLY = ["an_overflow_on_one_worker", "shuffled_by_number", "shuffled_by_seeds",
             "batches_by_number_read_once", "goes_on_after_a_failure"]
# A plan that counts bytes only, from the sixth step on: on loopback factors win no time.
MANY_FACTORS = {"policy": "bytes", "final_plan_step": 5}
# Those with a Dense kernel that is large enough, trained once more with that plan.
FACTORS = ["sgd", "adam", "accumulation", "several_steps_an_execution", "loss_scale", "own_train_step", "on_three_axes",
           "a_kernel_used_twice", "eagerly", "reduce_in_a_loop", "in_half_precision",
           "a_product_only_where_it_is_sent_whole", "a_loss_added_by_a_layer", "regularized", "regularized_otherwise",
           "regularized_in_executions", "a_penalty_in_a_loop", "a_penalty_of_each_workers_own"]
# An eager step has no graph in which a product could be found; what differs between workers cannot stay with each.
NO_PRODUCT = ["eagerly", "regularized_otherwise", "a_penalty_of_each_workers_own"]


def train(folder, workers, *names, steps=STEPS, result=None, init=None, **variables):
    python = PYTHON if variables else PREPARED  # TensorFlow has read its variables when it is imported
    return programs.start(python, folder, workers, HERE / "worker.py", folder / (result or f"of{workers}"), str(steps), *names,
                          POSEIDON_TEST_INIT=json.dumps(init or {}), **variables)


def check_ended_well(processes):
    """What they said on standard error, by rank."""
    said = ended(processes)
    for process, errors in zip(processes, said):
        assert process.returncode == 0, errors[-3000:]
    return said


@pytest.fixture(scope="module")
def trained(request, tmp_path_factory):
    """The folder with the variables of every case, of one worker and of two, and with what workers said."""
    folder = tmp_path_factory.mktemp("trained")
    for workers in 1, 2:
        said = check_ended_well(train(folder, workers, *some_cases.names(request)))
        (folder / f"of{workers}-said.json").write_text(json.dumps(said))
    return folder


@pytest.fixture(scope="module")
def with_factors(request, trained):
    check_ended_well(train(trained, 2, *some_cases.names(request), result="with_factors", init=MANY_FACTORS))
    return trained


@pytest.fixture(scope="module")
def repeated(request, with_factors):
    """By another strategy: sums have the order of ranks, whatever leaves first, and updates are the same at once as late."""
    said = check_ended_well(train(with_factors, 2, *some_cases.names(request), result="again", init={**MANY_FACTORS, "strategy": "wfbp"}))
    assert "overlaps with the backward pass alone: the strategy has it so" in said[0]
    return with_factors


def variables(folder, result, name, rank):
    with np.load(folder / f"{result}-{name}-{rank}.npz") as saved:
        return [saved[key] for key in saved.files]


def check_same_bits(folder, result, name):
    one, other = (variables(folder, result, name, rank) for rank in range(2))
    assert len(one) == len(other) > 0
    assert all(np.array_equal(mine, yours) for mine, yours in zip(one, other))


def check_near(folder, result, name):
    alone, shared = variables(folder, "of1", name, 0), variables(folder, result, name, 0)
    largest = max(np.abs(variable).max() for variable in alone)
    assert max(np.abs(one - two).max() for one, two in zip(alone, shared, strict=True)) <= EXACT[name] * largest


@pytest.mark.parametrize("name", [*EXACT, *BITS_ONLY])
def test_workers_end_with_the_same_bits(trained, name):
    check_same_bits(trained, "of2", name)


@pytest.mark.parametrize("name", EXACT)
def test_two_workers_train_what_one_does(trained, name):
    check_near(trained, "of2", name)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_run_again_ends_with_the_same_bits(repeated, name):
    """With a plan that does not follow from measured times."""
    first, again = (variables(repeated, result, name, 0) for result in ("with_factors", "again"))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("name, how", [
    ("sgd", "and the next forward pass"), ("accumulation", "alone: gradients are accumulated"),
    ("loss_scale", "alone: a loss scale depends on all gradients"),
    ("global_clipnorm", "alone: global_clipnorm depends on all gradients"), ("eagerly", "alone: the model runs eagerly"),
    ("own_train_step", "alone: the model has a train_step of its own"),
    ("a_callback_on_batches", "alone: Acting acts on batches")])
def test_what_the_exchange_overlaps_with_is_said_by_rank_0(trained, name, how):
    said = json.loads((trained / "of2-said.json").read_text())
    assert [f"poseidon: the exchange overlaps with the backward pass {how}" in errors for errors in said] == [True, False]


@pytest.mark.parametrize("name, sentence", [
    ("masked", "layer 'embedding' masks, and a loss is the mean over what is left of each worker's own samples"),
    ("sums_and_weighted_means", "a loss with reduction='sum' is on several workers the mean of their sums"),
    ("sums_and_weighted_means", "a loss with reduction='mean_with_sample_weight' divides by the weights of each worker's own samples")])
def test_a_mean_that_one_process_does_not_have_is_said_once(trained, name, sentence):
    for workers, times in (1, [0]), (2, [1, 0]):
        said = json.loads((trained / f"of{workers}-said.json").read_text())
        assert [errors.count("poseidon: " + sentence) for errors in said] == times


@pytest.mark.parametrize("name", ["shuffled_by_number", "shuffled_by_seeds"])
def test_shuffled_batches_come_once_an_epoch(trained, name):
    seen = [variables(trained, "of2-seen", name, rank) for rank in range(2)]
    for one, other in zip(*seen, strict=True):
        epochs = [np.concatenate(both) for both in zip(np.split(one, 2), np.split(other, 2))]
        assert all(np.array_equal(np.sort(epoch), np.arange(len(epoch))) for epoch in epochs)
        assert not np.array_equal(*epochs)


@pytest.mark.parametrize("name", ["forms"])
def test_a_step_is_given_what_keras_gives_it(trained, name):
    """Of each form of data in keras_forms.py: the same structure, types and shapes, and the workers' samples are one's."""
    alone, *both = (json.loads((trained / f"{workers}-seen-{name}-{rank}.json").read_text())
                    for workers, rank in (("of1", 0), ("of2", 0), ("of2", 1)))
    assert len(alone) >= 28
    wrong = {form: (steps, [of[form] for of in both]) for form, steps in alone.items()
             if steps != [together(*given) for given in zip(*(of[form] for of in both), strict=True)]}
    assert not wrong, wrong


def together(one, other):
    """A step of both workers as one step. What is no list has no samples."""
    assert one["structure"] == other["structure"]
    return {**one, "values": [mine + yours if isinstance(mine, list) else mine
                              for mine, yours in zip(one["values"], other["values"], strict=True)]}


# Of each data set in ORDERS of worker.py, what is said of it, and of some that are given to fit. Rank 0 has nothing to say
# against its own seeds.
ON_RANK_1 = {"other_seeds": r"the orders of the data sets differ: rank 1 has a shuffle with the seeds \(2, 1\) where rank 0 has a "
                            r"shuffle with the seeds \(1, 1\), expected the same seeds on all workers",
             "other_seeds_within": r"the orders of the data sets differ: rank 1 has a shuffle with the seeds \(87654321, 1\) where "
                                   r"rank 0 has a shuffle with the seeds \(87654321, 0\)",
             "shuffled_on_one": r"the orders of the data sets differ: rank 1 has a shuffle with the seeds \(87654321, 1\) where "
                                r"rank 0 has no shuffle"}
SAID = {**dict.fromkeys(["none", "seeded", "unknown", "in_threads", "several_seeded", "random_numbers_beside", "each_workers_own",
                         "divided_in_the_first_api"]),
        **dict.fromkeys(["unseeded", "unseeded_once", "unseeded_within", "unseeded_far_within", "unseeded_files",
                         "unseeded_in_one_of_two", "unseeded_of_the_first_api", "unseeded_for_fit", "unseeded_for_validation"],
                        r"the data set is shuffled without a seed before .* expected shuffle\(n, seed=1\) or list_files\("),
        **dict.fromkeys(["uneven_for_fit", "filtered_after_shard"],
                        r"the number of batches of the data set is not known on every worker before it ends, expected one that shard"),
        "several_unseeded": r"the data set is drawn from several without a seed before .* expected sample_from_datasets\(",
        **dict.fromkeys(["overtaking", "overtaking_by_options", "overtaking_within"],
                        r"the data set takes elements in the order in which threads have made them before .* deterministic=True"),
        **ON_RANK_1}


@pytest.mark.parametrize("name", ["orders"])
def test_an_order_of_each_workers_own_is_refused(trained, name):
    alone, *both = (json.loads((trained / f"{workers}-said-{name}-{rank}.json").read_text())
                    for workers, rank in (("of1", 0), ("of2", 0), ("of2", 1)))
    assert alone == dict.fromkeys(SAID)
    for rank, said in enumerate(both):
        expected = {**SAID, **(dict.fromkeys(ON_RANK_1) if rank == 0 else {})}
        wrong = {name: sentence for name, sentence in said.items()
                 if (sentence is None) != (expected[name] is None) or not re.match(expected[name] or "", sentence or "")}
        assert said.keys() == expected.keys() and not wrong, wrong


@pytest.mark.parametrize("name", FACTORS)
def test_factors_train_what_one_worker_does(with_factors, name):
    check_same_bits(with_factors, "with_factors", name)
    check_near(with_factors, "with_factors", name)
    plans = json.loads((with_factors / f"with_factors-{name}-0.json").read_text())
    schemes = {scheme for plan in plans for scheme, _ in plan.values()}
    assert schemes == ({"kv"} if name in NO_PRODUCT else {"kv", "sfb"}), plans


@pytest.mark.parametrize("name, rank, sentence", [
    ("an_optimizer_with_its_own_apply", 0, r"the gradient of variable 'sequential/dense/kernel' comes to Own on a way that is "
                                           r"not exchanged"),
    ("a_model_of_tf_keras", 0, r"distribute was given a tf_keras\.src\.engine\.sequential\.Sequential, expected a keras\.Model of "
                               r"Keras 3"),
    ("made_in_a_scope_of_a_strategy", 0, r"the model is made in a scope of tf\.distribute, expected none"),
    ("compiled_by_xla", 0, r"the model is compiled with jit_compile=True, expected False"),
    ("compiled_by_xla_later", 0, r"the model is compiled with jit_compile=True, expected False"),
    ("a_variable_made_in_a_step", 0, r"variable 'sequential/dense/kernel' is made in the first training step"),
    ("arrays_that_differ", 1, r"the arrays differ: rank 1 has an array 0 of 32x20 with the samples \w+ where rank 0 has .* expected "
                              r"the same on all workers"),
    ("an_undivided_data_set", 0, r"fit was given a tensorflow\.python\.data\.\S+ that nobody has divided among the workers"),
    ("a_list_of_batches", 0, r"shard was given a builtins\.list, expected a tf\.data\.Dataset, a keras\.utils\.PyDataset"),
    ("a_batch_for_one", 0, r"the data set has 1 batches, expected at least one sample for each of 2 workers"),
    ("fewer_batches_on_one", 0, r"the workers' data sets differ in their batches: rank 0 has 4, rank 1 has 3"),
    ("weights_that_part", 0, r"variable 'sequential/middle/kernel' is not the same on all workers after an epoch"),
    ("weights_that_part_at_once", 0, r"variable 'sequential/dense/kernel' .* not the same on all workers after the first step"),
    ("a_trace_without_spans", 0, r"the job was joined without spans to trace, expected init\(trace_spans=100_000\) before"),
    ("other_models", 1, r"the models differ: rank 1 has sequential/dense/kernel 20x11 float32 where rank 0 has "
                        r"sequential/dense/kernel 20x10 float32")])
def test_what_would_go_wrong_in_silence_is_refused(tmp_path, name, rank, sentence):
    processes = train(tmp_path, 2, name, steps=4)
    errors = ended(processes)
    assert all(process.returncode != 0 for process in processes)
    assert re.search(f"PoseidonError: {sentence}", errors[rank]), errors[rank][-2000:]


@pytest.mark.parametrize("name, sentence", [
    ("compiled_by_xla_later", "the model is compiled with jit_compile=True, expected False"),
    ("an_optimizer_with_its_own_apply", "the gradient of variable 'sequential/dense/kernel' comes to Own on a way that is not exchanged")])
def test_what_several_workers_refuse_of_a_model_is_refused_by_one(tmp_path, name, sentence):
    [process] = train(tmp_path, 1, name, steps=4)
    [errors] = ended([process])
    assert process.returncode != 0 and f"PoseidonError: {sentence}" in errors, errors[-2000:]


@pytest.mark.long
def test_no_step_waits_for_a_thread(tmp_path):
    """Ops that waited on a thread of the pool would keep each other from running: loops, branches, late updates."""
    names = ["sgd", "several_steps_an_execution", "accumulation", "loss_scale"]
    check_ended_well(train(tmp_path, 2, *names, init=MANY_FACTORS, steps=20, TF_NUM_INTEROP_THREADS="1", TF_NUM_INTRAOP_THREADS="1"))
    for name in names:
        check_same_bits(tmp_path, "of2", name)


STEPS_TRACED = 8
# The ops that make what leaves: a product, or its second factor; the small layers' leave when the bottom's are there.
MAKES = {"kv": r"/top_1/MatMul/MatMul_1$", "sfb": r"/top_1/TanhGrad$", "bottom": r"/bottom_1/.*Conv2DBackpropFilter$"}


def boxes(trace, category, name):
    """Those of a category whose name, or whose op's, has `name`, as (step, begin, end) in order; ops know no step."""
    chosen = (event for event in trace["traceEvents"]
              if event["ph"] == "X" and event["cat"] == category and re.search(name, event["args"].get("op", event["name"])))
    return sorted((event["args"].get("step"), event["ts"], event["ts"] + event["dur"]) for event in chosen)


@pytest.mark.long
@pytest.mark.parametrize("scheme, label", [("kv", "push"), ("sfb", "factor")])
def test_upper_layers_leave_while_lower_ones_compute(tmp_path, scheme, label):
    """On one clock: a gradient of the top leaves before the last op of a lower layer's backward pass has ended, and none before
    the op that makes it has."""
    schemes = {f"sequential/{layer}/kernel": scheme for layer in ("low", "middle", "top")}
    check_ended_well(train(tmp_path, 2, "traced", steps=STEPS_TRACED, init={"trace_spans": 100_000, "schemes": schemes}))
    trace = json.loads((tmp_path / "trace.json").read_text())
    error = trace["otherData"]["clock_error_us"]
    left = {}
    for layer in "bottom", "top":
        sent = boxes(trace, "send", f"(push|{label}) sequential/{layer}/kernel")
        left[layer] = [min(begin for step, begin, _ in sent if step == one) for one in sorted({step for step, _, _ in sent})]
        pushed = [begin for _, begin, _ in boxes(trace, "compute", f"push op sequential/{layer}/kernel")]
        made = [end for _, _, end in boxes(trace, "backward", MAKES[layer if layer == "bottom" else scheme])]
        assert len(left[layer]) == len(pushed) == len(made) == STEPS_TRACED
        assert all(one <= two + error and two <= three for one, two, three in zip(made, pushed, left[layer]))
    lower = [end for _, _, end in boxes(trace, "backward", r"/(low|bottom)_1/")]
    # Of the same step are those that end before the layer at the bottom leaves.
    ahead = [max(end for end in lower if end <= bottom) - top for bottom, top in zip(left["bottom"], left["top"])]
    print("microseconds from the top's first byte to the end of the last backward op below:", *map(round, ahead))
    assert any(before > error for before in ahead), ahead
    assert boxes(trace, "update", "AssignSub")


@pytest.mark.long
def test_training_goes_on_with_another_number_of_workers(tmp_path):
    check_ended_well(train(tmp_path, 1, "both_halves", steps=STEPS // 2))
    whole = variables(tmp_path, "of1", "both_halves", 0)
    for before, after in (2, 1), (1, 2):
        check_ended_well(train(tmp_path, before, "the_first_half", steps=STEPS // 2))
        check_ended_well(train(tmp_path, after, "the_second_half", steps=STEPS // 2, result="parts"))
        for own in (variables(tmp_path, "parts", "the_second_half", rank) for rank in range(after)):
            assert max(np.abs(one - two).max() for one, two in zip(whole, own, strict=True)) <= 1e-5


@pytest.mark.parametrize("name", ["an_exception_in_a_callback", "an_exception_and_shutdown"])
def test_an_exception_of_one_worker_ends_all_with_its_words(tmp_path, name):
    processes = train(tmp_path, 2, name)
    other, raised = ended(processes)
    assert all(process.returncode != 0 for process in processes)
    assert "ValueError: the disk is full" in raised
    assert re.search(r"(AbortedError: .*|PoseidonError: )worker 1 .*ValueError: the disk is full", other, re.DOTALL), other[-2000:]


@needs_tensorboard
def test_a_board_is_written_by_rank_0(tmp_path):
    check_ended_well(train(tmp_path, 2, "a_board_is_written"))


def test_a_script_that_exits_early_is_named(tmp_path):
    other, _ = ended(processes := train(tmp_path, 2, "a_script_that_exits"))
    assert [process.returncode for process in processes] == [1, 3]
    assert re.search(r"(AbortedError: .*|PoseidonError: )worker 1 .*has left the job without", other, re.DOTALL), other[-2000:]


DEAD_AFTER = 5
# What the other is told, and in how many seconds its step raises it, or the comparison of weights after an epoch. A frozen
# worker is found by its silence; then there is raising to do, on a machine that may be busy.
LOST = {"killed": ("was lost", 1.0), "frozen": (r"has been silent for \S+ s: it is frozen", DEAD_AFTER + 0.5)}


@pytest.mark.parametrize("graph", ["", "_of_eager_ones"], ids=["graph", "eager"])
@pytest.mark.parametrize("fault", LOST)
def test_a_lost_worker_is_named_in_time(tmp_path, fault, graph):
    sentence, within = LOST[fault]
    processes = train(tmp_path, 2, f"a_{fault}_worker{graph}", init={"dead_after": DEAD_AFTER})
    try:
        heard, errors = processes[0].communicate(timeout=PATIENCE)
    finally:
        for process in processes:
            process.kill()
    began, _ = processes[1].communicate()
    assert processes[0].returncode not in (0, -9), errors[-2000:]
    assert re.search(rf"(AbortedError: .*|PoseidonError: )worker 1 on host \S+ {sentence}", errors, re.DOTALL), errors[-2000:]
    took = float(heard) - float(began)
    print(f"a {fault} worker was named after {took:.3f} s")
    assert took <= within * TIMEOUT_FACTOR


def test_factors_are_multiplied_by_the_blas_of_numpy():
    """Named, none other is looked for: the cases with factors show that the core knows its functions."""
    said = subprocess.run([PYTHON, "-B", "-c", "import poseidon.tensorflow as p; print(p.blas_of_numpy())"],
                          env={**os.environ, "PYTHONPATH": str(FRONT_END), "POSEIDON_BLAS": ""},
                          capture_output=True, text=True)
    assert re.search(r"numpy\.libs/lib(scipy_)?openblas64_\S+\.so$", said.stdout.strip()), said


def test_nobody_waits_for_the_thread_that_tunes_buffers():
    """A worker that drops an iterator does, for as long as the thread sleeps: that of arrays has none."""
    said = subprocess.run([PYTHON, "-B", "-c", "import numpy as np; from poseidon.keras import data; print(data.batches_of("
                                               "np.zeros((8, 2)), 4, 0, 2, lambda _: np.arange(8), True).options().autotune.enabled)"],
                          env={**os.environ, "PYTHONPATH": str(FRONT_END)}, capture_output=True, text=True)
    assert said.stdout.strip() == "False", said


def test_an_older_keras_is_refused(tmp_path):
    (tmp_path / "keras.py").write_text('__version__ = "3.4.1"\n')
    said = subprocess.run([PYTHON, "-B", "-c", "import poseidon.keras"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}:{FRONT_END}"})
    assert said.stderr.endswith("PoseidonError: Keras is 3.4.1, expected 3.5 or newer\n"), said.stderr


def test_a_copy_elsewhere_is_no_matter(tmp_path):
    """TensorFlow loads a library by its path; ours says what is missing where it is not there."""
    environment = {**os.environ, "PYTHONPATH": str(FRONT_END), "POSEIDON_TENSORFLOW_LIBRARY": str(tmp_path / "none.so")}
    done = subprocess.run([PYTHON, "-B", "-c", "import poseidon.tensorflow.ops as o; o.load()"], env=environment,
                          capture_output=True, text=True)
    assert "ImportError: libposeidon_tensorflow.so is missing" in done.stderr
    copy = shutil.copy(os.environ["POSEIDON_TENSORFLOW_LIBRARY"], tmp_path / "copy.so")
    done = subprocess.run([PYTHON, "-B", "-c", "import poseidon.tensorflow.ops as o; o.load(); print('loaded')"],
                          env={**environment, "POSEIDON_TENSORFLOW_LIBRARY": str(copy)}, capture_output=True, text=True)
    assert done.stdout.strip() == "loaded", done.stderr[-2000:]
