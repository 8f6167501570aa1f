# SPDX-License-Identifier: Apache-2.0
"""Drills: a rank of a training script (script.py) is killed at a random moment. All others name it in time, and nothing of the
job stays behind."""
import re
import signal

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from conftest import PATIENCE, TIMEOUT_FACTOR  # noqa: E402
from test_distribute import programs, start  # noqa: E402


def check_named(lost, others, sentence, within):
    """That each of `others`, (code, output, errors), has raised `sentence` as long after the last rank was lost. `lost`: what that
    one said."""
    _, began = lost.split()
    for code, heard, errors in others:
        assert code == 1 and re.search(rf"PoseidonError: worker {len(others)} on host \S+ {sentence}", errors), errors[-3000:]
        took = float(heard) - float(began)
        print(f"named after {took:.3f} s")
        assert took <= within * TIMEOUT_FACTOR


@pytest.mark.parametrize("case", ["killed", "killed_beside_processes_that_stay"])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_killed_rank_is_named_within_a_second(tmp_path, workers, case):
    """Also while the processes of its loader, which know nothing of the job, live on for some seconds."""
    processes = start(tmp_path, workers, case)
    said = programs.said(processes, PATIENCE)  # ends when no process has their pipes any more, loaders' included
    *others, (code, lost, errors) = [(process.returncode, *words) for process, words in zip(processes, said)]
    assert code == -signal.SIGKILL, errors[-3000:]
    check_named(lost, others, "was lost", within=1.0)
