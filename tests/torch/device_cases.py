# SPDX-License-Identifier: Apache-2.0
"""Cases of one worker on a device, each in a process of its own: see test_devices.py."""
import os

import torch
from torch import nn

import accelerator
import products
from accelerator import KIND
from refusals import refused

DELAY = 2000  # microseconds


def net(device=KIND):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)


def small_layers_join_to_a_larger_size_than_on_the_host():
    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    tower = nn.Sequential(*(nn.Conv1d(100, 100, 2) for _ in range(7)))  # 80 KB each
    for device, sizes in ((KIND, [12, 2]), ("cpu", [2] * 7)):
        exchange = poseidon.torch.wrap(tower.to(device))
        assert [len(layer.parameters) for layer in exchange.layers] == sizes
        exchange.detach()


def times_are_those_of_the_device():
    """A host that only launches is done long before."""
    import late
    import poseidon.torch
    products.stay_alone()
    poseidon.torch.init(rank=0, workers=1, trace_spans=10000)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchange = poseidon.torch.wrap(model, optimizer)
    late.library.late_set_delays(DELAY, 0)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 6).to(KIND)).square().sum().backward()
        optimizer.step()
    late.library.late_set_delays(0, 0)
    spans = [span for span in exchange.session.take_trace() if span.lane == "compute" and span.step in (1, 2)]
    assert {span.layer for span in spans} == {0, 1}
    for layer in (0, 1):
        for step in (1, 2):
            took = sum(span.end - span.begin for span in spans if (span.layer, span.step) == (layer, step))
            assert took >= 4 * 1000 * DELAY, spans  # each of the layer's operators, forward and backward, takes so long


def a_step_that_a_graph_captures_is_refused():
    """Before anything of it is sent, in either pass; and a step that runs trains."""
    import poseidon.torch
    products.stay_alone()
    poseidon.torch.init(rank=0, workers=1)
    model = net()
    poseidon.torch.wrap(model)
    captured = "a step of the distributed model is captured in a graph of the device"
    batch = torch.ones(2, 6).to(KIND)
    model(batch).square().sum().backward()
    module = getattr(torch, KIND)
    runs = getattr(module, "is_current_stream_capturing", lambda: False)
    module.is_current_stream_capturing = lambda: True
    refused(captured, lambda: model(batch))
    module.is_current_stream_capturing = runs
    loss = model(batch).square().sum()
    module.is_current_stream_capturing = lambda: True
    refused(captured, loss.backward)
    module.is_current_stream_capturing = runs
    model(batch).square().sum().backward()


def compiled_models_train():
    """Marks of the time are events, of which a compiler would make its own."""
    import copy

    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    model = net()
    plain = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, plain)]
    poseidon.torch.wrap(model, optimizers[0])
    for _ in range(12):  # into the final plan
        for one, optimizer in zip((torch.compile(model, backend="aot_eager"), plain), optimizers):
            optimizer.zero_grad()
            one(torch.ones(2, 6).to(KIND)).square().sum().backward()
            optimizer.step()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-5, atol=1e-6)


def a_model_that_moves_is_refused():
    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    one, other = accelerator.two()
    if one == other:
        other = "cpu"
    model = net(one)
    poseidon.torch.wrap(model)
    model.to(other)
    refused(f"the model has moved from {one} to {other}, expected that it moves before distribute",
            lambda: model(torch.ones(2, 6).to(other)))


def numbers_on_a_device_are_shared():
    import poseidon.torch as poseidon
    poseidon.init(rank=0, workers=1)
    number = torch.tensor([1.5, 2.5]).to(KIND)
    for result in (poseidon.all_reduce(number), poseidon.broadcast(number)):
        assert result.device.type == KIND and result.cpu().tolist() == [1.5, 2.5]
    assert poseidon.all_reduce(torch.tensor([3]).to(KIND), "sum").cpu().tolist() == [3]


def speeds_are_those_of_the_device_of_the_model():
    """Which need not be the current one."""
    import late
    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    other = accelerator.two()[1]
    model = net(other)
    x = torch.ones(2, 6).to(other)
    late.library.late_set_delays(DELAY, 0)
    [rate] = poseidon.torch.speeds(lambda: model(x).sum().backward(), 0.01)
    late.library.late_set_delays(0, 0)
    assert rate < 1e6 / DELAY / 6, rate  # three operators at least, forward and backward


def a_device_without_streams_is_refused():
    import poseidon.torch
    poseidon.torch.init(rank=0, workers=1)
    refused("parameter 'weight' is on meta, expected the CPU or a device with streams",
            lambda: poseidon.torch.wrap(nn.Linear(2, 2, device="meta")))


def rounding_is_set_back():
    """Whatever switch of torch's the program has used. As switches are the process's, each in one of its own."""
    from poseidon.torch import products

    def said(take):
        try:
            return take()
        except RuntimeError:  # of who has used both of them
            return "mixed"

    def state():
        matmul = torch.backends.cuda.matmul
        return [said(torch.get_float32_matmul_precision), said(lambda: matmul.allow_tf32),
                said(lambda: getattr(matmul, "fp32_precision", None))]

    def check(setting):
        exec(setting, {"torch": torch})
        before = state()
        for tf32 in (False, True):
            with products.rounding(torch.device("cuda"), tf32):
                if before[2] is not None:
                    assert torch.backends.cuda.matmul.fp32_precision == ("tf32" if tf32 else "ieee")
                else:
                    assert torch.backends.cuda.matmul.allow_tf32 == tf32
            assert state() == before, (setting, before, state())
    settings = ["", *(f"torch.set_float32_matmul_precision('{word}')" for word in ("medium", "high", "highest")),
                "torch.backends.cuda.matmul.allow_tf32 = True"]
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        settings += ["torch.backends.cuda.matmul.fp32_precision = 'tf32'", "torch.backends.fp32_precision = 'tf32'"]
    for setting in settings:
        child = os.fork()
        if child == 0:
            try:
                check(setting)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, setting


CASES = [a_model_that_moves_is_refused.__name__, numbers_on_a_device_are_shared.__name__,
         a_device_without_streams_is_refused.__name__, rounding_is_set_back.__name__,
         small_layers_join_to_a_larger_size_than_on_the_host.__name__, compiled_models_train.__name__,
         a_step_that_a_graph_captures_is_refused.__name__]
if KIND == "late":  # whose delays are known
    CASES += [times_are_those_of_the_device.__name__, speeds_are_those_of_the_device_of_the_model.__name__]


def run(case, log):
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    accelerator.load()
    globals()[case]()
