# SPDX-License-Identifier: Apache-2.0
"""Features of training scripts, each with the reference of one process on the concatenated batch: see test_features.py.

A feature trains a model for some steps on the batches of `ranks`: a worker on its own, the reference on all at once. Where
that is another thing (one rank alone does something, statistics of a batch) the reference computes every rank's gradients by
itself and applies their mean.
"""
import contextlib
import copy
import hashlib
import os
from typing import NamedTuple

import products
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

BATCH = 3  # so few that factors are fewer bytes with four workers too
LATE = 6  # the step at which something begins; the plan is final at step 3
# For nets in which rounding grows with larger steps of the weights: beyond the tolerance in 100 steps, in one process too.
SLOWLY = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}
EPS = 0.1  # of norms of a few rows, for the same reason: where these nearly agree, rounding is divided by almost nothing
STEPS = int(os.environ.get("POSEIDON_FEATURE_STEPS", "0"))  # that every feature trains at least


def device_type():
    """Of the device that trains, as autocast and a scaler want it: it is torch's default device."""
    return torch.get_default_device().type


def noise(step, ranks, *shape, stream=0):
    """Of the batches of all `ranks`, one behind the other, on torch's default device."""
    return torch.cat([torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1000 * stream + 10 * step + rank),
                                  device="cpu") for rank in ranks]).to(torch.get_default_device())


class Feature:
    steps = 6
    goes_on = True  # where the tests are to train for longer
    tolerance = 1e-5
    by_rank = False  # the reference averages gradients
    optimizer_arguments = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}

    def model(self):
        return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 3))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), **self.optimizer_arguments)

    def prepare(self, model, optimizer, step, ranks):
        pass

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 10)) - noise(step, ranks, 3, stream=1)).square().mean()

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        self.loss(model, step, ranks).backward()

    def update(self, model, optimizer, step):
        optimizer.step()


class Plain(Feature):
    pass


class Accumulation(Feature):
    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        for micro in range(3):
            (self.loss(model, 100 + 3 * step + micro, ranks) / 3).backward()


class Autocast(Feature):
    tolerance = 1e-2  # both round products to bfloat16

    def begins(self, step, ranks):
        return True

    def loss(self, model, step, ranks):
        begun = self.begins(step, ranks)
        with torch.autocast(device_type(), torch.bfloat16, enabled=begun):
            result = model(noise(step, ranks, 10))
        assert result.dtype == (torch.bfloat16 if begun else torch.float32), "autocast is of another device"
        return (result.float() - noise(step, ranks, 3, stream=1)).square().mean()


class Scaled(Feature):
    """A loss scale that is found: an overflow on rank 1 alone skips the step everywhere."""

    steps = 8

    def optimizer(self, model):
        self.scaler = torch.amp.GradScaler(device_type(), init_scale=2.0 ** 8, growth_interval=2)
        return super().optimizer(model)

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        loss = self.loss(model, step, ranks)
        if step == 4 and 1 in ranks:
            loss = loss * float("inf")
        self.scaler.scale(loss).backward()

    def update(self, model, optimizer, step):
        self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        self.scaler.step(optimizer)
        self.scaler.update()


class ClippedByNorm(Feature):
    def update(self, model, optimizer, step):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


class ClippedByValue(Feature):
    def update(self, model, optimizer, step):
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()


class Tied(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 24)
            self.inner = nn.Linear(24, 24)
            self.decoder = nn.Linear(24, 10, bias=False)
            self.decoder.weight = self.embedding.weight

        def forward(self, words):
            return self.decoder(torch.tanh(self.inner(self.embedding(words))))

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        words = noise(step, ranks, 5).abs().mul(4).long().clamp(0, 9)
        return nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


class Twice(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.again, self.last = nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 3)

        def forward(self, x):
            return self.last(torch.tanh(self.again(torch.tanh(self.again(self.first(x))))))

    def model(self):
        return self.Net()


