# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Python. `poseidon.torch` is what a training script imports."""
from .library import PoseidonError
from .session import make_token_file

__all__ = ["PoseidonError", "make_token_file"]
