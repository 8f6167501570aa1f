# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / "cluster"), str(ROOT)]

import emulation  # noqa: E402


@pytest.fixture(autouse=True)
def namespaces_gone():
    """No test leaves a namespace that was not there before."""
    before = set(emulation.namespaces())
    yield
    assert set(emulation.namespaces()) - before == set()