class Unused(Feature):
    """A layer that never runs and one that runs on rank 1 alone in every second step."""

    by_rank = True

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.never, self.some, self.last = (
                nn.Linear(10, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 3))

        def forward(self, x, some):
            x = torch.tanh(self.first(x))
            return self.last(self.some(x) if some else x)

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        result = model(noise(step, ranks, 10), step % 2 == 1 and 1 in ranks)
        return (result - noise(step, ranks, 3, stream=1)).square().mean()


class Frozen(Feature):
    steps = LATE + 3

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            model[2].requires_grad_(False)


class Thawed(Feature):
    """The last layer alone, then one more, then all but a bias, which is frozen again."""

    steps = LATE + 7

    def model(self):
        model = super().model().requires_grad_(False)
        model[4].requires_grad_(True)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == 2:
            model[2].requires_grad_(True)
        elif step == LATE:
            model.requires_grad_(True)
            model[2].bias.requires_grad_(False)


class ThawedInBetween(Feature):
    """While gradients of two backward passes add up."""

    steps = LATE + 4

    def model(self):
        model = super().model()
        model[2].requires_grad_(False)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE + 1:
            model[2].requires_grad_(True)

    def backward(self, model, optimizer, step, ranks):
        if step % 2 == 0:
            optimizer.zero_grad()
        self.loss(model, step, ranks).backward()

    def update(self, model, optimizer, step):
        if step % 2 == 1:
            optimizer.step()


class ThawedBehindNoSync(ThawedInBetween):
    """The first of both stays on its worker."""

    def backward(self, model, optimizer, step, ranks):
        from poseidon.torch import job
        with job.no_sync(model) if step % 2 == 0 else contextlib.nullcontext():
            super().backward(model, optimizer, step, ranks)


class ThawedBetweenForwards(Feature):
    """Of one backward pass."""

    steps = LATE + 4

    def model(self):
        model = nn.Sequential(*super().model(), nn.PReLU())
        model[5].requires_grad_(False)
        return model

    def loss(self, model, step, ranks):
        first = super().loss(model, step, ranks)
        if step == LATE:
            model[5].requires_grad_(True)
        return first + super().loss(model, 100 + step, ranks)


class Grown(Feature):
    """A module that replaces another, and its parameters join the optimizer."""

    optimizer_arguments = SLOWLY
    steps = LATE + 3

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            model[4] = nn.Linear(16, 3)  # rank 0's has to reach all
            torch.manual_seed(5 + ranks[0])
            nn.init.normal_(model[4].weight)
            nn.init.zeros_(model[4].bias)
            optimizer.add_param_group({"params": model[4].parameters(), "lr": 0.01})


class Checkpointed(Feature):
    optimizer_arguments = SLOWLY
    reentrant = False

    class Net(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant = reentrant
            self.first = nn.Linear(10, 24)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Tanh()) for _ in range(3))
            self.last = nn.Linear(24, 3)

        def forward(self, x):
            x = self.first(x)
            for block in (*self.blocks, self.blocks[0]):  # one of them twice
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            return {"out": self.last(x)}["out"]

    def model(self):
        return self.Net(self.reentrant)


class CheckpointedReentrantly(Checkpointed):
    reentrant = True


class CheckpointedWhole(Checkpointed):
    """Everything that has parameters is in the inner backward pass; what the model returns is not a tensor."""

    class Net(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant, self.inner = reentrant, Feature().model()

        def forward(self, x):
            return {"out": [checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)]}

    reentrant = True

    def loss(self, model, step, ranks):
        return super().loss(lambda x: model(x)["out"][0], step, ranks)


class Spectral(Feature):
    def model(self):
        model = super().model()
        nn.utils.spectral_norm(model[2])
        parametrizations.spectral_norm(model[4])
        return model


class Parametrized(Feature):
    def model(self):
        model = super().model()
        parametrizations.weight_norm(model[0])
        parametrizations.orthogonal(model[2])
        return model


