# SPDX-License-Identifier: Apache-2.0
"""A session without any framework: jobs of plain Python processes that never import torch."""
import array
import ctypes
import os
import subprocess
import sys

import poseidon
import poseidon.session
import pytest
from conftest import FRONT_END, PATIENCE, free_port

WORKER = """
import array, ctypes, sys
import poseidon
session = poseidon.join()
numbers = array.array("d", [1.5, session.rank])
session.sum(numbers)
weights = memoryview(bytearray(12)).cast("f")
weights[session.rank] = 1 + session.rank
session.sum(weights)
counts = (ctypes.c_int64 * 3)(*[session.rank] * 3)
session.broadcast(counts, root=1)
session.barrier()
session.leave()
print(session.workers, list(numbers), list(weights), list(counts))
frameworks = {"torch", "numpy", "tensorflow"} & set(sys.modules)
sys.exit(f"{frameworks} were imported" if frameworks else 0)
"""


def test_a_session_needs_no_framework(tmp_path):
    token = tmp_path / "job.token"
    poseidon.make_token_file(token)
    port = str(free_port())
    workers = [subprocess.Popen(
        [sys.executable, "-B", "-c", WORKER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(FRONT_END), "POSEIDON_TOKEN_FILE": str(token), "RANK": str(rank),
             "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in range(2)]
    try:
        for worker in workers:
            output, errors = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 0, errors
            assert output == "2 [3.0, 1.0] [1.0, 2.0, 0.0] [1, 1, 1]\n"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("buffer", [bytearray(8), b"12345678", array.array("i", [1]), (ctypes.c_uint64 * 1)(),
                                    memoryview(array.array("d", [1, 2, 3, 4]))[::2]], ids=str)
def test_a_buffer_of_something_else_is_refused(buffer):
    with pytest.raises(poseidon.PoseidonError, match="expected a writable, contiguous one of float32"):
        poseidon.session.view_of(buffer)


def test_the_version_of_a_checkout_is_the_library_s():
    project = (FRONT_END.parents[1] / "CMakeLists.txt").read_text()
    assert f"project(poseidon VERSION {poseidon.__version__} " in project
