# SPDX-License-Identifier: Apache-2.0
"""`poseidon run`: any command as the ranks of a job on this machine."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

import job as jobs
from job import finished

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def nothing_left_of(job):
    """Whatever the job has started by now ends within 10 s of the block."""
    endings = []
    for pid in jobs.descendants_of(job.pid):
        with contextlib.suppress(ProcessLookupError):  # of a command that starts others all the time
            endings.append(jobs.Ending(pid))
    assert endings
    yield
    left = jobs.wait_for_ends(endings, time.monotonic() + 10)
    for ending in endings:
        ending.close()
    assert left == []


@pytest.fixture
def run(poseidon, tmp_path):
    def begin(*arguments, environment=None, **options):
        return jobs.Job(poseidon, "run", *arguments, cwd=tmp_path,
                        environment={"PYTHONPATH": f"{ROOT}/frontends/python", **(environment or {})}, **options)
    return begin


def python(script):
    return sys.executable, "-B", "-c", script


def test_each_rank_finds_its_place_in_the_environment(run):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
             "OMP_NUM_THREADS")
    done = finished(run("-n", 3, "sh", "-c", "echo at " + " ".join(f"${name}" for name in names)))
    assert done.code == 0 and [line.split(",")[0] for line in done.err.lines] == ["poseidon: no rank joined a job"], done.err.text
    cores = max(1, len(os.sched_getaffinity(0)) // 3)
    [port] = {line.split()[-2] for line in done.out.lines}
    assert sorted(done.out.lines) == [f"[{rank}] at {rank} 3 {rank} 3 0 127.0.0.1 {port} {cores}" for rank in range(3)]


def test_what_the_user_has_set_stays(run, tmp_path):
    done = finished(run("-n", 1, "--port", 23456, "--env", "WORD=a b", "--env", "MINE", "sh", "-c",
                        "echo $OMP_NUM_THREADS $WORD $MINE $MASTER_PORT; pwd",
                        environment={"OMP_NUM_THREADS": "5", "MINE": "yes"}))
    assert done.out.lines == ["[0] 5 a b yes 23456", f"[0] {tmp_path}"], done.err.text


def test_the_command_s_own_flags_are_left_alone(run):
    done = finished(run("-n", 1, "sh", "-c", 'echo "$@"', "sh", "-lr", "0.1", "-v", "--minloglevel", "3", "-n", "7"))
    assert done.out.lines == ["[0] -lr 0.1 -v --minloglevel 3 -n 7"]
    done = finished(run("-n", 1, "--", "echo", "--", "x"))
    assert done.out.lines == ["[0] -- x"]


def test_lines_keep_their_stream_and_their_rank(run):
    done = finished(run("-n", 2, "sh", "-c", r"printf 'out\n10%%\r20%%\r\nlast'; printf 'error\n' >&2"))
    for rank, texts in enumerate([("out", "10%", "20%", "last"), ("out", "20%", "last")]):  # rank 0 says how far a bar is
        assert [line for line in done.out.lines if line.startswith(f"[{rank}]")] == [f"[{rank}] {text}" for text in texts]
    assert sorted(done.err.lines[:2]) == ["[0] error", "[1] error"]
    assert re.match("poseidon: no rank joined a job, so each of the 2 worked alone; ", done.err.lines[2])


def test_bytes_that_are_no_text_arrive(run):
    done = finished(run("-n", 1, "sh", "-c", r"printf '\377\376 x\n'"))
    assert done.code == 0 and done.out.lines[0].endswith(" x")


def test_arguments_and_variables_that_are_no_text_arrive(run, tmp_path):
    """Any bytes but the zero: a file system takes them too."""
    odd = bytes(range(1, 256)).replace(b"\n", b"").decode(errors="surrogateescape")
    done = finished(run("-n", 1, "--env", f"MINE={odd}", "sh", "-c", 'printf %s "$1" > argument; printf %s "$MINE" > variable', "sh", odd))
    assert done.code == 0, done.err.text
    for file in ("argument", "variable"):
        assert (tmp_path / file).read_bytes() == odd.encode(errors="surrogateescape")


def on_a_terminal(poseidon, *arguments, **environment):
    """What a terminal of 70 columns gets of `poseidon run` with these arguments."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen([poseidon, "run", *arguments], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
                          env=inherited | environment) as process:
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):
            while part := os.read(main, 4096):
                text += part
        assert process.wait(jobs.PATIENCE) == 0
    os.close(main)
    return text.decode()