class Adapted(Feature):
    """Low-rank adapters beside frozen Linears."""

    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    def model(self):
        model = super().model()
        for at in (0, 2, 4):
            model[at] = self.Adapter(model[at])
        return model


class Recurrent(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.last = nn.LSTM(10, 12, num_layers=2, batch_first=True), nn.Linear(12, 3)

        def forward(self, x):
            return self.last(self.memory(x)[0][:, -1])

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 5, 10)) - noise(step, ranks, 3, stream=1)).square().mean()


class Attention(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(10, 2, batch_first=True), nn.Linear(10, 3)

        def forward(self, x):
            return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))

    def model(self):
        return self.Net()

    loss = Recurrent.loss


class Transformer(Attention):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(10, 2, 16, dropout=0.0, batch_first=True)
            self.encoder, self.last = nn.TransformerEncoder(layer, 2), nn.Linear(10, 3)

        def forward(self, x):
            return self.last(self.encoder(x).mean(1))


class InPlace(Feature):
    """The output of a Linear is changed in place, of two dimensions and of three."""

    optimizer_arguments = SLOWLY

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(5, 24), nn.Linear(24, 16), nn.Linear(32, 3)

        def forward(self, x):
            y = torch.nn.functional.elu_(self.first(x.view(-1, 2, 5)))
            y = self.second(y).add_(1).tanh_().flatten(1)
            return self.last(y).mul_(2)

    def model(self):
        return self.Net()


class Encoded(Feature):
    """A model that returns what its other result is made of, and the same tensor twice; the loss is of all of them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(10, 6), nn.Linear(6, 10)

        def forward(self, x):
            code = torch.tanh(self.encode(x))
            return self.decode(code), code, code

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        x = noise(step, ranks, 10)
        result, code, again = model(x)
        return (result - x).square().mean() + code.square().mean() + again.mean()


class Statistics(Feature):
    """Batch norms use each rank's own batch, and keep rank 0's statistics everywhere."""

    by_rank = True

    def model(self):
        return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24, eps=EPS), nn.Tanh(), nn.Linear(24, 3))


class Synchronized(Feature):
    """Batch norms of all ranks' samples together, of which one has no parameters and one does not add up statistics by a
    momentum; the model is used for validation between steps."""

    def model(self):
        model = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Unflatten(1, (2, 4, 3)), nn.Conv2d(2, 5, 2),
                              nn.BatchNorm2d(5, momentum=None), nn.ReLU(), nn.BatchNorm2d(5, affine=False),
                              nn.BatchNorm2d(5, track_running_stats=False), nn.Flatten(), nn.Linear(30, 3))
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)

    def prepare(self, model, optimizer, step, ranks):
        with torch.no_grad():
            model.eval()
            model(noise(step, (0, 1), 10, stream=2))
            model.train()


class SynchronizedAndAccumulated(Synchronized):
    backward = Accumulation.backward


class SynchronizedAndCompiled(Synchronized):
    def model(self):
        model = super().model()
        model.compile(backend="aot_eager")
        return model


class SynchronizedInHalf(Feature):
    tolerance = 4e-2
    optimizer_arguments = {"lr": 0.05}

    def model(self):
        return nn.SyncBatchNorm.convert_sync_batchnorm(
            nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 3))).bfloat16()

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 10).bfloat16()).float() - noise(step, ranks, 3, stream=1)).square().mean()


class SynchronizedInCheckpoints(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block, self.last = nn.Linear(10, 24), nn.Sequential(nn.BatchNorm1d(24), nn.Tanh()), nn.Linear(24, 3)

        def forward(self, x):
            return self.last(checkpoint(self.block, self.first(x), use_reentrant=False))

    def model(self):
        return nn.SyncBatchNorm.convert_sync_batchnorm(self.Net())


class MoreGroups(Feature):
    steps = LATE + 3

    def optimizer(self, model):
        return torch.optim.SGD(model[4].parameters(), lr=0.05)

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.1})


class Penalty(Feature):
    """Gradients of gradients, as WGAN-GP and R1 take them."""

    steps = LATE

    def loss(self, model, step, ranks):
        x = noise(step, ranks, 10).requires_grad_()
        result = model(x)
        slope, = torch.autograd.grad(result.sum(), x, create_graph=True)
        return result.square().mean() + (slope.norm(dim=1) - 1).square().mean()


class Graphed(Feature):
    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        self.loss(model, step, ranks).backward(create_graph=step % 2 == 0)


class WholeBatch(Feature):
    """LBFGS evaluates the loss as often as the loss requires."""

    steps = 3
    goes_on = False  # what is left of the loss then is rounding, and so is the direction

    def optimizer(self, model):
        return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, history_size=5, line_search_fn="strong_wolfe",
                                 tolerance_change=1e-4)

    def backward(self, model, optimizer, step, ranks):
        def closure():
            optimizer.zero_grad()
            loss = self.loss(model, 0, ranks)
            loss.backward()
            return loss
        optimizer.step(closure)

    def update(self, model, optimizer, step):
        pass


class Retained(Feature):
    """Several backward passes of one forward pass."""

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        result = model(noise(step, ranks, 10))
        result.square().mean().backward(retain_graph=True)
        result.abs().mean().backward()


class Asked(Feature):
    """autograd.grad for weights is each worker's own, as with DistributedDataParallel; all other gradients are exchanged."""

    def backward(self, model, optimizer, step, ranks):
        loss = self.loss(model, step, ranks)
        own = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        optimizer.zero_grad()
        with_factors = torch.autograd.grad(loss, [model[0].weight], retain_graph=True)
        torch.testing.assert_close(with_factors[0], own[0])
        plain = copy.deepcopy(Feature().model())
        plain.load_state_dict(model.state_dict())
        expected = torch.autograd.grad(self.loss(plain, step, ranks), list(plain.parameters()))
        for one, other in zip(own, expected):
            torch.testing.assert_close(one, other)
        loss.backward()


