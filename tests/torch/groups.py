# SPDX-License-Identifier: Apache-2.0
"""Scripts for torch.distributed, on the backend poseidon. Its first argument is the case, its second the file for what it ends
with, to which it adds its rank."""
import contextlib
import copy
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "frontends" / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from script import ALL, Words, net, samples, sgd  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import poseidon.torch as poseidon  # noqa: E402
from refusals import fails  # noqa: E402

GLOO_DTYPES = torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8
DTYPES = *GLOO_DTYPES, torch.bfloat16, torch.int16, torch.bool
OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")}


def both():
    """The default group, over Poseidon, and one over gloo beside it."""
    if not dist.is_initialized():
        dist.init_process_group("poseidon")
    return dist.group.WORLD, dist.new_group(backend="gloo")


def numbers(dtype, *shape, seed=0, rank=None):
    """A rank's own, small enough for any sum and product to be exact."""
    source = torch.Generator().manual_seed(100 * seed + (dist.get_rank() if rank is None else rank))
    return torch.randint(0, 2 if dtype == torch.bool else 4, shape, generator=source).to(dtype)


def same(one, other):
    one, other = ([each] if torch.is_tensor(each) else each for each in (one, other))
    assert len(one) == len(other)
    for mine, theirs in zip(one, other):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        assert torch.equal(mine, theirs), f"{mine} is not {theirs}"


def run(collective, groups, *arguments):
    """The result of a collective on each of the groups; `arguments` are made anew for each."""
    left = []
    for group in groups:
        tensors = [make() for make in arguments]
        collective(*tensors, group=group)
        left.append([tensor for one in tensors for tensor in ([one] if torch.is_tensor(one) else one or [])])
    return left


# ---- cases

def reductions():
    """Every op and dtype that gloo has, and beyond it what the ranks' tensors say."""
    ours, gloo = both()
    workers, rank = dist.get_world_size(), dist.get_rank()
    for dtype in DTYPES:
        for name, op in OPS.items():
            if name == "AVG" and not dtype.is_floating_point or name.startswith("B") and dtype.is_floating_point:
                assert "expected SUM, PRODUCT" in fails(lambda: dist.all_reduce(numbers(dtype, 3), op))
                continue
            all_of = [numbers(dtype, 3, 5, rank=each) for each in range(workers)]
            mine = numbers(dtype, 3, 5)
            dist.all_reduce(mine, op)
            if dtype in GLOO_DTYPES:
                theirs = numbers(dtype, 3, 5)
                dist.all_reduce(theirs, op, group=gloo)
                torch.testing.assert_close(mine, theirs, rtol=1e-3 if dtype == torch.float16 else 1e-6, atol=0)
            else:
                stack = torch.stack(all_of).double()
                wanted = {"SUM": stack.sum(0), "AVG": stack.mean(0), "PRODUCT": stack.prod(0), "MIN": stack.amin(0),
                          "MAX": stack.amax(0)}.get(name)
                if wanted is None:
                    wanted = all_of[0]
                    for other in all_of[1:]:
                        wanted = {"BAND": wanted & other, "BOR": wanted | other, "BXOR": wanted ^ other}[name]
                assert torch.equal(mine, wanted.to(dtype)), (dtype, name, mine, wanted)
    for op in (OPS["SUM"], OPS["MAX"]):
        for root in range(workers):
            mine, theirs = numbers(torch.float32, 7), numbers(torch.float32, 7)
            dist.reduce(mine, root, op)
            dist.reduce(theirs, root, op, group=gloo)
            same(mine, theirs if rank == root else numbers(torch.float32, 7))
        scattered = lambda output, given, group: dist.reduce_scatter(output, list(given), op, group=group)  # noqa: E731
        wanted = torch.stack([numbers(torch.int32, 4, seed=rank, rank=each) for each in range(workers)])
        wanted = wanted.sum(0) if op is OPS["SUM"] else wanted.amax(0)
        (output, *_), = run(scattered, [ours], lambda: torch.empty(4, dtype=torch.int32),
                            lambda: [numbers(torch.int32, 4, seed=part) for part in range(workers)])
        same(output, wanted.to(torch.int32))
    single = torch.empty(2, 3)
    dist.reduce_scatter_tensor(single, torch.cat([torch.full((2, 3), float(part + rank)) for part in range(workers)]))
    same(single, torch.full((2, 3), float(sum(rank + each for each in range(workers)))))
    tensors = [numbers(torch.float64, 3), numbers(torch.float64, 2, 2, seed=1)]
    dist.all_reduce_coalesced(tensors)
    same(tensors, [sum(numbers(torch.float64, *shape, seed=seed, rank=each) for each in range(workers))
                   for seed, shape in enumerate([(3,), (2, 2)])])
    across = torch.arange(12.0).reshape(3, 4).t()  # not contiguous
    dist.all_reduce(across)
    same(across, workers * torch.arange(12.0).reshape(3, 4).t())
    values = torch.tensor([complex(rank, 1)])
    dist.all_reduce(values)
    same(values, torch.tensor([complex(sum(range(workers)), workers)]))
    dist.all_reduce(torch.empty(0))


