# SPDX-License-Identifier: Apache-2.0
"""Training scripts give what one process gives on the concatenated batch, feature by feature."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import features  # noqa: E402
from conftest import COUNTS, Failed, Workers, differing  # noqa: E402


def assert_trained(name, answers):
    expected = features.reference(name, len(answers))
    (weights, schemes, *_), *others = answers
    for other in others:
        assert other.schemes == schemes
        assert differing(weights, other.weights) == []
    tolerance = features.ALL[name].tolerance
    assert weights.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(weights[key], tensor, rtol=tolerance, atol=tolerance,
                                   msg=lambda text, key=key: f"{key}: {text}")
    return schemes


@pytest.mark.parametrize("name", features.FEATURES)
def test_workers_train_as_one(planned, name):
    assert_trained(name, planned.train(name))


@pytest.mark.parametrize("name", features.FORCED)
def test_workers_train_as_one_with_factors_from_the_first_step(forced, name):
    assert set(assert_trained(name, forced.train(name)).values()) == {"sfb"}


def test_a_graph_of_before_the_change_keeps_its_factors_out_of_the_new_layers(forced):
    assert_trained("ThawedBetweenForwards", forced.train("ThawedBetweenForwards"))


@pytest.mark.parametrize("name", ["Plain", "Autocast", "Tied", "Twice", "Unused", "Frozen", "Thawed", "Checkpointed",
                                  "CheckpointedReentrantly", "Adapted", "Recurrent", "Statistics", "Synchronized",
                                  "Halves", "LateAutocast", "LateHookOnRank1", "LatePenaltyOnRank1"])
def test_workers_train_as_one_with_overlap(planned, name):
    assert_trained(name, planned.train(name, overlap=True))


@pytest.mark.parametrize("name", [name for name in features.FEATURES if name.startswith("Late")])
def test_the_plan_sends_factors_where_something_begins_late(planned, name):
    """To the end, or until the gradient has come whole in ten steps."""
    answer, *_ = planned.train(name)
    assert answer.schemes.get("2") == "sfb" or any(line.startswith("layer '2' goes as factors and") for line in answer.said)


@pytest.fixture(scope="module", params=COUNTS)
def planned_at_ten(tmp_path_factory, request):
    workers = Workers(tmp_path_factory.mktemp("ten"), (None,) * request.param, policy="bytes", final_plan_step=10)
    yield workers
    workers.end()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["WholeFromTheSwitch", "WholeFromTheSwitchOnRank1"])
def test_what_keeps_coming_whole_goes_whole(planned_at_ten, name, overlap):
    """On all workers from the same step on; the others stay factors."""
    answers = planned_at_ten.train(name, overlap=overlap)
    assert assert_trained(name, answers) == {"0": "sfb", "2": "kv", "4": "kv"}
    for answer in answers:
        assert [line for line in answer.said if "it goes whole from the next step on" in line] == [
            "layer '2' goes as factors and its gradient came whole in 10 steps: it goes whole from the next step on, and the "
            "others are planned anew"]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name, said", [
    ("FrozenOnRank1", "'2.weight' is frozen on rank 1 and trained on rank 0"),
    ("ThawedOnRank1", "'2.weight' is new on rank 1 and frozen on rank 0"),
    ("ThawedOnRank0", "'2.bias' is frozen on rank 1 and new on rank 0"),
    ("ThawedInOthers", "'2.weight' is frozen on rank 1 and new on rank 0"),
    ("GrownOnRank1", "'4.weight' is new on rank 1 and trained on rank 0")])
def test_what_one_worker_freezes_thaws_or_adds_ends_all_in_a_sentence(planned, name, said, overlap):
    with pytest.raises(Failed) as failed:
        planned.train(name, overlap=overlap)
    sentence = f"PoseidonError: parameter {said}, expected that parameters are frozen, thawed and added on all workers in the same"
    assert str(failed.value).count(sentence) == len(planned.devices), failed.value


def test_an_embedding_that_changes_its_weight_is_refused(planned):
    with pytest.raises(Failed) as failed:
        planned.train("Renormed")
    sentence = "PoseidonError: Embedding '1' has max_norm=1.0, which changes its weight in the forward pass"
    assert str(failed.value).count(sentence) == len(planned.devices), failed.value
