# SPDX-License-Identifier: Apache-2.0
"""Workers in TensorFlow's own environment, each a program."""
import functools
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests" / "shared"))

import programs  # noqa: E402
from some_cases import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  # make test runs some

FRONT_END = programs.FRONT_END
PYTHON = pathlib.Path(os.environ.get("POSEIDON_TENSORFLOW_PYTHON", ROOT / ".venv-tensorflow" / "bin" / "python3"))
TIMEOUT_FACTOR = float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
PATIENCE = 600 * TIMEOUT_FACTOR  # a job of many cases; beside other tests it takes several times as long as alone

needs_tensorflow = pytest.mark.skipif(not PYTHON.exists(), reason=f"TensorFlow is not installed ({PYTHON.parents[1].name})")
needs_tensorboard = pytest.mark.skipif(not any(PYTHON.parents[1].glob("lib/python3*/site-packages/tensorboard")),
                                       reason="TensorBoard is not installed, which TensorFlow from 2.20 on does not bring")
start = functools.partial(programs.start, PYTHON)
# Of what worker.py imports the slow part, with the variables that it sets before.
DEVICE = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if os.environ.get("POSEIDON_TEST_DEVICE") == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
PREPARED = programs.Prepared(PYTHON, "keras", "tensorflow", TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0", **DEVICE)
ended = functools.partial(programs.ended, patience=PATIENCE)
