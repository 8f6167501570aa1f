# SPDX-License-Identifier: Apache-2.0
"""`poseidon train` started by mpirun, srun or torchrun: it finds its place in their environment. Here
the environment is written by hand, as those programs do, and where one of them is there, by it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import job as jobs

PINNED = ("--scheme", "ip1=sfb", "--scheme", "ip2=kv")
ENDLESS = 10_000_000


def torchrun(rank, size, hosts=1):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size // hosts,
            "MASTER_ADDR": "127.0.0.1" if hosts == 1 else "192.0.2.1", "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": f"process-test-{os.getpid()}"}


def torch_variables(rank, size):
    """The variables that scripts set which start PyTorch by themselves."""
    return {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}


def mpirun(rank, size, hosts=1):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": size // hosts}


def srun(rank, size, hosts=1):
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": size, "SLURM_LOCALID": rank,
            "SLURM_JOB_NODELIST": "node1" if hosts == 1 else f"node[1-{hosts}]",
            "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0}


@pytest.fixture(autouse=True)
def meeting_place(monkeypatch):
    """A temporary folder of the test's own, in which nothing may stay; its name is short because
    sockets of real launchers are below it."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield
        assert not list(pathlib.Path(folder, f"poseidon-{os.geteuid()}").glob("*"))


def text_of(environment):
    return {name: str(value) for name, value in environment.items()}


def start_all(bench, stack, environments, solver, *arguments, **options):
    """One job of as many processes as there are environments, rank 0 last."""
    started = [stack.enter_context(bench.start(
        solver, *arguments, environment=text_of(environment), **options))
        for environment in reversed(environments)]
    return started[::-1]


@pytest.mark.parametrize("launcher", (torchrun, torch_variables, mpirun, srun))
def test_three_processes_train_as_three_workers(bench, launcher):
    solver = bench.solver()
    with contextlib.ExitStack() as stack:
        started = start_all(bench, stack, [launcher(rank, 3) for rank in range(3)], solver, *PINNED)
        assert [one.finish() for one in started] == [0] * 3, [one.err.text for one in started]
    summary = jobs.summary_of(bench.folder / "run")
    assert summary["workers"] == 3 and summary["replicas_equal"] is True
    assert not started[1].out.lines and not started[2].out.lines
    here = bench.train(solver, "--workers", 3, *PINNED, run_dir="here")
    assert summary["weights_hash"] == here.summary["weights_hash"]


def test_the_last_processes_are_servers(bench):
    solver = bench.solver()
    with contextlib.ExitStack() as stack:
        started = start_all(bench, stack, [mpirun(rank, 3) for rank in range(3)], solver,
                            "--servers", 1)
        assert [one.finish() for one in started] == [0] * 3, [one.err.text for one in started]
    summary = jobs.summary_of(bench.folder / "run")
    assert summary["workers"] == 2 and summary["servers"] == 1


def test_a_killed_process_is_named_by_the_others(bench):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS)
    with contextlib.ExitStack() as stack:
        started = start_all(bench, stack, [mpirun(rank, 3) for rank in range(3)], solver)
        assert started[0].out.wait(r"^iteration 10,")
        # They listen for each other, on loopback.
        sockets = jobs.listening_sockets([one.pid for one in started])
        assert len(sockets) == 3 and {address for address, _ in sockets} == {"127.0.0.1"}
        started[1].process.send_signal(signal.SIGKILL)
        assert started[0].finish() == 3 and started[2].finish() == 3
    for one in (started[0], started[2]):
        assert "worker 1 on host" in one.err.lines[-1]


def test_one_signal_stops_all_with_a_snapshot(bench):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS,
                          snapshot_prefix=bench.folder / "snap")
    with contextlib.ExitStack() as stack:
        started = start_all(bench, stack, [srun(rank, 2) for rank in range(2)], solver)
        assert started[0].out.wait(r"^iteration 10,")
        started[1].process.send_signal(signal.SIGTERM)
        assert [one.finish() for one in started] == [0, 0], [one.err.text for one in started]
    assert len(list(bench.folder.glob("snap_iter_*.solverstate"))) == 1


@pytest.mark.parametrize("launcher", (torchrun, mpirun, srun))
def test_what_the_user_says_counts_for_more(bench, launcher):
    """In an allocation, or by mistake, every process is a job of its own."""
    done = bench.train(bench.solver(), "--workers", 2,
                       environment=text_of(launcher(1, 3)))
    assert done.summary["workers"] == 2


def one_sentence(bench, environment, *arguments):
    done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), arguments, "bad-run"),
                    cwd=bench.folder, environment=text_of(environment))
    assert done.code == 1
    assert len(done.err.lines) == 1 and done.err.lines[0].startswith("poseidon: "), done.err.text
    return done.err.lines[0]


@pytest.mark.parametrize("launcher", (torchrun, mpirun, srun))
def test_several_hosts_need_a_token_file(bench, launcher):
    sentence = one_sentence(bench, launcher(1, 4, hosts=2))
    assert "--token-file" in sentence and launcher.__name__ in sentence


def test_numbers_that_are_none_are_named(bench):
    assert "OMPI_COMM_WORLD_RANK is '7'" in one_sentence(bench, {**mpirun(0, 3),
                                                                 "OMPI_COMM_WORLD_RANK": 7})
    assert "--servers 3" in one_sentence(bench, mpirun(0, 3), "--servers", 3)


def test_every_process_finds_the_mistake(bench):
    with contextlib.ExitStack() as stack:
        started = start_all(bench, stack, [mpirun(rank, 2) for rank in range(2)],
                            bench.solver(net="no-net.prototxt"))
        assert [one.finish() for one in started] == [1, 1]
    assert all("no-net.prototxt" in one.err.text for one in started)


def torchrun_command():
    """The real torchrun of this Python; None where there is none."""
    path = pathlib.Path(sys.executable).with_name("torchrun")
    return [path, "--standalone", "--no-python", "--nproc-per-node", "2"] if path.exists() else None


def mpirun_command():
    path = shutil.which("mpirun")
    return [path, "--allow-run-as-root", "--oversubscribe", "-n", "2"] if path else None


@pytest.mark.parametrize("command", (torchrun_command, mpirun_command))
def test_the_real_launcher(bench, command):
    words = command()
    if words is None:
        pytest.skip(f"needs {command.__name__.split('_')[0]}")
    done = subprocess.run([*words, bench.poseidon,
                           *map(str, bench.arguments(bench.solver(), PINNED, "run"))],
                          cwd=bench.folder, capture_output=True, text=True, check=False,
                          timeout=jobs.PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = jobs.summary_of(bench.folder / "run")
    assert summary["workers"] == 2 and summary["replicas_equal"] is True
