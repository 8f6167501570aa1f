# SPDX-License-Identifier: Apache-2.0
"""The examples run on two workers, on part of their data."""
import os
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from conftest import HERE, PATIENCE, PREPARED  # noqa: E402

import programs  # noqa: E402

FASHION_MNIST = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
FOLDER = HERE.parents[1] / "examples" / "torch"
# mlp runs under torchrun (test_failures.py), resume in test_resume.py.
ARGUMENTS = {"fashion": "--epochs 1 --samples 512", "fashion --net mlp": "--epochs 1 --samples 512",
             "wide": "--steps 12 --policy bytes", "text": "--epochs 1 --samples 1000", "language": "--epochs 1 --samples 200"}
LONG = ("fashion --net mlp", "text", "language")  # half a minute together
SAID = {"fashion": "of the test images", "wide": "layer 5: sfb", "text": "right about", "language": "perplexity"}


@pytest.mark.long
@pytest.mark.parametrize("example", ARGUMENTS)
def test_an_example_runs(tmp_path, example):
    name, *options = example.split()
    if example in LONG and os.environ.get("POSEIDON_CASES") != "all":
        pytest.skip("it takes long: POSEIDON_CASES=all, as make soak sets it")
    if name in ("fashion", "wide") and not FASHION_MNIST.exists():
        pytest.skip(f"{FASHION_MNIST} is not there: install dataset-fashion-mnist")
    processes = programs.start(PREPARED, tmp_path, 2, FOLDER / f"{name}.py", *options, *ARGUMENTS[example].split())
    said = programs.said(processes, PATIENCE)
    assert [process.returncode for process in processes] == [0, 0], said
    assert SAID[name] in said[0][0] and not said[1][0], said  # rank 0 alone prints
