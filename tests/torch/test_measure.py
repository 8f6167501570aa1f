# SPDX-License-Identifier: Apache-2.0
"""The session gets the time that layers take: every pass once, and no waiting."""
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import poseidon.torch  # noqa: E402
from poseidon import library as c  # noqa: E402

STEPS = 3


class Spied:
    """A library of which some functions are others."""

    def __init__(self, library, **functions):
        self.__dict__.update(functions)
        self.library = library

    def __getattr__(self, name):
        return getattr(self.library, name)


@pytest.mark.parametrize("overlap", [False, True])
def test_time_belongs_to_one_layer_and_waiting_to_none(alone, overlap):
    model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.Tanh(), torch.nn.Linear(300, 300, bias=False),
                                torch.nn.Linear(300, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=overlap)
    passes, waits = [], []

    def slow(wait):
        def waits_longer(*arguments):
            begin = time.monotonic_ns()
            time.sleep(0.01)
            wait(*arguments)
            waits.append((begin, time.monotonic_ns()))
        return waits_longer

    def timed(handle, layer, step, which, begin, end):
        library.timed(handle, layer, step, which, begin, end)
        passes.append((begin, end, layer, step, which))

    core = exchange.model.core
    library = core.c
    core.c = exchange.model.stopwatch.library = Spied(library, timed=timed, wait_any=slow(library.wait_any))
    core.wait = slow(core.wait)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, 40)).sum().backward()
        optimizer.step()
        if step == 0:
            exchange.synchronize()
            evaluated = time.monotonic_ns()
            with torch.no_grad():
                model(torch.ones(8, 40))
            waits.append((evaluated, time.monotonic_ns()))
    for step in range(STEPS):
        assert {(layer, which) for _, _, layer, known, which in passes if known == step} == {
            (layer.id, which) for layer in exchange.layers for which in (c.FORWARD, c.BACKWARD)}
    assert len(waits) >= STEPS * len(exchange.layers) - (len(exchange.layers) if overlap else 0)
    ends = 0
    for begin, end, *_ in sorted(passes):
        assert ends <= begin <= end
        ends = end
        assert all(end <= wait_begin or begin >= wait_end for wait_begin, wait_end in waits)


def test_nothing_is_timed_after_the_final_plan(tmp_path):
    poseidon.torch.init(rank=0, workers=1, final_plan_step=2)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchange = poseidon.torch.wrap(model, optimizer)
    for step in range(4):
        assert (exchange.model.stopwatch is None) == (step > 2)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    poseidon.torch.shutdown()
