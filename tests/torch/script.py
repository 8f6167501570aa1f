# SPDX-License-Identifier: Apache-2.0
"""A training script as users write it: two lines of ours, no init, no shutdown. Its first argument is the case, its second the
file for what it ends with, to which it adds its rank.
"""
import contextlib
import copy
import os
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "frontends" / "python"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import numpy  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler, Subset, TensorDataset  # noqa: E402

import accelerator  # noqa: E402
import poseidon.torch as poseidon  # noqa: E402
from refusals import fails, refused  # noqa: E402

ALL = 24  # samples of a step, over all workers


def samples(count):
    source = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(count, 20, generator=source), torch.randint(10, (count,), generator=source))


def net():
    torch.manual_seed(1 + poseidon.rank())  # distribute makes them equal
    return nn.Sequential(nn.Linear(20, 60), nn.Tanh(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 10))


def train(model, optimizer, loader, epochs=2, clip=None):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return loss


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def loader(count, **options):
    return poseidon.loader(samples(count), batch_size=ALL // poseidon.workers(), **options)


# ---- cases: the model that they train

def plain():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, loader(40 * ALL), clip=0.1)
    return model


def forward():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model), overlap="forward")
    train(model, optimizer, loader(40 * ALL))
    poseidon.synchronize(model)
    return model


def uneven():
    """21 samples are left over: for two workers 12 and 9, for three 8, 8 and 5."""
    model = net()
    optimizer = sgd(model)
    poseidon.distribute(model)
    train(model, optimizer, loader(10 * ALL + 21), epochs=3)
    return model


def shared_by_speed():
    """Of the samples of each step rank 0 has three parts, the others one each; 21 are left over."""
    model = net()
    optimizer = sgd(model)
    poseidon.distribute(model)
    batches = loader(10 * ALL + 21, shuffle=True, shares=[3.0] + [1.0] * (poseidon.workers() - 1))
    if poseidon.workers() > 1:
        with torch.no_grad():
            sizes = [len(x) for x, _ in batches]
        own, rank = ALL * (3 if poseidon.rank() == 0 else 1) // (poseidon.workers() + 2), poseidon.rank()
        assert all(abs(size - own) <= 1 for size in sizes[:-1]), (rank, sizes)
        assert sizes[-1] <= own and len(sizes) == len(batches) == 11, sizes
        batches.set_epoch(0)
    train(model, optimizer, batches, epochs=3)
    return model


def measured():
    """The rank that sleeps is the slow one, and says the same as the others of all."""
    own = nn.Linear(4, 4)

    def step():
        time.sleep(0.05 if poseidon.rank() == 0 else 0.005)
        own(torch.ones(1, 4)).sum().backward()
    found = poseidon.speeds(step, 0.2)
    assert len(found) == poseidon.workers() and 2 < found[1] / found[0] < 15, found
    assert poseidon.all_gather_object(found) == [found] * poseidon.workers()
    refused("expected 2 numbers above 0", lambda: loader(ALL, shares=[1.0]))
    refused("expected 2 numbers above 0", lambda: loader(ALL, shares=[1.0, 0.0]))
    refused("expected a batch_size where shares are given",
            lambda: poseidon.shard(torch.utils.data.DataLoader(samples(ALL), batch_size=None, sampler=[[0], [1]]), [1.0, 2.0]))
    model = net()
    poseidon.distribute(model)
    refused("speeds was called behind distribute", lambda: poseidon.speeds(step))


def differing_shares():
    loader(ALL, shares=[1.0 + poseidon.rank(), 1.0])


def synchronized():
    """As uneven, with batch norms over all workers' samples. Their statistics are compared as well."""
    torch.manual_seed(1 + poseidon.rank())
    model = nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(nn.Linear(20, 60), nn.BatchNorm1d(60), nn.Tanh(), nn.Linear(60, 30), nn.BatchNorm1d(30), nn.Linear(30, 10)))
    optimizer = sgd(model)
    poseidon.distribute(model)
    train(model, optimizer, loader(10 * ALL + 21), epochs=3)
    return nn.ParameterList([*model.parameters(), *(nn.Parameter(buffer.float()) for buffer in model.buffers())])


