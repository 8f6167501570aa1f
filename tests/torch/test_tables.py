# SPDX-License-Identifier: Apache-2.0
"""Sparse embeddings: the gradient is all workers' rows in the order of ranks, as of one process on all their batches."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
import words  # noqa: E402
from poseidon import PoseidonError  # noqa: E402


def assert_same_rows(one, other, in_order):
    """Where they are in one order, indices and values unmerged; else their sums."""
    assert one.is_sparse and other.is_sparse
    if in_order:
        assert torch.equal(one._indices(), other._indices())
        torch.testing.assert_close(one._values(), other._values(), rtol=1e-5, atol=1e-7)
    else:
        torch.testing.assert_close(one.to_dense(), other.to_dense(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", [{}, {"workers": 3}, {"optimizer": "adagrad"}, {"optimizer": "adam"}, {"clips": True},
                                  {"micro": 2}, {"micro": 2, "set_to_none": False}, {"final_plan_step": 3},
                                  {"overlap": True}], ids=str)
def test_training_is_that_of_one_process(job, case):
    case, results = job.train(words=True, **{"steps": 8, **case})
    weights, gradients = words.reference(case)
    for name, tensor in weights.items():
        torch.testing.assert_close(results[0]["weights"][name], tensor, rtol=1e-5, atol=1e-6)
    for result in results:
        for found, expected in zip(result["gradients"], gradients, strict=not case["overlap"]):
            for name in expected:
                assert (found[name] is None) == (expected[name] is None), name
            for name in filter(lambda name: expected[name] is not None, words.TABLES):
                # A table that is used twice has the rows of one use behind those of the other, of all ranks or of each.
                assert_same_rows(found[name], expected[name], name != "words.weight" and case["micro"] == 1)
    assert results[0]["plan"]["words"] == ("sfb", "the rows of a table go to every worker as they are")


def test_a_table_that_has_a_dense_use_is_refused(alone):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True))
    poseidon.torch.wrap(model)
    with pytest.raises(PoseidonError, match="gradient of layer '0' is dense, expected a weight of Embedding.sparse=True. that"):
        (model(torch.tensor([1, 2])).sum() + model[0].weight.sum()).backward()


def test_a_sparse_use_of_other_weights_is_refused(alone):
    model = torch.nn.Sequential(torch.nn.Linear(4, 10, bias=False))
    poseidon.torch.wrap(model)
    with pytest.raises(PoseidonError, match="gradient of layer '0' is sparse, expected Embedding.sparse=False."):
        torch.nn.functional.embedding(torch.tensor([1, 2]), model[0].weight, sparse=True).sum().backward()


def test_tied_to_a_linear_an_embedding_is_dense(alone):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 10, bias=False))
    model[1].weight = model[0].weight
    exchange = poseidon.torch.wrap(model)
    model(torch.tensor([1, 2])).sum().backward()
    assert not model[0].weight.grad.is_sparse
    assert exchange.plan()["0"][0] == "kv"


def test_one_weight_of_two_embeddings_is_one_table(alone):
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Embedding(10, 4, sparse=True))
    model[1].weight = model[0].weight
    exchange = poseidon.torch.wrap(model)
    (model[0](torch.tensor([1])) + 2 * model[1](torch.tensor([3, 3]))).sum().backward()
    gradient = model[0].weight.grad
    assert gradient._nnz() == 3
    assert torch.equal(gradient.to_dense().sum(1), torch.tensor([0.0, 8, 0, 16, 0, 0, 0, 0, 0, 0]))
    assert set(exchange.plan()) == {"0"}


def test_a_forced_scheme_is_refused(job):
    for one in job.run(job.case(words=True, schemes={"words": "kv"})):
        assert one.code == 3 and "scheme kv is given for layer 'words', a table" in one.failure["message"]
