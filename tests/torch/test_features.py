# SPDX-License-Identifier: Apache-2.0
"""What training scripts do gives what it gives in one process on the concatenated batch."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import features  # noqa: E402
from conftest import WORKERS  # noqa: E402


def assert_trained(name, answers):
    expected = features.reference(name, WORKERS)
    (weights, schemes, _), *others = answers
    for other, others_schemes, _ in others:
        assert others_schemes == schemes
        assert [key for key, tensor in weights.items() if not torch.equal(tensor, other[key])] == []
    tolerance = features.ALL[name].tolerance
    assert weights.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(weights[key], tensor, rtol=tolerance, atol=tolerance,
                                   msg=lambda text, key=key: f"{key}: {text}")
    return schemes


@pytest.mark.parametrize("name", features.FEATURES)
def test_two_workers_train_as_one(planned, name):
    assert_trained(name, planned.train(name))


@pytest.mark.parametrize("name", features.FORCED)
def test_two_workers_train_as_one_with_factors_from_the_first_step(forced, name):
    assert set(assert_trained(name, forced.train(name)).values()) == {"sfb"}


@pytest.mark.parametrize("name", ["Plain", "Autocast", "Tied", "Twice", "Unused", "Frozen", "Thawed", "Checkpointed",
                                  "CheckpointedReentrantly", "Adapted", "Recurrent", "Statistics", "Synchronized",
                                  "Halves", "LateAutocast", "LateHookOnRank1", "LatePenaltyOnRank1"])
def test_two_workers_train_as_one_with_overlap(planned, name):
    assert_trained(name, planned.train(name, overlap=True))


@pytest.mark.parametrize("name", [name for name in features.FEATURES if name.startswith("Late")])
def test_the_plan_sends_factors_where_something_begins_late(planned, name):
    _, schemes, _ = planned.train(name)[0]
    assert schemes["2"] == "sfb"