def shuffled():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, loader(20 * ALL, shuffle=True), epochs=3)
    return model


def normalized():
    """A mean over the samples that count, whose number differs between workers. None of rank 0's do in the first step, nobody's in
    the second, and 21 are left over."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    data = samples(10 * ALL + 21)
    x, y = data.tensors
    y[x[:, 0] > 0.2], y[:ALL // 2], y[ALL:2 * ALL] = -100, -100, -100
    for x, y in poseidon.loader(data, batch_size=ALL // poseidon.workers()):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y, ignore_index=-100, reduction="sum")
        loss = poseidon.normalize(loss, (y != -100).sum())
        loss.backward()
        optimizer.step()
    assert torch.isclose(poseidon.normalize(torch.tensor(3.0), 0.5).detach(), torch.tensor(6.0))
    for wrong in -1, float("nan"):
        refused("expected a finite number from 0", lambda count=wrong: poseidon.normalize(loss, count))
    if poseidon.workers() > 1:
        with poseidon.DistributedDataParallel(nn.Linear(2, 2)).join():
            refused("inside join", lambda: poseidon.normalize(loss, 1))
    return model


def accumulated():
    """Two micro-batches a step, of which the first one's gradients stay; 2 * 24 samples are a step."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    for step, (x, y) in enumerate(loader(20 * ALL)):
        with poseidon.no_sync(model) if step % 2 == 0 else contextlib.nullcontext():
            (nn.functional.cross_entropy(model(x), y) / 2).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return model


def rest():
    """7 samples are left over: for two workers 3 and 4, for three 2, 2 and 3."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, loader(10 * ALL + 7), epochs=3)
    return model


def sequences_first():
    """A batch whose first dimension is not that of samples; 21 of them are left over, as in all cases from here to `listed`."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    for x, y in loader(10 * ALL + 21, collate_fn=lambda some: (torch.stack([x for x, _ in some], 1), torch.stack([y for _, y in some]))):
        train(model, optimizer, [(x.t(), y)], epochs=1)
    return model


class Pairs:
    """A batch of a class of one's own."""

    def __init__(self, some):
        self.x, self.y = (torch.stack(each) for each in zip(*some))


def objects():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    for batch in loader(10 * ALL + 21, collate_fn=Pairs):
        train(model, optimizer, [(batch.x, batch.y)], epochs=1)
    return model


def side_by_side():
    """Two loaders, of which zip asks the second no more when the first has ended."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    loaders = [loader(2 * ALL + 21) for _ in range(2)]
    for _ in range(3):
        for (x, _), (_, y) in zip(*loaders):
            train(model, optimizer, [(x, y)], epochs=1)
    return model


def read_ahead():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    given = iter(loader(2 * ALL + 21))
    batch = next(given)
    while batch is not None:
        following = next(given, None)
        train(model, optimizer, [batch], epochs=1)
        batch = following


def listed():
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, list(loader(2 * ALL + 21)), epochs=1)


def drawn_behind_a_loader():
    """What a program draws is what it draws alone."""
    torch.manual_seed(1)
    batches = loader(10 * ALL, shuffle=False)
    model = nn.Linear(20, 10)
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, batches)
    return model


def validated():
    """A loader whose last batches are uneven is read between two steps, and left in the middle."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    validation = loader(ALL + 5)
    for x, y in loader(10 * ALL):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for number, (seen, _) in enumerate(validation):
            with torch.no_grad():
                model(seen)
            if number == 1:
                break
        optimizer.step()
    return model


def two_models():
    """As a GAN has: each its optimizer, by turns."""
    one, other = net(), net()
    one, first = poseidon.distribute(one, sgd(one))
    other, second = poseidon.distribute(other, adam(other))
    for x, y in loader(20 * ALL):
        for model, optimizer in ((one, first), (other, second)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x) + 0.1 * one(x).detach(), y).backward()
            optimizer.step()
    return nn.ModuleList([one, other])


