# SPDX-License-Identifier: Apache-2.0
"""Training through poseidon.torch gives what one process gives that averages all workers' gradients."""
import copy
import html
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
import worker  # noqa: E402
from poseidon import run_page, run_record  # noqa: E402
from conftest import FACTORS, differing  # noqa: E402
from torch.nn.utils import prune  # noqa: E402


def assert_close(result, expected, tolerance):
    for name, parameter in expected.items():
        torch.testing.assert_close(result["weights"][name], parameter.detach(), rtol=tolerance,
                                   atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("workers", [2, 3])
def test_dense_is_the_mean_of_all_workers(job, workers):
    case, results = job.train(workers=workers)
    assert_close(results[0], worker.reference(case), 1e-6)
    assert set(results[0]["schemes"][-1].values()) == {"kv"}


@pytest.mark.parametrize("overlap", [False, True])
def test_small_linears_share_a_message(job, overlap):
    """What a net sends where nothing is said of its Linears: those whose product has 16 KiB at most go with the others."""
    case, results = job.train(joins=True, overlap=overlap)
    assert_close(results[0], worker.reference(case), 1e-6)
    assert set(results[0]["schemes"][-1]) == {"model", "wide"}


@pytest.mark.parametrize("workers", [2, 3])
def test_factors_are_the_mean_of_all_workers(job, workers):
    case, results = job.train(workers=workers, schemes=FACTORS)
    assert_close(results[0], worker.reference(case), 1e-5)
    assert {name for name, scheme in results[0]["schemes"][-1].items() if scheme == "sfb"} == set(FACTORS)


def test_factors_leave_without_their_zeros(job):
    """The inputs of `wide` are behind a ReLU, and its errors before one."""
    words = {"schemes": FACTORS, "reports": True}
    _, whole = job.train(zero_compression="off", **words)
    _, without = job.train(zero_compression="always", **words)
    assert differing(whole[0]["weights"], without[0]["weights"]) == []
    said = [" ".join(results[0]["report"].split()) for results in (whole, without)]  # in lines of a terminal's width
    assert ["of zeros a step" in text for text in said] == [False, True]


def test_strategies_train_the_same(job, monkeypatch):
    """ps-2017 waits for all layers, whatever overlap says."""
    _, ours = job.train(overlap=True, schemes=FACTORS)
    _, layers_first = job.train(overlap=True, schemes=FACTORS, strategy="p3")
    monkeypatch.setenv("POSEIDON_STRATEGY", "ps-2017")
    case = job.case(overlap=True, schemes=FACTORS)
    assert [one.code for one in job.run(case)] == [0, 0]
    servers = [torch.load(case["result"] + str(rank)) for rank in range(2)]
    for other in layers_first, servers:
        assert differing(ours[0]["weights"], other[0]["weights"]) == []
    assert [results[0]["overlaps"] for results in (ours, layers_first, servers)] == [True, True, False]


def test_worker_0_leaves_an_account_of_the_run(job, monkeypatch, tmp_path):
    """Of which poseidon report makes a page."""
    monkeypatch.setenv("POSEIDON_RUN_DIR", str(tmp_path / "run"))
    assert [one.code for one in job.run(job.case(overlap=True, schemes=FACTORS, steps=15))] == [0, 0]
    record = run_record.read(tmp_path / "run")
    assert record.summary["workers"] == 2 and record.summary["iterations"] > 10 and record.summary["step_seconds"]["measured"] > 0
    schemes = {layer["layer"]: layer["scheme"] for layer in record.plan["layers"]}
    assert "sfb" in schemes.values() and [layer["layer"] for layer in record.summary["plan"]] == list(schemes)
    # "never" is a layer that no forward pass uses.
    assert [layer["layer"] for layer in record.summary["plan"] if layer["counted_bytes"]["sent"] == 0] == ["never"]
    [step] = run_record.typical_steps(record)  # of rank 0
    assert step.begin < step.next_begin and any(span.label.startswith("factor ") for span in step.spans)
    assert record.summary["what_would_help"] and len(run_record.workers_of(record)) == 2
    page = run_page.page_of(record)
    assert "computes longest" in page and html.escape(record.summary["what_would_help"]) in page
    assert all(html.escape(name) in page for name in schemes) and "A step in time" in page and "Loss and accuracy" not in page


def test_recorded_losses_are_curves_of_the_account(job, monkeypatch, tmp_path):
    monkeypatch.setenv("POSEIDON_RUN_DIR", str(tmp_path / "run"))
    for _ in range(2):  # of which the second begins anew
        case = job.case(overlap=True, schemes=FACTORS, steps=6, records=True)
        ended = job.run(case)
        assert [one.code for one in ended] == [0, 0], ended[0].errors
    assert [torch.load(case["result"] + str(rank)).get("refused") for rank in range(2)] == ["loss is tensor([1., 2.]), expected a number", None]
    record = run_record.read(tmp_path / "run")
    training, [test] = record.of_kind("train"), record.of_kind("test")
    assert [line["iteration"] for line in training] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] is None for line in training] == [False, False, False, True, False, False]
    assert all(before["elapsed"] <= line["elapsed"] for before, line in zip(training, training[1:]))
    assert (test["iteration"], test["outputs"]) == (6, {"loss": 0.5, "accuracy": 0.75})
    page = run_page.page_of(record)
    assert "Loss by iterations" in page and "Accuracy of the tests by seconds" in page