def copies():
    groups = both()
    workers, rank = dist.get_world_size(), dist.get_rank()
    odd = torch.tensor([float("nan"), -0.0, float("inf")][:2 + rank % 2] + [1.0] * (1 - rank % 2))
    for dtype in (*GLOO_DTYPES, torch.bool):
        for shape in ((3,), (2, 5), ()):
            for root in range(workers):
                same(*run(lambda tensor, group: dist.broadcast(tensor, root, group=group), groups,
                          lambda: numbers(dtype, *shape)))
            if dtype == torch.bool:
                rows = [torch.empty(shape, dtype=dtype) for _ in range(workers)]
                dist.all_gather(rows, numbers(dtype, *shape))
                same(rows, [numbers(dtype, *shape, rank=each) for each in range(workers)])
                continue
            rows = lambda: [torch.empty(shape, dtype=dtype) for _ in range(workers)]  # noqa: E731
            same(*run(lambda into, own, group: dist.all_gather(into, own, group=group), groups, rows,
                      lambda: numbers(dtype, *shape)))
            for root in range(workers):
                mine = rows if rank == root else lambda: None
                same(*run(lambda into, own, group: dist.gather(own, into, root, group=group), groups, mine,
                          lambda: numbers(dtype, *shape)))
                given = lambda: [numbers(dtype, *shape, seed=part) for part in range(workers)]  # noqa: E731
                same(*run(lambda into, parts, group: dist.scatter(into, parts, root, group=group), groups,
                          lambda: torch.empty(shape, dtype=dtype), given if rank == root else lambda: None))
    rows = [torch.empty(3) for _ in range(workers)]
    dist.all_gather(rows, odd)  # bits, not numbers
    assert torch.equal(rows[rank].view(torch.int32), odd.view(torch.int32))
    same(*run(lambda into, own, group: dist.all_gather_into_tensor(into, own, group=group), groups,
              lambda: torch.empty(workers * 3, 2), lambda: numbers(torch.float32, 3, 2)))
    same(*run(lambda into, own, group: dist.all_to_all_single(into, own, group=group), groups,
              lambda: torch.empty(workers * 2, 3), lambda: numbers(torch.float32, workers * 2, 3)))
    gives = [1 + (rank + to) % 3 for to in range(workers)]  # uneven, and another sum on each
    takes = [1 + (each + rank) % 3 for each in range(workers)]
    same(*run(lambda into, own, group: dist.all_to_all_single(into, own, takes, gives, group=group), groups,
              lambda: torch.empty(sum(takes), 2), lambda: numbers(torch.float32, sum(gives), 2)))
    assert "expected the same splits on both sides" in fails(  # on all, though rank 0 alone errs
        lambda: dist.all_to_all_single(torch.empty(workers + (rank == 0)), torch.ones(workers),
                                       [1 + (rank == 0)] + [1] * (workers - 1), [1] * workers))
    into = [torch.empty(2, take) for take in takes]
    dist.all_to_all(into, [numbers(torch.float32, 2, give, seed=to) for to, give in enumerate(gives)])
    same(into, [numbers(torch.float32, 2, take, seed=rank, rank=each) for each, take in enumerate(takes)])
    dist.barrier()