def actor_and_critic():
    """Each loss is of both models' outputs and has gradients in both; each optimizer takes those of its own."""
    actor, critic = net(), nn.Sequential(net(), nn.Tanh(), nn.Linear(10, 1))
    actor, first = poseidon.distribute(actor, sgd(actor))
    critic[0][0] = nn.Linear(30, 60)
    critic, second = poseidon.distribute(critic, sgd(critic))
    for x, y in loader(20 * ALL):
        def judged():
            action = actor(x)
            return action, critic(torch.cat([x, action], 1)).mean(1)

        action, value = judged()
        second.zero_grad()
        (value - y / 10).square().mean().backward()
        second.step()
        action, value = judged()
        first.zero_grad()
        (nn.functional.cross_entropy(action, y) - 0.1 * value.mean()).backward()
        first.step()
    return nn.ModuleList([actor, critic])


def averaged():
    """A twin of moving averages, which teaches the model."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    twin = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for x, y in loader(20 * ALL):
        optimizer.zero_grad()
        with torch.no_grad():
            taught = twin(x)
        result = model(x)
        (nn.functional.cross_entropy(result, y) + (result - taught).square().mean()).backward()
        optimizer.step()
        twin.update_parameters(model)
    return nn.ModuleList([model, twin])


def sampled():
    """By torch's sampler, in another order in every epoch."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    data = samples(20 * ALL)
    sampler = DistributedSampler(data, poseidon.workers(), poseidon.rank())
    batches = DataLoader(data, batch_size=ALL // poseidon.workers(), sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(model, optimizer, batches, epochs=1)
    return model


def halves():
    """The batches of a training, before and behind a stop."""
    data = samples(40 * ALL)
    return [poseidon.loader(Subset(data, range(first, first + 20 * ALL)), batch_size=ALL // poseidon.workers())
            for first in (0, 20 * ALL)]


def never_stopped():
    model = net()
    model, optimizer = poseidon.distribute(model, adam(model))
    for half in halves():
        train(model, optimizer, half, epochs=1)
    return model


def stopped(overlap="backward"):
    """Rank 0 saves model and optimizer where a case that goes on finds them."""
    model = net()
    model, optimizer = poseidon.distribute(model, adam(model), overlap=overlap)
    train(model, optimizer, halves()[0], epochs=1)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if poseidon.rank() == 0:
        torch.save(state, pathlib.Path(sys.argv[2]).with_name("stopped.pt"))
    return model


def stopped_with_overlap():
    return stopped("forward")


def load(model, optimizer):
    state = torch.load(pathlib.Path(sys.argv[2]).with_name("stopped.pt"))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def goes_on():
    model = net()
    optimizer = adam(model)
    load(model, optimizer)
    model, optimizer = poseidon.distribute(model, optimizer)
    train(model, optimizer, halves()[1], epochs=1)
    return model


def goes_on_with_overlap():
    """Loads what is distributed already."""
    model = net()
    model, optimizer = poseidon.distribute(model, adam(model), overlap="forward")
    load(model, optimizer)
    train(model, optimizer, halves()[1], epochs=1)
    poseidon.synchronize(model)
    return model


class Words(nn.Module):
    """A table of rows, a buffer, a Linear that may send factors, and one that is never used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + poseidon.rank())
        self.words, self.norm = nn.Embedding(10, 20, sparse=True), nn.BatchNorm1d(200, momentum=None, affine=False)
        self.wide, self.last, self.unused = nn.Linear(20, 200), nn.Linear(200, 10), nn.Linear(3, 3)

    def forward(self, x, y):
        with torch.no_grad():
            self.norm(torch.zeros(2, 200))  # the same on all: counts
        return self.last(torch.tanh(self.wide(x + self.words(y))))


def as_ddp():
    """Two of three batches stay local, by the context that scripts for DDP use; the first step is exchanged at once."""
    model = poseidon.DistributedDataParallel(Words(), find_unused_parameters=True, gradient_as_bucket_view=True)
    assert all(key.startswith("module.") for key in model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader(60 * ALL)):
        context = model.no_sync() if step % 3 else contextlib.nullcontext()
        with context:
            nn.functional.cross_entropy(model(x, y), y).backward()
        if step % 3 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
    assert model.module.unused.weight.grad is None or not model.module.unused.weight.grad.any()
    assert model.module.norm.num_batches_tracked == 60
    fails(lambda: model.register_comm_hook(None, None))
    fails(lambda: poseidon.DistributedDataParallel(net(), mixed_precision=1))
    return model


def as_ddp_with_factors():
    poseidon.init(schemes={"wide": "sfb"})
    return as_ddp()


class Shuffled(Sampler):
    """Draws its order as programs do, seeded nowhere."""

    def __init__(self, kind, count):
        self.kind, self.count = kind, count

    def __iter__(self):
        numbers = list(range(self.count))
        if self.kind == "python":
            random.shuffle(numbers)
        elif self.kind == "numpy":
            numpy.random.shuffle(numbers)
        else:
            numbers = torch.randperm(self.count).tolist()
        return iter(numbers)

    def __len__(self):
        return self.count


def own_orders():
    """The numbers of the samples that this worker got, by the sampler that drew them."""
    data = TensorDataset(torch.arange(64))
    found = []
    for kind in ("python", "numpy", "torch"):
        batches = poseidon.shard(DataLoader(data, batch_size=8, sampler=Shuffled(kind, 64)))
        found.append(torch.cat([x for _ in range(2) for x, in batches]))
    torch.save(found, f"{sys.argv[2]}{poseidon.rank()}")


def order():
    """Not a model: in what order samples came."""
    data = poseidon.loader(TensorDataset(torch.arange(70.0)), batch_size=8, shuffle=True, num_workers=1)
    seen = nn.Module()
    seen.epochs = nn.ParameterList([torch.cat([x for x, in data]) for _ in range(2)])
    return seen


def shared():
    rank, workers = poseidon.rank(), poseidon.workers()
    assert poseidon.all_reduce(float(rank)) == (workers - 1) / 2
    counts = poseidon.all_reduce(torch.full((2, 2), rank + 1, dtype=torch.int32), "sum")
    assert counts.dtype == torch.int64 and (counts == workers * (workers + 1) // 2).all()
    assert poseidon.all_reduce(torch.tensor([rank / 4], dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert poseidon.all_reduce(torch.empty(0)).numel() == 0
    # As torch.distributed has them: in place, src=, lists to fill.
    ops = torch.distributed.ReduceOp
    for op, expected in ((ops.SUM, workers * (workers + 1) / 2), (ops.AVG, (workers + 1) / 2), (ops.MAX, workers), (ops.MIN, 1.0)):
        given = torch.full((2, 3), rank + 1.0)
        assert poseidon.all_reduce(given, op) is given and (given == expected).all()
    for dtype in torch.int8, torch.bool, torch.float16:
        own = torch.tensor([rank, 0, 1], dtype=torch.float32).to(dtype)
        largest = poseidon.all_reduce(own, "max")
        assert largest.dtype == dtype and largest.tolist() == [workers > 1 if dtype == torch.bool else workers - 1, 0, 1]
        assert poseidon.all_reduce(own, "min").tolist() == [0, 0, 1]
    assert poseidon.all_reduce(float("nan") if rank == 0 else 1.0, "max").isnan()
    refused("expected mean, sum, max or min", lambda: poseidon.all_reduce(torch.ones(1), ops.BAND))
    refused("expected a tensor of real numbers", lambda: poseidon.all_reduce(torch.ones(1, dtype=torch.int32), ops.AVG))
    assert poseidon.broadcast(torch.tensor([float(rank)]), src=workers - 1) == workers - 1
    assert poseidon.broadcast_object(rank, src=workers - 1) == workers - 1
    places, things = [torch.empty(2) for _ in range(workers)], [None] * workers
    assert poseidon.all_gather(places, torch.full((2,), float(rank))) is places
    assert [place.tolist() for place in places] == [[at, at] for at in range(workers)]
    assert poseidon.all_gather_object(things, rank) is things and things == list(range(workers))
    refused(f"a list of {workers} to fill", lambda: poseidon.all_gather([torch.empty(2)] * (workers + 1), torch.ones(2)))
    if workers == 1:
        refused("expected torch.float32 of shape [2], as comes", lambda: poseidon.all_gather([torch.empty(4)], torch.ones(2)))
    refused(f"a list with {workers} places", lambda: poseidon.all_gather_object([None] * (workers + 1), rank))
    flags = poseidon.broadcast(torch.tensor([rank == 1, True, False]), root=workers - 1)
    assert flags.tolist() == [workers - 1 == 1, True, False]
    assert poseidon.local_rank() == rank  # all are on this host
    assert poseidon.all_gather_object({"rank": rank, "name": "ä" * rank}) == \
        [{"rank": at, "name": "ä" * at} for at in range(workers)]
    parts = poseidon.all_gather(torch.arange(rank, dtype=torch.float16 if rank else torch.int64))
    assert [part.tolist() for part in parts] == [list(range(at)) for at in range(workers)]
    said = poseidon.broadcast_object({"rank": [rank, None, float("inf")]}, workers - 1)
    assert said == {"rank": [workers - 1, None, float("inf")]}
    itself = []
    itself.append(itself)
    for thing, what in (((1, 2), "a tuple"), ({1: 2}, "a key of type int"), ({1, 2}, "a set"), ({"a": [0, (1,)]}, "a tuple at ['a'][1]"),
                        (numpy.float64(1), "a numpy.float64"), ({"x": torch.Size([2])}, "a torch.Size at ['x']"), (itself, "what holds itself")):
        for name in ("all_gather_object", "broadcast_object"):
            root = [rank][:name == "broadcast_object"]
            refused(f"{name} was given {what}", lambda: getattr(poseidon, name)(thing, *root))  # noqa: B023  # called at once
    poseidon.barrier()
    return nn.Module()


def observed():
    """What report, scalars, the trace and torch's profiler say of a training whose middle layer goes as factors."""
    said = []
    poseidon.init(schemes={"0": "kv", "2": "sfb", "4": "kv"}, trace_spans=10_000, final_plan_step=3,
                  log=lambda level, line: said.append(line))
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model), check_every=5)
    train(model, optimizer, loader(8 * ALL), epochs=1)
    first = poseidon.scalars(model)
    assert first["poseidon/step"] == 8
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(model, optimizer, loader(2 * ALL), epochs=1)
    second = poseidon.scalars(model)
    assert 0 < second["poseidon/bytes_sent_per_step"] < 2e5 < first["poseidon/bytes_sent_per_step"]  # a link is measured at first
    assert second["poseidon/step"] == 10 and 0 <= second["poseidon/hidden_share"] <= 1
    assert 0 <= second["poseidon/slower_workers_seconds_per_step"] <= second["poseidon/waited_seconds_per_step"] + 1e-9
    ranges = {event.key: event.count for event in profile.key_averages() if event.key.startswith("poseidon::")}
    assert ranges == {f"poseidon::{verb} {layer}": 2 for verb in ("push", "wait", "land") for layer in (0, 2, 4)} | \
        {"poseidon::wait parameters in use": 2}, ranges
    train(model, optimizer, loader(ALL), epochs=1)  # as before, without ranges
    assert not poseidon.job.exchange_of(model).model.core.profiled
    os.environ["COLUMNS"] = "60"
    narrow = poseidon.report(model).splitlines()
    assert max(map(len, narrow)) <= 60 and len(narrow) > 12, narrow
    os.environ["COLUMNS"] = "1000"
    report = poseidon.report(model, trace=f"{sys.argv[2]}{poseidon.rank()}.json")
    plan = [line for line in said if "layers go as" in line]
    assert len(plan) == (poseidon.rank() == 0), said
    pathlib.Path(f"{sys.argv[2]}{poseidon.rank()}.txt").write_text(report + "".join(plan))
    return model


