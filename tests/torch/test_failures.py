# SPDX-License-Identifier: Apache-2.0
"""Every failure is one sentence, in a Python exception."""
import copy
import os
import pickle
import signal
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon  # noqa: E402
import poseidon.launch  # noqa: E402
import poseidon.session  # noqa: E402
import poseidon.torch  # noqa: E402
import torch.utils.checkpoint  # noqa: E402
from conftest import FRONT_END, HERE, PATIENCE, free_port  # noqa: E402
from poseidon import PoseidonError  # noqa: E402


@pytest.mark.parametrize("overlap", [False, True])
def test_a_killed_worker_is_named_by_all_others(job, overlap):
    ended = job.run(job.case(workers=3, death=[1, 3], overlap=overlap))
    assert ended[1].code == -signal.SIGKILL
    for rank in (0, 2):
        assert ended[rank].code == 3, ended[rank].errors
        assert ended[rank].failure["culprit"] == 1
        assert "worker 1" in ended[rank].failure["message"]


@pytest.mark.parametrize("cleans_up", [False, True])
def test_a_failing_script_tells_the_others_why(job, cleans_up):
    """Also where it shuts down in a `finally`, which must not wait for those who wait for its gradients."""
    ended = job.run(job.case(raises=[1, 2], **{"finally": cleans_up}))
    assert "ValueError: the data are gone" in ended[1].errors
    assert ended[1].code == 1
    assert ended[0].code == 3, ended[0].errors
    assert ended[0].failure["culprit"] == 1
    assert "ValueError: the data are gone (worker.py:" in ended[0].failure["message"]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_gradient_that_comes_again_before_its_mean_is_refused(alone, overlap):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    poseidon.torch.wrap(model, optimizer, overlap=overlap)
    loss = model(torch.ones(1, 3)).sum()
    loss.backward(retain_graph=True)
    if overlap:
        with pytest.raises(PoseidonError, match="layer '0' came again before its mean, expected one backward"):
            loss.backward()
    else:
        loss.backward()
        assert torch.equal(model[0].weight.grad, torch.full((2, 3), 2.0))


def test_a_token_is_needed(monkeypatch):
    monkeypatch.delenv("POSEIDON_TOKEN_FILE", raising=False)
    with pytest.raises(PoseidonError, match="token is missing, expected POSEIDON_TOKEN_FILE"):
        poseidon.torch.init(rank=0, workers=2, port=1)


def test_a_place_is_needed(monkeypatch):
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(PoseidonError, match="rank 0's port is not known"):
        poseidon.torch.init(rank=1, workers=2, token_file="x")
    monkeypatch.setenv("RANK", "two")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PoseidonError, match="variable RANK is 'two', expected a number"):
        poseidon.torch.init()


@pytest.mark.parametrize("name, near", [
    ("join_timout", "join_timeout"), ("Schemes", "schemes"), ("trace_span", "trace_spans"), ("token", "token_file"), ("x", "one of bandwidth, blas, ")])
def test_an_option_that_is_none_is_named_with_the_one_that_is_like_it(name, near):
    with pytest.raises(PoseidonError, match=f"init was given {name}, which is no option, expected {near}"):
        poseidon.torch.init(rank=0, workers=1, **{name: 1})


def test_the_package_has_what_its_one_front_end_has(monkeypatch):
    """As where a script has named the front end poseidon, and imports poseidon.lightning behind it."""
    assert poseidon.rank is poseidon.torch.rank and poseidon.distribute is poseidon.torch.distribute
    with pytest.raises(AttributeError, match="module 'poseidon' has no attribute 'ranks'$"):
        poseidon.ranks  # noqa: B018  # its being asked for is the test
    other = types.ModuleType("poseidon.tensorflow")
    other.__all__, other.rank = ["rank"], len
    monkeypatch.setitem(sys.modules, "poseidon.tensorflow", other)
    with pytest.raises(AttributeError, match="no attribute 'rank': poseidon.torch and poseidon.tensorflow have, expected the name of one"):
        poseidon.rank  # noqa: B018  # see above
    assert poseidon.join is poseidon.session.join  # its own