def objects():
    both()
    workers, rank = dist.get_world_size(), dist.get_rank()
    things = [None] * workers
    dist.all_gather_object(things, {"rank": rank, "long": "x" * (1 + 100 * rank)})
    assert [thing["rank"] for thing in things] == list(range(workers))
    assert [len(thing["long"]) for thing in things] == [1 + 100 * each for each in range(workers)]
    mine = [(rank, "of", workers), {rank}]
    dist.broadcast_object_list(mine, workers - 1)
    assert mine == [(workers - 1, "of", workers), {workers - 1}]
    gathered = [None] * workers if rank == 0 else None
    dist.gather_object(rank, gathered)
    assert rank or gathered == list(range(workers))


def large():
    """Many sums on their way at once, others between them: the bits of a sum in the order of ranks, rounded once."""
    both()
    workers, rank = dist.get_world_size(), dist.get_rank()

    def drawn(dtype, size, seed, each):
        source = torch.Generator().manual_seed(1000 * seed + each)
        if dtype == torch.int64:
            return torch.randint(-2 ** 40, 2 ** 40, (size,), generator=source)
        return torch.randn(size, generator=source, dtype=torch.float64).to(dtype)

    sizes = (torch.float32, 40001), (torch.float64, 9000), (torch.int64, 10000), (torch.float32, 40001), (torch.bfloat16, 40001)
    for step in range(4):
        tensors = [drawn(dtype, size, 10 * step + at, rank) for at, (dtype, size) in enumerate(sizes)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        if rank == 0:
            time.sleep(0.2)  # the others' next sum waits for those before it all the same
        assert poseidon.all_reduce(float(rank), "sum") == sum(range(workers))
        means = [drawn(torch.float32, 40001, 10 * step + 9, rank) for _ in range(2)]
        works += [dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True) for mean in means]
        for work in works:
            assert work.wait() and work.is_completed() and work.is_success()
        for at, (dtype, size) in enumerate(sizes):
            parts = [drawn(dtype, size, 10 * step + at, each) for each in range(workers)]
            wide = torch.float32 if dtype == torch.bfloat16 else dtype
            wanted = parts[0].to(wide)
            for part in parts[1:]:
                wanted = wanted + part.to(wide)
            assert torch.equal(tensors[at], wanted.to(dtype)), (step, at)
        wanted = sum(drawn(torch.float32, 40001, 10 * step + 9, each).double() for each in range(workers)) / workers
        for mean in means:
            torch.testing.assert_close(mean, wanted.float(), rtol=1e-6, atol=1e-6)


def refused():
    both()
    next_one = (dist.get_rank() + 1) % dist.get_world_size()
    assert "send is not there in torch.distributed's backend poseidon" in fails(lambda: dist.send(torch.ones(1), next_one))
    assert "recv is not there" in fails(lambda: dist.recv(torch.ones(1), next_one))
    assert "was given a sparse tensor" in fails(lambda: dist.all_reduce(torch.eye(2).to_sparse()))
    assert "on meta, expected the CPU" in fails(lambda: dist.all_reduce(torch.empty(2, device="meta")))
    if dist.get_rank() == 0:
        assert "a process group of 1 of the job's" in fails(lambda: dist.new_group([0], backend="poseidon"))
    else:
        dist.new_group([0], backend="poseidon")
    whole = dist.new_group()
    assert whole.group_name == dist.distributed_c10d._get_process_group_name(whole)
    one = torch.ones(1)
    dist.all_reduce(one, group=whole)
    assert one == dist.get_world_size()
    dist.destroy_process_group(whole)
    dist.destroy_process_group()
    dist.init_process_group("poseidon")
    dist.all_reduce(one)
    assert one == dist.get_world_size() ** 2