class Halves(Feature):
    """Parameters in bfloat16, and some in single precision among them."""

    dtype = torch.bfloat16
    tolerance = 4e-2  # numbers near 1 have steps of 0.008, and both round in every step
    optimizer_arguments = {"lr": 0.05}

    def model(self):
        model = super().model().to(self.dtype)
        model[2].float()
        model[2].register_forward_pre_hook(lambda module, arguments: (arguments[0].float(),))
        model[2].register_forward_hook(lambda module, arguments, result: result.to(self.dtype))
        return model

    def loss(self, model, step, ranks):
        result = model(noise(step, ranks, 10).to(self.dtype))
        return (result.float() - noise(step, ranks, 3, stream=1)).square().mean()


class HalvesRounded(Halves):
    """The mean of gradients in bfloat16 is their sum in single precision, rounded once."""

    def model(self):
        return Feature.model(self).to(self.dtype)

    def backward(self, model, optimizer, step, ranks):
        super().backward(model, optimizer, step, ranks)
        if len(ranks) == 1:
            from poseidon.torch import workers
            sums = [torch.zeros(p.shape) for p in model.parameters()]
            for rank in range(workers()):
                plain = self.model()
                plain.load_state_dict(model.state_dict())
                self.loss(plain, step, (rank,)).backward()
                for total, parameter in zip(sums, plain.parameters()):
                    total.add_(parameter.grad.float())
            for total, parameter in zip(sums, model.parameters()):
                assert torch.equal((total / workers()).to(self.dtype), parameter.grad)


class HalvesOfFloat16(Halves):
    dtype = torch.float16
    tolerance = 5e-3  # steps of 0.001


class HalvesOfFloat16Rounded(HalvesRounded):
    dtype = torch.float16
    tolerance = 5e-3


