# SPDX-License-Identifier: Apache-2.0
"""Where a loader is in its data: which epoch, how far in it, and the random numbers of its order, as a checkpoint holds them."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from ..errors import PoseidonError
from . import random_numbers


class Numbers:
    """The random numbers of a loader's order, the same on all workers: in every epoch those of `seed` and the epoch's number. A
    generator of the program's own stays the program's, and goes on from one epoch to the next."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seeded: list[Callable[[int], object]] = []  # each takes a seed
        self.own: list[torch.Generator] = []

    def generator(self) -> torch.Generator:
        """One more, for a sampler without."""
        made = torch.Generator().manual_seed(self.seed)
        self.seeded.append(made.manual_seed)
        return made

    def note(self, generator: Any) -> None:
        """What may be one of the program's own."""
        if isinstance(generator, torch.Generator) and not any(generator is one for one in self.own):
            self.own.append(generator)

    def begin(self, epoch: int) -> None:
        for take in self.seeded:
            take(random_numbers.of_epoch(self.seed, epoch))


class Turns(Protocol):
    """A sampler of one worker's turns."""

    counts: str  # what it divides, in a word
    begin_at: int  # how much of that the next pass leaves out

    @property
    def at_once(self) -> int:
        """How much of it all workers take in a step."""

    @property
    def total(self) -> int | None:
        """In one epoch, where it is known."""


class Place:
    """Of a loader: the epoch, and how much of it all workers have been given."""

    def __init__(self, turns: Turns, numbers: Numbers) -> None:
        self.turns, self.numbers = turns, numbers
        self.epoch = self.done = 0
        self.goes_on = False  # the next pass is the rest of one that another loader has begun
        self.began: list[torch.Tensor] = []  # the states of the program's own generators, when this epoch began

    def begin(self) -> None:
        """A pass begins: the rest of one, or the next. One that was left before its end is over."""
        if self.goes_on:
            for generator, state in zip(self.numbers.own, self.began):
                generator.set_state(state)
        else:
            if self.done:
                self.set_epoch(self.epoch + 1)
            self.began = self.states()
        self.goes_on, self.turns.begin_at = False, self.done
        self.numbers.begin(self.epoch)

    def step(self) -> None:
        """A step's batches were given: as many as always, or what was left."""
        self.done += self.turns.at_once

    def set_epoch(self, epoch: int) -> None:
        if not (self.goes_on and epoch == self.epoch):
            self.epoch, self.done, self.goes_on = epoch, 0, False

    def states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self.numbers.own]

    def state(self) -> dict[str, Any]:
        total = self.turns.total
        done = self.done if total is None else min(self.done, total)
        return {"epoch": self.epoch, "done": done, "of": total, "counts": self.turns.counts, "seed": self.numbers.seed,
                "generators": self.began if self.done or self.goes_on else self.states()}

    def load(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict) or state.keys() != self.state().keys():
            raise PoseidonError("load_state_dict of a loader was given something else than what state_dict of such a loader returns",
                                "INVALID_ARGUMENT")
        own = self.turns.total, self.turns.counts, len(self.numbers.own)
        if (state["of"], state["counts"], len(state["generators"])) != own:
            raise PoseidonError(f"the loader's state is of {state['of']} {state['counts']} in an order of {len(state['generators'])} generators, "
                                f"expected {own[0]} {own[1]} and {own[2]} generators, as this loader has", "INVALID_ARGUMENT")
        self.epoch, self.done, self.numbers.seed, self.began = state["epoch"], state["done"], state["seed"], list(state["generators"])
        self.goes_on = True


class ResumableLoader(DataLoader[Any]):
    """A DataLoader of one worker's batches that a checkpoint can go on from: with `state_dict`, `load_state_dict` and `set_epoch`.

    What it shuffles by itself has an order of its own in every epoch, which follows from the seed it was made with and the number of
    the epoch, on any number of workers. Thread: one."""

    place: Place

    @property
    def epoch(self) -> int:
        """The number of the pass over the data that is under way, or comes next; the first is 0."""
        return self.place.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of epoch number `epoch`. Passes count themselves: this is for programs that begin with another one.
        The epoch that load_state_dict has set keeps its place."""
        self.place.set_epoch(epoch)
        for sampler in samplers_of(self):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the place in it, the same on all workers: all batches count that loops have been given, the one of now too. For
        torch.save; of numbers, words and states of generators."""
        return self.place.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next pass goes on where the loader was whose `state_dict` this is, and reads nothing of what was given before. That
        loader may have been of another number of workers or size of batches, of a data set of as many samples; from there on the
        steps are those of this loader. Raises PoseidonError where the state is of other data."""
        self.place.load(state)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch's iterator type has no more than this to offer
        self.place.begin()
        # Torch draws here, as a pass begins, and did so when this one began: the program's numbers are those from after that.
        kept = random_numbers.states() if self.place.done else None
        batches = super().__iter__()
        if kept is not None:
            random_numbers.restore(kept)
        return self.counted(batches)

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.place.step()
            yield batch
        self.place.set_epoch(self.epoch + 1)


def resumable(kind: type[DataLoader[Any]], given: type[DataLoader[Any]]) -> type[DataLoader[Any]]:
    """`kind` with what the class of a loader does that is the program's own."""
    return kind if issubclass(kind, given) else type(kind.__name__, (kind, given), {})


def length_of(given: Any) -> int | None:
    try:
        return len(given)
    except TypeError:
        return None


def behind(given: Iterable[Any], count: int) -> Iterable[Any]:
    """`given` without its first `count`."""
    return itertools.islice(given, count, None) if count else given


def samplers_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """Those of a loader, and those that they are made around."""
    to_see: list[Any] = [loader.sampler, loader.batch_sampler]
    while to_see:
        sampler = to_see.pop()
        yield sampler
        to_see += [inner for name in ("sampler", "batch_sampler", "batches") if isinstance(inner := getattr(sampler, name, None), Iterable)]