def on_a_device():
    """Every collective of tensors on a device, whose work ends late, gives what those of the CPU give."""
    import accelerator
    accelerator.load((300, 300))
    both()
    workers, rank = dist.get_world_size(), dist.get_rank()
    kind = accelerator.KIND
    reads = {
        "all_reduce": lambda own: dist.all_reduce(own),
        "mean": lambda own: dist.all_reduce(own, dist.ReduceOp.AVG),
        "largest": lambda own: dist.all_reduce(own, dist.ReduceOp.MAX),
        "reduce": lambda own: dist.reduce(own, workers - 1),
        "broadcast": lambda own: dist.broadcast(own, workers - 1),
        "coalesced": lambda own: dist.all_reduce_coalesced([own, own.new_ones(3)]),
        "not contiguous": lambda own: dist.all_reduce(own.t()),
    }
    writes = {
        "all_gather": lambda own, into: dist.all_gather(into, own),
        "all_gather_into_tensor": lambda own, into: dist.all_gather_into_tensor(into[0], own[:len(own) // workers]),
        "reduce_scatter": lambda own, into: dist.reduce_scatter(into[0], [own + part for part in range(workers)]),
        "reduce_scatter_tensor": lambda own, into: dist.reduce_scatter_tensor(into[0], torch.cat([own] * workers)),
        "gather": lambda own, into: dist.gather(own, into if rank == 0 else None, 0),
        "scatter": lambda own, into: dist.scatter(into[0], [own + part for part in range(workers)] if rank == 0 else None, 0),
        "all_to_all_single": lambda own, into: dist.all_to_all_single(into[0], own),
        "all_to_all": lambda own, into: dist.all_to_all(into, [own + part for part in range(workers)]),
    }
    shape = (4 * workers, 6)

    def outcome(device, run, outputs):
        own = numbers(torch.float32, *shape).to(device)
        own = own * 2 + 1  # which a late device has not done when the collective is issued
        into = [torch.zeros(shape, device=device) for _ in range(outputs)]
        run(own, into) if outputs else run(own)
        results = [tensor * 3 for tensor in [own, *into]]  # behind it on the current stream
        own.zero_()
        assert all(tensor.device.type == torch.device(device).type for tensor in results)
        return [tensor.cpu() for tensor in results]
    for name, run in [*reads.items(), *writes.items()]:
        outputs = workers if name in writes else 0
        try:
            same(outcome(kind, run, outputs), outcome("cpu", run, outputs))
        except AssertionError as error:
            raise AssertionError(name) from error
    late = torch.ones(1000, 100, device=kind)
    work = dist.all_reduce(late, async_op=True)
    assert work.wait() and work.result()[0] is late and torch.equal(late.cpu(), torch.full((1000, 100), float(workers)))
    future = dist.all_reduce(late, async_op=True).get_future()
    assert future.wait()[0] is late and late[0, 0].item() == workers ** 2
    weight = nn.Parameter(torch.full((3, 2), rank + 1.0, device=kind))
    dist.broadcast(weight, 0)  # no step of autograd's, as on the host
    assert weight.is_leaf and torch.equal(weight.detach().cpu(), torch.ones(3, 2))
    module = getattr(torch, kind)
    module.is_current_stream_capturing, runs = lambda: True, getattr(module, "is_current_stream_capturing", lambda: False)
    assert "is captured in a graph of the device" in fails(lambda: dist.all_reduce(late))
    module.is_current_stream_capturing = runs


def attached_on_a_device():
    return ddp_on_a_device(poseidon.attach)


def ddp_on_a_device(wrap=lambda model: model):
    """Trains as on the CPU."""
    import accelerator
    accelerator.load((50, 300))
    dist.init_process_group("poseidon")
    models = []
    for device in ("cpu", accelerator.KIND):
        model = wrap(DistributedDataParallel(net().to(device)))
        optimizer = sgd(model)
        for x, y in batches(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        models.append(model.cpu())
    for host, device in zip(*(model.parameters() for model in models)):
        torch.testing.assert_close(host, device, rtol=1e-5, atol=1e-6)
    return models[1]


def unlike():
    """Shapes that differ between ranks end the job, which the first call says in the words of tensors."""
    both()
    rank, workers = dist.get_rank(), dist.get_world_size()
    own = torch.ones(2 + rank, 3)
    said = fails(lambda: dist.all_gather([torch.empty_like(own) for _ in range(workers)], own))
    assert said.startswith(f"torch.distributed's allgather was given float32 of shape [{2 + rank}, 3] on rank {rank}, and another"), said


def unlike_sums():
    rank = poseidon.rank()
    said = fails(lambda: poseidon.all_reduce(torch.ones(2, 3, dtype=torch.float64 if rank else torch.float32)))
    assert said.startswith(f"all_reduce was given float{64 if rank else 32} of shape [2, 3] on rank {rank}, and another worker"), said


def lost():
    both()
    rank, workers = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    if rank == workers - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))


def lost_in_ddp():
    dist.init_process_group("poseidon")
    model = DistributedDataParallel(net())
    for number, (x, y) in enumerate(batches(10)):
        if number == 4 and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        nn.functional.cross_entropy(model(x), y).backward()


def interrupted():
    """Rank 0 waits for a sum that rank 1 has no part in yet, and hears Ctrl-C at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a script starts in the background ignores it
    dist.init_process_group("poseidon")
    dist.barrier()
    if dist.get_rank() == 0:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3))
        except KeyboardInterrupt:
            assert time.monotonic() - began < 10
            raise
    time.sleep(3)
    dist.all_reduce(torch.ones(3))


def ends_while_a_sum_is_on_its_way():
    """Nobody waits for it: leaving does."""
    dist.init_process_group("poseidon")
    works = [dist.all_reduce(torch.ones(1000000), async_op=True) for _ in range(20)]
    poseidon.shutdown()
    assert all(work.is_success() for work in works)


def meets():
    """Not a model: that all are there, and torch's store with them."""
    dist.init_process_group("poseidon")
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one == dist.get_world_size() == poseidon.workers()
    assert dist.get_rank() == poseidon.rank() and dist.get_backend() == "poseidon"
    store = dist.distributed_c10d._get_default_store()
    store.set(f"of-{dist.get_rank()}", "x")
    assert store.get(f"of-{dist.get_world_size() - 1}") == b"x"
    poseidon.barrier()  # until all have asked


def beside_gloo_torch_first():
    dist.init_process_group("gloo")
    both_sum()


def beside_gloo_poseidon_first():
    assert poseidon.workers() == 2
    dist.init_process_group("gloo")
    both_sum()


def both_sum():
    theirs, ours = torch.ones(1), poseidon.all_reduce(torch.ones(1), op="sum")
    dist.all_reduce(theirs)
    assert theirs == ours == dist.get_world_size() == poseidon.workers() and dist.get_rank() == poseidon.rank()
    assert dist.get_backend() == "gloo"


def batches(steps, alone=False):
    """This rank's of `steps`, or all."""
    whole = samples(steps * ALL)
    rank, workers = (0, 1) if alone else (poseidon.rank(), poseidon.workers())
    size = ALL // workers
    for step in range(steps):
        first = step * ALL + rank * size
        yield tuple(tensor[first:first + size] for tensor in whole.tensors)


class Branches(nn.Module):
    """A part that odd steps do not use, and a large one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.large, self.last = nn.Linear(20, 300), nn.Linear(300, 300), nn.Linear(300, 10)
        self.sometimes = nn.Linear(20, 300)
        self.norm = nn.BatchNorm1d(300, momentum=None, affine=False)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        with torch.no_grad():
            self.norm(torch.zeros(2, 300))  # the same on all: counts
        hidden = self.first(x) if self.steps % 2 else self.first(x) + self.sometimes(x)
        return self.last(torch.tanh(self.large(torch.tanh(hidden))))


def train_branches(model, steps=14, no_sync=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(steps)):
        with model.no_sync() if no_sync and step % 4 == 2 else contextlib.nullcontext():
            nn.functional.cross_entropy(model(x), y).backward()
        if step % 4 != 2:
            optimizer.step()
            optimizer.zero_grad()
    return model


def ddp():
    """On both groups: each with DDP's ways to send."""
    groups = both()
    ours, theirs = [], []
    for group, models in zip(groups, (ours, theirs)):
        for options in ({"find_unused_parameters": True}, {"find_unused_parameters": True, "gradient_as_bucket_view": True,
                                                           "bucket_cap_mb": 0.1}):
            models.append(train_branches(DistributedDataParallel(Branches(), process_group=group, **options)))
        static = DistributedDataParallel(net(), process_group=group, static_graph=True)
        for x, y in batches(5):
            nn.functional.cross_entropy(static(x), y).backward()
        models.append(static)
    for one, other in zip(ours, theirs):
        for mine, gloo in zip(one.parameters(), other.parameters()):
            torch.testing.assert_close(mine, gloo, rtol=1e-5, atol=1e-6)
            if mine.grad is not None:
                torch.testing.assert_close(mine.grad, gloo.grad, rtol=1e-5, atol=1e-6)
    return nn.ModuleList(ours)


def ddp_join():
    """torch's own, over Poseidon's group and over gloo."""
    groups = both()
    models = []
    for group in groups:
        model = DistributedDataParallel(net(), process_group=group)
        optimizer = sgd(model)
        with model.join():
            for x, y in batches(4 + 3 * dist.get_rank()):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        models.append(model)
    for mine, gloo in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(mine, gloo, rtol=1e-5, atol=1e-6)
    return models[0]


def sharded():
    """Fully sharded models, whose gathers and scattered sums go over Poseidon's group, train what DDP does."""
    if not dist.is_initialized():
        dist.init_process_group("poseidon")
    mesh, losses = init_device_mesh("cpu", (dist.get_world_size(),)), []
    for shard in (DistributedDataParallel, lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu")),
                  lambda model: fully_shard(model, mesh=mesh)):
        model = net()
        with torch.no_grad():
            for parameter in model.parameters():
                dist.broadcast(parameter, 0)
        model = shard(model)
        optimizer = sgd(model)
        losses.append([])
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.detach())
    for other in losses[1:]:
        torch.testing.assert_close(other, losses[0], rtol=1e-5, atol=1e-6)


