# SPDX-License-Identifier: Apache-2.0
"""Two encrypted workers beside libraries that bring an OpenSSL, or a BoringSSL, of their own (imports.py): any three of
them are imported in each of their six orders."""
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from conftest import HERE, PYTHON, ROOT, ended, needs_tensorflow, start

sys.path.append(str(ROOT / "tests" / "wheel"))
from orders import covering  # noqa: E402

pytestmark = needs_tensorflow


def beside_torch():
    """The folder of torch, which another environment has than TensorFlow's; None where that has another Python."""
    found = importlib.util.find_spec("torch")
    version = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True).stdout
    if found is None or version.split() != [str(number) for number in sys.version_info[:2]]:
        return None
    return pathlib.Path(found.origin).parents[1]


def pairs_of(*modules):
    """Orders for the two workers of a job, joined with dashes."""
    orders = ["-".join(order) for order in covering(modules)]
    return list(zip(orders[::2], orders[1::2]))


def train(tmp_path, folder, pair):
    processes = start(tmp_path, 2, HERE / "imports.py", folder, *pair)
    for process, order, errors in zip(processes, pair, ended(processes)):
        assert process.returncode == 0, f"{order}: {errors[-3000:]}"


def with_torch():
    """The modules, torch among them where TensorFlow's Python has it: orders of four hold all of any three."""
    return ("ssl", "tensorflow", "poseidon") if beside_torch() is None else ("ssl", "torch", "tensorflow", "poseidon")


@pytest.mark.long
@pytest.mark.parametrize("pair", pairs_of(*with_torch()), ids="+".join)
def test_every_order_encrypts(tmp_path, pair):
    train(tmp_path, beside_torch() or tmp_path, pair)
