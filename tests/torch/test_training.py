# SPDX-License-Identifier: Apache-2.0
"""Training through poseidon.torch gives what one process gives that averages all workers' gradients."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import worker  # noqa: E402
from conftest import FACTORS, differing  # noqa: E402


def assert_close(result, expected, tolerance):
    for name, parameter in expected.items():
        torch.testing.assert_close(result["weights"][name], parameter.detach(), rtol=tolerance,
                                   atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("workers", [2, 3])
def test_dense_is_the_mean_of_all_workers(job, workers):
    case, results = job.train(workers=workers)
    assert_close(results[0], worker.reference(case), 1e-6)
    assert set(results[0]["schemes"][-1].values()) == {"kv"}


@pytest.mark.parametrize("workers", [2, 3])
def test_factors_are_the_mean_of_all_workers(job, workers):
    case, results = job.train(workers=workers, schemes=FACTORS)
    assert_close(results[0], worker.reference(case), 1e-5)
    assert {name for name, scheme in results[0]["schemes"][-1].items() if scheme == "sfb"} == set(FACTORS)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("schemes", [None, FACTORS], ids=["dense", "factors"])
def test_overlap_changes_no_bit(job, optimizer, schemes):
    """The learning rate falls every step: each update takes the one of its own step."""
    words = {"optimizer": optimizer, "schemes": schemes}
    _, waiting = job.train(**words)
    _, overlapped = job.train(overlap=True, **words)
    assert differing(waiting[0]["weights"], overlapped[0]["weights"]) == []


def test_what_has_landed_is_updated_while_another_layer_is_waited_for(job):
    case, results = job.train(overlap=True, holds=True)
    assert_close(results[0], worker.reference(case), 1e-6)


def test_gradients_after_backward_are_the_mean_everywhere(job):
    _, results = job.train(reads_gradients=True, schemes={"wide": "sfb"})
    for one, other in zip(results[0]["gradients"], results[1]["gradients"]):
        assert all(torch.equal(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("schemes", [None, FACTORS], ids=["dense", "factors"])
@pytest.mark.parametrize("words", [{}, {"set_to_none": False}, {"overlap": True}], ids=str)
def test_gradients_accumulate_over_backward_passes(job, words, schemes):
    case, results = job.train(micro=2, schemes=schemes, steps=4, **words)
    assert_close(results[0], worker.reference(case), 1e-5)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_may_be_skipped(job, overlap):
    case, results = job.train(skipped=[1, 4], overlap=overlap, evaluates=True)
    assert_close(results[0], worker.reference(case), 1e-5)


def test_the_final_plan_comes_in_the_middle(job):
    case, results = job.train(final_plan_step=3, overlap=True, steps=8)
    assert_close(results[0], worker.reference(case), 1e-5)
    for result in results:
        assert all(result["reasons"].values())
        assert result["schemes"][-1] == results[0]["schemes"][-1]
