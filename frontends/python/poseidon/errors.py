# SPDX-License-Identifier: Apache-2.0
"""What a front end raises."""


class PoseidonError(RuntimeError):
    """What the core says: `message`, `code` ("UNAVAILABLE"), and `culprit`, the member to blame or None."""

    def __init__(self, message, code="FAILED_PRECONDITION", culprit=None):
        super().__init__(message)
        self.message, self.code, self.culprit = message, code, culprit
