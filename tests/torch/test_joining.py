# SPDX-License-Identifier: Apache-2.0
"""Small modules share a layer, and nobody sees a difference."""
import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
from torch import nn  # noqa: E402

LARGE = (128 << 10) // 4 + 1  # elements: one more than a joined layer has


@pytest.fixture
def wrapped():
    """Wraps a model in a job of one worker; the Exchange."""
    def wrap(model, schemes=None, **words):
        poseidon.torch.init(rank=0, workers=1, schemes=schemes)
        return poseidon.torch.wrap(model, **words)
    yield wrap
    poseidon.torch.shutdown()


def declared(exchange):
    """The names in the core's plan, with the number of tensors."""
    assert set(exchange.plan()) == {layer.name for layer in exchange.layers}
    return {layer.name: len(layer.parameters) for layer in exchange.layers}


class Gain(nn.Module):
    def __init__(self, elements, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(elements, dtype=dtype))

    def forward(self, x):
        return x * self.weight[:x.shape[-1]]


def test_a_tower_of_small_modules_is_one_layer(wrapped):
    tower = [module for _ in range(20) for module in (nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))]
    tower += [nn.Flatten(), nn.Linear(8, 64), nn.Linear(64, 65)]  # the last product has more than 16 KiB
    assert declared(wrapped(nn.Sequential(*tower))) == {"0": 82, "42": 2}


def test_many_tiny_modules_are_one_layer(wrapped):
    exchange = wrapped(nn.Sequential(*(nn.BatchNorm1d(10) for _ in range(300))))
    assert declared(exchange) == {"0": 600}
    assert exchange.layers[0].shape == "600 tensors"


def test_small_modules_join_over_large_ones_up_to_a_size(wrapped):
    half, tenth = Gain(LARGE // 2), LARGE // 10
    exchange = wrapped(nn.Sequential(Gain(tenth), Gain(LARGE), half, Gain(LARGE), Gain(tenth), Gain(LARGE // 2),
                                     Gain(tenth)))
    assert declared(exchange) == {"0": 3, "1": 1, "3": 1, "5": 2}


def test_no_layer_is_of_two_types(wrapped):
    assert declared(wrapped(nn.Sequential(Gain(3), Gain(3, torch.float64), Gain(3)))) == {"0": 2, "1": 1}


def test_a_module_whose_scheme_is_named_stays_alone(wrapped):
    exchange = wrapped(nn.Sequential(Gain(3), Gain(3), Gain(3), Gain(3)), schemes="1=kv; 2=kv")
    assert declared(exchange) == {"0": 2, "1": 1, "2": 1}


def test_layers_of_any_name_can_be_named(wrapped):
    names = ["a;b", " edges ", "back\\slash", "two\nlines", "x=kv", "plain"]
    model = nn.Module()
    for name in ["before", *names, "behind"]:
        model.add_module(name, Gain(3))
    exchange = wrapped(model, schemes={name: "kv" for name in names})
    assert declared(exchange) == {"before": 2, **{name: 1 for name in names}}


def test_a_child_may_be_called_as_the_models_own_tensors(wrapped):
    model = Gain(LARGE)
    model.model = Gain(LARGE)
    assert declared(wrapped(model)) == {"model": 1, "model'": 1}


class Backwards(nn.Module):
    """Uses its modules in another order than it has them, one of them only by its tensor."""

    def __init__(self):
        super().__init__()
        self.last, self.by_tensor, self.middle, self.first = Gain(4), Gain(4), nn.BatchNorm1d(4), Gain(4)

    def forward(self, x):
        return self.last(self.middle(self.first(x * self.by_tensor.weight)))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_layer_is_up_to_date_wherever_it_is_used_first(wrapped, overlap):
    model = Backwards()
    plain = copy.deepcopy(model)
    samples = torch.randn(4, 6, 4, generator=torch.Generator().manual_seed(1))

    def train(trained, optimizer):
        for batch in samples:
            optimizer.zero_grad()
            trained(batch).square().sum().backward()
            optimizer.step()
        return trained.state_dict()

    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, plain)]
    assert declared(wrapped(model, optimizer=optimizers[0], overlap=overlap)) == {"last": 5}
    result, expected = train(model, optimizers[0]), train(plain, optimizers[1])
    for name, tensor in expected.items():
        assert torch.equal(result[name], tensor), name
