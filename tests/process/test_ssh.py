# SPDX-License-Identifier: Apache-2.0
"""Several machines: network namespaces joined by a bridge, a real sshd in each, and `poseidon train
--hosts` from the first. Needs root, iproute2 and sshd."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import job as jobs
from machines import Machines, inside, ip_in, missing, place_for_sshd

ENDLESS = 10_000_000
PINNED = ("--scheme", "ip1=sfb", "--scheme", "ip2=kv")


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def options(bench, machines, slots=1):
    """Options of a job that is started on the first machine."""
    return (["--hosts", machines.hosts(slots), "--workers", slots * len(machines.addresses), "--ssh",
             f"ssh -F {machines.client}", "--program", bench.poseidon],
            {"wrapper": inside(machines.name(0))})


@pytest.fixture
def machines(tmp_path, request):
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(place_for_sshd())
        folder = tmp_path / "ssh"
        folder.mkdir(mode=0o700)
        yield Machines(folder, getattr(request, "param", 2), cleanup)


def member_processes(bench):
    """All `poseidon member` processes that run in the bench's folder, by namespace address."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(bench.folder):
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if words[:2] == [bench.poseidon.encode(), b"member"]:
                    found.append(int(entry))
    return found


@pytest.mark.parametrize("machines,slots,servers", ((2, 1, 0), (2, 2, 1), (3, 1, 0)),
                         indirect=("machines",))
def test_machines_train_as_one_machine_does(bench, machines, slots, servers):
    arguments, how = options(bench, machines, slots)
    workers = slots * len(machines.addresses)
    solver = bench.solver()
    spread = bench.train(solver, *arguments, "--servers", servers, *PINNED, run_dir="spread", **how)
    assert spread.summary["workers"] == workers
    assert spread.summary["replicas_equal"] is True
    assert spread.summary["traffic"]["encryption_bytes_sent"] > 1000
    for entry in spread.summary["plan"]:
        assert entry["whole_bytes"] == entry["predicted_bytes"], entry
    here = bench.train(solver, "--workers", workers, "--servers", servers, *PINNED, run_dir="here")
    assert spread.summary["weights_hash"] == here.summary["weights_hash"]
    assert not member_processes(bench)


def start_endless(bench, machines, *more, **words):
    arguments, how = options(bench, machines)
    how.update(words)
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS,
                          snapshot_prefix=bench.folder / "snap")
    return bench.start(solver, *arguments, *PINNED, *more, **how)


def test_members_listen_on_their_own_address_and_end_with_the_launcher(bench, machines):
    with start_endless(bench, machines) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        members = member_processes(bench)
        assert len(members) == 2
        addresses = sorted(address for address, _ in jobs.listening_sockets(members))
        assert addresses == machines.addresses
        endings = [jobs.Ending(pid) for pid in members]
        os.kill(job.pid, signal.SIGKILL)
        assert not jobs.wait_for_ends(endings, time.monotonic() + 10)
    assert not member_processes(bench)


def test_the_other_machine_looks_for_libraries_where_this_one_does(bench, machines):
    with start_endless(bench, machines, environment={"LD_LIBRARY_PATH": "/nowhere/it's here"}) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        members = member_processes(bench)
        assert len(members) == 2
        for pid in members:
            assert b"LD_LIBRARY_PATH=/nowhere/it's here" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_sigterm_at_the_launcher_reaches_the_other_machine(bench, machines):
    with start_endless(bench, machines) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0, job.err.text
    assert len(list(bench.folder.glob("snap_iter_*.solverstate"))) == 1
    assert not member_processes(bench)


def test_a_member_on_another_machine_tells_how_it_does(bench, machines):
    """The launcher's port is on its own machine, and has the steps of both."""
    scrape = [*inside(machines.name(0)), sys.executable, "-c",
              "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9400/metrics').read().decode())"]
    with start_endless(bench, machines, "--metrics-port", 9400) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        deadline = time.monotonic() + jobs.PATIENCE
        there = f'rank="1",host="{machines.addresses[1]}"'
        while not re.search(rf"^poseidon_steps_total\{{{there}\}} [1-9]", subprocess.run(scrape, capture_output=True, text=True).stdout, re.MULTILINE):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert ("127.0.0.1", 9400) in jobs.listening_sockets([job.pid])
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0, job.err.text


def test_a_killed_member_on_another_machine_is_named(bench, machines):
    with start_endless(bench, machines) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        (victim,) = [pid for pid in member_processes(bench)
                     if jobs.listening_sockets([pid]) and
                     next(iter(jobs.listening_sockets([pid])))[0] == machines.addresses[1]]
        os.kill(victim, signal.SIGKILL)
        assert job.finish() == 3
    assert f"worker 1 on host {machines.addresses[1]}" in job.err.lines[-1]
    assert not member_processes(bench)


def test_a_machine_that_vanishes_is_named(bench, machines):
    """No reset, no end of stream: only silence."""
    with start_endless(bench, machines, "--dead-after", 5) as job:
        assert job.out.wait(r"^iteration 10,"), job.err.text
        endings = [jobs.Ending(pid) for pid in member_processes(bench)]
        began = time.monotonic()
        ip_in(machines.name("hub"), "link", "set", "port1", "down")
        assert job.finish() == 3
        took = time.monotonic() - began
        print(f"the job ended {took:.3f} s after the machine had vanished")
        assert f"worker 1 on host {machines.addresses[1]}" in job.err.lines[-1]
        assert took < 5 + 2
        # The lost machine's member finds itself alone and ends as well.
        assert not jobs.wait_for_ends(endings, began + 30)
    assert not member_processes(bench)


