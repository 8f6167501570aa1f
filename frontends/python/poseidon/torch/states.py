# SPDX-License-Identifier: Apache-2.0
"""What a step and a layer may do next: all their states, and the moves between them, in two tables that are asserted.

A step of one exchange:

    IDLE --forward pass--> FORWARD --first gradient--> BACKWARD --last gradient--> IDLE

A layer, without overlap and with it:

    IDLE -> COMING -> FLYING -----------------------------------> LANDED -> IDLE
    IDLE -> COMING -> FLYING -> GUARDED -> FLYING -> AWAITED ---> LANDED -> IDLE
                                                 +-> UNWANTED --> LANDED -> IDLE
"""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Joins(Protocol):
        """A context in which workers may have different numbers of steps (joining.py)."""

        def begin(self) -> None: ...


class Phase(enum.IntEnum):
    """Of a step."""

    IDLE = 0      # the core knows of no step that is under way
    FORWARD = 1   # the step has begun in the core; the program computes, and no gradient of this step has come
    BACKWARD = 2  # gradients come, and leave


NEXT_PHASES = (
    {Phase.FORWARD},                # IDLE
    {Phase.BACKWARD, Phase.IDLE},   # FORWARD: to IDLE where this worker sits the step out
    {Phase.IDLE, Phase.FORWARD},    # BACKWARD: to FORWARD where an exception ended the pass
)


class Layer(enum.IntEnum):
    """State of a layer. From FLYING to AWAITED it is in flight: its memory is lent to the core."""

    IDLE = 0      # `.grad` is the program's
    COMING = 1    # a backward pass has left some of the gradient here, or its factors
    LANDED = 2    # the mean is in the gradient's memory, and `.grad` does not show it yet
    FLYING = 3    # handed over
    GUARDED = 4   # handed over; a look at `.grad` raises: from the end of backward() to optimizer.step()
    UNWANTED = 5  # handed over; zero_grad() came before optimizer.step(), so that nobody will see the mean
    AWAITED = 6   # handed over; who looks at a parameter waits: from optimizer.step() until the layer is updated


IDLE, COMING, LANDED, FLYING, GUARDED, UNWANTED, AWAITED = Layer

IN_FLIGHT = frozenset((FLYING, GUARDED, UNWANTED, AWAITED))

# To IDLE from a state in flight: the session has been closed, and no mean will land.
NEXT_STATES = {
    IDLE: {COMING, FLYING},  # at once to FLYING where this worker has nothing to add to the mean
    COMING: {FLYING, IDLE},  # to IDLE where an exception ended the pass before the layer left
    FLYING: {LANDED, GUARDED, UNWANTED, AWAITED, IDLE},
    GUARDED: {LANDED, FLYING, IDLE},
    UNWANTED: {LANDED, IDLE},
    AWAITED: {LANDED, IDLE},
    LANDED: {IDLE},
}


class Step:
    """The step of one exchange, and how this worker counts in it. Belongs to the thread that trains."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.number = 0  # of the script's steps: how many have ended
        # Of this worker's batch, whose mean its gradient is: by them it counts in the mean over all workers. 0 on all: one
        # worker counts as much as another.
        self.samples = 0
        self.paused = False  # gradients stay here (no_sync)
        self.pauses = 0      # how often that has begun or ended
        self.joining: Joins | None = None  # workers may have different numbers of steps
        self.renewing = False    # all workers are about to declare their layers anew
        self.due = False         # this worker's parameters are to be compared with the others' (checks.py)
        self.compiled = False    # some module was, in its last forward pass
        self.read_ahead = False  # a loop has an uneven batch still to come (data.Use)
        self.passes = 0  # backward passes so far, those of no_sync too
        self.task: int | None = None  # autograd's number of the backward pass at whose end what has not left goes

    def enters(self, phase: Phase) -> None:
        assert phase in NEXT_PHASES[self.phase], f"a step cannot go from {self.phase.name} to {phase.name}"
        self.phase = phase
