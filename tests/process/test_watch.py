# SPDX-License-Identifier: Apache-2.0
"""`--watch` and `--metrics-port`: how the ranks of a running job do, on a terminal, in a log and for Prometheus."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import stat
import sys
import time
import urllib.error
import urllib.request

import pytest

import job as jobs
from ports import free_port
from screen import Screen, TerminalJob

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}/frontends/python"}
ENDLESS = 10_000_000
HEAD = re.compile(r"^ *rank .*steps/s", re.MULTILINE)
SAMPLE = re.compile(r'^(poseidon_[a-z_]+)\{rank="([^"]+)",host="([^"]+)"(?:,reason="([a-z_]+)")?\} ([0-9.e+-]+)$')

LINE = "<" + "=" * 40 + ">"
# Trains for ever; of each step rank 1 computes 30 ms longer. Every line it prints is alike.
SCRIPT = """
import os, sys, time
import torch
import poseidon.torch as poseidon
model = torch.nn.Linear(64, 64)
model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
late = 0.03 if poseidon.rank() == 1 else 0.0
step = 0
while True:
    step += 1
    time.sleep(0.02 + late)
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
    if step % 3 == 0:
        print("\\x1b[31m<" + "=" * 40 + ">", flush=True)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def row_of(rows, rank):
    [row] = [row for row in rows[heads(rows)[-1]:] if re.match(rf" *{rank} ", row)]
    return row


def heads(rows):
    return [at for at, row in enumerate(rows) if HEAD.match(row)]


@pytest.mark.skipif(bool(os.environ.get("POSEIDON_SANITIZE")), reason="a sanitizer wants to be the first library")
def test_a_table_stays_below_what_the_ranks_of_a_script_print(poseidon, script):
    with TerminalJob(poseidon, "run", "-n", 2, "--watch", sys.executable, "-B", script, cwd=script.parent, environment=ENVIRONMENT,
                     columns=120, rows=20) as job:
        job.wait_for(r"^ +1 .* slow: computes [0-9.]+ ms a step, median [0-9.]+ ms$")
        rows = job.rows()
        assert len(heads(rows)) == 1
        assert re.fullmatch(r" +0 \S+ +\d+ +[0-9.]+ +[0-9.]+ kB +[0-9.]+ kB +\d+ % +\d+ % +\d+ % +\d+ %", row_of(rows, 0)), rows
        assert re.match(r"poseidon: 2 of 2 up, step \d+, [0-9.]+ steps/s, [0-9.]+ kB/s in all$", rows[heads(rows)[0] - 1])
        job.resize(50, 12)
        job.wait_for(r"^rank step steps/s( hidden)? for slower$")
        assert len(heads(job.rows())) == 1 and max(map(len, job.rows()[heads(job.rows())[0]:])) < 50
        job.resize(140, 30)
        job.wait_for(r"^rank host .*for slower$")
        assert len(heads(job.rows())) == 1
        job.press(b"\x03")
        assert job.finish() == 130
        rows = job.screen.rows
        assert rows[-2:] == ["poseidon: stopped by SIGINT", ""], rows[-5:]
        assert len(heads(rows)) == 1 and (job.screen.row, job.screen.column) == (len(rows) - 1, 0)
        lines = [row for row in rows if "<=" in row]
        assert {line[:4] for line in lines} == {"[0] ", "[1] "} and {line[4:] for line in lines} == {LINE}, lines
        assert "33" in job.screen.colours  # the slow rank's