@pytest.mark.parametrize("master", (True, False))
def test_processes_of_a_launcher_on_two_machines(bench, machines, master):
    """As mpirun would start them, one a machine: they meet at MASTER_ADDR, or by a file beside the
    token's, in the folder that both see."""
    token = bench.write("token", "5e" * 32)
    token.chmod(0o600)
    solver = bench.solver()
    with contextlib.ExitStack() as stack:
        started = []
        for rank in (1, 0):
            environment = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
                           "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
            if master:
                environment.update(MASTER_ADDR=machines.addresses[0], MASTER_PORT="29500")
            else:
                # Rank 0 derives its address from its default route.
                ip_in(machines.name(str(rank)), "route", "add", "default", "via",
                   machines.addresses[1 - rank])
            started.append(stack.enter_context(bench.start(
                solver, *PINNED, "--token-file", token, environment=environment,
                wrapper=inside(machines.name(rank)))))
        assert [one.finish() for one in started] == [0, 0], [one.err.text for one in started]
    summary = jobs.summary_of(bench.folder / "run")
    assert summary["workers"] == 2 and summary["replicas_equal"] is True
    assert summary["traffic"]["encryption_bytes_sent"] > 1000
    assert not list(bench.folder.glob("token.*"))


@pytest.fixture
def run(poseidon, machines, tmp_path):
    """`poseidon run` on the machines, begun on the first one."""
    def begin(*arguments, environment=None, program=poseidon):
        return jobs.Job(poseidon, "run", "--hosts", machines.hosts(), "--ssh", f"ssh -F {machines.client}", "--program",
                        program, *arguments, cwd=tmp_path, environment=environment, wrapper=inside(machines.name(0)))
    return begin


def family_of(machines):
    """The processes that sshd of the second machine has started, but for its own."""
    return [pid for pid in jobs.descendants_of(machines.daemons[1].pid)
            if b"sshd" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_ranks_run_on_their_machines(run, machines, tmp_path):
    with run("--env", "WORD=it's", "sh", "-c",
             "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT $WORD $PATH; pwd; "
             "ip -4 -br address show eth0", environment={"PATH": os.environ["PATH"] + ":/elsewhere"}) as job:
        assert job.finish() == 0, job.err.text
    first, second = machines.addresses
    [port] = {line.split()[6] for line in job.out.lines if first in line and "it's" in line}
    path = os.environ["PATH"] + ":/elsewhere"
    for rank, own in enumerate(machines.addresses):
        lines = [line for line in job.out.lines if line.startswith(f"[{rank}]")]
        assert lines[:2] == [f"[{rank}] {rank} 0 1 {rank} {first} {port} it's {path}", f"[{rank}] {tmp_path}"]
        assert f"{own}/24" in lines[2]
    assert second not in (line.split()[5] for line in job.out.lines if "it's" in line)
    assert not family_of(machines)


MEET = """
import array, poseidon
session = poseidon.join(wire="tls")
numbers = array.array("d", [1 + session.rank])
session.sum(numbers)
statistics = session.statistics()
print(session.member_name(1 - session.rank), numbers[0], flush=True)
session.leave()
"""


def test_ranks_of_two_machines_meet(run, machines, poseidon):
    root = pathlib.Path(__file__).resolve().parents[2]
    environment = {"PYTHONPATH": f"{root}/frontends/python",
                   "POSEIDON_LIBRARY": str(pathlib.Path(poseidon).parents[1] / "poseidon/c/libposeidon.so")}
    with run(sys.executable, "-B", "-c", MEET, environment=environment) as job:
        assert job.finish() == 0, job.err.text
    first, second = machines.addresses
    assert sorted(job.out.lines) == [f"[0] worker 1 on host {second} 3.0", f"[1] worker 0 on host {first} 3.0"]


@pytest.mark.parametrize("victim", ("launcher", "agent", "command"))
def test_no_rank_outlives_its_parent_on_another_machine(run, machines, victim):
    with run("bash", "-c", "setsid sleep 300 & echo ready; sleep 300; :") as job:
        assert job.out.wait("ready", 2), job.err.text
        family = family_of(machines)
        endings = [jobs.Ending(pid) for pid in family]
        by_name = {pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1]: pid for pid in reversed(family)}
        began = time.monotonic()
        os.kill({"launcher": job.pid, "agent": by_name[b"rank"], "command": by_name[b"-c"]}[victim], signal.SIGKILL)
        assert job.finish() == {"launcher": -9, "agent": 255, "command": 137}[victim], job.err.text
        assert time.monotonic() - began < 5
        assert not jobs.wait_for_ends(endings, began + 10)
        for ending in endings:
            ending.close()
    if victim != "launcher":
        assert f"rank 1 on host {machines.addresses[1]}" in job.err.lines[-1]


def test_a_program_that_another_machine_lacks_is_one_sentence(run, machines):
    with run("true", program="/nonexistent/poseidon") as job:
        assert job.finish() == 127
    assert job.err.lines[-1] == (f"poseidon: rank 0 on host {machines.addresses[0]} could not be started: "
                                 "ssh exited with code 127")


def test_ssh_that_refuses_our_key_is_one_sentence(bench, machines):
    (machines.folder / "authorized_keys").write_text("")
    with start_endless(bench, machines) as job:
        assert job.finish() == 1
    sentences = [line for line in job.err.lines if line.startswith("poseidon: ")]
    assert len(sentences) == 1
    assert f"worker 0 on host {machines.addresses[0]}" in sentences[0]
    assert "ssh" in sentences[0]
    assert not member_processes(bench)
