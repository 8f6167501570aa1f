# SPDX-License-Identifier: Apache-2.0
"""A loader goes on where a checkpoint says, on any number of workers, and training with it has the bits of a run that was never
stopped."""
import itertools
import random

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler, TensorDataset  # noqa: E402

import programs  # noqa: E402
from conftest import HERE, PATIENCE, PREPARED  # noqa: E402

from poseidon.errors import PoseidonError  # noqa: E402
from poseidon.torch import data  # noqa: E402

SAMPLES = 51  # 3 are left over of steps of 12


class Drawn(Sampler):
    """A program's own, which draws as it goes."""

    def __init__(self, batch_size=None):
        self.batch_size = batch_size

    def __iter__(self):
        numbers = list(range(SAMPLES))
        while numbers:
            yield numbers.pop(random.randrange(len(numbers)))

    def __len__(self):
        return SAMPLES


def generator():
    made = torch.Generator().manual_seed(11)
    torch.randperm(5, generator=made)  # which is not where it began
    return made


KINDS = {  # what a loader is made with; and whether it divides whole batches alone
    "in order": lambda b: {"batch_size": b},
    "shuffled": lambda b: {"batch_size": b, "shuffle": True},
    "whole": lambda b: {"batch_size": b, "shuffle": True, "drop_last": True},
    "own generator": lambda b: {"batch_size": b, "shuffle": True, "generator": generator()},
    "own generator, drawn from": lambda b: {"batch_size": b, "generator": (source := generator()),
                                            "sampler": torch.utils.data.RandomSampler(range(SAMPLES), True, SAMPLES, source)},
    "own sampler": lambda b: {"batch_size": b, "sampler": Drawn()},
    "own batches": lambda b: {"batch_sampler": Batches(Drawn(), b, False)},
    "in processes": lambda b: {"batch_size": b, "shuffle": True, "num_workers": 1, "persistent_workers": True},
}


class Batches(BatchSampler):
    """Of no kind whose samples could be counted."""


def loaders(kind, workers, batch, seed=5):
    """Those of all ranks."""
    return [data.shard(DataLoader(TensorDataset(torch.arange(SAMPLES)), **KINDS[kind](batch)), rank, workers, seed)
            for rank in range(workers)]


def steps_of(given):
    """What the loaders of all ranks give in each step of a pass."""
    return [sorted(int(number) for batch, in step for number in batch) for step in zip(*given, strict=True)]


