# SPDX-License-Identifier: Apache-2.0
"""Hosts without a fault, and each of the planted faults: what the doctor says of them."""
import os
import re
import signal
import sys
import time

import pytest

import doctor
import job as jobs
import machines

pytestmark = pytest.mark.skipif(machines.missing() is not None, reason=str(machines.missing()))


def test_healthy_hosts_are_well(clinic):
    run = clinic.examine()
    assert (run.code, run.findings) == (0, [])
    assert run.output.splitlines()[-1].startswith("all well: 3 hosts, ")
    assert "poseidon run --hosts a,b,c" in run.output.splitlines()[-1]
    assert len(run.report["pairs"]) == 6
    for pair in run.report["pairs"]:
        # What the shaper lets through: 200 Mbit/s with headers; a busy machine moves less.
        assert 5e6 < pair["rate"] < 200e6 / 8, pair
        assert 0 < pair["round_trip"] < 0.1
        assert pair["mtu"] == 1500
        assert pair["route"]["interface"] == "eth0" and pair["route"]["why"] == "10.209.0.0/24 is on it"


# ---- the ten planted faults

@pytest.mark.parametrize("clinic", [2], indirect=True)
@pytest.mark.parametrize("port", [29600, None])
def test_a_closed_port_is_found(clinic, port):
    """A firewall on b drops what other hosts send to its ports; ssh still works."""
    clinic.close_ports(1, *((port, port) if port else (32768, 60999)))
    run = clinic.examine(*(["--port", port] if port else []))
    assert run.code == 1
    sentence = run.sentence("closed-port")
    if port:
        assert run.kinds == {("closed-port", "host b")}
        assert "port 29600 there get no answer" in sentence and "open TCP port 29600 there" in sentence
        assert run.output.splitlines()[-1] == "do this first, host b: open TCP port 29600 there for the other hosts"
    else:  # replies to b's own connections are dropped as well
        assert run.kinds == {("closed-port", "hosts a and b")}
        assert "open TCP ports 32768 to 60999 there" in sentence


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_another_version_is_found(clinic):
    """b's Python finds another distribution of poseidon first."""
    clinic.restart(1, clinic.settings(PYTHONPATH=clinic.another_version("0.0.9")))
    run = clinic.examine()
    # The planted package has no library of its own beside it, and the one that POSEIDON_LIBRARY names is of this version.
    assert (run.code, run.kinds) == (1, {("version", "host b"), ("library", "host b")})
    assert "poseidon 0.0.9 is there, expected 0.1.0" in run.sentence("version")


def test_a_slow_link_is_found(clinic):
    clinic.shape(1, "20mbit")
    run = clinic.examine()
    assert (run.code, run.kinds) == (1, {("slow-link", "host b")})
    sentence = run.sentence("slow-link")
    numbers = [float(number) for number in re.findall(r"([\d.]+) Mbit/s", sentence)]
    assert len(numbers) == 4 and max(numbers[:2]) < 25 < 40 < min(numbers[2:]), sentence
    assert "ethtool eth0" in sentence


def test_a_black_hole_is_found(clinic):
    """A router between b and c drops packets of more than 1386 bytes and says nothing."""
    clinic.route_apart(1, 2, largest=1386)
    run = clinic.examine()
    assert (run.code, run.kinds) == (1, {("black-hole", "hosts b and c")})
    assert "packets of 1400 bytes vanish on the way, those of 1380 arrive" in run.sentence("black-hole")
    assert "ip link set eth0 mtu 1380" in run.sentence("black-hole")
    assert {pair["mtu"] for pair in run.report["pairs"] if pair["black_hole"]} == {1380}
    assert all(pair["rate"] > 1e6 for pair in run.report["pairs"])


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_black_hole_in_which_ssh_hangs_is_found(clinic):
    """b's link drops packets of more than 1386 bytes, those of ssh's exchange of keys too."""
    clinic.shape(1, "100mbit", 1386 + doctor.ETHERNET)
    run = clinic.examine("--timeout", 12)
    assert (run.code, run.kinds) == (1, {("black-hole", "hosts a and b")})
    assert "ip link set eth0 mtu 1380 there" in run.sentence("black-hole")
    assert run.report["hosts"][1]["narrow"] is True


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_without_our_key_is_found(clinic):
    empty = clinic.scratch / "no_keys"
    empty.write_text("")
    clinic.restart(1, clinic.settings() + f"\nMatch all\nAuthorizedKeysFile {empty}")
    run = clinic.examine()
    assert (run.code, run.kinds) == (1, {("unreached", "host b")})
    assert run.sentence("unreached") == "host b: ssh refuses this user's keys (publickey): copy a key there: ssh-copy-id b"


