# SPDX-License-Identifier: Apache-2.0
"""Steps and layers make the moves of states.py, and no others."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
from poseidon.torch import states  # noqa: E402
from poseidon.torch.layer import Layer  # noqa: E402
from poseidon.torch.states import (  # noqa: E402
    AWAITED, COMING, FLYING, GUARDED, IDLE, IN_FLIGHT, LANDED, NEXT_PHASES, NEXT_STATES, UNWANTED, Phase)
from torch import nn  # noqa: E402

LARGE = 40000  # numbers of a layer that joins no other


@pytest.fixture
def moves(monkeypatch):
    """The states that layers come to, in their order, by the layer's name."""
    seen = {}
    plain = Layer.becomes

    def becomes(layer, state):
        plain(layer, state)
        seen.setdefault(layer.name, []).append(state)
    monkeypatch.setattr(Layer, "becomes", becomes)
    return seen


def wrapped(**words):
    model = nn.Sequential(nn.Linear(6, LARGE // 4), nn.Linear(LARGE // 4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, poseidon.torch.wrap(model, optimizer, **words)


def backward(model):
    model(torch.ones(2, 6)).sum().backward()


def test_every_state_is_named_in_the_table_and_reached():
    assert set(NEXT_STATES) == set(states.Layer) and len(NEXT_PHASES) == len(Phase)
    reached, to_see = set(), [IDLE]
    while to_see:
        state = to_see.pop()
        if state not in reached:
            reached.add(state)
            to_see += NEXT_STATES[state]
    assert reached == set(states.Layer)
    # Whatever is in flight has to land, or its session to be closed, before the layer is at rest again.
    assert all(next in {LANDED, IDLE, *IN_FLIGHT} for state in IN_FLIGHT for next in NEXT_STATES[state])
    assert LANDED not in NEXT_STATES[IDLE] | NEXT_STATES[COMING]


def test_a_move_that_is_not_in_the_table_is_a_fault(alone):
    _, _, exchange = wrapped()
    layer = exchange.layers[0]
    for state in (LANDED, GUARDED, UNWANTED, AWAITED):
        with pytest.raises(AssertionError, match=f"layer '0' cannot go from IDLE to {state.name}"):
            layer.becomes(state)
    with pytest.raises(AssertionError, match="a step cannot go from IDLE to BACKWARD"):
        exchange.now.enters(Phase.BACKWARD)


def test_without_overlap_backward_ends_with_layers_at_rest(alone, moves):
    model, optimizer, exchange = wrapped()
    assert exchange.now.phase is Phase.IDLE
    result = model(torch.ones(2, 6)).sum()
    assert exchange.now.phase is Phase.FORWARD
    result.backward()
    assert exchange.now.phase is Phase.IDLE
    optimizer.step()
    assert moves == {"0": [COMING, FLYING, LANDED, IDLE], "1": [COMING, FLYING, LANDED, IDLE]}


def test_with_overlap_layers_fly_until_they_are_needed(alone, moves):
    model, optimizer, exchange = wrapped(overlap=True)
    backward(model)
    assert moves["0"] == [COMING, FLYING, GUARDED]
    optimizer.step()
    assert moves["0"][3:] == [FLYING, AWAITED] and all(layer.flying for layer in exchange.layers)
    backward(model)
    assert moves["0"][5:8] == [LANDED, IDLE, COMING]
    optimizer.zero_grad()  # before step(): the means are not wanted
    assert moves["0"][8:] == [FLYING, GUARDED, FLYING, UNWANTED]
    optimizer.step()
    exchange.synchronize()
    assert moves["0"][12:] == [LANDED, IDLE]


def test_what_synchronize_waits_for_is_shown(alone, moves):
    model, _, exchange = wrapped(overlap=True)
    backward(model)
    exchange.synchronize()
    assert moves["1"] == [COMING, FLYING, GUARDED, LANDED, IDLE]
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("factors", [False, True])
def test_a_backward_pass_that_failed_before_any_layer_left_counts_for_nothing(alone, moves, overlap, factors):
    """Of a Linear the bias' gradient may have come, or its factors, when another hook raises."""
    model, optimizer, exchange = wrapped(overlap=overlap, factors=factors)
    plain = nn.Sequential(nn.Linear(6, LARGE // 4), nn.Linear(LARGE // 4, 4))
    plain.load_state_dict(model.state_dict())

    def fails(gradient):
        raise ValueError("no more memory")
    handle = model[1].weight.register_hook(fails)
    with pytest.raises(ValueError):
        backward(model)
    handle.remove()
    assert {layer.state for layer in exchange.layers} <= {IDLE, COMING}
    for one in (model, plain):
        one.zero_grad()
        backward(one)
    exchange.synchronize()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one.grad, other.grad)
