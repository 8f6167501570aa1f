# SPDX-License-Identifier: Apache-2.0
"""Workers in TensorFlow's own environment, each a program."""
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FRONT_END = ROOT / "frontends" / "python"
PYTHON = pathlib.Path(os.environ.get("POSEIDON_TENSORFLOW_PYTHON", ROOT / ".venv-tensorflow" / "bin" / "python3"))
PATIENCE = 240 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))

needs_tensorflow = pytest.mark.skipif(not PYTHON.exists(), reason=f"TensorFlow is not installed ({PYTHON.parents[1].name})")


def start(folder, workers, *command, **variables):
    """Processes of Python that meet by themselves, as torchrun's do on one host."""
    others = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "POSEIDON_TOKEN_FILE", "POSEIDON_PORT")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return [subprocess.Popen([PYTHON, "-B", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**clean, "PYTHONPATH": str(FRONT_END), "TMPDIR": str(folder), "RANK": str(rank),
                                  "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), **variables})
            for rank in range(workers)]


def ended(processes):
    """What they said on standard error, by rank, once all have ended."""
    try:
        return [process.communicate(timeout=PATIENCE)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
