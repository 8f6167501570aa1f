# SPDX-License-Identifier: Apache-2.0
"""The exception that a front end raises."""
from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class PoseidonError(RuntimeError):
    """A failure: `message`, one sentence; `code`, its kind, as "INVALID_ARGUMENT" (a wrong argument), "UNIMPLEMENTED" (what is
    not there), "UNAVAILABLE" (a worker or the network is gone) or "ABORTED" (somebody ended the job); `culprit`, the number of
    the worker to blame, or None."""

    latest: ClassVar[str] = ""  # message of this process

    def __init__(self, message: str, code: str = "FAILED_PRECONDITION", culprit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.culprit = message, code, culprit
        PoseidonError.latest = message


def kind_of(thing: object) -> str:
    """How a sentence names a thing that is of a wrong type."""
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"


def check_same(kind: str, parted: Sequence[str], expected: str = "") -> None:
    """Raises PoseidonError where there are any of these ("variable", by their names), which the workers have different ones of."""
    if parted:
        which = f"{kind} '{parted[0]}' is" if len(parted) == 1 else f"{kind} '{parted[0]}' and {len(parted) - 1} more are"
        raise PoseidonError(f"{which} not the same on all workers{expected}", "FAILED_PRECONDITION")