def beside_distribute():
    """In one process: a model of DDP over Poseidon's group, one of distribute, and metrics that nobody waits for at once."""
    dist.init_process_group("poseidon")
    torch.manual_seed(1 + dist.get_rank())
    one, other = DistributedDataParallel(net()), poseidon.distribute(net())
    optimizers = sgd(one), sgd(other)
    metric, work = torch.zeros(40000), None
    for x, y in batches(25):
        for model, optimizer in zip((one, other), optimizers):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if work is not None:
                work.wait()
            work = dist.all_reduce(metric, async_op=True)
            poseidon.all_reduce(loss)
            optimizer.step()
    work.wait()
    for mine, theirs in zip(one.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    return nn.ModuleList([one, other])


# ---- attach

def wrapped(model, **options):
    """DDP's object, attached, or on one worker the model in a module that is like it."""
    if poseidon.workers() > 1:
        dist.init_process_group("poseidon")
        model = poseidon.attach(DistributedDataParallel(model, **options))
        assert isinstance(model, DistributedDataParallel)
        return model
    return poseidon.DistributedDataParallel(model)


def words(by_flag):
    """As script.as_ddp: two of three batches stay local. `by_flag`: as scripts say it that know DDP's flag."""
    model = wrapped(Words(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(poseidon.loader(samples(60 * ALL), batch_size=ALL // poseidon.workers())):
        if by_flag:
            model.require_backward_grad_sync = step % 3 == 0
        with model.no_sync() if step % 3 and not by_flag else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(x, y), y)
        if step % 10 == 1:
            with torch.no_grad():
                model(x, y)  # between the two says nothing
        loss.backward()
        if step < 6 and poseidon.workers() > 1:
            first, *others = poseidon.all_gather_object(model.module.last.bias.grad.tolist())
            assert all(other == first for other in others) == (step % 3 == 0)
        if step % 3 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
    assert all(key.startswith("module.") for key in model.state_dict())
    assert model.module.norm.num_batches_tracked == 66
    return model


def attached():
    return words(False)


def attached_by_flag():
    return words(True)


def attached_with_factors():
    poseidon.init(schemes={"wide": "sfb"})
    model = words(False)
    if poseidon.workers() > 1:
        assert poseidon.plan(model)["wide"][0] == "sfb"
    return model


def attach_refused():
    ours, gloo = both()
    alone = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    assert "the SyncBatchNorm '0' has a process group of 1, expected all 2 workers of the job" in fails(
        lambda: poseidon.distribute(nn.Sequential(nn.SyncBatchNorm(20, process_group=alone))))
    assert "attach was given a torch.nn.modules.container.Sequential" in fails(lambda: poseidon.attach(net()))
    ignoring = net()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(ignoring, ["0.weight"])
    assert "with parameters to ignore" in fails(lambda: poseidon.attach(DistributedDataParallel(ignoring)))
    hooked = DistributedDataParallel(net())
    hooked.register_comm_hook(None, lambda state, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(
        lambda future: future.value()[0]))
    assert "with a communication hook" in fails(lambda: poseidon.attach(hooked))
    for x, y in batches(3):
        nn.functional.cross_entropy(hooked(x), y).backward()
    begun, reduced, allreduce = DistributedDataParallel(net()), [], type(ours).allreduce
    begun(x)  # DDP's reducer waits for gradients now, and must not take them
    poseidon.attach(begun)
    type(ours).allreduce = lambda *arguments: [reduced.append(arguments), allreduce(*arguments)][1]
    nn.functional.cross_entropy(begun(x), y).backward()
    dist.all_reduce(torch.ones(1))
    type(ours).allreduce = allreduce
    assert len(reduced) == 1, "DDP has reduced its buckets"
    model = poseidon.attach(DistributedDataParallel(net(), process_group=gloo))
    assert "has not been attached" in fails(lambda: poseidon.attach(model))
    assert "register_comm_hook is not there" in fails(lambda: model.register_comm_hook(None, None))
    for x, y in batches(3):
        nn.functional.cross_entropy(model(x), y).backward()
    copied = copy.deepcopy(poseidon.attach(DistributedDataParallel(net())))
    assert type(copied) is DistributedDataParallel
    for x, y in batches(3):
        nn.functional.cross_entropy(copied(x), y).backward()
    gradients = [parameter.grad.clone() for parameter in copied.parameters()]
    for gradient in gradients:
        dist.broadcast(gradient, 0)
    same(gradients, [parameter.grad for parameter in copied.parameters()])


# ---- join

def steps_of(rank):
    return (7, 12, 3)[rank]


class Counted(nn.Module):
    """A Linear that may send factors, a table of rows, and a buffer that says how often its rank has trained."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + poseidon.rank())
        self.words, self.wide, self.last = nn.Embedding(10, 20, sparse=True), nn.Linear(20, 200), nn.Linear(200, 10)
        self.register_buffer("trained", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, y):
        if self.training and torch.is_grad_enabled():
            self.trained += 1
        return self.last(torch.tanh(self.wide(x + self.words(y))))


def joined(divides_by_all, attaches=False, micro=1):
    """Workers with so many steps each, beside one model on the batches that they have together."""
    counted, workers, rank = Counted(), poseidon.workers(), poseidon.rank()
    model = poseidon.attach(DistributedDataParallel(counted)) if attaches else poseidon.DistributedDataParallel(counted)
    alone = Counted()
    alone.load_state_dict(counted.state_dict())
    steps, size = [steps_of(each) for each in range(workers)], ALL // workers

    def loss_of(called, step, each, part):
        x, y = (tensor[(step * workers + each) * size:][:size][part::micro] for tensor in samples(12 * ALL).tensors)
        return nn.functional.cross_entropy(called(x, y), y)

    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, alone)]
    with model.join(divide_by_initial_world_size=divides_by_all):
        for step in range(steps[rank]):
            optimizers[0].zero_grad()
            for part in range(micro):
                with model.no_sync() if part + 1 < micro else contextlib.nullcontext():
                    loss_of(model, step, rank, part).backward()
            optimizers[0].step()
    for step in range(max(steps)):
        optimizers[1].zero_grad()
        there = [each for each in range(workers) if step < steps[each]]
        for each in there:
            for part in range(micro):
                (loss_of(alone, step, each, part) / (workers if divides_by_all else len(there))).backward()
        optimizers[1].step()
    for mine, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-6)
    assert counted.trained == max(steps) * micro  # as the one has it who trained to the end, and those before him
    for number in range(2):  # and on, evenly
        optimizers[0].zero_grad()
        loss_of(model, number, rank, 0).backward()
        optimizers[0].step()
    assert counted.trained == max(steps) * micro + 2
    return model


def joins():
    """Several models in one job, one after another."""
    dist.init_process_group("poseidon")
    return nn.ModuleList([joined(True), joined(False), joined(True, attaches=True), joined(False, attaches=True, micro=2)])


def joins_with_factors():
    poseidon.init(schemes={"wide": "sfb"})
    return nn.ModuleList([joined(True), joined(False)])


def joined_without_an_end():
    """The last forward pass of rank 0 has no backward pass: the others' step counts on it."""
    model = poseidon.DistributedDataParallel(Counted())
    with model.join():
        for step in range(steps_of(poseidon.rank())):
            x, y = (tensor[:5] for tensor in samples(5).tensors)
            loss = nn.functional.cross_entropy(model(x, y), y)
            if poseidon.rank() or step + 1 < steps_of(0):
                loss.backward()
    return model


def joined_by_nobody():
    model = poseidon.DistributedDataParallel(Counted())
    with model.join():
        pass
    with model.join(enable=False):
        pass
    with model.join(throw_on_early_termination=True):
        for _ in range(3):
            model(*(tensor[:5] for tensor in samples(5).tensors)).sum().backward()
    return model


def joined_that_throws():
    model = poseidon.DistributedDataParallel(Counted())
    x, y = (tensor[:5] for tensor in samples(5).tensors)
    taken = 0

    def loop():
        nonlocal taken
        with model.join(throw_on_early_termination=True):
            for _ in range(steps_of(poseidon.rank())):
                model(x, y).sum().backward()
                taken += 1
    assert "has no further batch, expected as many on all workers" in fails(loop)
    assert taken == min(map(steps_of, range(poseidon.workers())))  # not one step more
    for _ in range(3):  # the job goes on
        model(x, y).sum().backward()
    return model


def joined_and_thawed():
    model = poseidon.DistributedDataParallel(Counted())
    x, y = (tensor[:5] for tensor in samples(5).tensors)
    with model.join():
        for step in range(3):
            if step == 2:
                model.module.late = nn.Linear(3, 3)
                assert "a layer was thawed or added inside join" in fails(lambda: model(x, y))
                del model.module.late
            model(x, y).sum().backward()
    return model


def joined_and_synchronized():
    model = poseidon.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(20))))
    with model.join():
        assert "SyncBatchNorm ran inside join" in fails(lambda: model(samples(5).tensors[0]))
    model(samples(5).tensors[0]).square().sum().backward()
    return model


def joins_of_all_kinds():
    kinds = (joined_without_an_end, joined_by_nobody, joined_that_throws, joined_and_thawed, joined_and_synchronized)
    return nn.ModuleList([joins(), *(kind() for kind in kinds)])


def collectives():
    for case in reductions, copies, objects, refused, large:
        case()
        dist.destroy_process_group()
    ends_while_a_sum_is_on_its_way()


def ddps():
    both()
    sharded()
    return nn.ModuleList([ddp(), ddp_join()])


def main(case, result):
    torch.set_num_threads(1)
    model = globals()[case]()
    if isinstance(model, nn.Module):
        torch.save([*model.parameters(), *model.buffers()], f"{result}{poseidon.rank()}")
    if dist.is_initialized() and case != "meets":  # which leaves it to the end of the process; with gloo that may abort
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
