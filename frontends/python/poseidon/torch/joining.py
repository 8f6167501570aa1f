# SPDX-License-Identifier: Apache-2.0
"""Workers with different numbers of steps: one that has run out of batches takes part in the others' steps with nothing.

Before each step the workers sum up who has a batch. The ones without push what an absent worker pushes, and land what the
others land, until nobody has a batch; then all take the weights of one that trained to the end.
"""
from __future__ import annotations

import array
from typing import TYPE_CHECKING

from ..errors import PoseidonError
from .replicas import broadcast

if TYPE_CHECKING:
    from types import TracebackType

    from .exchange import Exchange


class Joining:
    """A context of one model, entered and left by all workers. `by_all`: gradients are divided by the number of workers, else
    by how many have a batch. `throws`: the first worker that has none ends the context on all, with a PoseidonError."""

    def __init__(self, exchange: Exchange, by_all: bool, throws: bool) -> None:
        self.exchange, self.by_all, self.throws = exchange, by_all, throws
        self.trains = True
        self.leader: int | None = None  # of those that had a batch in the last step; None: nobody ever had

    def __enter__(self) -> None:
        if self.exchange.now.joining is not None:
            raise PoseidonError("join was entered inside another join of the same model, expected one", "FAILED_PRECONDITION")
        self.exchange.now.joining = self
        self.samples = self.exchange.now.samples

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.shadow()
        finally:
            self.exchange.now.joining, self.exchange.now.samples = None, self.samples
            self.exchange.take_buffers_from(0)

    def shadow(self) -> None:
        exchange, self.trains = self.exchange, False
        if exchange.has_begun:  # by a forward pass without a backward pass that exchanges: the others count on it
            exchange.now.samples = int(self.by_all)
            exchange.sit_out()
        while self.meet():
            exchange.sit_out()
        if self.leader is not None:
            broadcast(exchange.session, exchange.root, self.leader)

    def begin(self) -> None:
        """A step begins on this worker."""
        if self.trains:
            self.meet()

    def meet(self) -> bool:
        """Whether some worker has a batch for the step that begins; all call it."""
        session = self.exchange.session
        present = array.array("q", [0] * session.workers)
        present[session.rank] = self.trains
        session.sum(present)
        ready = [rank for rank, there in enumerate(present) if there]
        if not ready:
            return False
        if self.throws and len(ready) < session.workers:
            gone = next(rank for rank, there in enumerate(present) if not there)
            raise PoseidonError(f"{session.member_name(gone)} has no further batch, expected as many on all workers in "
                                "join(throw_on_early_termination=True)", "FAILED_PRECONDITION", gone)
        # Contributions of weight 0 add nothing and do not count; one of weight 1 counts, also where it is of zeros.
        self.exchange.now.samples = int(self.by_all or self.trains)
        if ready[0] != self.leader:
            self.leader = ready[0]
            self.exchange.take_buffers_from(self.leader)
        return True
