# SPDX-License-Identifier: Apache-2.0
"""The package's annotations are whole and true, and its syntax is that of every Python it is for."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "frontends" / "python" / "poseidon"

pytest.importorskip("mypy", reason="mypy is not installed for this interpreter")
pytest.importorskip("torch", reason="torch is not installed for this interpreter")


def mypy(*arguments, cwd=ROOT):
    """The output of mypy, and whether it found nothing."""
    run = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
                          ROOT / "build" / "mypy", *arguments], cwd=cwd, capture_output=True, text=True)
    return run.stdout + run.stderr, run.returncode == 0


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_the_package_is_typed_for_every_python(version):
    said, clean = mypy("--strict", "--python-version", version)
    assert clean, said
    assert (PACKAGE / "py.typed").exists()


def test_what_is_ignored_has_a_code():
    for file in PACKAGE.rglob("*.py"):
        for line in file.read_text().splitlines():
            assert "type: ignore" not in line or re.search(r"type: ignore\[[a-z-]+\]", line), f"{file}: {line}"


def test_a_user_is_corrected(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import array\nimport poseidon\nsession = poseidon.join(rank='0')\nsession.sum([1.0])\n"
                      "session.sum(array.array('d', [1.0]))\nname: int = session.member_name(1)\n")
    said, _ = mypy("--strict", "--python-version", "3.14", script)  # as the package above, which it knows by now
    assert re.findall(r"script\.py:(\d+): error", said) == ["3", "4", "6"], said


def test_a_user_of_torch_is_corrected_and_completed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""import torch
import poseidon.torch as poseidon
poseidon.init(wire="tls", stuck_after=30)
poseidon.init(wires="tls")
poseidon.init(wire="tsl")
model, optimizer = poseidon.distribute(torch.nn.Linear(2, 3), torch.optim.SGD([], lr=0.1))
features: int = model.in_features
alone = poseidon.distribute(torch.nn.Linear(2, 3), overlap="forward")
features = alone.in_features
poseidon.distribute(alone, overlap="forwards")
with poseidon.no_sync(model):
    pass
batches = poseidon.loader(torch.utils.data.TensorDataset(), batch_size=2)
batches.set_epoch("1")
""")
    said, _ = mypy("--strict", "--python-version", "3.14", script)
    assert re.findall(r"script\.py:(\d+): error", said) == ["4", "5", "10", "14"], said
