# SPDX-License-Identifier: Apache-2.0
"""Where random numbers come from: torch's, Python's and numpy's own generators, and those that a program makes."""
from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

# Between the seeds of ranks, and of epochs: odd, so that no two are the same.
OF_RANKS, OF_EPOCHS = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def of_rank(number: int, rank: int) -> int:
    """A seed of a rank's own; rank 0's is `number`."""
    return (number + rank * OF_RANKS) % 2 ** 63


def of_epoch(number: int, epoch: int) -> int:
    """A seed of an epoch's own; that of epoch 0 is `number`."""
    return (number + epoch * OF_EPOCHS) % 2 ** 63


def seed_all(number: int) -> None:
    """Seeds torch on all devices, Python, and numpy where it is loaded."""
    torch.manual_seed(number)
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed([number % 2 ** 32, number >> 32] if number >> 32 else number)


# ---- of the host

def states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), None if numpy is None else numpy.random.get_state()


def restore(kept: tuple[Any, ...]) -> None:
    of_python, of_torch, of_numpy = kept
    random.setstate(of_python)
    torch.set_rng_state(of_torch)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)


def seeded(seed: int) -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (random.Random(seed).getstate(), torch.Generator().manual_seed(seed).get_state(),
            None if numpy is None else numpy.random.RandomState(seed % 2 ** 32).get_state())


# ---- all that can be reached

Restores = Callable[[], None]


def snapshot(holders: Iterable[object]) -> list[Restores]:
    """What brings back the random numbers of now: of the host, of devices, and of the generators among `holders`."""
    kept = states()
    made: list[Restores] = [lambda: restore(kept)]
    made += [of_device(module) for module in devices()]
    return made + [of_generator(one) for one in holders if is_generator(one)]


def devices() -> Iterator[Any]:
    """Torch's modules for those devices that the program uses."""
    for kind in ("cuda", "xpu", torch._C._get_privateuse1_backend_name()):
        module = getattr(torch, kind, None)
        if hasattr(module, "get_rng_state_all") and module.is_initialized():  # type: ignore[union-attr]  # see hasattr
            yield module


def of_device(module: Any) -> Restores:
    states_there = module.get_rng_state_all()
    return lambda: module.set_rng_state_all(states_there)


def is_generator(one: object) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(one, (torch.Generator, random.Random)) or numpy is not None and isinstance(
        one, (numpy.random.Generator, numpy.random.BitGenerator, numpy.random.RandomState))


def of_generator(one: Any) -> Restores:
    if isinstance(one, random.Random):
        of_python = one.getstate()
        return lambda: one.setstate(of_python)
    if hasattr(one, "get_state"):  # torch's, and numpy's older kind
        state = one.get_state()
        return lambda: one.set_state(state)
    bits = getattr(one, "bit_generator", one)
    of_bits = bits.state

    def again() -> None:
        bits.state = of_bits
    return again
