# SPDX-License-Identifier: Apache-2.0
"""A collective of torch.distributed that has been called."""
from __future__ import annotations

import threading
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Work

from ..errors import PoseidonError


class Issued(Work):
    """A collective on its way. wait() returns when it is over, or raises what it failed with."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self.settled: torch.futures.Future[None] = torch.futures.Future()

    def end(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.over.set()
        self.settled.set_result(None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout and timeout > timedelta(0) else None
        if not self.over.wait(seconds):
            raise PoseidonError(f"a collective is not over after {seconds:g} s, expected all workers to take part in it",
                                "DEADLINE_EXCEEDED")
        if self.failure is not None:
            raise self.failure
        return True

    def outcome(self, _: object) -> list[torch.Tensor]:
        if self.failure is not None:
            raise self.failure
        return self.tensors

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        # An exception of a callback is the failure of its future for C++ too; that of set_exception is a value there.
        return self.settled.then(self.outcome)

    def is_completed(self) -> bool:
        return self.over.is_set()

    def is_success(self) -> bool:
        return self.over.is_set() and self.failure is None

    def exception(self) -> BaseException | None:
        return self.failure

    def result(self) -> list[torch.Tensor]:
        return self.tensors

    def synchronize(self) -> None:
        self.wait()
