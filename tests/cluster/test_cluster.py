# SPDX-License-Identifier: Apache-2.0
"""The emulated cluster: what it makes is gone afterwards, however it ends; and its gate refuses a
network that is not what it announces. Needs root and iproute2."""
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import background
import calibration
import emulation
from benchmarks import bandwidth, cells
from benchmarks.performance import measure

pytestmark = pytest.mark.skipif(emulation.missing() is not None, reason=str(emulation.missing()))

FOLDER = pathlib.Path(emulation.__file__).parent
UNSHAPED = emulation.Link(rate=None)
# Holds a cluster whose node 0 runs `cat`, says their names, and waits for ever.
OWNER = """
import signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
import emulation
with emulation.Cluster(2, emulation.Link(rate=1e9)) as cluster:
    program = cluster.run(0, ["cat"], stdin=subprocess.PIPE)
    print(cluster.prefix, program.pid, flush=True)
    signal.pause()
"""


def of(prefix):
    return [name for name in emulation.namespaces() if name.startswith(prefix + "-")]


def start_owner():
    """A process that holds a cluster; it, the cluster's prefix and the pid of its program."""
    owner = subprocess.Popen([sys.executable, "-B", "-c", OWNER, FOLDER], stdout=subprocess.PIPE,
                             text=True)
    prefix, pid = owner.stdout.readline().split()
    assert len(of(prefix)) == 3
    return owner, prefix, int(pid)


def cluster_command(*arguments):
    return subprocess.run([sys.executable, "-B", FOLDER / "cluster.py", *map(str, arguments)],
                          capture_output=True, text=True, check=False)


def test_a_program_runs_in_each_node_and_nothing_is_left():
    with emulation.Cluster(3, UNSHAPED) as cluster:
        assert len(of(cluster.prefix)) == 4
        for i, address in enumerate(cluster.addresses):
            program = cluster.run(i, ["ip", "-brief", "address", "show", "dev", "eth0"],
                                  stdout=subprocess.PIPE, text=True)
            assert f"{address}/24" in program.communicate()[0]
        endless = cluster.run(0, ["cat"], stdin=subprocess.PIPE)
    assert endless.returncode == -signal.SIGTERM
    assert of(cluster.prefix) == []


def test_several_programs_run_in_each_node():
    done = cluster_command("run", "--nodes", 2, "--per-node", 2, "--rate", "unshaped", "--ungated", "--",
                           "echo", "{rank} of {workers} in {node} of {nodes} at {address}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{r}] {r} of 4 in {r // 2} of 2 at {emulation.SUBNET}.{r // 2 + 1}" for r in range(4)]


@pytest.mark.skipif(shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
                    reason="Open MPI or mpi4py is not installed")
def test_a_profile_is_played_through_an_mpi(tmp_path):
    layers = [{"name": name, "forward_seconds": 0.001, "backward_seconds": 0.002, "elements": elements,
               "tensors": [{"name": "w", "shape": [elements]}]} for name, elements in (("a", 300_000), ("b", 5))]
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"name": "two", "layers": layers}))
    done = cluster_command("mpi", "--nodes", 2, "--rate", "unshaped", "--ungated", "--", sys.executable, "-B",
                           FOLDER / "mpi_replay.py", "--profile", profile, "--steps", 3, "--warm-up", 1)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for rank in range(2):
        own = [line for line in lines if line["rank"] == rank]
        assert [line["step"] for line in own[:-1]] == [0, 1, 2]
        assert all(line["seconds"] > 0.006 for line in own[:-1])
        assert own[-1]["summary"]["gradient_bytes"] == 4 * 300_005
        assert own[-1]["summary"]["mpi"].startswith("Open MPI")


def test_both_ends_of_every_link_are_shaped():
    with emulation.Cluster(2, emulation.Link(rate=200e6, queue=0.001)) as cluster:
        for where in ((cluster.name(0), "eth0"), (cluster.name(1), "eth0"),
                      (cluster.hub, "port0"), (cluster.hub, "port1")):
            queue = emulation.command(*emulation.inside(where[0]), "tc", "qdisc", "show", "dev", where[1])
            assert "tbf" in queue and "rate 200Mbit" in queue and "lat 1ms" in queue


def test_an_exception_leaves_nothing():
    with pytest.raises(KeyError):
        with emulation.Cluster(2, UNSHAPED) as cluster:
            raise KeyError
    assert of(cluster.prefix) == []


def test_a_cluster_that_cannot_be_made_whole_leaves_nothing():
    cluster = emulation.Cluster(2, UNSHAPED, congestion="no-such")
    with pytest.raises(emulation.Refused, match="no-such"):
        with cluster:
            pass
    assert of(cluster.prefix) == []


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
def test_a_signal_leaves_nothing(number):
    owner, prefix, program = start_owner()
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    assert of(prefix) == []
    assert emulation.started(program) is None


def test_clean_removes_what_a_killed_owner_left_and_nothing_else():
    owner, prefix, program = start_owner()
    with emulation.Cluster(2, UNSHAPED) as mine:
        owner.kill()
        owner.wait()
        owner.stdout.close()
        # The program may end by itself, at the end of its stdin; its namespaces do not.
        assert len(of(prefix)) == 3
        done = cluster_command("clean")
        assert done.returncode == 0
        assert f"removed {prefix}-hub" in done.stdout
        assert of(prefix) == []
        assert emulation.started(program) is None
        assert len(of(mine.prefix)) == 3


