# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Python: a job's session, whatever computes. `poseidon.torch` is what a PyTorch script imports.

`poseidon.__version__` is that of the installed distribution, in a checkout that of the library, which it loads. Importing
the package warns where an unrelated distribution of the same name is installed.
"""
from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from . import distribution, session
from .errors import PoseidonError
from .session import Session, join, make_token_file

__all__ = ["PoseidonError", "Session", "join", "make_token_file"]

if TYPE_CHECKING:
    __version__: str
else:
    def __getattr__(name):
        if name != "__version__":
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return distribution.version() or session.library().version_text().decode()

if (_sentence := distribution.namesake()) is not None:
    warnings.warn(_sentence, RuntimeWarning, stacklevel=2)