@pytest.mark.parametrize("clinic", [2], indirect=True)
@pytest.mark.parametrize("use", ["working directory", "temporary folder"])
def test_a_full_disk_is_found(clinic, use):
    where = clinic.work if use == "working directory" else clinic.scratch / "tmp"
    where.mkdir(exist_ok=True)
    variables = {} if use == "working directory" else {"TMPDIR": where}
    fill = f"mount -t tmpfs -o size=1m none {where} && {{ head -c 2M /dev/zero >{where}/full 2>/dev/null || true; }}"
    clinic.restart(1, clinic.settings(**variables), clinic.dressed(1, first=fill))
    run = clinic.examine()
    assert (run.code, run.kinds) == (1, {("disk", "host b")})
    assert f"the {use} {where} has 0 MiB free" in run.sentence("disk")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_too_few_descriptors_are_found(clinic):
    clinic.restart(1, before=(*clinic.dressed(1), "prlimit", "--nofile=200:200"))
    run = clinic.examine(hosts="a:2,b:2")
    assert (run.code, run.kinds) == (1, {("descriptors", "host b")})
    assert "only 200 open files are allowed, expected at least 272 for 4 workers" in run.sentence("descriptors")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_name_that_means_loopback_where_the_job_starts_is_found(clinic):
    wrong = clinic.write_hosts(clinic.scratch / "wrong_hosts", b="127.0.1.1")
    run = clinic.examine("--timeout", 10, hosts_file=wrong)
    assert (run.code, run.kinds) == (1, {("loopback-name", "host b")})
    assert "its name means the loopback address 127.0.1.1" in run.sentence("loopback-name")
    assert run.output.splitlines()[-1].startswith("do this first, host b: remove the name from the line of 127.0.0.1")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_name_that_means_loopback_on_another_host_is_found(clinic):
    wrong = clinic.write_hosts(clinic.scratch / "wrong_hosts", a="127.0.1.1")
    clinic.restart(1, before=clinic.dressed(1, wrong))
    run = clinic.examine()
    assert (run.code, run.kinds) == (1, {("loopback-name", "host b")})
    assert "the name of host a means the loopback address 127.0.1.1, expected 10.209.0.1" in run.sentence("loopback-name")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_another_token_is_found_and_nobody_sees_it(clinic):
    for letter, digits in (("a", "5e" * 32), ("b", "7c" * 32)):
        file = clinic.scratch / f"token_{letter}"
        file.write_text(digits + "\n")
        file.chmod(0o600)
    clinic.restart(1, clinic.settings(POSEIDON_TOKEN_FILE=clinic.scratch / "token_b"))
    run = clinic.examine(POSEIDON_TOKEN_FILE=str(clinic.scratch / "token_a"))
    assert (run.code, run.kinds) == (1, {("token", "host b")})
    assert "token_b holds another token than on host a" in run.sentence("token")
    said = run.output + run.errors + (clinic.scratch / "report.json").read_text()
    assert "5e5e" not in said and "7c7c" not in said and "mark" not in said


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_missing_torch_is_found(clinic):
    """b's interpreter sees no installed packages. The path is the same, as with --python it has to be."""
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    python = clinic.scratch / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} $PYTHON_FLAGS "$@"\n')
    python.chmod(0o755)
    clinic.restart(1, clinic.settings(PYTHON_FLAGS="-S"))
    run = clinic.examine("--python", python)
    assert (run.code, run.kinds) == (1, {("framework", "host b")})
    assert re.search(r"torch is missing there, other hosts have [\d.]+.*: pip install torch==[\d.]+$", run.sentence("framework"))


