# SPDX-License-Identifier: Apache-2.0
"""The poseidon command around the training: its flags, signals at every moment, an output that nobody
takes, and how the launcher ends a job."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import pytest

import caffe_files
import job as jobs
import lmdb_files
import messages

ENDLESS = 10_000_000


def endless(bench, **fields):
    return bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, snapshot_prefix=bench.folder / "snap", **fields)


def until(condition):
    deadline = time.monotonic() + jobs.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.01)


def states(bench):
    return sorted(bench.folder.glob("snap_iter_*.solverstate"))


# ---- what the launcher does to survivors

@pytest.mark.skipif(bool(os.environ.get("POSEIDON_SANITIZE")), reason="a sanitizer wants to be the first library")
def test_a_survivor_that_saves_is_not_killed(bench, slow_disk):
    """Rank 0 is in fsync when worker 1 dies; when worker 2 has ended too, nobody but rank 0 is left, as
    many as are accused."""
    environment, begun, slow = slow_disk
    with bench.start(endless(bench), "--workers", 3, environment=environment) as job:
        pids = job.members(3)
        endings = [jobs.Ending(pid) for pid in pids]
        slow.touch()
        os.kill(job.pid, signal.SIGHUP)
        until(begun.exists)
        os.kill(pids[1], signal.SIGKILL)
        assert not jobs.wait_for_ends(endings[1:], time.monotonic() + jobs.PATIENCE)
        # The launcher's patience with an accused is half a second.
        assert jobs.wait_for_ends(endings[:1], time.monotonic() + 1.5) == endings[:1]
        slow.unlink()
        assert job.finish() == 3, job.err.text
    ends = [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]
    assert ends[0]["end"] == "exited with code 3"
    (state,) = states(bench)
    number = int(state.stem.rpartition("_")[2])
    solver = bench.solver("again.prototxt", net=bench.folder / "net.prototxt", max_iter=number + 2)
    assert bench.train(solver, "--snapshot", state, run_dir="again").summary["iterations"] == number + 2


# ---- signals

def keeps(pid, number):
    """Whether the process blocks or catches the signal: its first instruction has run."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


@pytest.mark.parametrize("workers", (1, 2))
@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_a_signal_while_the_program_starts_ends_it_as_any_stop(bench, workers, number):
    for moment in (0, 0.1, 0.2, 0.35, 0.6):
        with bench.start(endless(bench), "--workers", workers) as job:
            until(lambda: keeps(job.pid, number))
            time.sleep(moment)  # the moment is the drill
            os.kill(job.pid, number)
            assert job.finish() == 0, f"after {moment} s:\n{job.err.text}"


def test_a_second_signal_ends_a_worker_that_is_alone(bench, slow_disk):
    environment, begun, slow = slow_disk
    with bench.start(endless(bench), environment=environment) as job:
        assert job.out.wait(r"^iteration 10,")
        slow.touch()
        os.kill(job.pid, signal.SIGTERM)
        until(begun.exists)
        os.kill(job.pid, signal.SIGTERM)
        assert job.process.wait(jobs.PATIENCE) == 1
        assert job.err.wait("^poseidon: ended at once by a second request to stop$")


def test_a_stop_that_cannot_be_met_says_what_it_waits_for(bench):
    shared = set(os.listdir("/dev/shm"))
    with bench.start(endless(bench), "--workers", 2) as job:
        pids = job.members(2)
        endings = [jobs.Ending(pid) for pid in pids]
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(job.pid, signal.SIGINT)
        assert job.err.wait(r"worker 1 on host \S+ \(is stopped\).*a second Ctrl-C or SIGTERM ends all"), job.err.text
        began = time.monotonic()
        os.kill(job.pid, signal.SIGINT)
        assert job.finish() == 1
        assert not jobs.wait_for_ends(endings, began + 1)
        assert time.monotonic() - began < 1
        assert job.err.lines[-1] == "poseidon: the job was ended at once by a second request to stop"
    assert not set(os.listdir("/dev/shm")) - shared


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
@pytest.mark.parametrize("rank", (0, 1))
def test_a_process_of_another_launcher_leaves_nothing_when_it_is_ended_at_its_start(bench, monkeypatch, rank, number):
    monkeypatch.setenv("TMPDIR", str(bench.folder))
    environment = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": f"end-{os.getpid()}"}
    folder = bench.folder / f"poseidon-{os.geteuid()}"
    with bench.start(endless(bench), "--sighup_effect", "stop", environment=environment) as job:
        if rank == 0:
            until(lambda: len(list(folder.glob("*.address"))) == 1)
            assert len(list(folder.glob("*.token"))) == 1
        else:
            until(folder.exists)
        os.kill(job.pid, number)
        assert job.finish() == 128 + number
        assert job.err.lines == ["poseidon: stopped before all processes had joined"]
    assert not list(folder.glob("*"))


