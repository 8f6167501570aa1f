# SPDX-License-Identifier: Apache-2.0
"""Gradients as values: who keeps one finds it unchanged, and factors leave before anything else is computed."""
import types

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
from poseidon.torch import linear  # noqa: E402
from poseidon.torch.product import whole_as_factors  # noqa: E402
from torch import nn  # noqa: E402


@pytest.fixture(params=["kv", "sfb", "fsc"])
def model(request):
    """A wrapped model in a job of one worker: Linears, one of them large, a tensor alone, and layers that have joined."""
    poseidon.torch.init(rank=0, workers=1, final_plan_step=None, schemes={"3": request.param, "5": request.param})
    made = nn.Sequential(nn.Conv1d(1, 2, 3, bias=False), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 6000), nn.Tanh(),
                         nn.Linear(6000, 3), nn.PReLU())
    made.exchange = poseidon.torch.wrap(made)
    yield made
    poseidon.torch.shutdown()


def backward(model, number):
    model(torch.full((2, 1, 8), 0.1 + number)).square().sum().backward()


@pytest.mark.parametrize("keep", [lambda gradient: gradient, lambda gradient: gradient[:1], lambda gradient: gradient.detach(),
                                  lambda gradient: gradient.view(-1)], ids=["itself", "slice", "detached", "view"])
def test_a_gradient_that_is_kept_across_zero_grad_stays(model, keep):
    """As gradients of several losses, and of several tasks."""
    kept = []
    for number in range(3):
        model.zero_grad()
        backward(model, number)
        kept += [(gradient := keep(p.grad), gradient.clone()) for p in model.parameters()]
    for gradient, was in kept:
        assert torch.equal(gradient, was)


def test_a_gradient_that_autograd_alone_keeps_stays(model):
    weight = model[3].weight
    factor = torch.ones_like(weight, requires_grad=True)
    backward(model, 0)
    product, was = (weight.grad * factor).sum(), weight.grad.clone()
    for number in range(2):
        model.zero_grad()
        backward(model, 1 + number)
    product.backward()
    assert torch.equal(factor.grad, was)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_the_memory_of_a_gradient_that_nobody_keeps_is_used_again(model, set_to_none):
    places = set()
    for number in range(4):
        model.zero_grad(set_to_none)
        backward(model, number)
        places.add(model[3].weight.grad.data_ptr())
    assert len(places) == 1


def test_gradients_that_accumulate_stay_in_place_for_who_has_them(model):
    backward(model, 0)
    gradients = [p.grad for p in model.parameters()]
    once = [gradient.clone() for gradient in gradients]
    backward(model, 0)
    for p, gradient, was in zip(model.parameters(), gradients, once):
        assert p.grad is gradient
        torch.testing.assert_close(gradient, 2 * was)


def test_factors_leave_before_the_gradient_of_the_input_is_computed(model, monkeypatch):
    layer = next(layer for layer in model.exchange.layers if layer.name == "5")
    left = []

    def watch(module, arguments, result):
        result.register_hook(lambda gradient: left.append(layer.flying))

    def watch_computing(x, weight, bias):
        y = torch.nn.functional.linear(x, weight, bias)
        if weight.data_ptr() == model[5].weight.data_ptr():
            y.grad_fn.register_prehook(lambda gradients: computing.append(layer.flying))
        return y
    model[4].register_forward_hook(watch)
    computing = []
    monkeypatch.setattr(linear, "functional", types.SimpleNamespace(linear=watch_computing))
    backward(model, 0)
    assert left[0] and computing == [True] * (type(model[5]) is linear.Linear)  # a small one that goes whole is plain again


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 7)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_whole_gradient_is_a_product(shape, biased):
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(shape, generator=draw) * 10.0 ** torch.randint(-12, 6, shape, generator=draw)
    bias = torch.randn(shape[0], generator=draw) * 10.0 ** torch.randint(-10, 4, shape[:1], generator=draw) if biased else None
    u, v = whole_as_factors(weight, bias)
    assert len(u) == len(v) == min(shape) + biased
    assert torch.equal(u.t().mm(v), weight)
    if biased:
        torch.testing.assert_close(u.sum(0), bias, rtol=1e-6, atol=0)
        u, _ = whole_as_factors(weight.clamp(-1, 1), torch.zeros_like(bias))
        assert u.sum(0).abs().max() < 2.0 ** -80  # a bias without a gradient has none: the identity's column leaves nothing
