# SPDX-License-Identifier: Apache-2.0
"""libposeidon_tensorflow.so in this process's TensorFlow (frontends/tensorflow): the ops, and what they have to know of the core."""
from __future__ import annotations

import ctypes
import itertools
import os
import pathlib
from typing import Any

import tensorflow as tf

from .. import distribution, session
from ..errors import PoseidonError

# The type of the callback that TensorFlow hands to a kernel that ends later. Its C interface does not say so, and a library
# that assumed another type would crash.
CALLBACK = "typedef std::function<void()> DoneCallback;"

_loaded: Any = None


def check_tensorflow() -> None:
    header = pathlib.Path(tf.sysconfig.get_include()) / "tensorflow" / "core" / "framework" / "op_kernel.h"
    if not header.exists() or CALLBACK not in header.read_text(errors="replace"):
        raise PoseidonError(f"TensorFlow {tf.__version__} is not one that poseidon.tensorflow knows ({header} does not say "
                            f"'{CALLBACK}'), expected 2.16 to 2.21", "UNIMPLEMENTED")


def load() -> Any:
    """The ops' Python functions; loaded once."""
    global _loaded
    if _loaded is None:
        check_tensorflow()
        places = distribution.places("POSEIDON_TENSORFLOW_LIBRARY", "libposeidon_tensorflow.so",
                                     "frontends/tensorflow/libposeidon_tensorflow.so")
        path = next((path for path in places if os.path.exists(path)), None)
        if path is None:
            raise ImportError("libposeidon_tensorflow.so is missing, expected it beside the package, in build/release, or "
                              "where POSEIDON_TENSORFLOW_LIBRARY says")
        functions = tf.load_op_library(path)
        library = native(path)
        if not library.poseidon_tensorflow_ready():
            raise PoseidonError(f"TensorFlow {tf.__version__} lacks functions of its C interface, expected 2.16 to 2.21",
                                "UNIMPLEMENTED")
        give_core(library)
        _loaded = functions, library
    return _loaded[0]


def native(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.poseidon_tensorflow_core_names.restype = ctypes.POINTER(ctypes.c_char_p)
    library.poseidon_tensorflow_set_core.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    library.poseidon_tensorflow_set_core.restype = None
    library.poseidon_tensorflow_set_model.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32,
                                                      ctypes.c_uint32]
    library.poseidon_tensorflow_set_model.restype = None
    return library


def give_core(library: ctypes.CDLL) -> None:
    """Ops call functions of the core's library, which this one does not link."""
    names = library.poseidon_tensorflow_core_names()
    wanted = list(itertools.takewhile(bool, (names[at] for at in itertools.count())))
    core = session.library()
    library.poseidon_tensorflow_set_core((ctypes.c_void_p * len(wanted))(*(core.address_of(name.decode()) for name in wanted)))


def set_model(place: int, joined: session.Session, model: ctypes.c_void_p | None, number: int, layers: int) -> None:
    """Enters a model of the core where ops with the attribute model=place find it; None takes it out. `number`: Session.models."""
    load()
    _loaded[1].poseidon_tensorflow_set_model(place, joined.handle, model, number, layers)