def ends_early():
    """The last rank leaves its loop, and the script, while the others train on."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    for number, (x, y) in enumerate(loader(40 * ALL)):
        if number == 3 and poseidon.rank() == poseidon.workers() - 1:
            sys.exit(0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def send_itself(number):
    """And says before who it is and when that is. The clock is the machine's."""
    print(os.getpid(), time.monotonic(), flush=True)
    os.kill(os.getpid(), number)


class Survivors:
    """A worker_init_fn for the processes of a loader: they outlive a killed rank by some seconds, not for ever. PyTorch's own
    watchdog asks for its parent when the process runs, so one that is forked as the rank dies never sees it end."""

    def __init__(self):
        self.rank = os.getpid()

    def __call__(self, _):
        threading.Thread(target=self.end_late, daemon=True).start()

    def end_late(self):
        while os.getppid() == self.rank:
            time.sleep(0.1)
        time.sleep(3)
        os._exit(0)


def lose(number, lost=None, **options):
    """The rank `lost`, or the last, sends itself a signal at any moment. The others say when they have heard of it."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    data = loader(10 * ALL, worker_init_fn=Survivors(), **options)
    train(model, optimizer, data, epochs=1)
    if poseidon.rank() == (poseidon.workers() - 1 if lost is None else lost):
        threading.Timer(random.uniform(0, 0.5), send_itself, (number,)).start()
    try:
        train(model, optimizer, data, epochs=1_000_000)
    except poseidon.PoseidonError:
        print(time.monotonic(), flush=True)
        raise


def killed():
    """Its loader forks processes in every epoch, while the job is joined."""
    lose(signal.SIGKILL, num_workers=2)


def killed_beside_processes_that_stay():
    lose(signal.SIGKILL, num_workers=2, persistent_workers=True)


DEAD_AFTER = 5


def frozen():
    poseidon.init(dead_after=DEAD_AFTER)
    lose(signal.SIGSTOP)


def frozen_coordinator():
    poseidon.init(dead_after=DEAD_AFTER)
    lose(signal.SIGSTOP, lost=0)


def paused():
    """The last rank stops between two steps until somebody wakes it up."""
    model = net()
    model, optimizer = poseidon.distribute(model, sgd(model))
    train(model, optimizer, loader(20 * ALL))
    if poseidon.rank() == poseidon.workers() - 1 > 0:
        send_itself(signal.SIGSTOP)
    train(model, optimizer, loader(20 * ALL))
    return model


def resumed():
    """Rank 0 saves every step; whoever begins goes on behind the last. Rank 1 dies in step 5 of torchrun's first attempt."""
    model = net()
    optimizer = sgd(model)
    last, new = f"{sys.argv[2]}last.pt", f"{sys.argv[2]}new.pt"
    start = 0
    if os.path.exists(last):
        start, weights, state = torch.load(last)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
    model, optimizer = poseidon.distribute(model, optimizer)
    if poseidon.rank() == 0:
        print(f"from step {start} on", flush=True)
    for step, batch in enumerate(loader(15 * ALL)):
        if step < start:
            continue
        if step == 5 and poseidon.rank() == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        train(model, optimizer, [batch], epochs=1)
        if poseidon.rank() == 0:
            torch.save((step + 1, model.state_dict(), optimizer.state_dict()), new)
            os.replace(new, last)
    return model