def test_colours_are_for_terminals(poseidon):
    assert on_a_terminal(poseidon, "-n", "1", "echo", "x") == "\x1b[36m[0] \x1b[0mx\r\n"


BAR = r"""if [ "$RANK" = 0 ]; then test -t 1 && test -t 2 && echo "terminal, $COLUMNS"; else test -t 1 || echo "no terminal"; fi
printf '\r10%%' >&2; sleep 0.2; echo between; sleep 0.2; printf '\r\033[1A20%%' >&2; sleep 0.2; printf '\r100%%\n' >&2"""


def shown(text):
    """The lines that a terminal shows in the end."""
    return [line.split("\x1b[K")[-1] for line in text.split("\r\n")]


def test_rank_0_draws_its_progress_bars(poseidon):
    text = on_a_terminal(poseidon, "-n", "1", "sh", "-c", BAR, NO_COLOR="1")
    assert shown(text) == ["[0] terminal, 66", "[0] between", "[0] 100%", ""], text
    assert "\r\x1b[K[0] 20%" in text and "\x1b[1A" not in text  # it has one line
    text = on_a_terminal(poseidon, "-n", "2", "sh", "-c", BAR, NO_COLOR="1")
    assert {"[0] terminal, 66", "[1] no terminal", "[0] between", "[1] between", "[0] 100%", "[1] 100%"} <= set(shown(text)), text
    assert "\r\x1b[K[0] 20%" in text and "[1] 10%" not in text and "[1] 20%" not in text


