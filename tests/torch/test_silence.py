# SPDX-License-Identifier: Apache-2.0
"""Scripts that could silently train nothing, or something else than torch: each is right, or refused before it begins."""
import copy
import os
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.launch  # noqa: E402
import poseidon.torch  # noqa: E402
from conftest import FACTORS, differing  # noqa: E402
from poseidon import PoseidonError  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


LARGE = 40000  # numbers of a layer that joins no other


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 8, bias=False), nn.ReLU(),
                         nn.Linear(8, 2))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def train(models, steps, prepare=lambda model, step: None):
    """Every (called, optimizer) of `models` on the same batches."""
    for step in range(steps):
        batch = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
        for called, optimizer in models:
            optimizer.zero_grad()
            prepare(called, step)
            called(batch).square().sum().backward()
            optimizer.step()


# ---- torch.compile

def whole(model, backend):
    return torch.compile(model, backend=backend)


def in_place(model, backend):
    model.compile(backend=backend)
    return model


def one_module(model, backend):
    model[3] = torch.compile(model[3], backend=backend)
    return model


# Every pair of two of these; all of them together would take a minute.
@pytest.mark.parametrize("how, backend, when, overlap", [
    (whole, "aot_eager", "before", False), (whole, "aot_eager", "warm", True), (whole, "aot_eager", "after", False),
    (in_place, "aot_eager", "before", True), (in_place, "aot_eager", "warm", False), (in_place, "aot_eager", "after", True),
    (one_module, "aot_eager", "before", False), (one_module, "aot_eager", "warm", True), (one_module, "aot_eager", "after", False),
    (whole, "inductor", "before", True), (whole, "inductor", "warm", False), (whole, "inductor", "after", True)])
def test_a_compiled_model_trains_as_it_would_alone(alone, how, backend, when, overlap):
    torch._dynamo.reset()
    model, plain = mlp(), mlp()
    called = model
    if when != "after":
        called = how(model, backend)
    if when == "warm":  # compiled before it is wrapped
        called.eval()(torch.ones(5, 6)).sum().backward()
        called.train().zero_grad()
    optimizers = sgd(model), sgd(plain)
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=overlap)
    if when == "after":
        called = how(model, backend)
    train([(called, optimizers[0]), (plain, optimizers[1])], steps=4)
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("words", [{"overlap": True}, {"schemes": FACTORS}], ids=["overlap", "factors"])
def test_workers_that_compile_have_the_mean_of_all(job, words):
    _, plain = job.train(final_plan_step=3, steps=6, **words)
    _, compiled = job.train(final_plan_step=3, steps=6, compiles=True, check_every=1, **words)
    for name, tensor in plain[0]["weights"].items():
        torch.testing.assert_close(compiled[0]["weights"][name], tensor, rtol=1e-5, atol=1e-6)


# ---- what several workers refuse, one does too

@pytest.mark.parametrize("given, sentence", [
    (lambda model: {"factors": "no"}, "distribute was given factors='no', expected True or False"),
    (lambda model: {"check_every": -1}, "distribute was given check_every=-1, expected a number of steps from 1, or None"),
    (lambda model: {"optimizer": "sgd"}, "distribute was given as optimizer a builtins.str, expected a torch.optim.Optimizer"),
    (lambda model: {"overlap": "forward", "optimizer": torch.optim.Adagrad(model.parameters())}, "Adagrad"),
    (lambda model: {}, r"Embedding '1' has max_norm=1.0, which changes its weight in the forward pass")],
    ids=["factors", "check_every", "no_optimizer", "optimizer", "embedding"])
def test_one_worker_refuses_what_several_do(alone, given, sentence):
    model = nn.Sequential(nn.Linear(10, 3), nn.Embedding(10, 3, max_norm=1.0))
    hooked = len(model._forward_pre_hooks), len(model[0]._forward_hooks)
    with pytest.raises(PoseidonError, match=sentence):
        poseidon.torch.distribute(model, **given(model))
    poseidon.torch.distribute(model[0], sgd(model[0]))  # which is fine, and trains as always
    assert (len(model._forward_pre_hooks), len(model[0]._forward_hooks)) == hooked


# ---- others who average gradients

