# SPDX-License-Identifier: Apache-2.0
"""What a front end raises, and what it takes for a failure."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar


def has_failed(ending: BaseException | None) -> bool:
    """Whether a script that ends with this exception under way, or with none, has failed: sys.exit(0) has not."""
    return ending is not None and not (isinstance(ending, SystemExit) and ending.code in (None, 0))


def reason_of(failure: BaseException) -> str:
    """What the others of a job are told of a script's failure: one line."""
    return " ".join(f"its script failed: {type(failure).__name__}: {failure}".split())[:400]


class PoseidonError(RuntimeError):
    """What the core says: `message`, `code` ("UNAVAILABLE"), and `culprit`, the member to blame or None."""

    latest: ClassVar[str] = ""  # message of this process

    def __init__(self, message: str, code: str = "FAILED_PRECONDITION", culprit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.culprit = message, code, culprit
        PoseidonError.latest = message


def leave_at_exit(leave: Callable[[BaseException | None], None]) -> None:
    """Calls `leave` with the exception that the script ended by, if any. Why it fails is said in a line, where the script has
    not been told that already."""
    known = PoseidonError.latest
    try:
        leave(getattr(sys, "last_value", None))
    except PoseidonError as error:
        if error.message != known:
            print(f"poseidon: {error}", file=sys.stderr)
