# SPDX-License-Identifier: Apache-2.0
"""Which process of a job this is: what the core finds (poseidon/c/place.h) in arguments and in this process's environment."""
from __future__ import annotations

import dataclasses
import os
from ctypes import byref, c_char_p

from . import library as c
from .errors import PoseidonError


def variable_number(name: str) -> int | None:
    text = os.environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise PoseidonError(f"environment variable {name} is '{text}', expected a number", "INVALID_ARGUMENT")
    return int(text)


@dataclasses.dataclass
class Place:
    """Which process of the job this is, and where rank 0 listens, as far as that is known before the processes meet."""
    rank: int
    workers: int
    coordinator: str  # numeric; empty where it is not known
    port: int  # 0 where it is not known
    listen: str  # numeric; empty where rank 0's address has to be known for it
    local: int | None = None  # processes of the job on this host, where that is known
    launcher: str | None = None  # who started it, unless the arguments said everything
    job: str = ""  # differs between two jobs of the launcher

    @property
    def one_host(self) -> bool:
        """Whether all processes are known to be on this host."""
        return self.local == self.workers

    def meets_at(self, coordinator: str, port: int) -> None:
        """Rank 0's numeric address becomes known."""
        self.complete(Place.find(self.rank, self.workers, coordinator, port, self.listen))

    def complete(self, known: Place) -> None:
        """Takes over where the processes meet."""
        self.coordinator, self.port, self.listen = known.coordinator, known.port, known.listen

    @staticmethod
    def find(rank: int | None = None, workers: int | None = None, coordinator: str | None = None,
             port: int | None = None, listen: str | None = None) -> Place:
        """The arguments, and for those left out what the launcher says (torchrun, Open MPI, Slurm, an MPI with Hydra),
        MASTER_ADDR, and POSEIDON_PORT or MASTER_PORT."""
        given = (c.GIVEN_RANK if rank is not None else 0) | (c.GIVEN_WORKERS if workers is not None else 0)
        wanted = c.PlaceWanted(given=given, rank=rank or 0, workers=workers or 0, port=port or 0,
                               coordinator=(coordinator or "").encode() or None, listen=(listen or "").encode() or None)
        variables = [name + b"=" + value for name, value in os.environb.items()]
        found = c.Place()
        c.library().find_place(byref(wanted), (c_char_p * (len(variables) + 1))(*variables, None), byref(found))
        return Place.of(found)

    @staticmethod
    def of(found: c.Place) -> Place:
        """As the header has it."""
        return Place(found.rank, found.workers, found.coordinator.decode(), found.port, found.listen.decode(),
                     found.local or None, found.launcher.decode() or None, found.job.decode(errors="surrogateescape"))

    def struct(self) -> c.Place:
        """For the header's functions."""
        return c.Place(rank=self.rank, workers=self.workers, port=self.port, local=self.local or 0,
                       coordinator=self.coordinator.encode(), listen=self.listen.encode(),
                       launcher=(self.launcher or "").encode(), job=self.job.encode(errors="surrogateescape"))


def said_here(rank: int | None, workers: int | None) -> Place:
    """The place of the environment, without a look at rank 0's host, which may have no address."""
    return Place.find(rank, workers, "127.0.0.1", None, "127.0.0.1")


def dialect(rank: int | None, workers: int | None) -> str | None:
    """The launcher, or None where this process was started by itself or the arguments say everything."""
    return said_here(rank, workers).launcher


def master_port() -> int:
    """Where rank 0 listens, as the launcher says it; 0 where it does not, or something else listens there."""
    return said_here(0, 1).port


def has_agent() -> bool:
    """Whether an agent of torchrun listens at MASTER_PORT, with a store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