def test_an_account_that_cannot_be_written_ends_no_job(job, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("POSEIDON_RUN_DIR", str(tmp_path / "file"))
    ended = job.run(job.case(overlap=True, schemes=FACTORS))
    assert [(one.code, "has no account of this run" in one.errors) for one in ended] == [(0, True), (0, False)]


def test_factors_are_multiplied_by_the_blas_of_torch(job, monkeypatch):
    """As where no OpenBLAS is installed."""
    monkeypatch.setenv("POSEIDON_BLAS", str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    case = job.case(schemes=FACTORS)
    ended = job.run(case)
    assert [one.code for one in ended] == [0, 0], ended[0].errors
    results = [torch.load(case["result"] + str(rank)) for rank in range(2)]
    assert differing(results[0]["weights"], results[1]["weights"]) == []
    assert_close(results[0], worker.reference(case), 1e-5)


def test_without_a_blas_factors_are_an_error(job, monkeypatch):
    monkeypatch.setenv("POSEIDON_BLAS", "libnone.so")
    for one in job.run(job.case(schemes=FACTORS)):
        assert one.code == 3 and "no BLAS multiplies factors in this process" in one.failure["message"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("schemes", [None, FACTORS], ids=["dense", "factors"])
def test_overlap_changes_no_bit(job, optimizer, schemes):
    """The learning rate falls every step: each update takes the one of its own step."""
    words = {"optimizer": optimizer, "schemes": schemes}
    _, waiting = job.train(**words)
    _, overlapped = job.train(overlap=True, **words)
    assert differing(waiting[0]["weights"], overlapped[0]["weights"]) == []


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("schemes", [None, FACTORS], ids=["dense", "factors"])
def test_a_job_ends_with_the_same_bits_again(job, schemes, overlap):
    """Whoever comes last: sums do not depend on the order in which gradients arrive."""
    words = {"workers": 3, "schemes": schemes, "overlap": overlap}
    first, second = (job.train(late=rank, **words)[1][0] for rank in (0, 2))
    assert differing(first["weights"], second["weights"]) == []


def test_what_has_landed_is_updated_while_another_layer_is_waited_for(job):
    case, results = job.train(overlap=True, holds=True)
    assert_close(results[0], worker.reference(case), 1e-6)


def test_gradients_after_backward_are_the_mean_everywhere(job):
    _, results = job.train(reads_gradients=True, schemes={"wide": "sfb"})
    for one, other in zip(results[0]["gradients"], results[1]["gradients"]):
        assert all((a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(one, other))
        assert any(gradient is None for gradient in one)  # of the Linear that is never used


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


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("of_input", [
    lambda model, x: torch.autograd.grad(model(x).square().sum(), x),
    lambda model, x: model(x).square().sum().backward(inputs=[x])], ids=["grad", "inputs"])
def test_gradients_of_inputs_are_no_step(alone, overlap, of_input):
    """As saliency and adversarial training ask for them, before the backward pass of the step."""
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 2), torch.nn.Flatten(), torch.nn.Linear(4, 3),
                                torch.nn.Tanh(), torch.nn.Linear(3, 1))
    plain = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, plain)]
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=overlap)
    for step in range(3):
        for one, optimizer in zip((model, plain), optimizers):
            x = torch.full((2, 1, 3), 0.5 + step, requires_grad=True)
            optimizer.zero_grad()
            of_input(one, x)
            one(x).sum().backward()
            optimizer.step()
    exchange.synchronize()
    assert exchange.step == 3
    assert differing(model.state_dict(), plain.state_dict()) == []


def hooked():
    linear = torch.nn.Linear(4, 3)
    linear.weight.register_hook(lambda gradient: gradient * (gradient > 0))
    return linear


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("make", [
    lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3)),
    lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3, bias=False)),
    lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)),
    lambda: prune.random_unstructured(torch.nn.Linear(4, 3), "weight", 0.5),
    lambda: torch.nn.Sequential(torch.nn.Unflatten(1, (1, 4)), prune.random_unstructured(
        torch.nn.Conv1d(1, 3, 4), "weight", 0.5), torch.nn.Flatten()),
    hooked], ids=["spectral", "spectral-no-bias", "weight-norm", "pruned", "pruned-convolution", "hooked"])
def test_weights_that_are_computed_or_watched_train_as_they_would_alone(alone, make, overlap):
    torch.manual_seed(1)
    model = torch.nn.Sequential(make(), torch.nn.Linear(3, 2))
    torch.manual_seed(1)
    plain = torch.nn.Sequential(make(), torch.nn.Linear(3, 2))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, plain)]
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=overlap)
    for step in range(4):
        x = torch.linspace(-1, 1 + step, 8).view(2, 4)
        for one, optimizer in zip((model, plain), optimizers):
            optimizer.zero_grad()
            one(x).square().sum().backward()
            optimizer.step()
    exchange.synchronize()
    for (name, one), other in zip(model.state_dict().items(), plain.state_dict().values()):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_parameters_that_join_the_optimizer_later_are_updated(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    before = model[0].weight.detach().clone()
    for moved in (False, True):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        exchange.synchronize()
        assert torch.equal(model[0].weight, before) != moved
        if not moved:
            optimizer.add_param_group({"params": model[0].parameters()})


def test_what_is_loaded_is_not_updated_by_the_step_before(alone):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    for loaded in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        (model, optimizer)[loaded].load_state_dict(saved[loaded])
        if loaded == 0:
            exchange.synchronize()
            assert differing(model.state_dict(), saved[0]) == []
        else:
            exchange.synchronize()
            assert optimizer.state_dict()["state"] == {}