def test_a_member_that_is_killed_at_the_start_makes_exit_code_3(bench):
    with bench.start(endless(bench), "--workers", 3) as job:
        until(lambda: len(jobs.children_of(job.pid)) == 3)
        pids = jobs.children_of(job.pid)
        os.kill(pids[1], signal.SIGKILL)
        assert job.finish() == 3, job.err.text
        assert "worker 1 on host" in job.err.lines[-1]
    ends = [json.loads(line)["end"] for line in (bench.folder / "run/members.jsonl").open()]
    assert ends == ["exited with code 3", "was killed by signal 9 (Killed)", "exited with code 3"]


# ---- an output that nobody takes

class FullPipe:
    """A pipe that nobody reads from, and that is full."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.write_end, b"x" * 4096)
        os.set_blocking(self.write_end, True)

    def read_all(self):
        os.close(self.write_end)
        with os.fdopen(self.read_end, "rb") as stream:
            return stream.read().lstrip(b"x").decode()


@pytest.fixture
def blocked(bench):
    """Starts a job whose standard output, or whose both outputs, nobody takes."""
    started = []

    def start(*arguments, both=False):
        pipe = FullPipe()
        process = subprocess.Popen(
            [bench.poseidon, *map(str, bench.arguments(endless(bench, display=1), arguments, "run"))],
            cwd=bench.folder, env=jobs.clean_environment(), stdin=subprocess.DEVNULL, stdout=pipe.write_end,
            stderr=pipe.write_end if both else subprocess.DEVNULL)
        started.append(process)
        metrics = bench.folder / "run/metrics.jsonl"
        # It trains on, long after the pipe was full.
        until(lambda: metrics.exists() and metrics.read_text().count("\n") > 100)
        return process, pipe
    yield start
    for process in started:
        for pid in jobs.children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


@pytest.mark.parametrize("both", (False, True))
@pytest.mark.parametrize("workers", (1, 2))
def test_a_blocked_output_does_not_keep_a_job_from_stopping(bench, blocked, workers, both):
    process, _ = blocked("--workers", workers, both=both)
    process.send_signal(signal.SIGTERM)
    assert process.wait(jobs.PATIENCE) == 0
    assert len(states(bench)) == 1


@pytest.mark.parametrize("workers", (1, 2))
def test_a_blocked_output_does_not_hide_a_second_signal(bench, blocked, workers):
    process, _ = blocked("--workers", workers, both=True)
    if workers == 2:
        os.kill(jobs.children_of(process.pid)[1], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(jobs.PATIENCE) == 1


def test_a_blocked_output_does_not_hide_a_dead_worker(bench, blocked):
    process, _ = blocked("--workers", 2, both=True)
    os.kill(jobs.children_of(process.pid)[1], signal.SIGKILL)
    assert process.wait(jobs.PATIENCE) == 3


def test_an_output_that_is_taken_again_says_how_much_is_missing(bench, blocked):
    process, pipe = blocked("--workers", 1)
    metrics = bench.folder / "run/metrics.jsonl"
    until(lambda: metrics.read_text().count("\n") > 8000)
    process.send_signal(signal.SIGTERM)
    text = pipe.read_all()
    assert process.wait(jobs.PATIENCE) == 0
    lines = text.splitlines()
    (missing,) = [line for line in lines if "lines were dropped" in line]
    assert int(missing.strip("(").split()[0]) > 100
    assert all(line.startswith("iteration ") for line in lines[10:100])
    assert lines[-1].startswith("results in ")


# ---- flags

def test_the_version(bench):
    done = jobs.run(bench.poseidon, "--version")
    assert done.code == 0
    root = pathlib.Path(__file__).parents[2]
    version = (root / "CMakeLists.txt").read_text().partition("project(poseidon VERSION ")[2].split()[0]
    assert done.out.lines == [f"poseidon {version}"]


@pytest.mark.parametrize("words", (
    ("-solver={solver}", "train"),
    ("-solver", "{solver}", "-logtostderr", "train", "-threads", "1"),
    ("--logtostderr=1", "--log_dir", "nowhere", "-minloglevel=2", "train", "-v", "1", "--solver={solver}"),
    ("train", "-alsologtostderr", "--stderrthreshold", "0", "-nologtostderr", "-solver={solver}"),
    ("--workers", "2", "--sync", "--solver", "{solver}", "train"),
))
def test_command_lines_as_caffe_has_them(bench, words):
    solver = bench.solver(max_iter=2, test_interval=None, test_iter=None)
    done = jobs.run(bench.poseidon, *[word.format(solver=solver) for word in words], cwd=bench.folder)
    assert done.code == 0, done.err.text
    assert not (bench.folder / "nowhere").exists()


@pytest.mark.parametrize("words, expected", (
    (("-minloglevel=x", "train"), "--minloglevel is 'x', expected a number"),
    (("train", "--log_dir"), "--log_dir has no value"),
    (("train",), "--solver is required (see poseidon train --help)"),
    (("--bogus", "1", "train", "--solver", "x"), "unknown flag --bogus"),
    (("train", "--slover", "x"), "unknown flag --slover; did you mean --solver?"),
    (("train", "--workers"), "--workers has no value"),
    (("profile",), "profile measures one script or one net, expected poseidon profile train.py, or poseidon profile net.prototxt"),
    (("profile", "no.py", "--bogus"), "cannot open no.py"),
    (("profile", "--bogus", "no.py"), "unknown flag --bogus"),
    (("profile", "--threads", "1", "--", "true"), "--threads is for a net, and true is none"),
    (("profile", "--steps", "3", "--model", "/dev/null"), "--steps is for a script, and /dev/null is none"),
    (("profile", "/dev/null", "--model", "/dev/null"), "profile measures one script or one net"),
    (("profile", "/dev/null", "again"), "profile was given again behind a net"),
    (("profile", "--out", "/nowhere/x", "--", "true"), "--out: cannot write /nowhere/x"),
    (("tarin", "--solver", "x"), "unknown command 'tarin'; did you mean train?"),
    ((), "there is no command"),
))
def test_command_lines_that_are_none(bench, words, expected):
    done = jobs.run(bench.poseidon, *words, cwd=bench.folder)
    assert done.code == 2
    assert len(done.err.lines) == 1 and done.err.lines[0].startswith("poseidon: ")
    assert expected in done.err.lines[0]


def help_of(bench, *command):
    done = jobs.run(bench.poseidon, *command, "--help")
    assert done.code == 0 and not done.err.lines
    return done.out.lines


def commands_of(bench):
    lines = help_of(bench)
    listed = lines[lines.index("Commands:") + 1:lines.index("Flags:") - 1]
    return [line.split()[0] for line in listed if not line.startswith("    ")]


# Nothing of the kind that a flag takes, by the word for that in the help; of any text everything is something.
WRONG = {"N": "some", "STEP": "x", "PORT": "x", "SECONDS": "soon", "SHARE": "2", "RATE": "fast", "TIME": "soon", "IDS": "x",
         "FILE": "/nowhere/file", "FILE[,FILE...]": "/nowhere/file", "PROTOTXT": "/nowhere/file", "FOLDER": "/dev/null/x",
         "HOSTS": "a:0", "PREFIX": "/nowhere/x", "LAYER=SCHEME": "ip1", "NAME[=VALUE]": "=x"}
ANY_TEXT = {"--strategies", "--ssh", "--program", "--python", "--stage", "--machines"}


@pytest.mark.parametrize("command", ("run", "doctor", "compare", "plan", "profile", "train", "test", "time", "device_query"))
def test_a_wrong_value_of_any_flag_is_one_sentence(bench, command):
    net, weights = bench.lenet(), bench.write("w.caffemodel", "")
    needed = {"train": ["--solver", bench.solver(net=net)], "test": ["--model", net, "--weights", weights],
              "time": ["--model", net], "profile": [net], "plan": ["alexnet", "--workers", 2, "--rate", "1G"],
              "run": ["-n", 1]}.get(command, [])
    seen = 0
    for line in help_of(bench, command):
        match = re.match(r"  (?:-\w, )?(--[\w-]+) (\S+)", line)
        if not match or match[1] in ANY_TEXT:
            continue
        flag, wrong = match[1], "neither" if "|" in match[2] else WRONG[match[2]]
        done = jobs.run(bench.poseidon, command, *needed, f"{flag}={wrong}", *(["true"] if command == "run" else []), cwd=bench.folder)
        assert done.code == 2 and len(done.err.lines) == 1 and not done.out.lines, (flag, wrong, done.code, done.err.text)
        assert done.err.lines[0].startswith("poseidon: "), done.err.text
        seen += 1
    assert seen >= {"device_query": 1, "test": 7, "time": 7, "profile": 6, "doctor": 5, "compare": 2, "run": 6}.get(command, 10)


def test_help_fits_a_terminal_and_names_every_default(bench):
    commands = commands_of(bench)
    assert {"run", "doctor", "demo", "plan", "train", "completion", "manual"} <= set(commands)
    for command in commands:
        lines = help_of(bench, command)
        assert max(map(len, lines)) <= 80 and lines[0].startswith(f"Usage: poseidon {command}")
    assert "COMMAND" in help_of(bench, "run")[0]
    train = " ".join(" ".join(help_of(bench, "train")).split())
    assert "--workers N Number of workers (1 to 1024, default 1)" in train
    assert "--wire auto|tls|auth|plain" in train and "(default auto)" in train
    assert jobs.run(bench.poseidon, "help", "train").out.lines == help_of(bench, "train")


def test_a_shell_completes_commands_flags_and_values(bench):
    script = bench.write("completion.bash", jobs.run(bench.poseidon, "completion").out.text + "\n")

    def complete(*words):
        text = " ".join(f"'{word}'" for word in words)
        return subprocess.run(["bash", "-c", f"source {script}; COMP_WORDS=({text}); COMP_CWORD={len(words) - 1}; _poseidon; "
                               'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True).stdout.split()
    assert complete("poseidon", "tr") == ["train"]
    assert complete("poseidon", "train", "--ser") == ["--servers"]
    assert complete("poseidon", "train", "--wire", "t") == ["tls"]
    assert complete("poseidon", "train", "--solver", "") == []  # a file's name, which the shell has itself


# ---- sentences

@pytest.mark.parametrize("workers", (1, 2))
@pytest.mark.parametrize("words, expected", (
    (("--scheme", "ip9=kv"), "'ip9'"),
    (("--scheme", "conv1=sfb"), "'conv1'"),
    (("--scheme", "ip1=bogus"), "'bogus'"),
    (("--plan", "nowhere.json"), "nowhere.json"),
))
def test_a_wrong_plan_is_refused_with_any_number_of_workers(bench, workers, words, expected):
    done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), ("--workers", workers, *words), "run"),
                    cwd=bench.folder)
    assert done.code == (2 if "--plan" in words else 1)  # what a file or a net says is no mistake of the command line
    assert len(done.err.lines) == 1 and done.err.lines[0].startswith("poseidon: "), done.err.text
    assert expected in done.err.lines[0]


def test_a_worker_that_fails_is_named_once(bench):
    """The record is worker 1's; every sentence about it names that worker once."""
    records = [(b"%08d" % i, messages.datum(1, 28, 28, 3)) for i in range(48)]
    records[13] = (records[13][0], messages.datum(1, 28, 27, 3))
    source = lmdb_files.write(bench.folder / "record-lmdb", records)
    net = bench.write("net.prototxt", caffe_files.small_lenet(source, bench.databases.test))
    done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(net=net), ("--workers", 2), "run"),
                    cwd=bench.folder)
    assert done.code == 1, done.err.text
    ends = [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]
    told = [end["failure"]["message"] for end in ends] + [done.err.lines[-1]]
    assert all(text.count("worker 1 on host") == 1 for text in told), told


