# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "process"))

import doctor  # noqa: E402
import job as jobs  # noqa: E402
import machines  # noqa: E402


@pytest.fixture(scope="session")
def library():
    """libposeidon.so, without which every host has a fault."""
    built = ROOT / "build" / "release" / "poseidon" / "c" / "libposeidon.so"
    path = os.environ.get("POSEIDON_LIBRARY") or (str(built) if built.exists() else None)
    if path is None:
        pytest.skip("needs POSEIDON_LIBRARY, or libposeidon.so in build/release")
    return path


@pytest.fixture
def folder(tmp_path):
    """Where the doctor is started; hosts have the same path."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def clinic(tmp_path, folder, library, request):
    """Three hosts a, b and c, without a fault."""
    if machines.missing():
        pytest.skip(machines.missing())
    with doctor.Clinic(tmp_path, folder, library, getattr(request, "param", 3)) as made:
        yield made
        until = time.monotonic() + jobs.PATIENCE
        while doctor.agents_in(folder):  # a killed ssh ends its agent a moment later
            assert time.monotonic() < until
            time.sleep(0.01)
