# SPDX-License-Identifier: Apache-2.0
"""The examples run on two workers, as their README starts them, on part of their data."""
import os
import pathlib
import shutil
import subprocess

import pytest

import programs
from conftest import FRONT_END, PATIENCE, PREPARED, PYTHON, ROOT, needs_tensorflow

pytestmark = needs_tensorflow

FASHION_MNIST = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
# What rank 0 says at the end, and with what the example is quick.
EXAMPLES = {"fashion": ("accuracy on the test images", ["--epochs", "1", "--samples", "512"]),
            "wide": ("dense_1/kernel: sfb", ["bytes", "--samples", "1536"]),
            "loop": ("step 50 loss", ["--steps", "60"]),
            "packages": ("right about", ["--epochs", "1", "--samples", "2000"]),
            "applications": ("% hidden", ["VGG19", "2"])}
LONG = ("packages", "applications")  # a minute together


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(tmp_path, name):
    if name in LONG and os.environ.get("POSEIDON_CASES") != "all":
        pytest.skip("it takes long: POSEIDON_CASES=all, as make soak sets it")
    if name in ("fashion", "wide", "loop") and not FASHION_MNIST.exists():
        pytest.skip(f"{FASHION_MNIST} is not there: install dataset-fashion-mnist")
    if name == "packages" and shutil.which("apt-cache") is None:
        pytest.skip("apt-cache is not there, which knows the packages")
    says, arguments = EXAMPLES[name]
    done = subprocess.run([PYTHON, "-B", "-m", "poseidon", "run", "-n", "2", PYTHON, "-B",
                           ROOT / "examples" / "tensorflow" / f"{name}.py", *arguments],
                          cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": str(FRONT_END), "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("[0] ") and says in line for line in lines), done.stdout
    assert not any(line.startswith("[1] ") for line in lines), done.stdout  # rank 0 alone prints


def test_the_quick_start_goes_on_to_the_bit(tmp_path):
    whole = programs.check_goes_on(PREPARED, tmp_path, ROOT / "examples/tensorflow/quickstart.py",
                                   lambda: shutil.rmtree(tmp_path / "quickstart.saved"), PATIENCE)
    assert 80 < float(whole[1].split()[2]) < 100