# ---- memory

def limited(mebibytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
    return limit


@pytest.mark.skipif(bool(os.environ.get("POSEIDON_SANITIZE")), reason="sanitizers reserve address space")
@pytest.mark.parametrize("workers", (1, 2))
def test_out_of_memory_is_one_sentence(bench, workers):
    """Two gigabytes of weights do not fit into the address space, whatever part of the program asks first."""
    solver = bench.solver(net=bench.lenet(hidden=2_000_000), max_iter=2)
    done = jobs.run(bench.poseidon, *bench.arguments(solver, ("--workers", workers), "run"), cwd=bench.folder,
                    before=limited(2500))
    assert done.code == 1, done.err.text
    assert len(done.err.lines) == 1 and done.err.lines[0].startswith("poseidon: "), done.err.text
    assert "out of memory" in done.err.lines[0]


@pytest.mark.skipif(bool(os.environ.get("POSEIDON_SANITIZE")), reason="sanitizers reserve address space")
def test_too_little_memory_to_start_is_one_sentence(bench):
    """Also where the libraries' own constructors ask for it; before these the system's loader says what it lacks."""
    ends = []
    for mebibytes in range(330, 470, 10):
        done = jobs.run(bench.poseidon, "--version", before=limited(mebibytes))
        assert done.code in (0, 1, 127) and len(done.out.lines + done.err.lines) == 1, (mebibytes, done.code, done.err.text)
        ends.append(done.err.text.strip() if done.code == 1 else done.code)
    assert "poseidon: too little memory to start, expected 512 MB of address space or more (ulimit -v)" in ends, ends
    assert ends[0] == 127 and ends[-1] == 0


def test_a_layer_whose_name_is_no_utf8_is_in_the_plan(bench):
    net = bench.lenet()
    net.write_text(net.read_text().replace('"ip1"', '"ip\\377"'))
    done = bench.train(bench.solver(net=net, max_iter=2, display=1), "--workers", 2)
    assert "ip\ufffd" in [layer["layer"] for layer in json.loads((done.run_dir / "plan.json").read_text())["layers"]]