def train_on_a_device_until(happens, **words):
    """In step 3 `happens`, which is given the model, to the last rank."""
    accelerator.load((50, 1500))
    model = net().to(accelerator.KIND)
    model, optimizer = poseidon.distribute(model, sgd(model), **words)
    for step, batch in enumerate(loader(40 * ALL)):
        if step == 3 and poseidon.rank() == poseidon.workers() - 1:
            happens(model)
        train(model, optimizer, [[part.to(accelerator.KIND) for part in batch]], epochs=1)


def fail_on_a_device(overlap, in_backward):
    """Between two steps or while gradients of a backward pass are under way."""
    def fail(*_):
        raise ValueError("the data are gone")
    train_on_a_device_until(lambda model: model[2].register_full_backward_pre_hook(fail) if in_backward else fail(), overlap=overlap)


def loses_its_device():
    import late
    train_on_a_device_until(lambda model: late.library.late_lose_after(0))


def lacks_memory_of_its_device():
    train_on_a_device_until(lambda model: torch.empty(1 << 20, 1 << 20, device=accelerator.KIND))


def fails_on_a_device():
    fail_on_a_device("backward", in_backward=False)


def fails_in_a_backward_pass_on_a_device():
    fail_on_a_device("backward", in_backward=True)


def fails_on_a_device_with_overlap():
    fail_on_a_device("forward", in_backward=False)