@pytest.fixture
def gloo(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


AROUND = "DistributedDataParallel is (put )?around a model that poseidon.torch.distribute synchronises, expected the plain"


@pytest.mark.parametrize("around", [
    DistributedDataParallel, lambda model: DistributedDataParallel(model[0]),
    lambda model: DistributedDataParallel(nn.Sequential(model))(torch.ones(5, 6))], ids=["model", "part", "parent"])
def test_ddp_around_a_wrapped_model_is_refused(alone, gloo, around):
    model = mlp()
    poseidon.torch.wrap(model, sgd(model))
    with pytest.raises(PoseidonError, match=AROUND):
        around(model)


def test_ddp_made_first_is_refused(alone, gloo):
    model = mlp()
    both = DistributedDataParallel(model)
    with pytest.raises(PoseidonError, match="DistributedDataParallel is inside a model that poseidon.torch.distribute"):
        poseidon.torch.wrap(both, sgd(model))
    poseidon.torch.wrap(model, sgd(model))
    with pytest.raises(PoseidonError, match=AROUND):
        both(torch.ones(5, 6))


def test_a_sharded_model_is_refused(alone, gloo):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = mlp()
    poseidon.torch.wrap(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(PoseidonError, match="FullyShardedDataParallel is around a model"):
        model(torch.ones(5, 6))
    sharded = fully_shard(mlp(), mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(PoseidonError, match="FullyShardedDataParallel is inside a model"):
        poseidon.torch.wrap(sharded)


def test_a_model_that_was_given_back_may_have_ddp(gloo):
    poseidon.torch.init(rank=0, workers=1)
    model = mlp()
    poseidon.torch.wrap(model)
    poseidon.torch.shutdown()
    DistributedDataParallel(model)(torch.ones(5, 6)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# ---- gradients that nobody has

def freeze(model, step):
    model[0].requires_grad_(step < 2)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("factors", [False, True])
def test_what_is_frozen_later_stays_where_it_is(alone, overlap, factors):
    model, plain = mlp(), mlp()
    optimizers = sgd(model), sgd(plain)
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=overlap, factors=factors)
    train([(model, optimizers[0]), (plain, optimizers[1])], steps=5, prepare=freeze)
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_inputs_of_backward_alone_get_a_gradient(alone):
    model = mlp()
    poseidon.torch.wrap(model, factors=False)
    model(torch.ones(5, 6)).sum().backward(inputs=[model[3].weight])
    assert [name for name, parameter in model.named_parameters() if parameter.grad is not None] == ["3.weight"]


@pytest.mark.parametrize("schemes", [None, FACTORS], ids=["dense", "factors"])
def test_a_gradient_is_none_where_no_worker_has_one_and_the_mean_where_one_has(job, schemes):
    """`some` and its norm run on rank 0 in step 0, on nobody in step 1, on rank 1 in step 2."""
    case, results = job.train(reads_gradients=True, schemes=schemes, steps=3)
    import worker
    names = [name for name, _ in worker.Net().named_parameters()]
    for result in results:
        for step, gradients in enumerate(result["gradients"]):
            unused = {name for name, gradient in zip(names, gradients) if gradient is None}
            expected = {"never.weight", "never.bias"}
            if step == 1:
                expected |= {"some.weight", "some.bias", "some_norm.weight", "some_norm.bias"}
            assert unused == expected, step


# ---- gradients that no exchange has seen

NOT_SEEN = "SGD.step was called with a gradient of parameter '{}' that no backward pass of the distributed model has left since"


def by_autograd_grad(model, batch):
    """Sets gradients as meta-learning and physics-informed nets do."""
    for parameter, gradient in zip(model.parameters(), torch.autograd.grad(model(batch).square().sum(), list(model.parameters()))):
        parameter.grad = gradient


def by_hand(model, batch):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)


def by_func(model, batch):
    plain = copy.deepcopy(model).eval()
    values = {name: parameter.detach() for name, parameter in plain.named_parameters()}
    gradients = torch.func.grad(lambda given: torch.func.functional_call(plain, given, (batch,)).square().sum())(values)
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("backward_first", [False, True])
@pytest.mark.parametrize("how", [by_autograd_grad, by_hand, by_func])
def test_gradients_that_no_exchange_has_seen_are_refused_at_step(alone, how, backward_first, overlap):
    model, batch = mlp(), torch.ones(5, 6)
    optimizer = sgd(model)
    poseidon.torch.wrap(model, optimizer, overlap=overlap)
    if backward_first:
        train([(model, optimizer)], steps=2)
        if overlap:
            model(batch)  # which updates: what step() has left for later is done
            optimizer.zero_grad()
            how(model, batch)
            optimizer.step()  # the first one behind gradients under way is not judged
    how(model, batch)
    with pytest.raises(PoseidonError, match=NOT_SEEN.format("0.weight")):
        optimizer.step()


def test_a_gradient_that_is_set_where_backward_has_left_none_is_refused(alone):
    model = nn.ModuleDict({"used": nn.Linear(6, 2), "unused": nn.Linear(6, 2)})
    optimizer = sgd(model)
    poseidon.torch.wrap(model, optimizer)
    model["used"](torch.ones(5, 6)).sum().backward()
    model["unused"].bias.grad = torch.zeros(2)  # as it were without a gradient, and with weight decay
    optimizer.step()
    model["used"](torch.ones(5, 6)).sum().backward()
    model["unused"].bias.grad = torch.autograd.grad(model["unused"](torch.ones(5, 6)).sum(), model["unused"].bias)[0]
    optimizer.step()  # what there was has been exchanged, and what it holds now is the gradient that is none of that
    model.zero_grad()
    model["used"](torch.ones(5, 6)).sum().backward()
    model["unused"].bias.grad = torch.autograd.grad(model["unused"](torch.ones(5, 6)).sum(), model["unused"].bias)[0]
    with pytest.raises(PoseidonError, match=NOT_SEEN.format("unused.bias")):
        optimizer.step()


def clipped_by_hand(model, optimizer):
    """With other tensors in the place of gradients."""
    for parameter in model.parameters():
        parameter.grad = None if parameter.grad is None else parameter.grad * 0.5
    optimizer.step()


def twice(model, optimizer):
    for _ in range(3):
        optimizer.step()


def with_what_is_zero(model, optimizer):
    """As torch.distributed.checkpoint makes the states of an optimizer."""
    optimizer.step()
    model.zero_grad(set_to_none=False)
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def with_two_optimizers(model, optimizer):
    """Of which each has a part, behind one backward pass."""
    first, second = (torch.optim.SGD(model[at].parameters(), lr=0.1) for at in (0, 3))
    first.step(), second.step(), optimizer.step()


def scaled(model, optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(torch.ones(1))
    scaler.step(optimizer)
    scaler.update()


def of_several_losses(model, optimizer):
    """As methods of several tasks combine gradients."""
    kept = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(torch.ones(5, 6)).sum().backward()
    for parameter, gradient in zip(model.parameters(), kept):
        parameter.grad = parameter.grad + gradient
    optimizer.step()


def of_this_worker_alone(model, optimizer):
    """As local steps between averages of weights."""
    with poseidon.torch.job.no_sync(model):
        model.zero_grad()
        model(torch.ones(5, 6)).sum().backward()
        optimizer.step()
        by_autograd_grad(model, torch.ones(5, 6))
    optimizer.step()


def shared_by_the_program(model, optimizer):
    optimizer.step()
    by_autograd_grad(model, torch.ones(5, 6))
    for parameter in model.parameters():
        parameter.grad = poseidon.torch.all_reduce(parameter.grad)
    optimizer.step()


def with_a_closure(model, optimizer):
    """As Lightning steps: forward and backward passes are in the closure."""
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(5, 6)).square().sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    torch.optim.LBFGS(model.parameters()).step(closure)


def frozen_with_a_gradient(model, optimizer):
    model[0].requires_grad_(False)
    optimizer.step()
    optimizer.step()
    model[0].requires_grad_(True)


@pytest.mark.parametrize("step", [clipped_by_hand, twice, with_what_is_zero, with_two_optimizers, scaled, of_several_losses,
                                  of_this_worker_alone, shared_by_the_program, with_a_closure, frozen_with_a_gradient])
def test_gradients_that_come_of_an_exchange_may_be_anything(alone, step):
    model, other = mlp(), mlp()  # which is not distributed, and trains beside it
    optimizer, beside = sgd(model), sgd(other)
    poseidon.torch.wrap(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad(), beside.zero_grad()
        (model(torch.ones(5, 6)) + other(torch.ones(5, 6))).square().sum().backward()
        beside.step()
        step(model, optimizer)


# ---- gradients under way

UNDER_WAY = "a gradient was read or changed while it is under way, expected distribute without overlap=\"forward\", or synchronize"


def unscale(model, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.unscale_(optimizer)


@pytest.mark.parametrize("look", [
    lambda model, optimizer: nn.utils.clip_grad_norm_(model.parameters(), 1),
    lambda model, optimizer: nn.utils.clip_grad_value_(model.parameters(), 1), unscale,
    lambda model, optimizer: model[0].weight.grad.norm(), lambda model, optimizer: model[0].bias.grad.add_(1)],
    ids=["norm", "value", "scaler", "read", "changed"])
def test_gradients_under_way_are_not_read(alone, look):
    """With nothing there clip_grad_norm_ says 0 and clips nothing."""
    model = mlp()
    optimizer = sgd(model)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    for synchronized in (False, True):
        optimizer.zero_grad()
        model(torch.ones(5, 6)).sum().backward()
        if synchronized:
            exchange.synchronize()
            look(model, optimizer)
        else:
            with pytest.raises(PoseidonError, match=UNDER_WAY):
                look(model, optimizer)
        optimizer.step()


def one_set_by_hand(model):
    model[0].weight.grad = torch.ones(8, 6)


def some_set_to_none(model):
    model[0].weight.grad = None


@pytest.mark.parametrize("change", [one_set_by_hand, some_set_to_none])
def test_gradients_that_are_set_while_they_are_under_way_are_refused(alone, change):
    """Of a layer of several tensors: the mean would come in their place."""
    model = mlp()
    optimizer = sgd(model)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    model(torch.ones(5, 6)).sum().backward()
    change(model)
    with pytest.raises(PoseidonError, match="a gradient of layer '0' was set while it is under way, expected distribute without"):
        optimizer.step()
    exchange.synchronize()


@pytest.mark.parametrize("steps_behind", [False, True])
def test_a_layer_whose_gradients_are_set_to_none_is_not_updated(alone, steps_behind):
    """As a head that is kept for the first epoch, or a batch that is left out."""
    models = [nn.Sequential(nn.Linear(6, LARGE), nn.Linear(LARGE, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(model) for model in models]
    exchange = poseidon.torch.wrap(models[0], optimizers[0], overlap=True)
    for step in range(4):
        for model, optimizer in zip(models, optimizers):
            model(torch.full((5, 6), 0.1 * step)).square().sum().backward()
            if step == 1:
                for parameter in model[1].parameters():
                    parameter.grad = None
            if step != 1 or steps_behind:
                optimizer.step()
                optimizer.zero_grad()
    exchange.synchronize()
    for one, other in zip(*(model.parameters() for model in models)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def check_clipping(how=lambda model: model, wait=lambda exchange: None, set_to_none=True):
    """That it is torch's with overlap, of a model that is called as `how` makes it; `wait` comes before it."""
    model, plain = mlp(), mlp()
    optimizers = sgd(model), sgd(plain)
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=True)
    called = how(model)
    for step in range(4):
        norms = []
        for one, optimizer in zip((called, plain), optimizers):
            optimizer.zero_grad(set_to_none)
            one(torch.full((5, 6), 1.0 + step)).square().sum().backward()
            if one is called:
                wait(exchange)
            norms.append(nn.utils.clip_grad_norm_(one.parameters(), 0.1))
            optimizer.step()
        torch.testing.assert_close(*norms)
        assert norms[0] > 0
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_clipping_after_synchronize_is_that_of_torch(alone, set_to_none):
    check_clipping(wait=lambda exchange: exchange.synchronize(), set_to_none=set_to_none)


class Follower:
    """An average of weights as many scripts write it."""

    def __init__(self, model):
        self.average = [torch.zeros_like(parameter) for parameter in model.parameters()]

    def follow(self, model):
        with torch.no_grad():
            for average, parameter in zip(self.average, model.parameters()):
                average.mul_(0.9).add_(parameter, alpha=0.1)
        return self.average


@torch.no_grad()
def clamped(model, follower):
    for parameter in model.parameters():
        parameter.clamp_(-0.2, 0.2)


@torch.no_grad()
def averaged_at_once(model, follower):
    torch._foreach_lerp_(follower.average, list(model.parameters()), 0.1)
    return follower.average


def gradients_behind(model, follower):
    """Of the step that was made, as a log shows them; of the second layer first."""
    return [model[number].weight.grad.norm() for number in (3, 0)]


LOOKS = {
    "average": lambda model, follower: follower.follow(model), "average at once": averaged_at_once, "clamp": clamped,
    "swa": lambda model, follower: list(torch.optim.swa_utils.AveragedModel(model).parameters()),
    "copy": lambda model, follower: list(copy.deepcopy(model).parameters()),
    "copy of one": lambda model, follower: [copy.deepcopy(model[3].weight)],
    "pickle": lambda model, follower: [pickle.loads(pickle.dumps(model[0].weight))],
    "vector": lambda model, follower: [nn.utils.parameters_to_vector(model.parameters())],
    "data": lambda model, follower: [model[3].weight.data.clone()],
    "numpy": lambda model, follower: [torch.from_numpy(model[3].weight.detach().numpy().copy())],
    "item": lambda model, follower: [torch.tensor(model[3].weight[0, 0].item())],
    "another module": lambda model, follower: [nn.functional.linear(torch.ones(1, model[3].weight.shape[1]), model[3].weight)],
    "gradient": gradients_behind,
    "its norm": lambda model, follower: [nn.utils.clip_grad_norm_(model.parameters(), 1e-3)],
    "one more step": None}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_behind_step_finds_what_is_there_without_overlap(alone, look):
    model, plain = mlp(), mlp()
    optimizers, followers = (sgd(model), sgd(plain)), (Follower(model), Follower(plain))
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=True)
    for step in range(5):
        batch = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
        found = []
        for one, optimizer, follower in zip((model, plain), optimizers, followers):
            optimizer.zero_grad()
            one(batch).square().sum().backward()
            optimizer.step()
            if look == "one more step":
                optimizer.step()
            else:
                found.append([each.detach().clone() for each in LOOKS[look](one, follower) or ()])
        for seen, expected in zip(*found or ((), ())):
            assert not type(seen).__name__.startswith("Own")
            torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6)
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        assert type(one) is nn.Parameter
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


class Marked(nn.Parameter):
    """A program's own class."""


def of_numpy(parameter):
    return nn.Parameter(torch.from_numpy(parameter.detach().numpy().copy()))


ALIASES = {
    "detach": lambda model: [parameter.detach() for parameter in model.parameters()],
    "data": lambda model: [model[3].weight.data],
    "numpy": lambda model: [model[3].weight.detach().numpy()],
    "view": lambda model: [model[0].weight[1:].detach()],
    "flat": lambda model: [model[3].weight.data.view(-1)],
    "state_dict": lambda model: list(model.state_dict().values())}


@pytest.mark.parametrize("kind", ALIASES)
def test_what_shares_memory_of_weights_follows_step_with_overlap(alone, kind):
    """Nobody sees who reads it: the update does not wait for the next forward pass."""
    models = mlp(), mlp()
    optimizers, aliases = [sgd(model) for model in models], [ALIASES[kind](model) for model in models]
    exchange = poseidon.torch.wrap(models[0], optimizers[0], overlap=True)
    for step in range(4):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            model(torch.full((5, 6), 1.0 + step) * torch.arange(5)[:, None]).square().sum().backward()
            optimizer.step()
        for one, other in zip(*aliases):
            torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-5, atol=1e-6)
        for one, other in zip(*(model.parameters() for model in models)):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    aliases[0].clear()
    train([(models[0], optimizers[0])], steps=1)
    # Nobody has it any more; but numpy's mark of before wrap stays.
    assert kind == "numpy" or all(layer.flying for layer in exchange.layers)


@pytest.mark.parametrize("make", [Marked, of_numpy, lambda parameter: nn.Parameter(parameter.detach().clone().share_memory_())],
                         ids=["class", "numpy", "another process"])
def test_weights_that_may_be_read_unseen_are_updated_in_step(alone, make):
    """What is not torch's own memory, and parameters that cannot be of our class."""
    models = mlp(), mlp()
    for module in models[0]:
        for name, parameter in list(module.named_parameters()):
            module.register_parameter(name, make(parameter))
    optimizers = [sgd(model) for model in models]
    poseidon.torch.wrap(models[0], optimizers[0], overlap=True)
    for _ in range(3):
        train(list(zip(models, optimizers)), steps=1)
        with torch._C.DisableTorchFunctionSubclass():  # as who reads the memory itself
            for one, other in zip(*(model.parameters() for model in models)):
                torch.testing.assert_close(torch.tensor(one.data.tolist()), torch.tensor(other.data.tolist()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clear", [lambda model, optimizer: optimizer.zero_grad(),
                                   lambda model, optimizer: [setattr(p, "grad", None) for p in model.parameters()]],
                         ids=["zero_grad", "None"])
def test_gradients_that_are_cleared_before_somebody_looks_do_not_come_back(alone, clear):
    """They would be added to the next."""
    model, plain = mlp(), mlp()
    optimizers = sgd(model), sgd(plain)
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=True)
    for step in range(4):
        batch = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
        for one, optimizer in zip((model, plain), optimizers):
            one(batch).square().sum().backward()
            optimizer.step()
            clear(one, optimizer)
            assert one[3].weight.norm() > 0 and one[3].weight.grad is None
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_shapes_and_zero_grad_wait_for_nothing(alone):
    """Else there were no overlap left in an ordinary loop."""
    model = mlp()
    optimizer = sgd(model)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=True)
    for _ in range(3):
        model(torch.ones(5, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.zero_grad()
        assert [p.shape for p in model.parameters() if p.requires_grad and p.dtype == torch.float32 and p.numel() > 0]
        assert all(layer.flying for layer in exchange.layers)


def test_a_compiled_model_with_overlap_is_clipped(alone):
    """Under a compiler gradients are not guarded, so they are waited for."""
    torch._dynamo.reset()
    check_clipping(how=lambda model: whole(model, "aot_eager"))


# ---- refused by name


def test_an_optimizer_of_what_is_in_no_model_is_refused(alone):
    model, temperature = mlp(), nn.Parameter(torch.ones(3, 2))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.1)
    poseidon.torch.wrap(model, optimizer)
    (model(torch.ones(5, 6)).sum() * temperature.sum()).backward()
    with pytest.raises(PoseidonError, match="a parameter of 3x2 in group 0 of the optimizer is in no model that distribute was given"):
        optimizer.step()


TWICE = "the model was given to distribute before, expected one distribute for each model, or poseidon.torch.release"
SHARED = r"parameter '{}' is trained in another model that distribute was given before \({}\), expected one distribute of a module"


@pytest.mark.parametrize("overlap", [False, True])
def test_a_parameter_that_two_models_train_is_refused(alone, overlap):
    model = mlp()
    part, around = nn.Sequential(*list(model)[:3]), nn.Sequential(model, nn.Linear(2, 2))
    poseidon.torch.wrap(part)
    with pytest.raises(PoseidonError, match=SHARED.format("0.weight", "Sequential")):
        poseidon.torch.wrap(model, sgd(model), overlap=overlap)
    poseidon.torch.release(part)
    optimizer = sgd(model)
    poseidon.torch.wrap(model, optimizer, overlap=overlap)
    with pytest.raises(PoseidonError, match=TWICE):
        poseidon.torch.wrap(model, optimizer, overlap=overlap)
    for other in (part, model[5]):
        with pytest.raises(PoseidonError, match="is trained in another model"):
            poseidon.torch.wrap(other)
    model.requires_grad_(False)  # as of a critic that is kept, in the generator's whole
    poseidon.torch.wrap(around)
    around.requires_grad_(True)
    with pytest.raises(PoseidonError, match=SHARED.format("0.0.weight", "Sequential")):
        around(torch.ones(5, 6))


def test_one_optimizer_of_two_models(alone):
    models = mlp(), mlp()
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    for model in models:
        poseidon.torch.wrap(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        (models[0](torch.ones(5, 6)).sum() + models[1](torch.ones(5, 6)).sum()).backward()
        optimizer.step()
    for one, other in zip(*(model.parameters() for model in models)):
        assert torch.equal(one, other)


def test_an_optimizer_that_steps_inside_backward_is_refused(alone):
    model = mlp()
    poseidon.torch.wrap(model)
    inner = torch.optim.SGD([model[0].weight], lr=0.1)
    model[0].weight.register_post_accumulate_grad_hook(lambda _: inner.step())
    with pytest.raises(PoseidonError, match=r"SGD.step was called inside backward\(\), where gradients are this worker's own"):
        model(torch.ones(5, 6)).sum().backward()


def test_a_model_that_is_converted_afterwards_is_refused(alone):
    model = mlp()
    poseidon.torch.wrap(model)
    model.double()
    with pytest.raises(PoseidonError, match="parameters of layer '0' have become torch.float64, expected that the model is conv"):
        model(torch.ones(5, 6, dtype=torch.float64))


def test_what_functional_call_puts_in_is_refused(alone):
    model = mlp()
    poseidon.torch.wrap(model)
    others = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    with pytest.raises(PoseidonError, match="a tensor that is no torch.nn.Parameter is in the place of one in the model"):
        torch.func.functional_call(model, others, (torch.ones(5, 6),))


def test_a_lazy_module_without_a_shape_is_refused(alone):
    with pytest.raises(PoseidonError, match="'0.weight' of a lazy module has no shape yet, expected a forward pass before"):
        poseidon.torch.wrap(nn.Sequential(nn.LazyLinear(3)))


def test_a_class_may_have_another_method_called_parameters(alone):
    class Named(nn.Sequential):
        def parameters(self):
            return [parameter for module in self for parameter in module.parameters()]

    model, plain = Named(nn.Linear(6, 4), nn.Linear(4, 2)), nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    plain.load_state_dict(model.state_dict())
    optimizers = sgd(model), sgd(plain)
    poseidon.torch.wrap(model, optimizers[0])
    train([(model, optimizers[0]), (plain, optimizers[1])], steps=2)
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_batch_that_failed_in_backward_is_not_left_out(alone):
    """Others wait for the rest of its gradients."""
    model = nn.Sequential(nn.Linear(6, 1000), nn.Linear(1000, 200))  # the second is too large to join the first
    poseidon.torch.wrap(model, factors=False)

    def fails(gradient):
        raise ValueError("no more memory")
    x = torch.ones(5, 6, requires_grad=True)
    x.register_hook(fails)
    with pytest.raises(ValueError):
        model(x).sum().backward()
    with pytest.raises(PoseidonError, match="the backward pass before ended by an exception after the gradient of layer"):
        model(torch.ones(5, 6))


# ---- the model afterwards

def quantized(model):
    """In place, because a copy of what is not plain would be."""
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)


def pickled(model):
    made = pickle.dumps(model)
    assert b"poseidon" not in made
    return pickle.loads(made)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_given_back(tmp_path, overlap, fails):
    model = mlp()
    optimizer = sgd(model)
    poseidon.torch.init(rank=0, workers=1, schemes=dict.fromkeys("035", "sfb"))  # else they join, and stay what they are
    poseidon.torch.wrap(model, optimizer, overlap=overlap)
    assert all(type(model[at]) is not nn.Linear for at in (0, 3, 5))
    train([(model, optimizer)], steps=2)
    if fails:
        try:
            raise ValueError
        except ValueError:
            poseidon.torch.shutdown()
    else:
        poseidon.torch.shutdown()
    fresh = mlp()
    for module, other in zip(model.modules(), fresh.modules()):
        assert type(module) is type(other) and set(vars(module)) == set(vars(other))
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert not module._state_dict_pre_hooks and not module._load_state_dict_pre_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    torch.save(model, tmp_path / "model.pt")
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.Tanh, nn.ReLU, nn.BatchNorm1d]):
        loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert differing(model.state_dict(), loaded.state_dict()) == []
    fresh.load_state_dict(model.state_dict())
    for make in (pickled, torch.jit.script, quantized):
        one, other = make(model.eval()), make(fresh.eval())
        assert list(map(type, one.modules())) == list(map(type, other.modules())) and repr(one) == repr(other)
        assert torch.equal(one(torch.ones(5, 6)), other(torch.ones(5, 6)))


