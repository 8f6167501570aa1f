# SPDX-License-Identifier: Apache-2.0
"""One worker of a test's job: trains the model below as the case says and saves what came of it.

usage: worker.py CASE.json RANK
"""
import json
import os
import pathlib
import signal
import sys
import time

import products
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "frontends" / "python"))

BATCH = 6


class Net(nn.Module):
    """A convolution with a norm, Linears with and without bias, one of them used twice, a bare tensor, a
    Linear and a norm that only `sometimes` run and a Linear that never does. The bare tensor, the convolution
    and the norms are one layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.wide = nn.Linear(144, 40)
        self.twice = nn.Linear(40, 40, bias=False)
        self.scale = nn.Parameter(torch.ones(40))
        self.some = nn.Linear(40, 40)
        self.some_norm = nn.LayerNorm(40)
        self.never = nn.Linear(40, 3)
        self.last = nn.Linear(40, 5)

    def forward(self, x, sometimes):
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        x = torch.relu(self.wide(x))
        x = self.twice(torch.tanh(self.twice(x))) * self.scale
        if sometimes:
            x = x + self.some_norm(self.some(x))
        return self.last(x)


def model_of(rank):
    """Every rank draws other weights: rank 0's have to reach all."""
    torch.manual_seed(rank)
    return Net()


def batch_of(step, rank, micro=0):
    draw = torch.Generator().manual_seed(10000 * micro + 100 * step + rank)
    return torch.randn(BATCH, 1, 8, 8, generator=draw), torch.randint(5, (BATCH,), generator=draw)


def runs_sometimes(step, rank):
    return (step + rank) % 3 == 0


def optimizer_of(case, parameters):
    if case["optimizer"] == "adam":
        return torch.optim.Adam(parameters, lr=0.01)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def scheduler_of(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def backward(model, step, rank, micro):
    samples, labels = batch_of(step, rank, micro)
    loss = nn.functional.cross_entropy(model(samples, runs_sometimes(step + micro, rank)), labels)
    loss.backward()
    return loss.item()


def hold_back(case, rank, model, exchange):
    """Rank 1's first backward pass stops before `wide` until rank 0, which waits for the layers below, has
    updated `last`."""
    updated = pathlib.Path(case["result"] + "updated")
    if rank == 0:
        update = exchange.lander.update_layers

        def tell(layers):
            update(layers)
            if any(layer.name == "last" for layer in layers):
                updated.touch()
        exchange.lander.update_layers = tell
    else:
        def hold(*_):
            deadline = time.monotonic() + 20
            while not updated.exists():
                if time.monotonic() > deadline:
                    raise RuntimeError("rank 0 has not updated its last layer")
                time.sleep(0.01)
        model.wide.register_full_backward_pre_hook(hold)


def come_late(model):
    """Every backward pass stops for a moment before its first layer and before one in the middle."""
    for module in (model.last, model.wide):
        module.register_full_backward_pre_hook(lambda *_: time.sleep(0.02))


def train(case, rank):
    import poseidon.torch
    if not case.get("joins"):
        products.stay_alone()
    poseidon.torch.init(rank=rank, workers=case["workers"], port=case["port"], token_file=case["token"],
                        schemes=case["schemes"], threads=1, final_plan_step=case["final_plan_step"],
                        zero_compression=case.get("zero_compression", "auto"), strategy=case.get("strategy"))
    model = model_of(rank)
    optimizer = optimizer_of(case, model.parameters())
    scheduler = scheduler_of(optimizer)
    exchange = poseidon.torch.wrap(model, optimizer, overlap=case["overlap"], check_every=case.get("check_every"))
    if case.get("holds"):
        hold_back(case, rank, model, exchange)
    if case.get("late") == rank:
        come_late(model)
    if case.get("compiles"):
        model.compile(backend="aot_eager")
    schemes, gradients = [], []
    for step in range(case["steps"]):
        if case.get("death") == [rank, step]:
            os.kill(os.getpid(), signal.SIGKILL)
        if case.get("raises") == [rank, step]:
            raise ValueError("the data are gone")
        optimizer.zero_grad(set_to_none=case["set_to_none"])
        for micro in range(case["micro"]):
            loss = backward(model, step, rank, micro)
        if step in case["skipped"]:
            continue
        if case.get("reads_gradients"):
            gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        optimizer.step()
        scheduler.step()
        if case.get("records"):
            poseidon.torch.record(loss=torch.tensor(loss) if step != 3 else float("nan"))
        schemes.append({name: scheme for name, (scheme, _) in exchange.plan().items()})
        if case.get("evaluates"):
            with torch.no_grad():
                model.eval()(batch_of(0, 0)[0], True)
                model.train()
    result = {"weights": dict(model.state_dict()), "schemes": schemes, "gradients": gradients,
              "reasons": {name: reason for name, (_, reason) in exchange.plan().items()}, "overlaps": exchange.overlap}
    if case.get("records"):
        poseidon.torch.record(test=True, loss=0.5, accuracy=torch.tensor(0.75))
        try:
            poseidon.torch.record(loss=torch.tensor([1.0, 2.0]))
        except poseidon.torch.PoseidonError as why:
            result["refused"] = str(why)
    if case.get("reports"):
        result["report"] = poseidon.torch.report()
    torch.save(result, case["result"] + str(rank))
    poseidon.torch.shutdown()
    backward(model, 0, rank, 0)  # on its own


def reference(case):
    """One process that computes every rank's gradients and applies their mean, summed in rank order. Where no rank
    has a gradient there is none."""
    model = model_of(0)
    optimizer = optimizer_of(case, model.parameters())
    scheduler = scheduler_of(optimizer)
    used = set()
    for step in range(case["steps"]):
        sums = [torch.zeros_like(p) for p in model.parameters()]
        if case["set_to_none"]:
            used.clear()
        for rank in range(case["workers"]):
            model.zero_grad()
            for micro in range(case["micro"]):
                backward(model, step, rank, micro)
            for total, parameter in zip(sums, model.parameters()):
                if parameter.grad is not None:
                    total.add_(parameter.grad)
                    used.add(parameter)
        for total, parameter in zip(sums, model.parameters()):
            parameter.grad = total / case["workers"] if parameter in used else None
        if step not in case["skipped"]:
            optimizer.step()
            scheduler.step()
    return dict(model.named_parameters())


def main(case_file, rank):
    torch.set_num_threads(1)
    case = json.loads(pathlib.Path(case_file).read_text())
    import poseidon.torch
    from poseidon import PoseidonError
    try:
        try:
            if case.get("words"):
                import words
                words.train(case, rank)
            else:
                train(case, rank)
        finally:
            if case.get("finally"):
                poseidon.torch.shutdown()
    except PoseidonError as error:
        print(json.dumps({"message": str(error), "code": error.code, "culprit": error.culprit}))
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
