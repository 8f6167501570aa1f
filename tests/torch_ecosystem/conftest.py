# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

from some_cases import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  # make test runs some