@pytest.mark.parametrize("overlap", [False, True])
def test_the_model_stays_when_the_job_is_shut_down_where_an_exception_is_caught(overlap):
    poseidon.torch.init(rank=0, workers=1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    poseidon.torch.wrap(model, optimizer, overlap=overlap)
    try:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        poseidon.torch.shutdown()
        model.state_dict()
    optimizer.zero_grad()
    loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    optimizer.step()
    assert model(torch.ones(1, 3)).sum() < loss
    poseidon.torch.init(rank=0, workers=1)  # again: nothing is left of the job before
    poseidon.torch.shutdown()


@pytest.mark.parametrize("host, expected", [
    ("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1"), ("10.1.2.3", "10.1.2.3")])
def test_an_address_that_was_given_is_taken(monkeypatch, host, expected):
    """The other addresses: poseidon/place/address_test.cc."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    place = poseidon.launch.Place.find(0, 2, host, 29500, "127.0.0.3")
    assert (place.coordinator, place.port, place.listen, place.local) == (expected, 29500, "127.0.0.3", 1)


def test_what_is_thawed_without_the_model_s_own_forward_pass_is_named(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    model[0].requires_grad_(False)
    poseidon.torch.wrap(model)
    model(torch.ones(1, 3)).sum().backward()
    model[0].requires_grad_(True)
    with pytest.raises(PoseidonError, match="parameter '0.weight' requires a gradient and did not when the model"):
        model[1](model[0](torch.ones(1, 3))).sum().backward()
    model(torch.ones(1, 3)).sum().backward()
    assert torch.equal(model[1].bias.grad, 2 * torch.ones(2))


@pytest.mark.parametrize("scheme", ["kv", "sfb"])
def test_one_of_weight_and_bias_may_be_asked_for(scheme):
    poseidon.torch.init(rank=0, workers=1, schemes={"0": scheme, "2": scheme})
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    plain = copy.deepcopy(model)
    poseidon.torch.wrap(model)
    for name in ("weight", "bias"):
        for one in (model, plain):
            one.zero_grad()
            one(torch.ones(1, 3)).sum().backward(inputs=[getattr(one[2], name)])
        for one, other in zip(model.parameters(), plain.parameters()):
            assert (one.grad is None) == (other.grad is None) and (one.grad is None or torch.equal(one.grad, other.grad))
    poseidon.torch.shutdown()


def test_a_reentrant_checkpoint_around_the_wrapped_model_is_refused(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    poseidon.torch.wrap(model)
    around = torch.utils.checkpoint.checkpoint(model, torch.ones(1, 3, requires_grad=True), use_reentrant=True)
    with pytest.raises(PoseidonError, match="the backward pass of a checkpoint ended inside one whose beginning the distributed"):
        around.sum().backward()


def test_overlap_needs_an_optimizer_that_updates_by_parameter(alone):
    model = torch.nn.Linear(3, 2)
    with pytest.raises(PoseidonError, match="overlap is not possible with LBFGS, expected one of SGD, Adam"):
        poseidon.torch.wrap(model, torch.optim.LBFGS(model.parameters()), overlap=True)


def test_complex_numbers_are_refused_by_name(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2).to(torch.complex64))
    with pytest.raises(PoseidonError, match="'1.weight' is torch.complex64, expected float32, float64, bfloat16 or float16"):
        poseidon.torch.wrap(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
                         ids=["deepcopy", "pickle"])
def test_copies_of_a_wrapped_model_are_on_their_own(alone, copied):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    poseidon.torch.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), overlap=True)
    other = copied(model)
    for _ in range(2):
        other.zero_grad()
        other(torch.ones(1, 3)).sum().backward()
        assert torch.equal(other[0].weight.grad, torch.ones(2, 3))
        assert model[0].weight.grad is None


def test_autocast_takes_the_dense_path(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    poseidon.torch.wrap(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.ones(1, 3)).float().sum().backward()
    assert torch.equal(model[0].weight.grad, torch.ones(2, 3))


def test_the_example_runs_under_torchrun(tmp_path):
    token = tmp_path / "job.token"
    poseidon.make_token_file(token)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
         str(free_port()), str(HERE.parents[1] / "examples" / "torch" / "mlp.py")],
        env={**os.environ, "PYTHONPATH": str(FRONT_END), "POSEIDON_TOKEN_FILE": str(token),
             "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "step 80 loss" in done.stdout and "layer 4:" in done.stdout