def fails_in_a_backward_pass_on_a_device_with_overlap():
    fail_on_a_device("forward", in_backward=True)


def weights_that_part():
    model = poseidon.distribute(net())
    with torch.no_grad():
        model[2].weight[0, 0] += poseidon.rank()
    poseidon.check(model)


def already_divided():
    """Loaders that give one worker's batches already, in whatever way."""
    data = samples(4 * ALL)
    own = DistributedSampler(data, poseidon.workers(), poseidon.rank())
    once = poseidon.loader(data, batch_size=4)
    for given in (once, poseidon.shard(DataLoader(data, sampler=Shuffled("python", 4 * ALL))), DataLoader(data, batch_sampler=once.batch_sampler),
                  DataLoader(data, sampler=own), DataLoader(data, batch_sampler=BatchSampler(own, 4, False))):
        refused("expected one that gives the", lambda: poseidon.shard(given))  # noqa: B023  # called at once


class Drawn(torch.utils.data.Dataset):
    """Samples that are drawn when they are asked for, as augmentation does, by a process of the loader."""

    def __len__(self):
        return 4 * ALL

    def __getitem__(self, number):
        return torch.tensor(three_numbers() + [torch.utils.data.get_worker_info().seed % 1000], dtype=torch.float64)


def three_numbers():
    return [torch.rand(1).item(), random.random(), numpy.random.rand()]


