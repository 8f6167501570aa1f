# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Python: a job's session, whatever computes. `poseidon.torch` is what a PyTorch script imports.

`poseidon.__version__` is that of the installed distribution, in a checkout that of the library, which it loads. Importing
the package warns where an unrelated distribution of the same name is installed.

`import poseidon.torch as poseidon` gives the front end the package's name, and a later `import poseidon.lightning` takes it back. So the
package has what a front end that was imported has, unless several have other things of one name.
"""
from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from . import distribution, session
from .errors import PoseidonError
from .session import Session, join, make_token_file

__all__ = ["PoseidonError", "Session", "join", "make_token_file"]

FRONT_ENDS = ("poseidon.torch", "poseidon.tensorflow", "poseidon.keras")

if TYPE_CHECKING:
    __version__: str
else:
    def __getattr__(name):
        if name == "__version__":
            return distribution.version() or session.library().version_text().decode()
        known = [front_end for front_end in map(sys.modules.get, FRONT_ENDS) if name in getattr(front_end, "__all__", ())]
        things = {id(thing): thing for thing in (getattr(front_end, name) for front_end in known)}
        if len(things) == 1:
            return things.popitem()[1]
        several = f": {' and '.join(each.__name__ for each in known)} have, expected the name of one of them before it" if known else ""
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'" + several)

if (_sentence := distribution.namesake()) is not None:
    warnings.warn(_sentence, RuntimeWarning, stacklevel=2)
