# SPDX-License-Identifier: Apache-2.0
"""Processes of mpirun, srun and torchrun find each other without an address or a secret from the user."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import poseidon
import pytest
from conftest import FRONT_END, PATIENCE, free_port

WORKER = """
import array, sys
import poseidon
session = poseidon.join(join_timeout=float(sys.argv[1]))
numbers = array.array("q", [1 + session.rank])
session.sum(numbers)
print(f"{session.rank} of {session.workers} has {numbers[0]}", flush=True)
session.leave()
"""


SPAWNED = """
import os, sys
import torch
import poseidon.torch as poseidon

def run(rank, workers, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    poseidon.init()
    print(f"{rank} of {poseidon.workers()} has {int(poseidon.all_reduce(1.0 + rank, 'sum'))}", flush=True)

if __name__ == "__main__":
    torch.multiprocessing.spawn(run, args=(2, int(sys.argv[1])), nprocs=2)
"""


def open_mpi(rank, workers, here):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": workers, "OMPI_COMM_WORLD_LOCAL_SIZE": here,
            "PMIX_NAMESPACE": f"prterun-a-{os.getpid()}@1"}


def hydra(rank, workers, here):
    return {"PMI_RANK": rank, "PMI_SIZE": workers, "MPI_LOCALNRANKS": here}


def srun(rank, workers, here):
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": workers, "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0,
            "SLURM_JOB_NODELIST": "node1" if here == workers else "node[1-2]", "SLURM_TASKS_PER_NODE": f"{here}(x2)",
            "SLURM_NODEID": rank // here}


def torchrun(rank, workers, here):
    """Whose agent holds the port."""
    return {"RANK": rank, "WORLD_SIZE": workers, "LOCAL_WORLD_SIZE": here, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1,
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "one"}


LAUNCHERS = [open_mpi, hydra, srun, torchrun]


@pytest.fixture
def temporary():
    """The temporary folder of the processes, in which nothing may stay; its name is short because sockets of real launchers
    are below it."""
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        yield pathlib.Path(folder)
        left = [str(path) for path in pathlib.Path(folder).glob("poseidon-*/*")]
    assert left == []


@pytest.fixture
def start(temporary, tmp_path):
    """Starts processes, each with variables of its own; they are ended with the test."""
    with contextlib.ExitStack() as stack:
        def begin(variables, seconds=PATIENCE):
            worker = subprocess.Popen([sys.executable, "-B", "-c", WORKER, str(seconds)], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment({**variables, "TMPDIR": temporary}))
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            return worker
        yield begin


def environment(variables):
    ours = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ENVIRONMENT", "POSEIDON_TOKEN_FILE", "POSEIDON_PORT")
    return {**{name: value for name, value in os.environ.items()
               if name not in ours and not name.startswith(("OMPI_", "PMI", "SLURM_", "MASTER_", "TORCHELASTIC_"))},
            "PYTHONPATH": str(FRONT_END), **{name: str(value) for name, value in variables.items()}}


def met(workers):
    """That all have joined and ended well."""
    total = len(workers) * (len(workers) + 1) // 2
    for rank, worker in enumerate(workers):
        output, errors = worker.communicate(timeout=PATIENCE)
        assert (worker.returncode, output) == (0, f"{rank} of {len(workers)} has {total}\n"), errors


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_on_one_host_they_meet(temporary, start, launcher):
    met([start(launcher(rank, 3, 3)) for rank in range(3)])
    folder = temporary / f"poseidon-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_two_jobs_meet_apart(temporary, start):
    jobs = [[start({**srun(rank, 2, 2), "SLURM_STEP_ID": step}) for rank in range(2)] for step in range(2)]
    for workers in jobs:
        met(workers)


def await_note(temporary):
    deadline = time.monotonic() + PATIENCE
    while not (left := list(temporary.glob("poseidon-*/*.address"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return left[0]


def test_what_a_killed_job_left_misleads_nobody(temporary, start):
    killed = start(srun(0, 2, 2))
    left = await_note(temporary)
    host, port, writer = left.read_text().split()
    assert (host, int(writer)) == ("127.0.0.1", killed.pid) and int(port) > 0
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert left.read_text().split() == [host, port, writer]
    met([start(srun(rank, 2, 2)) for rank in range(2)])


def has_network():
    """Whether a way leads to other machines, or the machine's name means an address that is not loopback."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return True
    with contextlib.suppress(OSError):
        return not socket.gethostbyname(socket.gethostname()).startswith("127.")
    return False


def test_several_hosts_meet_beside_the_token(temporary, start, tmp_path):
    if not has_network():
        pytest.skip("needs a machine that others can call")
    token = tmp_path / "job.token"
    poseidon.make_token_file(token)
    met([start({**open_mpi(rank, 2, 1), "POSEIDON_TOKEN_FILE": token}) for rank in range(2)])
    assert list(tmp_path.iterdir()) == [token]


def test_a_rank_without_rank_0_says_where_it_looked(temporary, start):
    alone = start(srun(1, 2, 2), seconds=0.5)
    _, errors = alone.communicate(timeout=PATIENCE)
    assert errors.splitlines()[-1].startswith(
        f"poseidon.errors.PoseidonError: rank 0 has not said in {temporary}/poseidon-{os.geteuid()}/srun-python-")


def test_ctrl_c_ends_the_wait_for_rank_0(temporary, start):
    alone = start(srun(1, 2, 2))
    deadline = time.monotonic() + PATIENCE
    while not list(temporary.glob("poseidon-*")):  # from there on it waits
        assert time.monotonic() < deadline
        time.sleep(0.01)
    alone.send_signal(signal.SIGINT)
    _, errors = alone.communicate(timeout=PATIENCE)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"


def test_rank_0_without_the_others_leaves_nothing(temporary, start):
    alone = start(srun(0, 2, 2), seconds=0.5)
    _, errors = alone.communicate(timeout=PATIENCE)
    assert alone.returncode == 1 and "PoseidonError: " in errors


def test_rank_0_that_is_asked_to_end_leaves_nothing(temporary, start):
    """No secret either: what is left is what the fixture finds."""
    alone = start(srun(0, 2, 2))
    await_note(temporary)
    alone.send_signal(signal.SIGTERM)
    assert alone.wait(PATIENCE) == 128 + signal.SIGTERM


def test_a_note_that_cannot_be_left_ends_rank_0(temporary, start):
    folder = temporary / f"poseidon-{os.geteuid()}"
    folder.mkdir(mode=0o700)
    blocked = folder / f"srun-python-{os.getpid()}-0.address"
    blocked.mkdir()  # where the note should be
    alone = start(srun(0, 2, 2))
    _, errors = alone.communicate(timeout=PATIENCE)
    blocked.rmdir()
    assert errors.splitlines()[-1].startswith(
        f"poseidon.errors.PoseidonError: the other processes cannot be told where to join: cannot write {blocked}")


def test_a_folder_of_somebody_else_is_refused(temporary, start):
    (temporary / f"poseidon-{os.geteuid()}").mkdir(mode=0o755)
    open_to_all = start(srun(0, 2, 2))
    _, errors = open_to_all.communicate(timeout=PATIENCE)
    assert errors.splitlines()[-1].endswith("is not a folder of this user alone, expected mode 0700")


def torchrun_command():
    """The real torchrun of this Python; None where there is none."""
    path = pathlib.Path(sys.executable).with_name("torchrun")
    return [path, "--standalone", "--nproc-per-node", "2"] if path.exists() else None


def mpirun_command():
    path = shutil.which("mpirun")
    if path and "Open MPI" not in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
        return None
    return [path, "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-B"] if path else None


@pytest.mark.parametrize("command", (torchrun_command, mpirun_command))
def test_the_real_launcher(temporary, tmp_path, command):
    words = command()
    if words is None:
        pytest.skip(f"needs {command.__name__.split('_')[0]}")
    (tmp_path / "worker.py").write_text(WORKER)
    done = subprocess.run([*words, "worker.py", str(PATIENCE)], cwd=tmp_path, env=environment({"TMPDIR": temporary}),
                          capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(f"{rank} of 2 has 3") for rank in range(2)] == [1, 1], done.stdout  # lines may mix


def test_processes_that_torch_spawns_meet(temporary):
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    script = temporary / "spawned.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, "-B", script, str(free_port())], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": str(FRONT_END), "TMPDIR": str(temporary)})
    assert (done.returncode, sorted(re.findall(r"\d of \d has \d", done.stdout))) == (0, ["0 of 2 has 3", "1 of 2 has 3"]), done.stderr