def test_a_rank_that_is_killed_is_named_last(poseidon, tmp_path):
    with TerminalJob(poseidon, "run", "-n", 3, "--watch", "--log-dir", "logs", "sh", "-c", "echo begun; exec sleep 1000", cwd=tmp_path,
                     rows=12, environment={"NO_COLOR": "1"}) as job:
        job.wait_for(r"^ +2 .* has not joined a job so far$")
        deadline = time.monotonic() + jobs.PATIENCE
        logs = [tmp_path / f"logs/rank-{rank}.log" for rank in range(3)]
        while [log.read_text() for log in logs] != ["begun\n"] * 3 or not (sleeping := [pid for pid in jobs.descendants_of(job.pid) if command_of(pid)[:1] == ["sleep"] and rank_of(pid) == "1"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(sleeping[0], signal.SIGKILL)
        assert job.finish() == 137
        rows = job.screen.rows
        assert row_of(rows, 1).endswith(" exited with code 137"), rows
        assert rows[-2:] == ["poseidon: rank 1 was killed by signal 9 (Killed)", ""], rows[-5:]
        assert job.screen.colours == []
    assert [log.read_text() for log in logs] == ["begun\n"] * 3


def command_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def rank_of(pid):
    with contextlib.suppress(OSError):
        found = re.search(rb"(?:^|\0)RANK=(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        return found and found[1].decode()


def scraped(port):
    """The samples at the port: {(metric, rank, reason): (value, host)}."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=jobs.PATIENCE) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.read().decode().splitlines()
    samples = [SAMPLE.match(line) for line in lines if not line.startswith("# ")]
    return {(found[1], found[2], found[4]): (float(found[5]), found[3]) for found in samples}


def scraped_when(port, condition):
    deadline = time.monotonic() + jobs.PATIENCE
    while True:
        try:
            samples = scraped(port)
            if condition(samples):
                return samples
        except urllib.error.URLError:  # nobody listens so far
            samples = {}
        assert time.monotonic() < deadline, samples
        time.sleep(0.1)


def trains(workers):
    return lambda samples: all(samples.get(("poseidon_step_seconds_count", str(rank), None), (0,))[0] > 0 for rank in range(workers))


def endless(bench):
    return bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, snapshot_prefix=bench.folder / "snap")


def test_the_trainer_has_the_table_and_its_progress_below(bench):
    port = free_port()
    arguments = bench.arguments(endless(bench), ("--workers", 2, "--servers", 1, "--watch", "--metrics-port", port), "run")
    with TerminalJob(bench.poseidon, *arguments, cwd=bench.folder, columns=130) as job:
        job.wait_for(r"^ +1 \S+ +\d+ ")
        samples = scraped_when(port, trains(2))
        job.wait_for(r"^server 0 \S+ +0 +0.00 ")
        job.wait_for(r"^server 0 .*\niteration \d+.*loss")
        assert samples["poseidon_up", "server 0", None][0] == 1
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0
        rows = job.screen.rows
        assert len(heads(rows)) == 1 and rows[-1] == "" and rows[-2].startswith("server 0 "), rows[-5:]
    assert len(list(bench.folder.glob("snap_iter_*.solverstate"))) == 1


def ssh_to_here(bench):
    script = bench.write("ssh", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec /bin/sh -c \"$*\"\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_the_launcher_serves_the_ranks_of_all_hosts(bench):
    port = free_port()
    with bench.start(endless(bench), "--hosts", "127.0.0.2:1,127.0.0.3:1", "--workers", 2, "--ssh", ssh_to_here(bench),
                     "--metrics-port", port) as job:
        before = scraped_when(port, trains(2))
        after = scraped_when(port, lambda now: trains(2)(now) and now["poseidon_steps_total", "1", None] > before["poseidon_steps_total", "1", None])
        assert {key[0] for key in after} == {
            "poseidon_up", "poseidon_steps_total", "poseidon_sent_bytes_total", "poseidon_received_bytes_total", "poseidon_step_seconds_sum",
            "poseidon_step_seconds_count", "poseidon_wait_seconds_total", "poseidon_hidden_ratio", "poseidon_link_bytes_per_second", "poseidon_slow"}
        for (metric, rank, reason), (value, host) in after.items():
            assert host == {"0": "127.0.0.2", "1": "127.0.0.3"}[rank]
            if re.search("_(total|sum|count)$", metric):
                assert value >= before.get((metric, rank, reason), (0,))[0]
        listening = {address for address in jobs.listening_sockets([job.pid])}
        assert listening == {("127.0.0.1", port)}
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0, job.err.text
    # What it says of waiting and of bytes is what the run's own account says.
    summary = jobs.summary_of(bench.folder / "run")
    assert after["poseidon_sent_bytes_total", "0", None][0] <= summary["traffic"]["wire_bytes_sent"] * 1.01, summary["traffic"]


def test_a_log_has_a_line_now_and_then(bench):
    with bench.start(endless(bench), "--workers", 2, "--watch", "--log", "poseidon") as job:
        assert job.err.wait(r"^notice: step \d+, [0-9.]+ steps/s, [0-9.]+ MB/s sent in all, at least \d+ % of the communication hidden"), job.err.text
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0
    assert "\x1b" not in job.err.text + job.out.text and "steps/s" not in job.out.text


def test_a_worker_that_stands_still_is_waited_for(bench):
    arguments = bench.arguments(endless(bench), ("--workers", 3, "--watch"), "run")
    with TerminalJob(bench.poseidon, *arguments, cwd=bench.folder, columns=160, environment={"NO_COLOR": "1"}) as job:
        job.wait_for(r"^ +2 \S+ +\d{2,} ")
        stopped = jobs.children_of(job.pid)[1]
        os.kill(stopped, signal.SIGSTOP)
        job.wait_for(r"^ +0 .* waits for rank 1: (the|its) .* step \d+$")
        job.wait_for(r"^ +2 .* waits for rank 1: (the|its) .* step \d+$")
        job.wait_for(r"^ +1 .* slow: has said nothing for \d+ s$")
        os.kill(stopped, signal.SIGCONT)
        job.wait_for(r"^ +0 .* \d+ %$")  # no remark
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0
        assert job.screen.colours == []


def test_a_command_that_joins_no_job_says_so_in_its_row(poseidon, tmp_path):
    with TerminalJob(poseidon, "run", "-n", 3, "--watch", "sh", "-c", "echo begun; sleep 2; test $RANK != 1", cwd=tmp_path, rows=12) as job:
        job.wait_for(r"^ +2 .* has not joined a job so far$")
        assert job.finish() == 1
        rows = job.screen.rows
        assert row_of(rows, 1).endswith(" exited with code 1")
        assert rows[-2:] == ["poseidon: rank 1 exited with code 1", ""]
        assert sorted(row for row in rows if row.endswith("begun")) == ["[0] begun", "[1] begun", "[2] begun"]


def test_what_cannot_be_watched_is_refused(poseidon, bench, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = jobs.run(poseidon, "run", "-n", 2, "--metrics-port", port, "touch", "begun", cwd=tmp_path)
        assert (done.code, done.err.lines) == (
            2, [f"poseidon: --metrics-port: port {port} of 127.0.0.1 cannot be listened at: Address already in use"])
        assert not (tmp_path / "begun").exists()
    for option in ("--watch", "--metrics-port=9400"):
        done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), (option,), "none"), cwd=bench.folder)
        assert (done.code, done.err.lines) == (
            2, ["poseidon: --watch and --metrics-port show the members of a job, expected --workers 2 or more, or --hosts"])
        done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), (option,), "none"), cwd=bench.folder,
                        environment={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
        assert done.code == 2 and done.err.lines[0].endswith("for a job that this command launches, and mpirun has launched this one"), done.err.text
        assert not (bench.folder / "none").exists()
    done = jobs.run(poseidon, "run", "-n", 2, "--metrics-port", 0, "true")
    assert done.code == 2 and "--metrics-port" in done.err.lines[-1], done.err.text


def test_the_dashboard_asks_for_what_the_port_serves():
    served = set(re.findall(r'"(poseidon_[a-z_]+)"', (ROOT / "tools/watch/exposition.cc").read_text()))
    dashboard = json.loads((ROOT / "examples/grafana/poseidon.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked = {name for query in queries for name in re.findall(r"poseidon_[a-z_]+", query)}
    assert len(queries) >= 8 and asked <= served, asked - served
    assert {name for name in served if name != "poseidon_step_seconds"} - asked == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_the_emulated_terminal_breaks_lines_as_a_terminal_does():
    screen = Screen(10, 5)
    screen.take("ab\r\n0123456789x\x1b[2")
    screen.take("A!\x1b[K")
    assert screen.rows == ["a!", "0123456789", "x"] and (screen.row, screen.column) == (0, 2)
    screen.resize(4, 5)
    assert screen.rows == ["a!", "0123", "4567", "89", "x"]
    with pytest.raises(AssertionError):
        screen.take("\x1b[2J")
