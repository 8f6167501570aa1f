# SPDX-License-Identifier: Apache-2.0
"""Drills: a rank of a training script (script.py) is killed or frozen at a random moment. All others name it in time, and nothing
of the job stays behind."""
import os
import re
import select
import signal
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from conftest import HERE, PATIENCE, TIMEOUT_FACTOR  # noqa: E402
from script import DEAD_AFTER  # noqa: E402
from test_distribute import apart, programs, saved, start, trained  # noqa: E402

# A frozen rank is found by its silence; then there is ending to do, on a machine that may be busy.
FROZEN = r"(which runs the coordinator, )?has been silent for \S+ s: it is frozen"
WITHIN_DEAD_AFTER = DEAD_AFTER + 0.5


def in_time(began, ended, within):
    took = ended - began
    print(f"after {took:.3f} s")
    assert took <= within * TIMEOUT_FACTOR


def check_named(rank, began, others, sentence, within):
    """That each of `others`, (code, output, errors), has raised `sentence` about the rank in time."""
    for code, heard, errors in others:
        assert code == 1 and re.search(rf"PoseidonError: worker {rank} on host \S+ {sentence}", errors), errors[-3000:]
        in_time(float(began), float(heard), within)


def endings(processes, said):
    return [(process.returncode, *words) for process, words in zip(processes, said)]


@pytest.mark.parametrize("case", ["killed", "killed_beside_processes_that_stay"])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_killed_rank_is_named_within_a_second(tmp_path, workers, case):
    """Also while the processes of its loader, which know nothing of the job, live on for some seconds."""
    processes = start(tmp_path, workers, case)
    said = programs.said(processes, PATIENCE)  # ends when no process has their pipes any more, loaders' included
    *others, (code, lost, errors) = endings(processes, said)
    assert code == -signal.SIGKILL, errors[-3000:]
    check_named(workers - 1, lost.split()[1], others, "was lost", within=1.0)


@pytest.mark.parametrize("case, rank", [("frozen", 2), ("frozen_coordinator", 0)])
def test_a_rank_that_stays_frozen_is_named_in_time(tmp_path, case, rank):
    processes = start(tmp_path, 3, case)
    frozen = processes.pop(rank)
    try:
        others = endings(processes, programs.said(processes, PATIENCE))
    finally:
        frozen.kill()
    lost, _ = frozen.communicate()
    check_named(rank, lost.split()[1], others, FROZEN, WITHIN_DEAD_AFTER)


def launch(folder, case, *launcher):
    """How a launcher of two ranks ended: its code, and what it said on standard output and error."""
    process, = programs.start(sys.executable, folder, 1, "-m", *launcher, HERE / "script.py", case, folder / f"{case}-",
                              **dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")))
    said = programs.said([process], 2 * PATIENCE)
    return endings([process], said)[0]


def has_ended(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.long
@pytest.mark.skipif("POSEIDON_PROGRAM" not in os.environ, reason="POSEIDON_PROGRAM is not set: it is not built")
def test_poseidon_run_ends_a_frozen_rank_with_the_others(tmp_path):
    """Which does not end by itself, and is the one to blame, so that the code is that of a lost worker."""
    code, output, errors = launch(tmp_path, "frozen", "poseidon", "run", "-n", "2", sys.executable, "-B")
    said = dict(re.findall(r"^\[(\d)\] (.+)$", output, re.MULTILINE))
    number, began = said["1"].split()
    assert code == 3, errors[-3000:]
    check_named(1, began, [(1, said["0"], errors)], FROZEN, WITHIN_DEAD_AFTER)
    until = time.monotonic() + PATIENCE  # it is no child of the launcher's, so somebody else takes note of its end
    while not has_ended(int(number)):
        assert time.monotonic() < until
        time.sleep(0.01)


def read_until(stream, pattern):
    """What a process says up to the line with `pattern`."""
    said, until = "", time.monotonic() + PATIENCE
    while not re.search(pattern, said):
        ready, _, _ = select.select([stream], [], [], max(0, until - time.monotonic()))
        more = os.read(stream.fileno(), 1 << 16).decode() if ready else ""
        assert more, f"'{pattern}' does not come:\n{said[-3000:]}"
        said += more
    return said


@pytest.mark.parametrize("workers", [2, 3])
def test_a_rank_that_stops_for_a_while_is_waited_for(tmp_path, workers):
    """The others warn within 5 s, by its name, and the job trains what it would have."""
    processes = start(tmp_path, workers, "paused")
    *others, paused = processes
    try:
        number, began = paused.stdout.readline().split()
        for other in others:
            read_until(other.stderr, rf"worker {workers - 1} on host \S+ has been silent for")
            in_time(float(began), time.monotonic(), within=5.0)
        os.kill(int(number), signal.SIGCONT)
        for code, _, errors in endings(processes, programs.said(processes, PATIENCE)):
            assert code == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()
    assert apart(trained(tmp_path, 1, "paused"), saved(tmp_path, workers, "paused")) <= 3e-6


@pytest.mark.long
def test_a_job_that_torchrun_restarts_ends_as_one_that_nothing_has_befallen(tmp_path):
    code, output, errors = launch(tmp_path, "resumed", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                                  "--max-restarts=1")
    assert code == 0, errors[-3000:]
    assert re.fullmatch("from step 0 on\nfrom step [45] on\n", output), output  # rank 0 may be ended before it has saved step 4
    expected = trained(tmp_path, 2, "resumed")
    for rank in range(2):
        for one, other in zip(expected, torch.load(tmp_path / f"resumed-{rank}"), strict=True):
            assert torch.equal(one, other)
