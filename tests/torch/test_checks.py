# SPDX-License-Identifier: Apache-2.0
"""distribute(check_every=...): an exchange with something wrong in it is named, and a right one is left alone."""
import os
import random
import re

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import broken  # noqa: E402
import features  # noqa: E402
import poseidon.torch  # noqa: E402
from conftest import FACTORS, FORKS, PATIENCE, free_port  # noqa: E402
from poseidon.torch.replica_checks import ReplicaChecks  # noqa: E402
from test_silence import mlp, sgd, train, whole  # noqa: E402

WORKERS = 2
# Of features one in three, all of them in `make soak`: each trains for a second or two.
SOME = slice(None, None, 1 if int(os.environ.get("POSEIDON_DRILLS", "10")) > 10 else 3)
CHECKED = "gradients of step"  # begins what the log says of a step that was not run again


def answers(folder, fault, at, step, options, **words):
    """Every rank's answer in a job that has the fault on rank `at` from `step` on."""
    token = folder / "job.token"
    poseidon.torch.make_token_file(token)
    options = {"workers": WORKERS, "port": free_port(), "token_file": str(token), "final_plan_step": None, **options}
    pipes, ends = zip(*(FORKS.Pipe() for _ in range(WORKERS)))
    processes = [FORKS.Process(target=broken.work, args=(rank, options, fault, at, step, words, end))
                 for rank, end in enumerate(ends)]
    try:
        for process in processes:
            process.start()
        for pipe in pipes:
            assert pipe.poll(PATIENCE), "a rank does not answer"
        return [pipe.recv() for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()


WHOLE, AS_FACTORS = {"schemes": {"2": "kv"}}, {"schemes": features.FACTORS}
NOT_FINAL = {"schemes": {"2": "kv"}, "final_plan_step": 10}  # so factors are multiplied here, and their product goes whole
WRONG = r"the gradient of parameter '{}' is wrong on {} in step {}: "
BEHIND = r"it is off by \S+ from {}, expected at most \S+$"
WEIGHT = "2.weight"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("fault, at, options, named, said", [
    ("a_push_is_skipped", 1, WHOLE, (WEIGHT, "rank 1"),
     r"it is off by \S+ from the all-reduce, as if this rank had sent nothing"),
    ("factors_are_dropped", 0, AS_FACTORS, (WEIGHT, "rank 0"), "there is none, and plain autograd has one"),
    ("factors_are_dropped", 1, NOT_FINAL, (WEIGHT, "rank 1"), "there is none, and plain autograd has one"),
    ("a_node_is_lost", 1, AS_FACTORS, (WEIGHT, "rank 1"), "there is none, and plain autograd has one"),
    ("factors_are_others", 1, AS_FACTORS, (WEIGHT, "rank 1"), BEHIND.format("plain autograd's")),
    ("input_gradients_are_others", 0, AS_FACTORS, ("0.weight", "rank 0"), BEHIND.format("plain autograd's")),
    ("a_mean_is_written_over", 1, WHOLE, (WEIGHT, "rank 1"), BEHIND.format("the all-reduce")),
    ("a_mean_is_written_over", 0, AS_FACTORS, (WEIGHT, "rank 0"), BEHIND.format("the all-reduce"))])
def test_a_wrong_gradient_is_named(tmp_path, fault, at, options, named, said, overlap):
    for answer in answers(tmp_path, fault, at, 1, options, overlap=overlap, check_every=100):
        assert answer is not None, "nothing was found"
        assert re.match(WRONG.format(*named, 1) + said, answer), answer


def test_a_gradient_that_is_taken_away_is_named(tmp_path):
    for answer in answers(tmp_path, "a_gradient_is_taken_away", 0, 1, WHOLE, check_every=100):
        assert answer == WRONG.format(WEIGHT, "rank 0", 1) + "there is none, and the all-reduce has one"


def test_the_first_steps_of_the_final_plan_are_compared(tmp_path):
    """A fault from step 3 on alone; none where there is no such plan, and the third step is the last."""
    planned = {"policy": "bytes", "final_plan_step": 5}
    for answer in answers(tmp_path, "factors_are_others", 1, 3, planned, check_every=100):
        assert answer.startswith(WRONG.format(WEIGHT, "rank 1", 5)), answer
    assert answers(tmp_path, "factors_are_others", 1, 3, AS_FACTORS, check_every=100) == [None, None]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_parameter_that_parts_is_named(tmp_path, overlap):
    """Behind every third step, and one step later with overlap. A check that costs nothing finds nothing."""
    expected = (f"parameter '{WEIGHT}' on rank 1 is not what it is on rank 0 in step {3 if overlap else 5}, expected no update that "
                "depends on the worker")
    fault = "a_parameter_is_nudged", 1, 3, AS_FACTORS
    assert answers(tmp_path, *fault, overlap=overlap, check_every=3) == [expected] * WORKERS
    assert answers(tmp_path, *fault, overlap=overlap) == [None, None]


SETTING = (r"the optimizers differ in step {}: rank 1 has lr 0.025 in group 0 of SGD where rank 0 has lr 0.05 in group 0 of SGD, expected "
           "settings, states and schedules that are the same on all workers$")
STATE = r"the optimizers differ in step {}: rank 1 has momentum_buffer of parameter '2.bias' in SGD: numbers of hash \w+ where rank 0 has m"


@pytest.mark.parametrize("fault, at, said", [
    ("a_schedule_is_stepped", 3, SETTING.format(5)), ("a_state_is_loaded", 5, STATE.format(5)),
    ("a_step_is_left_out", 2, "parameter '0.weight' on rank 1 is not what it is on rank 0 in step")])
def test_what_one_worker_does_to_its_optimizer_is_named(tmp_path, fault, at, said):
    """A worker that leaves out a step has made fewer when the others compare."""
    for answer in answers(tmp_path, fault, 1, at, WHOLE, check_every=3):
        assert answer is not None, "nothing was found"
        assert re.match(said, answer), answer


# ---- right ones

# Features some of whose steps no second run can judge: why the log says so.
BESIDE = "the loss reaches parameters otherwise than through what the model's forward pass returned"
INSIDE = "parts of the backward pass ran inside another one, as those of a reentrant checkpoint do"
UNJUDGED = {"Penalty": BESIDE, "LatePenalty": BESIDE, "LatePenaltyOnRank1": BESIDE, "PenaltyInSomeSteps": BESIDE,
            "CheckpointedReentrantly": INSIDE, "CheckpointedWhole": INSIDE}


def check_said(name, trained):
    """Every step was judged by a second run, or the log says why not."""
    said = [[line for line in answer.said if CHECKED in line] for answer in trained]
    if name in UNJUDGED:
        assert any(UNJUDGED[name] in line for lines in said for line in lines), said
    else:
        assert not any(said), said


@pytest.mark.parametrize("name", list(features.FEATURES)[SOME])
def test_what_is_right_is_left_alone(planned, name):
    check_said(name, planned.train(name, check_every=1))


@pytest.mark.parametrize("name", features.FORCED[SOME])
def test_factors_that_are_right_are_left_alone(forced, name):
    check_said(name, forced.train(name, check_every=1))


@pytest.mark.parametrize("name", ["Plain", "Autocast", "Tied", "Twice", "Unused", "Thawed", "Checkpointed", "Statistics",
                                  "Halves"])
def test_what_is_right_is_left_alone_with_overlap(planned, name):
    check_said(name, planned.train(name, check_every=1, overlap=True))


@pytest.mark.parametrize("words", [
    {"schemes": FACTORS}, {"schemes": FACTORS, "overlap": True}, {"micro": 3, "schemes": FACTORS}],
    ids=["factors", "overlap", "micro"])
def test_a_net_of_many_kinds_is_left_alone(job, words):
    """Compiled ones: test_silence.py."""
    job.train(check_every=1, **words)


@pytest.mark.parametrize("words", [{"optimizer": "sgd"}, {"optimizer": "adam", "micro": 2}], ids=["sgd", "micro"])
def test_tables_are_left_alone(job, words):
    job.train(words=True, check_every=1, **words)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_checked_model_trains_as_it_would_alone(alone, backend):
    """A check's second run leaves nothing behind: buffers, random numbers, gradients."""
    torch._dynamo.reset()
    models = mlp(), mlp(), mlp()
    for model in models:
        model.insert(1, torch.nn.Dropout(0.5))
    optimizers = [sgd(model) for model in models]
    poseidon.torch.wrap(models[0], optimizers[0], check_every=1)
    poseidon.torch.wrap(models[1], optimizers[1], check_every=1)
    for called, optimizer in zip((whole(models[0], backend), *models[1:]), optimizers):
        torch.manual_seed(3)
        train([(called, optimizer)], steps=4)
    for checked, plain in zip(models[1].state_dict().values(), models[2].state_dict().values()):
        torch.testing.assert_close(checked, plain, rtol=1e-5, atol=1e-6)


OUTSIDE = numpy.random.default_rng(1)  # of which no module knows


class Draws(torch.nn.Module):
    """Draws from wherever a program may."""

    def __init__(self, outside=False):
        super().__init__()
        self.inner, self.calls, self.outside = torch.nn.Linear(6, 8), 0, outside
        self.own = torch.Generator().manual_seed(1)
        self.others = [random.Random(1), numpy.random.default_rng(1), numpy.random.RandomState(1), numpy.random.PCG64(1)]
        self.by_name = {"another": torch.Generator().manual_seed(2)}

    def forward(self, x):
        self.calls += 1
        drawn = [torch.rand(1).item(), random.random(), numpy.random.rand(), torch.rand(1, generator=self.own).item(),
                 self.others[0].random(), self.others[1].random(), self.others[2].rand(), self.others[3].random_raw() / 2 ** 64,
                 torch.rand(1, generator=self.by_name["another"]).item()]
        if self.outside:
            drawn.append(OUTSIDE.random())
        return self.inner(x) * sum(drawn) / self.calls


def drawn(**words):
    """The weights of a model that draws, after some steps."""
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    model = Draws()
    exchange = poseidon.torch.wrap(model, sgd(model), **words)
    train([(model, exchange.optimizer)], steps=4)
    poseidon.torch.release(model)
    return model.inner.weight


def test_a_check_leaves_all_random_numbers_where_they_are(alone):
    assert torch.equal(drawn(), drawn(check_every=1))


def test_products_in_fewer_digits_are_known_whatever_switch_was_used():
    from poseidon.torch.comparing import eps_of
    fine, coarse = torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).eps
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("torch is older than 2.9")
    before = torch.backends.fp32_precision
    try:
        for switch, expected in (("ieee", fine), ("tf32", coarse)):
            torch.backends.fp32_precision = switch
            assert eps_of(torch.float32) == expected and eps_of(torch.float64) < fine
    finally:
        torch.backends.fp32_precision = before