def begun(worker):
    """A program's own worker_init_fn, which seeds what torch leaves alone by what torch has."""
    numpy.random.seed(torch.initial_seed() % 2 ** 32)


def own_numbers():
    """Processes of loaders draw other numbers on each rank, though the script seeds alike; the script itself as it says."""
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    drawn = torch.cat(list(poseidon.loader(Drawn(), batch_size=4, num_workers=1, worker_init_fn=begun)))
    every = torch.cat(poseidon.all_gather(drawn))
    assert all(len(set(column.tolist())) == len(column) for column in every.t()[:3]) and len(set(every[:, 3].tolist())) == poseidon.workers()
    alone = []
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(5)
    alone = three_numbers()
    poseidon.seed(5)
    first, *others = poseidon.all_gather_object(three_numbers())
    assert first == alone and all(set(first).isdisjoint(other) for other in others)
    poseidon.seed(5, per_rank=False)
    assert poseidon.all_gather_object(three_numbers()) == [alone] * poseidon.workers()
    poseidon.seed(2 ** 62 + 1)
    refused("seed was given -1, expected a number from 0", lambda: poseidon.seed(-1))


def buffers_with_overlap():
    """On every rank they are what they are without overlap, whenever and however somebody looks."""
    found = []
    for overlap, aliased in (("backward", True), ("forward", True), ("forward", False)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(20, 60), nn.BatchNorm1d(60), nn.Linear(60, 1))
        model, optimizer = poseidon.distribute(model, sgd(model), overlap=overlap)
        aliases = [buffer.detach() for buffer in model.buffers()] if aliased else []
        looks = []

        def look(how):
            looks.append([buffer.tolist() for buffer in how()])
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + poseidon.rank()))
            model(x).square().mean().backward()
            look([lambda: aliases or model.buffers(), model.buffers, lambda: copy.deepcopy(model[1]).buffers(), lambda: ()][step])
            optimizer.step()
            look([lambda: aliases or model.buffers(), lambda: [model.state_dict()["1.running_var"]], model.buffers,
                  lambda: copy.deepcopy(model).buffers()][step])
        assert all(type(buffer) is torch.Tensor for buffer in model.buffers())
        found.append(looks)
        poseidon.release(model)
    assert found[0] == found[1] == found[2]
    assert len({str(one) for one in poseidon.all_gather_object(found)}) == 1


def small_stories():
    already_divided()
    own_numbers()
    buffers_with_overlap()
    return shared()


def a_trace_without_spans():
    model = poseidon.distribute(net())
    if poseidon.workers() == 1:
        assert poseidon.scalars(model) == {} and poseidon.report() == "Poseidon: one worker, nothing is exchanged\n"
    else:
        poseidon.report(trace="never.json")


def late_options():
    poseidon.rank()
    poseidon.init(wire="tls")


def main(case, result):
    torch.set_num_threads(1)
    model = globals()[case]()
    if isinstance(model, nn.Module):
        torch.save(list(model.parameters()), f"{result}{poseidon.rank()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