def passes(given, epochs):
    return [step for _ in range(epochs) for step in steps_of(given)]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_goes_on_where_it_was(kind, workers):
    whole, states = loaders(kind, workers, 12 // workers), []
    seen = []
    for _ in range(3):
        states.append(whole[0].state_dict())
        for step in zip(*whole, strict=True):
            seen.append(sorted(int(number) for batch, in step for number in batch))
            states.append(whole[0].state_dict())
    each = len(seen) // 3
    assert seen[:each] != seen[each:2 * each] or kind == "in order"
    for step in (1, each - 1, each, each + 1, each + 3) if kind != "in processes" else (each + 1,):
        again = loaders(kind, workers, 12 // workers, seed=6)  # another order, but for the state
        state = states[step + (step - 1) // each]
        for loader in again:
            loader.load_state_dict(state)
        kept = again[0].state_dict()
        assert [one.tolist() for one in kept.pop("generators")] == [one.tolist() for one in state["generators"]]
        assert kept == {name: value for name, value in state.items() if name != "generators"}
        epoch = again[0].epoch
        assert (epoch, passes(again, 3 - epoch)) == ((step - 1) // each, seen[step:])
        assert again[0].epoch == 3


@pytest.mark.parametrize("workers, batch", [(2, 10), (3, 5), (4, 4)])
def test_whole_steps_are_those_of_one_process(workers, batch):
    """Which leaves out what is left of batches of all workers together, and not of each worker's."""
    given, [alone] = loaders("whole", workers, batch), loaders("whole", 1, workers * batch)
    assert passes(given, 2) == passes([alone], 2)
    assert {len(loader) for loader in given} == {len(alone)} == {SAMPLES // (workers * batch)}


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [5.0, 2.0, 1.0], [1.0, 1000.0, 0.25]])
@pytest.mark.parametrize("kind", ["in order", "shuffled", "whole"])
def test_steps_are_divided_by_weights(kind, weights):
    """Each is that of one process, and every worker has its part, one sample at least."""
    def all_of(seed=5):
        return [data.shard(DataLoader(TensorDataset(torch.arange(SAMPLES)), **KINDS[kind](4)), rank, 3, seed, weights=weights)
                for rank in range(3)]
    given, [alone] = all_of(), loaders(kind, 1, 12)
    steps = list(zip(*given, strict=True))
    assert [sorted(int(number) for batch, in step for number in batch) for step in steps] == passes([alone], 1)
    assert {len(loader) for loader in given} == {len(steps)}
    for at, step in enumerate(steps):
        counts = [len(batch) for batch, in step]
        assert counts == [loader.batch_sampler.samples_in(at) for loader in given] and min(counts) > 0
        if sum(counts) == 12:
            assert counts == {5.0: [8, 3, 1], 1000.0: [1, 10, 1]}.get(max(weights), [4, 4, 4])
    state = all_of()
    for walk in [iter(loader) for loader in state]:
        next(walk)
    again = all_of(seed=6)
    for loader in again:
        loader.load_state_dict(state[0].state_dict())
    assert steps_of(again) == [sorted(int(number) for batch, in step for number in batch) for step in steps][1:]


@pytest.mark.parametrize("kind", ["in order", "shuffled", "own generator", "own sampler"])
def test_it_goes_on_on_another_number_of_workers(kind):
    """Each sample comes once, and in the order of one worker."""
    def until(step, workers, batch):
        given = loaders(kind, workers, batch)
        passes(given, 1)
        walks = [iter(loader) for loader in given]
        for _ in range(step):
            seen.extend(int(number) for walk in walks for number in next(walk)[0])
        return given[0].state_dict()

    def rest(state, workers, batch):
        """What is left, of which the gradients count by the samples that turns says."""
        given = loaders(kind, workers, batch)
        for loader in given:
            loader.load_state_dict(state)
        steps = list(zip(*given, strict=True))
        for rank, turns in enumerate(loader.batch_sampler for loader in given):
            assert [len(step[rank][0]) for step in steps] == [turns.samples_in(at) or batch for at in range(len(steps))]
            assert all(turns.samples_in(at) is None for at in range(len(steps) - 1))
        return [int(number) for step in steps for batch, in step for number in batch]
    [alone] = loaders(kind, 1, 12)
    passes([alone], 1)
    order = [int(number) for batch, in alone for number in batch]
    for before, after, batch in ((2, 1, 12), (1, 3, 4), (3, 2, 5), (2, 2, 7)):
        seen = []
        state = until(2, before, 12 // before)
        assert sorted(seen) == sorted(order[:24])
        assert sorted(rest(state, after, batch)) == sorted(order[24:])


def test_an_epoch_has_its_order_by_its_number():
    [one], [other] = loaders("shuffled", 1, 10), loaders("shuffled", 1, 10)
    orders = [passes([one], 1) for _ in range(3)]
    other.set_epoch(2)
    assert passes([other], 1) == orders[2] and other.epoch == 3
    other.set_epoch(0)
    next(iter(other))  # a pass that is left is over
    assert passes([other], 1) == orders[1]
    one.load_state_dict(other.state_dict())
    one.set_epoch(other.epoch)  # as loops do that call it in every epoch
    assert passes([one], 1) == passes([other], 1)


def test_a_sampler_of_the_programs_own_hears_of_the_epoch():
    class Heard(Drawn):
        def set_epoch(self, epoch):
            self.epoch = epoch
    given = DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=5, sampler=Heard())
    data.shard(given, 0, 2, 1).set_epoch(4)
    assert given.sampler.epoch == 4


def test_torchs_distributed_sampler_goes_on_by_its_epoch_and_a_slice():
    """As docs/torch/checks.md says: it is not divided again, so the program leaves out what was given."""
    def made():
        sampler = DistributedSampler(range(SAMPLES), 2, 1, seed=3)
        return sampler, DataLoader(range(SAMPLES), batch_size=4, sampler=sampler)

    def given(sampler, loader, epoch, steps=0):
        sampler.set_epoch(epoch)
        return [batch.tolist() for batch in itertools.islice(loader, steps, None)]
    whole = made()
    first, second = given(*whole, 0), given(*whole, 1)
    assert first != second and given(*made(), 1, steps=3) == second[3:]


def test_what_the_program_draws_is_not_changed_by_going_on():
    def draws(loader, first):
        walk = iter(loader)
        for _ in range(first):
            next(walk)
        return walk
    torch.manual_seed(1)
    [one] = loaders("shuffled", 1, 10)
    walk = draws(one, 2)
    state, numbers = one.state_dict(), torch.get_rng_state()
    expected = [next(walk)[0].tolist(), torch.rand(2).tolist()]
    torch.manual_seed(2)
    [other] = loaders("shuffled", 1, 10)
    other.load_state_dict(state)
    torch.set_rng_state(numbers)
    assert [next(iter(other))[0].tolist(), torch.rand(2).tolist()] == expected


def test_a_class_of_the_programs_own_keeps_what_it_does():
    class Doubled(DataLoader):
        def __iter__(self):
            for batch, in super().__iter__():
                yield 2 * batch
    [part] = [data.shard(Doubled(TensorDataset(torch.arange(4)), batch_size=2), 0, 1, 1)]
    assert [batch.tolist() for batch in part] == [[0, 2], [4, 6]] and isinstance(part, Doubled) and part.epoch == 1


def test_a_state_of_other_data_is_refused():
    [one] = loaders("in order", 1, 10)
    with pytest.raises(PoseidonError, match="of 49 samples in an order of 0 generators, expected 51 samples and 0 generators, as this loader has"):
        one.load_state_dict({**one.state_dict(), "of": 49})
    with pytest.raises(PoseidonError, match="expected 51 samples and 1 generators"):
        loaders("own generator", 1, 10)[0].load_state_dict(one.state_dict())
    with pytest.raises(PoseidonError, match="something else than what state_dict of such a loader returns"):
        one.load_state_dict({"epoch": 1})


@pytest.mark.long
def test_the_quick_start_goes_on_to_the_bit(tmp_path):
    whole = programs.check_goes_on(PREPARED, tmp_path, HERE.parents[1] / "examples/torch/quickstart.py",
                                   (tmp_path / "quickstart.pt").unlink, PATIENCE)
    assert 80 < float(whole[1].split()[2]) < 100


@pytest.mark.long
def test_the_recipe_has_the_bits_of_a_run_that_was_never_stopped(tmp_path):
    def run(workers, *options):
        return programs.printed(PREPARED, tmp_path, workers, HERE.parents[1] / "examples/torch/resume.py",
                                "--samples", "1290", "--epochs", "2", *options, patience=PATIENCE).strip()
    whole = run(2, "--file", "whole.pt")
    assert run(2, "--file", "part.pt", "--stop-after", "15") == ""
    (tmp_path / "other.pt").write_bytes((tmp_path / "part.pt").read_bytes())
    assert whole.startswith("22 steps, ")
    assert run(2, "--file", "part.pt") == whole.replace("22 steps", "7 steps")
    assert run(1, "--file", "other.pt").startswith("7 steps, ")
