# SPDX-License-Identifier: Apache-2.0
"""Parameters on a device. Mostly one whose work ends late (late_device): what does not wait for it finds NaN or old numbers.
With POSEIDON_TEST_DEVICE=cuda a GPU."""
import re

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import accelerator  # noqa: E402
import device_cases  # noqa: E402
import features  # noqa: E402
from conftest import FORKS, PATIENCE, Workers  # noqa: E402
from test_distribute import run  # noqa: E402
from test_features import assert_trained  # noqa: E402

if accelerator.why_not():
    pytest.skip(accelerator.why_not(), allow_module_level=True)
KIND = accelerator.KIND

# The others compute in part with tensors of the host, or what the late device has no operator for.
LATE = ["Plain", "Accumulation", "ClippedByNorm", "Tied", "Twice", "Unused", "Frozen", "Thawed", "Grown", "Checkpointed", "Adapted",
         "Statistics", "Synchronized", "Penalty", "WholeBatch", "Retained", "HalvesRounded", "LateHook", "LatePenaltyOnRank1",
         "Split", "Multiplied", "InParts", "Launched", "Autocast", "Scaled"]
# Grown draws weights in a step: a GPU draws others than the host. Registered needs workers that combine first.
NAMES = LATE if KIND == "late" else [name for name, one in features.ALL.items()
                                     if name not in ("Grown", "Registered") and not issubclass(one, features.Parted)]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    workers = Workers(tmp_path_factory.mktemp("devices"), (KIND, KIND), policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def each_its_own(tmp_path_factory):
    """On devices 0 and 1 of a machine, by their local ranks."""
    workers = Workers(tmp_path_factory.mktemp("own"), (f"{KIND}:0", f"{KIND}:1"), policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def with_slow_copies(tmp_path_factory):
    """Else it is what computes that is slow."""
    workers = Workers(tmp_path_factory.mktemp("copies"), (KIND, KIND), (50, 1500), policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def combined(tmp_path_factory):
    """Workers whose gradients meet in the memory of their host."""
    workers = Workers(tmp_path_factory.mktemp("combined"), (KIND, KIND), levels="host", policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Likewise, but factors go from worker to worker."""
    workers = Workers(tmp_path_factory.mktemp("beside"), (KIND, KIND), levels="host", schemes={"0": "sfb", "2": "fsc", "4": "kv"})
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Likewise, and their device takes no memory of others."""
    workers = Workers(tmp_path_factory.mktemp("refused"), (KIND, KIND), (50, 1500, False), levels="host", policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    workers = Workers(tmp_path_factory.mktemp("mixed"), (None, KIND), policy="bytes", final_plan_step=3)
    yield workers
    workers.end()


@pytest.mark.parametrize("name", NAMES)
def test_two_workers_train_as_one(planned, name):
    assert_trained(name, planned.train(name))


@pytest.mark.parametrize("name", ["Plain", "Tied", "Unused", "Thawed", "Statistics", "LateHook", "Split", "Multiplied",
                                  "InParts", "Launched"])
def test_two_workers_train_as_one_with_overlap(planned, name):
    assert_trained(name, planned.train(name, overlap=True))


@pytest.mark.skipif(KIND != "late" and torch.cuda.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["Plain", "Statistics", "Multiplied"])
def test_each_worker_may_have_a_device_of_its_own(each_its_own, name, overlap):
    assert_trained(name, each_its_own.train(name, overlap=overlap))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["Plain", "Tied", "Statistics", "Split", "InParts"])
def test_copies_are_waited_for(with_slow_copies, name, overlap):
    assert_trained(name, with_slow_copies.train(name, overlap=overlap))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["Plain", "Tied", "Unused", "Statistics"])
def test_gradients_are_checked(planned, name, overlap):
    answers = planned.train(name, check_every=1, overlap=overlap)
    assert_trained(name, answers)
    assert not [line for answer in answers for line in answer.said if "are compared" in line], "some were not"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["Registered", "Tied", "Unused", "Thawed", "Statistics", "InParts"])
def test_gradients_meet_in_the_memory_of_the_host(combined, name, overlap):
    answers = combined.train(name, overlap=overlap)
    assert_trained(name, answers)
    if lacks := [answer.lacks for answer in answers if answer.lacks]:
        pytest.skip(lacks[0])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["Plain", "Multiplied"])
def test_factors_go_beside_gradients_that_meet_there(beside, name, overlap):
    answers = beside.train(name, overlap=overlap)
    assert_trained(name, answers)
    assert set(answers[0].schemes.values()) >= {"sfb", "fsc", "kv"}, answers[0].schemes


@pytest.mark.parametrize("name", ["Plain", "InParts"])
def test_a_device_that_takes_no_memory_of_others_copies_through_its_own(refused, name):
    assert_trained(name, refused.train(name))


def test_factors_go_from_a_device(planned):
    assert planned.train("Plain")[0].schemes["2"] == "sfb"


@pytest.mark.parametrize("name", ["Plain", "Statistics"])
def test_one_worker_may_be_on_the_host(mixed, name):
    expected = features.reference(name, 2)
    for weights, schemes, *_ in mixed.train(name):
        assert set(schemes.values()) == {"kv"}, "a device's products differ from the host's"
        for key, tensor in expected.items():
            torch.testing.assert_close(weights[key], tensor, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", device_cases.CASES)
def test_one_worker(tmp_path, case):
    log = tmp_path / "log"
    child = FORKS.Process(target=device_cases.run, args=(case, log))
    child.start()
    child.join(PATIENCE)
    child.kill()
    child.join()
    assert child.exitcode == 0, log.read_text()[-3000:]


@pytest.mark.skipif(KIND != "late", reason="loses the device")
@pytest.mark.parametrize("case, reason", [
    ("loses_its_device", r"its device fails: late error: unspecified launch failure \("),
    ("lacks_memory_of_its_device", r"its device is out of memory: .* is free; expected a smaller batch, or fewer workers that share the device \(")])
def test_a_device_that_fails_ends_the_job_with_its_words(tmp_path, case, reason):
    (_, others_said), (code, own) = run(tmp_path, 2, case)
    assert code == 1 and "Error" in own, own[-3000:]
    assert re.search(r"PoseidonError: worker 1 on host \S+: " + reason, others_said), others_said[-3000:]


@pytest.mark.parametrize("case", ["fails_on_a_device", "fails_in_a_backward_pass_on_a_device", "fails_on_a_device_with_overlap",
                                  "fails_in_a_backward_pass_on_a_device_with_overlap"])
def test_all_others_get_the_reason_of_a_rank_that_fails(tmp_path, case):
    *others, (code, errors) = run(tmp_path, 3, case)
    assert code == 1 and errors.count("ValueError: the data are gone") == 1, errors[-3000:]
    said = r"PoseidonError: worker 2 on host \S+: its script failed: ValueError: the data are gone"
    for code, errors in others:
        assert code == 1 and re.search(said, errors), errors[-3000:]