class HalvesOfBothKinds(Halves):
    """In one layer: a weight in float16, added up in bfloat16."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 10).half())
            self.bias = nn.Parameter(torch.randn(3).bfloat16())

        def forward(self, x):
            return nn.functional.linear(x, self.weight).bfloat16() + self.bias

    dtype = torch.float16

    def model(self):
        return self.Net()


class Late(Feature):
    steps = LATE + 4

    def begins(self, step, ranks):
        return step >= LATE


class LateAutocast(Late, Autocast):
    pass


class LateHook(Late):
    hook = None

    def prepare(self, model, optimizer, step, ranks):
        if self.hook is not None:
            self.hook.remove()
        self.hook = model[2].weight.register_hook(lambda gradient: gradient * 2) if self.begins(step, ranks) else None


class LatePruning(Late):
    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            prune.l1_unstructured(model[2], "weight", 0.5)


class LatePenalty(Late):
    """On the weights beside the loss: products and whole gradients of one layer in one pass."""

    def loss(self, model, step, ranks):
        loss = super().loss(model, step, ranks)
        if self.begins(step, ranks):
            loss = loss + 0.1 * model[2].weight.square().sum() + 0.1 * model[4].bias.square().sum()
        return loss


class OnRank1:
    """Begins on one of the ranks alone."""

    by_rank = True

    def begins(self, step, ranks):
        return step >= LATE and ranks == (1,)


class LateAutocastOnRank1(OnRank1, LateAutocast):
    pass


class LateHookOnRank1(OnRank1, LateHook):
    pass


class LatePenaltyOnRank1(OnRank1, LatePenalty):
    pass


class PenaltyInSomeSteps(LatePenalty):
    def begins(self, step, ranks):
        return step % 2 == 0


class WholeFromTheSwitch(LateHook):
    """From the step in which a plan of step 10 begins to hold."""

    steps = 10 + 10 + 2 + 12  # until the next plan holds

    def begins(self, step, ranks):
        return step >= 10


class WholeFromTheSwitchOnRank1(OnRank1, WholeFromTheSwitch):
    def begins(self, step, ranks):
        return step >= 10 and ranks == (1,)


class Parted(Feature):
    """Something that only one of the workers does, which ends in a sentence."""

    steps = LATE + 3
    frozen = None

    def model(self):
        model = super().model()
        if self.frozen is not None:
            model[self.frozen].requires_grad_(False)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            self.part(model, ranks[0])


class FrozenOnRank1(Parted):
    def part(self, model, rank):
        model[2].requires_grad_(rank != 1)


class ThawedOnRank1(Parted):
    frozen = 2

    def part(self, model, rank):
        model[2].requires_grad_(rank == 1)


class ThawedOnRank0(Parted):
    frozen = 2

    def part(self, model, rank):
        model[2].bias.requires_grad_(rank == 0)


class ThawedInOthers(Parted):
    frozen = 2

    def part(self, model, rank):
        list(model[2].parameters())[rank % 2].requires_grad_(True)


class GrownOnRank1(Parted):
    def part(self, model, rank):
        if rank == 1:
            model[4] = nn.Linear(16, 3)


class Renormed(Parted):
    """An embedding whose forward pass changes its weight."""

    def model(self):
        return nn.Sequential(nn.Linear(10, 3), nn.Embedding(10, 3, max_norm=1.0))

    def part(self, model, rank):
        assert False, "it has trained"


class OnDevices(Feature):
    """A feature that only devices have: see test_devices.py."""


class Split(OnDevices):
    """Parts on two devices and on the host, small layers and batch norms among them."""

    optimizer_arguments = SLOWLY

    class Net(nn.Module):
        def __init__(self, devices):
            super().__init__()
            self.parts = nn.ModuleList(
                nn.Sequential(nn.Linear(10, 10, device=device), nn.BatchNorm1d(10, eps=EPS, device=device), nn.Tanh())
                for device in devices)
            self.devices = devices

        def forward(self, x):
            for part, device in zip(self.parts, self.devices):
                x = part(x.to(device))
            return x[:, :3].to(torch.get_default_device())

    by_rank = True

    def model(self):
        if device_type() == "cpu":
            return self.Net(["cpu"] * 5)
        import accelerator
        one, other = accelerator.two()
        return self.Net([one, other, "cpu", other, one])


class Counted(OnDevices):
    """Counts what a function of poseidon.torch's does while it trains."""

    def counted(self):
        """The function's owner, its name, and how much a result counts."""
        raise NotImplementedError

    def check(self):
        raise NotImplementedError

    def prepare(self, model, optimizer, step, ranks):
        if step == 0:
            owner, name, worth = self.counted()
            self.plain, self.count = vars(owner)[name], 0

            def counting(*arguments):
                result = self.plain(*arguments)
                self.count += worth(result)
                return result
            setattr(owner, name, counting)

    def update(self, model, optimizer, step):
        super().update(model, optimizer, step)
        if step == self.steps - 1:
            owner, name, _ = self.counted()
            setattr(owner, name, self.plain)
            if device_type() != "cpu":
                self.check()