def nothing(module, arguments, result):
    pass


def test_a_model_that_is_saved_while_it_trains_is_plain(alone, tmp_path):
    model = mlp()
    optimizer = sgd(model)
    poseidon.torch.wrap(model, optimizer)
    model.register_forward_hook(nothing)  # the script's own, which stays
    train([(model, optimizer)], steps=2)
    before = torch.get_rng_state()
    torch.save(model, tmp_path / "model.pt")
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.Tanh, nn.ReLU, nn.BatchNorm1d, nothing]):
        loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert differing(model.state_dict(), loaded.state_dict()) == []
    assert [type(module) for module in loaded.modules()] == [type(module) for module in mlp().modules()]
    assert list(loaded._forward_hooks.values()) == [nothing]
    train([(loaded, sgd(loaded))], steps=1)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_model_is_traced_exported_and_transformed_while_it_trains(overlap):
    """Its Linears, which hand over factors, are plain there. torch.jit.script compiles hooks, and says what helps."""
    poseidon.torch.init(rank=0, workers=1, schemes={"0": "sfb"})
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    plain = copy.deepcopy(model)
    optimizers = sgd(model), sgd(plain)
    poseidon.torch.wrap(model, optimizers[0], overlap=overlap)
    assert type(model[0]) is not nn.Linear
    x = torch.ones(5, 6)

    def loss_of_derivatives(called):
        return torch.func.vmap(torch.func.jacrev(called))(x).square().sum() + called(x).square().sum()
    for step in range(3):
        for called, optimizer in zip((model, plain), optimizers):
            optimizer.zero_grad()
            loss_of_derivatives(called).backward()
            optimizer.step()
        made = [torch.export.export(model, (x,)).module() if step == 1 else model, torch.jit.trace(model, x)]
        for one in made:
            torch.testing.assert_close(one(x), plain(x), rtol=1e-5, atol=1e-6)
        for transform in (torch.func.jacrev, torch.func.jacfwd, torch.func.vmap):
            torch.testing.assert_close(transform(model)(x), transform(plain)(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(PoseidonError, match=r"is no function that torch.jit.script compiles, expected copy.deepcopy\(model\), which"):
        torch.jit.script(model)
    torch.jit.script(copy.deepcopy(model))
    poseidon.torch.shutdown()
    torch.jit.script(model)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_released_model_is_plain_and_may_be_wrapped_again(alone, overlap):
    model, plain = mlp(), mlp()
    optimizers = sgd(model), sgd(plain)
    for _ in range(2):
        exchange = poseidon.torch.wrap(model, optimizers[0], overlap=overlap)
        train([(model, optimizers[0]), (plain, optimizers[1])], steps=2)
        assert exchange.step == 2
        poseidon.torch.release(model)
        assert not model._forward_hooks and type(model[3]) is nn.Linear and poseidon.torch.plan(model) == {}
        train([(model, optimizers[0]), (plain, optimizers[1])], steps=1)
        assert exchange.step == 2
    poseidon.torch.release(model)  # nothing to do
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


# ---- launchers

LAUNCHED = {
    "torchrun": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
    "open-mpi": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    "hydra": {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
    "slurm": {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "node7"},
    "slurm-step": {"SLURM_PROCID": "1", "SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1",
                   "SLURM_STEP_NODELIST": "node[6-7]", "SLURM_STEP_TASKS_PER_NODE": "1,2"},
    "torchrun-in-slurm": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "SLURM_PROCID": "0",
                          "SLURM_NTASKS": "5"}}


@pytest.fixture
def launched(monkeypatch):
    """Sets the given variables and no other launcher's."""
    def set_variables(variables):
        for name in list(os.environ):
            if name.startswith(("OMPI_", "PMI_", "PMIX_", "SLURM_", "MASTER_")) or name in (
                    "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ENVIRONMENT"):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    return set_variables


@pytest.mark.parametrize("variables", LAUNCHED.values(), ids=LAUNCHED)
def test_every_launcher_tells_the_place(launched, variables):
    launched({**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"})
    place = poseidon.launch.Place.find()
    assert (place.rank, place.workers, place.port, place.local) == (1, 2, 29500, 2)


@pytest.mark.parametrize("variables, message", [
    ({"RANK": "1"}, "variable RANK is set and WORLD_SIZE is not, expected both or neither"),
    ({"WORLD_SIZE": "2", "MASTER_PORT": "29500"}, "variable WORLD_SIZE is set and RANK is not, expected both or neither"),
    ({"PMIX_RANK": "0"}, "PMIX_RANK is set and nothing says how many processes there are, expected RANK and WORLD_SIZE"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun started 2 processes and rank 0's port is not known, expected MASTER_PORT"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}, "the job's token is missing, expected POSEIDON_TOKEN_FILE"),
    ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"},
     "mpirun started 2 processes and not all are on this host, expected POSEIDON_TOKEN_FILE or token_file= to name a file"),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "node[6-7]", "SLURM_TASKS_PER_NODE": "1(x2)"},
     "srun started 2 processes and not all are on this host")])
def test_what_a_launcher_leaves_open_is_named(launched, monkeypatch, variables, message):
    monkeypatch.delenv("POSEIDON_TOKEN_FILE", raising=False)
    launched(variables)
    with pytest.raises(PoseidonError, match=message):
        poseidon.torch.init()


def test_a_batch_script_of_slurm_is_alone(launched):
    launched({"ENVIRONMENT": "BATCH", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert poseidon.launch.Place.find().workers == 1