# ---- what else can be wrong, and how it ends

@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_without_poseidon_is_found(clinic):
    clinic.restart(1, clinic.settings(PYTHONPATH="/nowhere"))
    run = clinic.examine()
    assert run.code == 1
    assert run.sentence("unreached") == ("host b: python there has no poseidon with a doctor, expected the same wheel: "
                                         "pip install poseidon_train-*.whl")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_without_the_working_directory_is_found(clinic):
    clinic.restart(1, before=clinic.dressed(1, first=f"mount -t tmpfs none {clinic.work}"))
    clinic.work = clinic.work / "mine"
    clinic.work.mkdir()
    run = clinic.examine()
    assert run.code == 1
    assert "the working directory does not exist there" in run.sentence("unreached")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_without_the_interpreter_is_found(clinic):
    python = clinic.scratch / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    clinic.restart(1, before=clinic.dressed(1, first=f"mount -t tmpfs none {python.parent}"))
    run = clinic.examine("--python", python)
    assert run.code == 1
    assert "there is no such python" in run.sentence("unreached")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_without_sshd_is_found(clinic):
    clinic.stop(clinic.started[1])
    run = clinic.examine()
    assert run.code == 1
    assert "nothing listens at its ssh port" in run.sentence("unreached")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_a_host_that_does_not_answer_is_found(clinic):
    clinic.close_ports(1, 1, 65534)
    run = clinic.examine("--timeout", 6)
    assert (run.code, run.kinds) == (1, {("unreached", "host b")})
    assert run.sentence("unreached").startswith("host b: ssh does not reach it (port 22: timed out)")


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_every_host_listens_at_its_own_address_alone(clinic):
    until = time.monotonic() + jobs.PATIENCE
    with clinic.start_doctor() as job:
        while len(listening := jobs.listening_sockets(doctor.agents_in(clinic.work))) < 2:
            assert time.monotonic() < until and job.process.poll() is None, job.err.text
        assert sorted(address for address, _ in listening) == clinic.addresses
        assert job.finish() == 0, job.out.text


@pytest.mark.parametrize("clinic", [2], indirect=True)
def test_an_ssh_that_hangs_does_not_outlive_its_doctor(clinic):
    """It would read the end of its input only after its exchange of keys."""
    clinic.shape(1, "100mbit", 1386 + doctor.ETHERNET)
    until = time.monotonic() + jobs.PATIENCE
    with clinic.start_doctor() as job:
        while not (hanging := [pid for pid in jobs.children_of(job.pid) if doctor.name_of(pid) == "ssh"]):
            assert time.monotonic() < until and job.process.poll() is None, job.err.text
        [ending] = [jobs.Ending(pid) for pid in hanging]
        os.kill(job.pid, signal.SIGKILL)
        left = jobs.wait_for_ends([ending], time.monotonic() + 10)  # sshd lets go after 120 s
        for each in left:
            os.kill(each.pid, signal.SIGKILL)
        assert not left
        ending.close()


@pytest.mark.parametrize("clinic", [2], indirect=True)
@pytest.mark.parametrize("signalled", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_agent_outlives_its_doctor(clinic, signalled):
    with clinic.start_doctor() as job:
        until = time.monotonic() + jobs.PATIENCE
        while len(agents := doctor.agents_in(clinic.work)) < 2:
            assert time.monotonic() < until and job.process.poll() is None, job.err.text
        endings = [jobs.Ending(pid) for pid in agents]
        began = time.monotonic()
        os.kill(job.pid, signalled)
        code = job.finish()
        took = time.monotonic() - began
        assert code == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}[signalled]
        assert not jobs.wait_for_ends(endings, began + jobs.PATIENCE)
        for ending in endings:
            ending.close()
    print(f"the doctor ended {took:.3f} s after the signal")
    assert took < 1 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
    assert job.err.text == ("poseidon: stopped" if signalled == signal.SIGINT else "")
    assert not (clinic.scratch / "report.json").exists()