@pytest.mark.parametrize("link,nodes,words", (
    (emulation.Link(rate=1e9, burst=64_000), 2, "at least 128000"),
    (emulation.Link(rate=1e9, latency=0.001), 2, "up to 200 Mbit/s"),
    (emulation.Link(rate=1e8, latency=0.001), 5, "up to 4 nodes"),
    (emulation.Link(rate=1e8, queue=0), 2, "queue"),
    (emulation.Link(rate=1e8), 0, "1 to 64"),
))
def test_what_cannot_be_emulated_is_refused_in_a_sentence(link, nodes, words):
    with pytest.raises(emulation.Refused, match=words):
        emulation.Cluster(nodes, link)


@pytest.mark.parametrize("text", ("fast", "1Gbyte", "", "-1Mbit", "1.2.3Gbit", ".Gbit"))
def test_a_rate_that_is_none_is_refused(text):
    with pytest.raises(emulation.Refused, match="expected a number"):
        emulation.parse_rate(text)


@pytest.mark.parametrize("text", ("soon", "5", "5.5.5ms", ".", "-1ms"))
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(emulation.Refused, match="expected a number"):
        emulation.parse_time(text)


@pytest.mark.parametrize("option,value,words", (
    ("--per-node", 0, "1 or more"), ("--per-node", "two", "1 or more"), ("--seconds", 0, "more than 0"),
    ("--seconds", "nan", "more than 0"), ("--background", 1, "a share below 1"),
    ("--json", "/nowhere/report.json", "a folder that can be written"), ("--json", "/", "a folder that can be written")))
def test_an_option_out_of_range_is_refused_before_anything_runs(option, value, words):
    done = cluster_command("run", "--nodes", 2, "--rate", "unshaped", "--ungated", option, value, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: argument {option}: it is '{value}', expected" in done.stderr.splitlines()[-1]
    assert done.stderr.endswith(words + "\n")


def test_a_report_that_cannot_be_written_is_one_sentence():
    done = cluster_command("run", "--nodes", 2, "--rate", "unshaped", "--ungated", "--json", "/proc/report.json", "--",
                           "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("cluster: ") and "/proc/report.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("announced,words", ((200e6, "at least 94%"), (50e6, "at most 102%")))
def test_the_gate_refuses_another_rate_than_the_announced(announced, words):
    with emulation.Cluster(2, emulation.Link(rate=100e6)) as cluster:
        report = calibration.calibrate(cluster, emulation.Link(rate=announced), seconds=0.5)
    assert report["passed"] is False
    assert words in report["reason"]
    with pytest.raises(emulation.Refused, match="no figure is taken on this network"):
        calibration.require(report)


def test_the_gate_measures_latency():
    """The delay stage is there, and the gate refuses a network without it."""
    with emulation.Cluster(2, emulation.Link(rate=50e6, latency=0.010)) as cluster:
        report = calibration.calibrate(cluster, emulation.Link(rate=50e6, latency=0.050), seconds=0.2)
    assert report["round_trip"]["least_seconds"] >= 0.020
    assert "round trip" in calibration.latency_reason(report, emulation.Link(rate=50e6, latency=0.050))
    assert report["passed"] is False


def test_run_replaces_words_and_passes_failures_on():
    done = cluster_command("run", "--nodes", 2, "--rate", "unshaped", "--ungated", "--", "sh", "-c",
                           "echo {rank} of {nodes} at {address}, first {coordinator}; exit {rank}")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["[0] 0 of 2 at 10.77.0.1, first 10.77.0.1",
                                                "[1] 1 of 2 at 10.77.0.2, first 10.77.0.1"]


def test_background_traffic_keeps_to_its_share_and_ends():
    with emulation.Cluster(3, emulation.Link(rate=200e6)) as cluster:
        before = cluster.counters()
        with background.Background(cluster, 0.2) as others:
            cluster.run(0, ["sleep", "1"]).wait()
        pids = [program.pid for program in others.programs]
        sent = emulation.difference(cluster.counters(), before)
    assert [emulation.started(pid) for pid in pids] == [None] * 3
    summary = others.summary()
    # Never more than was asked for; how much less, the machine decides.
    for node, received in zip(sent, summary["received_bytes"]):
        assert 0 < received <= node["received_bytes"]
    assert 0 < summary["arrived_share"] <= 0.2 * 1.05


@pytest.mark.parametrize("link, share, words", [
    (UNSHAPED, 0.2, "the link has none"), (emulation.Link(rate=1e9), 1.5, "between 0 and 1")])
def test_background_traffic_that_cannot_be_is_refused(link, share, words):
    with emulation.Cluster(2, link) as cluster, pytest.raises(emulation.Refused, match=words):
        background.Background(cluster, share)


def test_run_without_a_program_is_one_sentence():
    done = cluster_command("run", "--nodes", 2)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "cluster: no program was named, expected -- PROGRAM ARGS...\n"


def test_a_failing_node_ends_the_others():
    done = cluster_command("run", "--nodes", 2, "--rate", "unshaped", "--ungated", "--", "sh", "-c",
                           "test {rank} = 0 || exit 3; exec sleep 1000")
    assert done.returncode == 1


@pytest.mark.skipif(not measure.REPLAY.exists(), reason="poseidon_replay is not built")
def test_a_job_leaves_the_rest_of_its_links_to_others(tmp_path):
    """By the interfaces' counters, encrypted, over two lanes, from its first byte to its last."""
    cells.token_in(tmp_path)
    job = bandwidth.Job("lanes", "", (*bandwidth.KV, "--wire", "tls", "--lanes", "2"), net="resnet-50")
    # Where this machine stalls, the emulated links carry in bursts. What a job sends beyond its bandwidth is there in every run.
    for _ in range(3):
        most = bandwidth.played(job, tmp_path)["of_bandwidth"]
        if most <= 1:
            break
    assert 0.5 < most <= 1
