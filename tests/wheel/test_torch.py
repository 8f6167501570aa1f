# SPDX-License-Identifier: Apache-2.0
"""A part of tests/torch on the installed wheel, where no checkout is to be seen: copies of the tests, in a folder of their own."""
import os
import shutil
import subprocess

import pytest

from conftest import ROOT, environment, lend_libraries
from orders import clean

# Some of every kind of test that needs no more than the package: sessions, gradients, features, scripts, a lost worker.
TESTS = ["test_where.py", "test_session.py", "test_gradients.py", "test_features.py::test_workers_train_as_one",
         "test_features.py::test_workers_train_as_one_with_overlap", "test_distribute.py::test_workers_train_what_one_does",
         "test_failures.py::test_a_killed_worker_is_named_by_all_others"]
SOME = ("not version and (where or session or gradients or 2-plain or 2-uneven or others[False]"
        " or -Plain] or -Tied] or -Thawed] or -Synchronized] or -LateHook])")
WHERE = """
import pathlib
import sys

import poseidon
import poseidon.session


def test_the_package_is_the_installed_one():
    for file in poseidon.__file__, poseidon.session.library().loaded._name:
        assert pathlib.Path(file).is_relative_to(sys.prefix), file
"""


@pytest.mark.long
def test_the_front_end_of_torch_trains_as_in_the_checkout(wheel, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    python = environment(tmp_path / "environment", wheel)
    lend_libraries(python)
    folder = tmp_path / "tests" / "torch"
    for part in "torch", "shared":
        shutil.copytree(ROOT / "tests" / part, tmp_path / "tests" / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "test_where.py").write_text(WHERE)
    variables = {**clean(), "OMP_NUM_THREADS": "1", "POSEIDON_TIMEOUT_FACTOR": os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"),
                 "POSEIDON_CASES": os.environ.get("POSEIDON_CASES", "all")}
    done = subprocess.run([python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, "-k", SOME, *TESTS],
                          cwd=folder, env=variables, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-1000:]
