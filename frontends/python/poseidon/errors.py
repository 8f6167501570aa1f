# SPDX-License-Identifier: Apache-2.0
"""The exception that a front end raises, and which exceptions of a script count as its failure."""
from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import ClassVar


def has_failed(ending: BaseException | None) -> bool:
    """Whether a script that ends with this exception under way, or with none, has failed: sys.exit(0) has not."""
    return ending is not None and not (isinstance(ending, SystemExit) and ending.code in (None, 0))


# Characters of what an exception says and of its traceback: together they fit into the message of a status (library.Status).
MOST_SAID = 400


def reason_of(failure: BaseException) -> str:
    """The line about a script's failure that the other workers of the job get, with the traceback's calls, the last one first."""
    said = " ".join(f"its script failed: {type(failure).__name__}: {failure}".split())
    if len(said) > MOST_SAID:  # as of a traceback from a loader's process, whose end says most
        said = f"{said[:100]} ... {said[105 - MOST_SAID:]}"
    calls = [f"{os.path.basename(call.filename)}:{call.lineno} in {call.name}" for call in traceback.extract_tb(failure.__traceback__)]
    return said + (f" ({', '.join(reversed(calls))[:MOST_SAID]})" if calls else "")


class PoseidonError(RuntimeError):
    """A failure: `message`, one sentence; `code`, its kind, as "INVALID_ARGUMENT" (a wrong argument), "UNIMPLEMENTED" (what is
    not there), "UNAVAILABLE" (a worker or the network is gone) or "ABORTED" (somebody ended the job); `culprit`, the number of
    the worker to blame, or None."""

    latest: ClassVar[str] = ""  # message of this process

    def __init__(self, message: str, code: str = "FAILED_PRECONDITION", culprit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.culprit = message, code, culprit
        PoseidonError.latest = message


def check_same(kind: str, parted: Sequence[str], expected: str = "") -> None:
    """Raises PoseidonError where there are any of these ("variable", by their names), which the workers have different ones of."""
    if parted:
        which = f"{kind} '{parted[0]}' is" if len(parted) == 1 else f"{kind} '{parted[0]}' and {len(parted) - 1} more are"
        raise PoseidonError(f"{which} not the same on all workers{expected}", "FAILED_PRECONDITION")