class Multiplied(Counted):
    """The products of all workers' factors are made on the device."""

    def counted(self):
        from poseidon.torch.product import Product
        return Product, "multiply_gathered", lambda _: 1

    def check(self):
        assert self.count >= self.steps - 4, f"{self.count} products were made on the device"


class InParts(Counted):
    """Whole gradients that leave in parts of five numbers."""

    def counted(self):
        from poseidon.torch import devices
        return devices, "parts_of", len

    def prepare(self, model, optimizer, step, ranks):
        super().prepare(model, optimizer, step, ranks)
        if step == 0:
            from poseidon.torch import devices
            self.part, devices.PART = devices.PART, 20

    def update(self, model, optimizer, step):
        super().update(model, optimizer, step)
        if step == self.steps - 1:
            from poseidon.torch import devices
            devices.PART = self.part

    def check(self):
        # Two steps with whole gradients at least; the smaller of the first two Linears has 400 numbers.
        assert self.count >= 2 * 400 / 5, f"{self.count} parts were sent"


class Launched(OnDevices):
    """Nothing in a backward pass waits for the device."""

    def model(self):
        model = super().model()
        if device_type() != "cpu":
            import accelerator
            watch = accelerator.Watch()
            model[4].weight.register_post_accumulate_grad_hook(lambda _: watch.begin())
            model[0].weight.register_post_accumulate_grad_hook(lambda _: watch.end())
        return model


ALL = {one.__name__: one for one in list(globals().values())
       if isinstance(one, type) and issubclass(one, Feature) and one not in (Feature, Late, Parted, OnDevices, Counted)}
for one in ALL.values():
    if one.goes_on:
        one.steps = max(one.steps, STEPS)
FEATURES = {name: one for name, one in ALL.items() if not issubclass(one, (OnDevices, Parted))}
# Of Linears alone, whose names are those of Feature's model: they go as factors from the first step where that is asked.
FACTORS = {"0": "sfb", "2": "sfb", "4": "sfb"}
FORCED = ["Plain", "Accumulation", "Autocast", "Scaled", "Frozen", "Penalty", "Graphed", "WholeBatch", "Retained", "Asked",
          *(name for name in FEATURES if name.startswith("Late") and "Pruning" not in name), "PenaltyInSomeSteps"]


class Answer(NamedTuple):
    """A worker's, of a feature that it has trained."""
    weights: dict
    schemes: dict
    said: list  # lines of the log
    digests: list  # of its parameters after every step
    gradients: list  # of the first steps, an array or None for each parameter


class Looks:
    """What somebody sees who looks at a model after every step."""

    def __init__(self):
        self.digests, self.gradients = [], []

    def __call__(self, model):
        self.digests.append(digest_of(model))
        if len(self.gradients) < LATE:
            self.gradients.append([None if p.grad is None else p.grad.detach().float().numpy().copy() for p in model.parameters()])


class Ddp(nn.parallel.DistributedDataParallel):
    """Torch's, whose layers and weights a feature finds where the model has them."""

    def __getitem__(self, at):
        return self.module[at]

    def state_dict(self, *arguments, **words):
        return self.module.state_dict(*arguments, **words)


