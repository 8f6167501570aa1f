# SPDX-License-Identifier: Apache-2.0
"""Whether workers' parameters and optimizers stay the same, every so many steps of optimizers.

A worker that leaves out a step of its optimizer counts otherwise than the others. So all compare behind the backward pass with which
one of them has said that it is time (shared.py). Where a program shares gradients itself no pass says it, and step() does.
"""
from __future__ import annotations

import array
import weakref
from typing import TYPE_CHECKING, Protocol

import torch

from ..errors import PoseidonError
from .replicas import compare_optimizers, hash_of, settings_of, states_of
from .tensors import parameters_of

if TYPE_CHECKING:
    from ..session import Session
    from .model import Model
    from .states import Step


class Compared(Protocol):
    """The exchange whose model is compared. `model` is another once its layers have been declared anew."""

    session: Session
    root: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    overlap: bool
    now: Step
    model: Model


class ReplicaChecks:
    """Of one exchange; belongs to the thread that trains. All workers have one, or none."""

    def __init__(self, exchange: Compared, every: int) -> None:
        if every < 1:
            raise PoseidonError(f"check_every is {every}, expected a number of steps from 1, or None", "INVALID_ARGUMENT")
        self.exchange, self.every = exchange, every
        self.since = 0    # the newest comparison: steps of optimizers
        self.idle = 0     # of them, those in a row before which no backward pass had ended
        self.steps = 0    # of optimizers, of all
        self.passes = 0   # backward passes when the newest of them was made
        self.pauses = 0   # Step.pauses then
        self.optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, None] = weakref.WeakKeyDictionary()

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer of the model's parameters is about to make a step."""
        now = self.exchange.now
        alone = now.number == self.passes and now.pauses == self.pauses and not now.paused and now.joining is None
        self.idle = self.idle + 1 if alone and self.steps else 0
        self.passes, self.pauses = now.number, now.pauses
        if self.idle >= self.every:  # the program shares gradients itself: no backward pass will say it
            self.compare()
        self.optimizers[optimizer] = None
        self.since = self.since + 1 if self.steps else 1
        self.steps += 1
        now.due = self.since >= self.every

    def count_pass(self) -> None:
        """A backward pass has ended on all workers. With overlap what they say with it comes later."""
        if not self.steps and self.exchange.optimizer is None:  # nobody knows what updates the model
            self.since += 1
            self.exchange.now.due = self.since >= self.every
        if not self.exchange.overlap:
            self.compare_if_due()

    def begin_backward(self) -> None:
        """The first gradient of a backward pass has come: all updates have been made, and all has landed."""
        if self.exchange.overlap:
            self.compare_if_due()

    def compare_if_due(self) -> None:
        usage, now = self.exchange.model.usage, self.exchange.now
        if usage.due if self.exchange.session.workers > 1 else now.due:
            usage.due = False
            self.compare()

    def compare(self) -> None:
        self.since, self.idle, self.exchange.now.due = 0, 0, False
        session, optimizers = self.exchange.session, list(self.optimizers)
        step = (self.steps or self.exchange.now.number) - 1
        when = f" in step {step}"
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self.exchange.root.named_parameters()}
        # What is the cause comes before what follows from it.
        compare_optimizers(session, (line for one in optimizers for line in settings_of(one, names)), when)
        self.check_parameters(step)
        compare_optimizers(session, (line for one in optimizers for line in states_of(one, names)), when)

    def check_parameters(self, step: int) -> None:
        """Raises on all workers where a parameter is not the same on all, bit for bit."""
        session = self.exchange.session
        own = [hash_of(parameter) for parameter in parameters_of(self.exchange.root)]
        told = array.array("q", bytes(8 * len(own) * session.workers))
        told[len(own) * session.rank:len(own) * (session.rank + 1)] = array.array("q", own)
        session.sum(told)
        for at, (name, _) in enumerate(self.exchange.root.named_parameters()):
            hashes = told[at::len(own)].tolist()
            common = max(hashes, key=hashes.count)  # rank 0's where no other is commoner
            for rank, one in enumerate(hashes):
                if one != common:
                    other = hashes.index(common)
                    raise PoseidonError(f"parameter '{name}' on rank {rank} is not what it is on rank {other} in step {step}, "
                                        "expected no update that depends on the worker", "FAILED_PRECONDITION")