def test_random_numbers_that_a_check_cannot_bring_back_are_named():
    said = []
    poseidon.torch.init(rank=0, workers=1, log=lambda level, line: said.append(line))
    model = Draws(outside=True)
    poseidon.torch.wrap(model, check_every=1)
    model(torch.ones(5, 6)).sum().backward()
    poseidon.torch.shutdown()
    assert any("where it draws random numbers from a generator that is neither torch's, Python's or numpy's own nor held by a module" in line
               for line in said), said


@pytest.mark.parametrize("overlap", [False, True])
def test_parameters_are_compared_by_steps_of_optimizers(alone, monkeypatch, overlap):
    """However many backward passes a step has, and where no backward pass comes between steps."""
    compared = []
    monkeypatch.setattr(ReplicaChecks, "check_parameters", lambda self, step: compared.append(step))
    model = mlp()
    optimizer = sgd(model)
    poseidon.torch.wrap(model, optimizer, check_every=2, overlap=overlap)
    for step in range(7):
        for _ in range(1 if overlap else 3):
            model(torch.ones(5, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert compared == [1, 3, 5]
    if not overlap:
        for _ in range(5):
            for parameter in model.parameters():
                parameter.grad = poseidon.torch.all_reduce(torch.ones_like(parameter))
            optimizer.step()
        assert compared == [1, 3, 5, 7, 9]


def test_what_is_given_back_has_no_hooks(alone):
    model = mlp()
    exchange = poseidon.torch.wrap(model, sgd(model), check_every=1)
    train([(model, exchange.optimizer)], steps=1)
    exchange.detach()
    assert not exchange.checker.watch.watched
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_check_needs_a_number_of_steps(alone):
    with pytest.raises(poseidon.torch.PoseidonError, match="check_every is 0, expected a number of steps from 1, or None"):
        poseidon.torch.wrap(mlp(), check_every=0)