def test_no_line_is_lost_to_a_slow_reader(poseidon):
    lines = 60000
    with subprocess.Popen([poseidon, "run", "-n", "2", "seq", str(lines)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        time.sleep(1)  # everything between is full by now
        read = process.stdout.read().decode().splitlines()
        assert process.wait(jobs.PATIENCE) == 0
    for rank in range(2):
        assert [line for line in read if line.startswith(f"[{rank}]")] == [
            f"[{rank}] {number + 1}" for number in range(lines)]


def written_by_ranks(process):
    """How many bytes the commands of two ranks have printed; None where one of them has not begun."""
    try:
        counts = [pathlib.Path(f"/proc/{command_of(process, rank)}/io").read_text() for rank in range(2)]
    except (IndexError, ValueError, OSError):  # the process that will be the command is not there yet, or still its parent
        return None
    return [int(re.search(r"wchar: (\d+)", count)[1]) for count in counts]


@contextlib.contextmanager
def printing_to_nobody(poseidon):
    """A job of two ranks that print without end, once everything between them and the reader, who takes nothing, is full."""
    with subprocess.Popen([poseidon, "run", "-n", "2", "yes"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            until, before = time.monotonic() + jobs.PATIENCE, None
            while (written := written_by_ranks(process)) is None or min(written) == 0 or written != before:
                assert time.monotonic() < until, written
                before = written
                time.sleep(0.3)  # in which a command that can print does
            yield process
        finally:
            process.kill()  # where it has not ended


def test_a_reader_that_takes_nothing_makes_nobody_deaf(poseidon):
    with printing_to_nobody(poseidon) as process:
        children = jobs.descendants_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 130
        assert not [pid for pid in children if jobs.stat_of(pid)]


def test_a_reader_that_takes_nothing_does_not_hide_a_dead_rank(poseidon):
    """All pipes are full, that of the rank which is killed too."""
    with printing_to_nobody(poseidon) as process:
        children = jobs.descendants_of(process.pid)
        os.kill(command_of(process, 1), signal.SIGKILL)
        assert process.wait(20) == 128 + signal.SIGKILL
        assert process.stderr.read().splitlines()[-1] == b"poseidon: rank 1 was killed by signal 9 (Killed)"
        assert not [pid for pid in children if jobs.stat_of(pid)]


def test_a_file_a_rank(run, tmp_path):
    (tmp_path / "logs/deep").mkdir(parents=True)
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "logs/deep/rank-1.log").symlink_to(tmp_path / "mine")  # nothing is written through what somebody put there
    done = finished(run("-n", 2, "--log-dir", "logs/deep", "sh", "-c",
                        "echo $RANK; echo bad >&2; [ $RANK = 0 ] || exit 4"))
    assert done.code == 4 and not done.out.lines
    assert (tmp_path / "logs/deep/rank-1.log").read_text() == "1\nbad\n"
    assert (tmp_path / "mine").read_text() == "precious"
    assert done.err.lines == ["poseidon: the last lines of rank 1:", "[1] 1", "[1] bad",
                              "poseidon: rank 1 exited with code 4"]


def test_the_first_failure_ends_all_and_is_named_last(run):
    script = ("echo ready; [ $RANK = 1 ] && { sleep 0.5; echo first >&2; exit 7; }; "
              "trap 'echo ending >&2; exit 9' TERM; while :; do sleep 0.05; done")
    with run("-n", 3, "bash", "-c", script) as job:
        assert job.out.wait("ready", 3)
        with nothing_left_of(job):
            assert job.err.wait("first")
            failed = time.monotonic()
            assert job.finish() == 7
            print(f"the job ended {time.monotonic() - failed:.2f} s after its first failure")
            assert time.monotonic() - failed < 2
    assert job.err.count("ending") == 2
    # What it said is a few lines above, and is not said again.
    assert job.err.count("first") == 1 and job.err.lines[-1] == "poseidon: rank 1 exited with code 7"


def test_the_last_lines_of_the_first_to_fail_are_found_below_many_others(run):
    script = "[ $RANK = 1 ] && { echo first >&2; sleep 0.5; exit 7; }; trap 'seq 30; exit 9' TERM; while :; do sleep 0.05; done"
    done = finished(run("-n", 2, "bash", "-c", script))
    assert done.err.lines[-3:] == ["poseidon: the last lines of rank 1:", "[1] first", "poseidon: rank 1 exited with code 7"]


def test_who_does_not_listen_is_ended_too(run):
    script = "trap '' TERM INT; echo ready; [ $RANK = 0 ] || { sleep 0.5; exit 3; }; while :; do sleep 1; done"
    with run("-n", 2, "bash", "-c", script) as job:
        assert job.out.wait("ready", 2)
        with nothing_left_of(job):
            assert job.finish() == 3
    assert job.err.lines[-1] == "poseidon: rank 1 exited with code 3"


def command_of(job, rank):
    """The process of the user's command: the agent's keeper's child."""
    [agent] = [pid for pid in jobs.children_of(job.pid)
               if f"LOCAL_RANK={rank}\0" in environment_of(jobs.descendants_of(pid)[1])]
    return jobs.children_of(jobs.children_of(agent)[0])[0]


def environment_of(pid):
    return pathlib.Path(f"/proc/{pid}/environ").read_text()


def test_a_killed_rank_is_named(run):
    with run("-n", 2, "sh", "-c", "echo ready; exec sleep 300") as job:
        assert job.out.wait("ready", 2)
        with nothing_left_of(job):
            os.kill(command_of(job, 1), signal.SIGKILL)
            assert job.finish() == 128 + signal.SIGKILL
    assert job.err.lines[-1] == "poseidon: rank 1 was killed by signal 9 (Killed)"


# Grandchildren in sessions of their own hear nothing of any end.
FAMILY = "setsid sleep 300 & sh -c 'sleep 300; :' & echo ready; wait"


@pytest.mark.parametrize("victim", ("launcher", "agent", "keeper"))
def test_no_child_outlives_its_parent(run, victim):
    with run("-n", 2, "bash", "-c", FAMILY) as job:
        assert job.out.wait("ready", 2)
        with nothing_left_of(job):
            agent = jobs.children_of(job.pid)[0]
            os.kill({"launcher": job.pid, "agent": agent, "keeper": jobs.children_of(agent)[0]}[victim], signal.SIGKILL)
            assert job.finish() == (-9 if victim == "launcher" else 137)


def test_a_rank_ends_when_the_launchers_machine_is_gone(poseidon, tmp_path):
    """A launcher elsewhere, up to the moment in which its machine vanishes: no end of the input, no heartbeat."""
    task = {"name": "rank 0 on host b", "rank": 0, "workers": 1, "local_rank": 0, "local_workers": 1, "node": 0,
            "host": "b", "address": "127.0.0.1", "port": 0, "argv": ["sh", "-c", "echo $$ > pid; exec sleep 600"],
            "environment": {}, "draws_output": False, "draws_errors": False, "columns": 0, "tells_figures": False, "token": "ab" * 32}
    rank = subprocess.Popen([poseidon, "rank"], cwd=tmp_path, env=jobs.clean_environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, text=True)
    try:
        for command in (task, {"command": "beat", "within": 600}, {"command": "beat", "within": 0.5}):
            print(json.dumps(command), file=rank.stdin, flush=True)
            deadline = time.monotonic() + jobs.PATIENCE
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
                assert time.monotonic() < deadline and rank.poll() is None
                time.sleep(0.01)
        kept = jobs.Ending(int((tmp_path / "pid").read_text()))
        # How its command ended, or that it had to be killed.
        assert rank.wait(jobs.PATIENCE) in (128 + signal.SIGTERM, 1)
        assert jobs.wait_for_ends([kept], time.monotonic() + 10) == []
    finally:
        rank.kill()
        rank.wait()


def test_a_frozen_rank_is_ended_with_the_others(run):
    with run("-n", 2, "sh", "-c", "echo ready; [ $RANK = 0 ] || { sleep 1; exit 5; }; sleep 300") as job:
        assert job.out.wait("ready", 2)
        with nothing_left_of(job):
            for pid in [jobs.children_of(job.pid)[0], command_of(job, 0)]:
                os.kill(pid, signal.SIGSTOP)
            assert job.finish() == 5


ORDERLY = "trap 'echo saved; exit 0' INT TERM; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("request_to_stop", (signal.SIGINT, signal.SIGTERM))
def test_one_request_to_stop_is_an_orderly_end(run, request_to_stop):
    with run("-n", 2, "bash", "-c", ORDERLY) as job:
        assert job.out.wait("ready", 2)
        os.kill(job.pid, request_to_stop)
        assert job.finish() == 0, job.err.text
    assert job.out.count("saved") == 2


def test_who_fails_when_asked_to_stop_was_stopped(run):
    with run("-n", 2, *python("import time; print('ready', flush=True); time.sleep(300)")) as job:
        assert job.out.wait("ready", 2)
        os.kill(job.pid, signal.SIGINT)
        assert job.finish() == 130
    assert job.err.count("KeyboardInterrupt") >= 2
    assert job.err.lines[-1] == "poseidon: stopped by SIGINT"


def test_a_second_request_is_a_kill(run):
    with run("-n", 2, "bash", "-c", "trap 'echo no' INT; echo ready; while :; do sleep 0.05; done") as job:
        assert job.out.wait("ready", 2)
        with nothing_left_of(job):
            os.kill(job.pid, signal.SIGINT)
            assert job.out.wait("no", 2)
            os.kill(job.pid, signal.SIGINT)
            assert job.finish() == 130


def test_the_secret_is_on_no_command_line_and_in_no_environment(run, tmp_path):
    with run("-n", 2, "sh", "-c", f"cp $POSEIDON_TOKEN_FILE {tmp_path}/secret-$RANK; echo ready; exec sleep 300") as job:
        assert job.out.wait("ready", 2)
        secrets = {(tmp_path / f"secret-{rank}").read_text().strip() for rank in range(2)}
        [secret] = secrets
        assert re.fullmatch("[0-9a-f]{64}", secret)
        for pid in (job.pid, *jobs.descendants_of(job.pid)):
            for file in ("cmdline", "environ"):
                assert secret not in pathlib.Path(f"/proc/{pid}/{file}").read_text()
        os.kill(job.pid, signal.SIGINT)
        job.finish()
    assert secret not in job.out.text + job.err.text


@pytest.mark.parametrize("arguments,sentence", (
    ((), "there is no command, expected poseidon run -n 4 python train.py"),
    (("-n", "2"), "there is no command, expected poseidon run -n 4 python train.py"),
    (("true",), "give -n N, --hosts or --hostfile: how many ranks, and where"),
    (("-n", "0", "true"), "--workers: expected a whole number from 1 to 1024, not '0'"),
    (("-n", "x", "true"), "x"),
    (("-n", "2", "--bogus", "true"), "unknown flag --bogus"),
    (("-n", "3", "--hosts", "localhost:2", "true"), "3"),
    (("--hosts", "localhost:0", "true"), "localhost:0"),
    (("--hosts", "localhost", "--hostfile", "/dev/null", "true"), "give --hosts or --hostfile, not both"),
    (("--hostfile", "/nonexistent", "true"), "/nonexistent"),
    (("--hosts", "no..name", "true"), "no..name"),
    (("-n", "1", "--env", "=x", "true"), "--env =x: expected NAME or NAME=VALUE"),
    (("-n", "1", "--env", "NOT_SET_HERE", "true"), "--env NOT_SET_HERE: it is not set here"),
    (("-n", "1", "--log-dir", "/dev/null/x", "true"), "folder /dev/null/x cannot be made"),
    (("-n", "1", "--port", "70000", "true"), "--port"),
    (("-n", "1", "--join-timeout", "0", "true"), "--join-timeout"),
    (("-n", "2", "no-such-program"), "rank 0: cannot run 'no-such-program': No such file or directory"),
    (("-n", "1", "/tmp"), "rank 0: cannot run '/tmp': Permission denied"),
), ids=lambda value: " ".join(value) if isinstance(value, tuple) else None)
def test_a_mistake_is_one_sentence(run, arguments, sentence):
    done = finished(run(*arguments))
    expected = 127 if sentence.startswith("rank 0: ") else 1 if sentence == "no..name" else 2
    assert done.code == expected and not done.out.lines
    [line] = done.err.lines
    assert line.startswith("poseidon: ") and sentence in line


BLAMED = """
import array, os, pathlib, sys, time
import poseidon
session = poseidon.join()
pid = pathlib.Path("pid-of-rank-0")
if session.rank == 0:
    pid.write_text(str(os.getpid()))
session.barrier()
if session.rank == 1:
    session.abort("the data are gone")
    while pathlib.Path("/proc", pid.read_text()).exists():
        time.sleep(0.01)
    print("I was it", flush=True)
    if sys.argv[1] == "never":
        time.sleep(300)
    sys.exit(int(sys.argv[1]))
session.barrier()
"""


@pytest.mark.skipif("POSEIDON_SANITIZE" in os.environ and os.environ["POSEIDON_SANITIZE"] != "",
                    reason="the library is built with a sanitizer, which Python is not")
@pytest.mark.parametrize("ends,code,sentence", (("7", 7, "rank 1 exited with code 7: worker 1 on host .*: the data are gone"),
                                                ("0", 1, "rank 1 exited with code 0: worker 1 on host .*: the data are gone"),
                                                ("never", 3, "rank 1 was ended: worker 1 on host .*: the data are gone")))
def test_who_is_to_blame_is_named_whoever_ends_first(run, poseidon, ends, code, sentence):
    """Rank 0 has heard what happened, and is gone when rank 1 ends."""
    library = pathlib.Path(poseidon).parents[1] / "poseidon/c/libposeidon.so"
    done = finished(run("-n", 2, *python(BLAMED), ends, environment={"POSEIDON_LIBRARY": str(library)}))
    assert done.code == code, done.err.text
    assert re.fullmatch(f"poseidon: {sentence}", done.err.lines[-1]), done.err.text
    assert done.out.lines == ["[1] I was it"]


FAILS = """
import torch
import poseidon.torch as poseidon
model = torch.nn.Linear(3, 2)
model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), 0.1))
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    if step == 5 and poseidon.rank() == 1:
        model.no_such_thing
    optimizer.step()
"""


@pytest.mark.skipif("POSEIDON_SANITIZE" in os.environ and os.environ["POSEIDON_SANITIZE"] != "",
                    reason="the library is built with a sanitizer, which Python is not")
def test_a_failure_is_a_sentence_one_traceback_and_a_line_of_each_other(run, poseidon):
    pytest.importorskip("torch")
    environment = {"POSEIDON_LIBRARY": str(pathlib.Path(poseidon).parents[1] / "poseidon/c/libposeidon.so")}
    done = finished(run("-n", 2, *python(FAILS), environment=environment))
    assert done.code == 1
    sentence = "AttributeError: 'Linear' object has no attribute 'no_such_thing'"
    of = {rank: [line[4:] for line in done.err.lines if line.startswith(f"[{rank}] ")] for rank in range(2)}
    why = rf"worker 1 on host \S+: its script failed: {sentence} \(<string>:10 in <module>\)"
    assert of[1][:3] == [sentence, "Traceback (most recent call last):", '  File "<string>", line 10, in <module>']
    assert re.fullmatch(r"  \.\.\. \d+ calls in torch \(POSEIDON_TRACEBACK=full shows them\)", of[1][3]) and len(of[1]) == 4, of[1]
    assert len(of[0]) == 1 and re.fullmatch(f"poseidon.errors.PoseidonError: {why}", of[0][0]), of[0]
    assert re.fullmatch(f"poseidon: rank 1 exited with code 1: {why}", done.err.lines[-1]), done.err.lines[-1]
    assert len(done.err.lines) == 6, done.err.text
    unfolded = finished(run("-n", 2, *python(FAILS), environment={**environment, "POSEIDON_TRACEBACK": "full"}))
    assert {line[:4] for line in unfolded.err.lines if "Traceback" in line} == {"[0] ", "[1] "} and unfolded.err.count(r"torch/nn/modules/module\.py") >= 1


WITH_BOTH = """
import array, os, torch, torch.distributed
import poseidon
torch.distributed.init_process_group("gloo")
one = torch.ones(1)
torch.distributed.all_reduce(one)
session = poseidon.join()
numbers = array.array("d", [1 + session.rank])
session.sum(numbers)
print("sums", one.item(), numbers[0])
session.leave()
torch.distributed.destroy_process_group()
"""


@pytest.mark.skipif("POSEIDON_SANITIZE" in os.environ and os.environ["POSEIDON_SANITIZE"] != "",
                    reason="the library is built with a sanitizer, which Python is not")
def test_a_script_uses_the_framework_s_group_and_ours(run, poseidon):
    pytest.importorskip("torch")
    library = pathlib.Path(poseidon).parents[1] / "poseidon/c/libposeidon.so"
    done = finished(run("-n", 2, *python(WITH_BOTH), environment={"POSEIDON_LIBRARY": str(library)}))
    assert done.code == 0, done.err.text
    assert sorted(done.out.lines) == ["[0] sums 2.0 3.0", "[1] sums 2.0 3.0"]


@pytest.mark.parametrize("arguments,code,words", (
    (("doctor",), (0, 1), "localhost"),
    (("doctor", "--bogus"), (2,), "--bogus"),
    (("demo", "--bogus"), (2,), "unknown flag --bogus"),
))
def test_the_package_s_commands_are_the_program_s_too(poseidon, tmp_path, arguments, code, words):
    done = jobs.run(poseidon, *arguments, cwd=tmp_path)
    assert done.code in code and words in done.out.text + done.err.text
