# SPDX-License-Identifier: Apache-2.0
"""What Poseidon refuses, in programs that are no tests of pytest."""
from poseidon.errors import PoseidonError


def fails(call):
    """The sentence with which it does."""
    try:
        call()
    except PoseidonError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def refused(sentence, call):
    """Whether that holds `sentence`."""
    said = fails(call)
    assert sentence in said, said
