# SPDX-License-Identifier: Apache-2.0
"""What a front end raises."""
from __future__ import annotations


class PoseidonError(RuntimeError):
    """What the core says: `message`, `code` ("UNAVAILABLE"), and `culprit`, the member to blame or None."""

    def __init__(self, message: str, code: str = "FAILED_PRECONDITION", culprit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.culprit = message, code, culprit