def digest_of(model):
    digest = hashlib.sha1()
    for parameter in model.parameters():
        digest.update(parameter.detach().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def train(feature, ranks, wrap=lambda model, optimizer: (model, None), look=lambda model: None):
    """The weights after the feature's steps. What wrap returns first trains; the other comes back. After every step somebody may
    look at the model."""
    if device_type() == "cpu":
        model = feature.model()
    else:
        import accelerator
        model = accelerator.as_on_the_host(feature.model)
    optimizer = feature.optimizer(model)
    called, exchange = wrap(model, optimizer)
    for step in range(feature.steps):
        feature.prepare(called, optimizer, step, ranks)
        feature.backward(called, optimizer, step, ranks)
        feature.update(called, optimizer, step)
        look(model)
    return dict(model.state_dict()), exchange


def mean_of_ranks(feature, workers):
    """The weights of one process that computes the gradients of every rank and applies their mean. Buffers are rank 0's."""
    model = feature.model()
    optimizer = feature.optimizer(model)
    for step in range(feature.steps):
        sums, used = [torch.zeros_like(p) for p in model.parameters()], set()
        buffers = copy.deepcopy(dict(model.named_buffers()))
        for rank in reversed(range(workers)):
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
            feature.prepare(model, optimizer, step, (rank,))
            feature.backward(model, optimizer, step, (rank,))
            for total, parameter in zip(sums, model.parameters()):
                if parameter.grad is not None:
                    total.add_(parameter.grad)
                    used.add(parameter)
        for total, parameter in zip(sums, model.parameters()):
            parameter.grad = total / workers if parameter in used else None
        feature.update(model, optimizer, step)
    return dict(model.state_dict())


def reference(name, workers):
    torch.manual_seed(1)
    feature = ALL[name]()
    return mean_of_ranks(feature, workers) if feature.by_rank else train(feature, tuple(range(workers)))[0]


def beside_ddp(name, rank, workers, port, **words):
    """The Answer of a worker whose gradients DistributedDataParallel exchanges."""
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    looks = Looks()
    weights, _ = train(ALL[name](), (rank,), lambda model, optimizer: (Ddp(model, **words), None), looks)
    torch.distributed.destroy_process_group()
    return Answer(weights, {}, [], [], looks.gradients)


def work(rank, options, requests, device=None, delays=None):
    """A worker of a job: trains what it is asked for and sends its Answer, until it is asked for nothing."""
    torch.set_num_threads(1)
    if device is not None:
        import accelerator
        accelerator.load(delays)
        torch.set_default_device(device)
    import poseidon.torch
    products.stay_alone()
    said = []
    poseidon.torch.init(rank=rank, threads=1, log=lambda level, line: said.append(line), **options)

    def answer(name, words):
        looks = Looks()
        free = device is None and not words.get("overlap")  # else to look is to wait for what the feature does not wait for
        weights, exchange = train(ALL[name](), (rank,),
                                  lambda model, optimizer: (model, poseidon.torch.wrap(model, optimizer, **words)),
                                  looks if free else lambda model: None)
        if words.get("overlap"):
            exchange.synchronize()
        schemes = {layer: scheme for layer, (scheme, _) in exchange.plan().items()}
        exchange.detach()
        return Answer({name: tensor.cpu() for name, tensor in weights.items()}, schemes, list(said),
                      looks.digests, looks.gradients)

    while (request := requests.recv()) is not None:
        name, words = request
        said.clear()
        if words.get("check_every"):  # gradients of every step
            from poseidon.torch import checks
            checks.STEPS = 100
        torch.manual_seed(1 + rank)  # other weights on every rank: rank 0's have to reach all
        try:
            if "ddp" in words:
                requests.send(beside_ddp(name, rank, options["workers"], **words["ddp"]))
            else:
                requests.send(answer(name, words))
        except Exception:
            import traceback
            requests.send(traceback.format_exc())
            break
    else:
        poseidon.torch.shutdown()
