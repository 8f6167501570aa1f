# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Python: a job's session, whatever computes. `poseidon.torch` is what a PyTorch script imports."""
from .errors import PoseidonError
from .session import Session, join, make_token_file

__all__ = ["PoseidonError", "Session", "join", "make_token_file"]
