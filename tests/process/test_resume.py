# SPDX-License-Identifier: Apache-2.0
"""Snapshots: resuming, stopping by a signal, fine-tuning, scoring, and disks that refuse."""

import contextlib
import json
import os
import resource
import signal
import pathlib
import re
import shutil
import subprocess

import pytest

import caffe_files
import job as jobs

# The schemes decide the bits, so they are fixed.
PINNED = ("--scheme", "ip1=sfb", "--scheme", "ip2=kv")
# Long enough to be interrupted at any iteration, whatever the machine.
ENDLESS = 10_000_000


def state(folder, iteration, prefix="snap"):
    return folder / f"{prefix}_iter_{iteration}.solverstate"


def model(folder, iteration, prefix="snap"):
    return folder / f"{prefix}_iter_{iteration}.caffemodel"


def snapshots(folder, prefix="snap"):
    """Iterations of which both files are there."""
    numbers = {int(path.stem.rpartition("_")[2]) for path in folder.glob(f"{prefix}_iter_*.solverstate")}
    return sorted(n for n in numbers if model(folder, n, prefix).exists())


@pytest.mark.parametrize("options", (
    (), ("--sync",), ("--workers", 2, *PINNED), ("--workers", 2, "--servers", 1, *PINNED)))
def test_resume_goes_on_bit_for_bit(bench, options):
    net = bench.lenet(dropout=True)
    fields = {"net": net, "snapshot_prefix": bench.folder / "snap", "lr_policy": "step", "gamma": 0.5,
              "stepsize": 12}
    whole = bench.train(bench.solver("whole.prototxt", snapshot=15, **fields), *options,
                        run_dir="whole")
    assert snapshots(bench.folder) == [15, 30]
    resumed = bench.train(bench.solver("resumed.prototxt", **fields), *options,
                          "--snapshot", state(bench.folder, 15), run_dir="resumed")
    assert resumed.summary["weights_hash"] == whole.summary["weights_hash"]
    assert resumed.summary["iterations"] == 30
    assert "iteration 20," in resumed.out.text and "iteration 10," not in resumed.out.text
    assert resumed.summary["test"] == whole.summary["test"]
    # Spans of the core and of the net alike are of the iterations that the solver counts.
    trace = json.loads((resumed.run_dir / "trace.json").read_text())["traceEvents"]
    for lanes in ({"compute"}, {"send", "receive", "sum", "rebuild", "wait"}):
        steps = {span["args"]["step"] for span in trace if span["ph"] == "X" and span["cat"] in lanes}
        assert steps == (set(range(15, 30)) if options or lanes == {"compute"} else set()), lanes


def test_resume_follows_the_plan_in_the_snapshot(bench):
    fields = {"snapshot_prefix": bench.folder / "snap"}
    bench.train(bench.solver(snapshot=30, **fields), "--workers", 2, "--scheme", "ip2=sfb")
    resumed = bench.train(bench.solver(max_iter=60, **fields), "--workers", 2, "--snapshot",
                          state(bench.folder, 30), run_dir="resumed")
    plan = {entry["layer"]: entry for entry in resumed.summary["plan"]}
    assert plan["ip2"]["scheme"] == "sfb" and "the plan in" in plan["ip2"]["reason"]


@pytest.mark.parametrize("singly", (True, False))
def test_layers_join_as_the_plan_that_is_resumed_says(bench, singly):
    """A plan that names small layers one by one, as all did that were made before any were joined, is followed too."""
    names = caffe_files.names_of_small_layers()
    named = [word for name in names for word in ("--scheme", f"{name}=kv")] if singly else []
    fields = {"net": bench.small_layers(), "snapshot_prefix": bench.folder / "snap"}
    whole = bench.train(bench.solver("whole.prototxt", snapshot=15, **fields), "--workers", 2, "--scheme", "ip=sfb",
                        *named, run_dir="whole")
    before = json.loads((whole.run_dir / "plan.json").read_text())["layers"]
    assert [layer["layer"] for layer in before] == ([*names, "ip"] if singly else ["conv", "ip"])
    assert any("joined" in layer for layer in before) != singly
    # Also one that joins otherwise than this version would.
    other = whole.run_dir / "other.json"
    halves = before if singly else [{**before[0], "joined": names[:3]},
                                    {"layer": names[3], "scheme": "kv", "joined": names[3:]}, before[1]]
    other.write_text(json.dumps({"layers": halves}))
    for run_dir, options, expected in (("from-state", (), before), ("from-file", ("--plan", other), halves)):
        resumed = bench.train(bench.solver("resumed.prototxt", **fields), "--workers", 2, "--snapshot",
                              state(bench.folder, 15), *options, run_dir=run_dir)
        after = json.loads((resumed.run_dir / "plan.json").read_text())["layers"]
        assert [(layer["layer"], layer.get("joined"), layer["scheme"]) for layer in after] == [
            (layer["layer"], layer.get("joined"), layer["scheme"]) for layer in expected]
        assert all(layer["forced"] for layer in after)
        assert resumed.summary["weights_hash"] == whole.summary["weights_hash"]
        # Also what BatchNorm has gathered, of which a snapshot holds worker 0's.
        assert resumed.summary["test"] == whole.summary["test"]


@pytest.mark.parametrize("workers", (1, 3))
def test_another_number_of_workers_takes_over(bench, workers):
    """Weights, history and position come along; the first loss is what the last one was."""
    fields = {"snapshot_prefix": bench.folder / "snap", "test_initialization": True}
    first = bench.train(bench.solver(snapshot=30, **fields), "--workers", 2, *PINNED)
    second = bench.train(bench.solver(max_iter=60, **fields), "--workers", workers, "--snapshot",
                         state(bench.folder, 30), run_dir="second")
    metrics = [json.loads(line) for line in (second.run_dir / "metrics.jsonl").open()]
    assert metrics[0]["kind"] == "test" and metrics[0]["iteration"] == 30
    assert metrics[0]["outputs"]["accuracy"] == first.summary["test"]["accuracy"]
    assert metrics[0]["outputs"]["loss"] == pytest.approx(first.summary["test"]["loss"], rel=1e-5)
    assert second.summary["iterations"] == 60
    assert second.summary["replicas_equal"] is True
    assert second.summary["test"]["loss"] < first.summary["test"]["loss"]


def interrupted(bench, options, target, signal_number=signal.SIGTERM):
    """A run of endless training that is stopped, by a signal to the launcher (target None) or
    to a member; where it stopped."""
    solver = bench.solver("endless.prototxt", max_iter=ENDLESS, test_interval=ENDLESS,
                          display=20, snapshot_prefix=bench.folder / "snap")
    members = 1 if "--workers" not in options else options[1 + options.index("--workers")]
    with bench.start(solver, *options, run_dir="interrupted") as job:
        pids = job.members(members) if members > 1 else []
        assert job.out.wait(r"^iteration 20,")
        os.kill(job.pid if target is None else pids[target], signal_number)
        assert job.finish() == 0, job.err.text
        assert job.err.text == ""
    done = snapshots(bench.folder)
    assert len(done) == 1, done
    summary = jobs.summary_of(bench.folder / "interrupted")
    assert summary["iterations"] == done[0] >= 20
    return done[0], summary


@pytest.mark.parametrize("options,target", (
    ((), None), (("--workers", 2, *PINNED), None), (("--workers", 2, *PINNED), 0),
    (("--workers", 2, *PINNED), 1)))
def test_sigterm_writes_a_snapshot_and_ends_well(bench, options, target):
    at, summary = interrupted(bench, options, target)
    # The snapshot is where the run stopped: resuming for no iteration gives the same weights ...
    fields = {"net": bench.folder / "net.prototxt", "test_interval": ENDLESS,
              "snapshot_prefix": bench.folder / "snap"}
    same = bench.train(bench.solver(max_iter=at, **fields), *options, "--snapshot",
                       state(bench.folder, at), run_dir="same")
    assert same.summary["weights_hash"] == summary["weights_hash"]
    # ... and going on is what an uninterrupted run does.
    resumed = bench.train(bench.solver(max_iter=at + 10, **fields), *options, "--snapshot",
                          state(bench.folder, at), run_dir="resumed")
    whole = bench.train(bench.solver(max_iter=at + 10, **fields), *options, run_dir="whole")
    assert resumed.summary["weights_hash"] == whole.summary["weights_hash"]


def test_sigint_and_sighup_do_what_the_flags_say(bench):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=20,
                          snapshot_prefix=bench.folder / "snap")
    with bench.start(solver, "--workers", 2, "--sigint_effect", "snapshot", "--sighup_effect",
                     "stop") as job:
        job.members(2)
        for count in (1, 2):  # the second asks for no more than the first
            os.kill(job.pid, signal.SIGINT)
            assert job.out.wait(r"^snapshot .*solverstate", count=count)
        os.kill(job.pid, signal.SIGHUP)
        assert job.finish() == 0, job.err.text
    # snapshot_after_train is off in these solvers, and a plain stop writes none.
    assert len(snapshots(bench.folder)) == 2


def test_only_a_plan_made_of_measurements_stays_in_a_snapshot(bench):
    fields = {"snapshot_prefix": bench.folder / "snap"}
    bench.train(bench.solver(snapshot=8, **fields), "--workers", 2, "--policy", "bytes")
    # The final plan came with step 10. It pins the schemes of a job of as many workers; else the run says what it does.
    for iteration, workers, forced, words in ((8, 2, False, "holds no plan"), (24, 2, True, None),
                                              (24, 3, False, "was written by 2 workers, so 3 make a plan of their own")):
        done = bench.train(bench.solver(max_iter=iteration + 12, **fields), "--workers", workers, "--snapshot",
                           state(bench.folder, iteration), run_dir=f"resumed-{iteration}-{workers}")
        plan = json.loads((done.run_dir / "plan.json").read_text())
        assert {layer["forced"] for layer in plan["layers"]} == {forced}
        assert ("plan" in done.out.text.partition("training")[0]) == bool(words)
        assert not words or words in done.out.text


# ---- a state and its model


def short(bench, name, seed, **fields):
    return bench.solver(name, net=bench.folder / "net.prototxt", test_interval=None, test_iter=None,
                        random_seed=seed, **fields)


HDF5, BINARY = 0, 1  # of SolverParameter.SnapshotFormat


@pytest.fixture
def snapshot_format():
    return BINARY


@pytest.fixture
def two_runs(bench, snapshot_format):
    """Snapshots of iteration 10 of two runs that differ, in folders of their own, under the same name; and
    the hash of each at iteration 12."""
    bench.lenet()
    hashes = {}
    for seed, folder in ((1, "one"), (2, "two")):
        (bench.folder / folder).mkdir()
        done = bench.train(short(bench, f"{folder}.prototxt", seed, max_iter=12, snapshot=10,
                                 snapshot_prefix=bench.folder / folder / "snap", snapshot_after_train=False,
                                 snapshot_format=snapshot_format),
                           run_dir=f"run-{folder}")
        hashes[folder] = done.summary["weights_hash"]
    assert hashes["one"] != hashes["two"]
    return hashes


def resume(bench, folder, suffix="", **options):
    solver = short(bench, "resumed.prototxt", 3, max_iter=12, snapshot_prefix=bench.folder / "resumed",
                   snapshot_after_train=False)
    return jobs.run(bench.poseidon, *bench.arguments(solver, ("--snapshot", f"{state(folder, 10)}{suffix}"), "resumed"),
                    cwd=bench.folder, **options)


def test_a_copied_snapshot_resumes_with_the_model_beside_it(bench, two_runs):
    one, two, copy = (bench.folder / name for name in ("one", "two", "copy"))
    shutil.copytree(one, copy)
    for path in two.iterdir():  # a later run leaves its files where the copied state says its model is
        shutil.copy(path, one)
    assert resume(bench, copy).code == 0
    assert jobs.summary_of(bench.folder / "resumed")["weights_hash"] == two_runs["one"]
    # Without the neighbour it would be the other run's model.
    model(copy, 10).unlink()
    refused = resume(bench, copy)
    assert refused.code == 1 and len(refused.err.lines) == 1
    assert "snap_iter_10.solverstate does not belong to" in refused.err.text
    model(one, 10).unlink()
    refused = resume(bench, copy)
    assert refused.code == 1 and "is neither beside it nor at" in refused.err.text


@pytest.fixture(scope="module")
def killed_at(tmp_path_factory):
    library = tmp_path_factory.mktemp("preload") / "killed_at.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, pathlib.Path(__file__).with_name("killed_at.c"), "-ldl"],
                   check=True)
    return library


@pytest.mark.parametrize("snapshot_format, suffix", [(BINARY, ""), (HDF5, ".h5")], ids=["binary", "hdf5"])
def test_killed_at_any_call_of_a_snapshot_an_old_or_a_new_one_is_whole(bench, two_runs, killed_at, snapshot_format,
                                                                       suffix):
    """In a folder that holds an earlier run's files of the same names."""
    folder = bench.folder / "used"
    solver = short(bench, "new.prototxt", 2, max_iter=10, snapshot=10, snapshot_prefix=folder / "snap",
                   snapshot_format=snapshot_format)
    seen = set()
    for call in range(1, 100):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(bench.folder / "one", folder)
        died = jobs.run(bench.poseidon, *bench.arguments(solver, (), "new"), cwd=bench.folder,
                        environment={"LD_PRELOAD": str(killed_at), "POSEIDON_KILL_AT": str(call),
                                     "POSEIDON_KILL_PATH": "used/snap_iter"})
        if died.code == 0:
            break
        assert died.code == -signal.SIGKILL, died.err.text
        resumed = resume(bench, folder, suffix)
        assert resumed.code == 0, f"killed at call {call}: {resumed.err.text}"
        found = jobs.summary_of(bench.folder / "resumed")["weights_hash"]
        assert found in two_runs.values(), f"a mixture after call {call}"
        seen.add(found)
    assert call > 8 and seen == set(two_runs.values())
    assert sorted(path.name for path in folder.iterdir()) == [
        f"snap_iter_10.{kind}{suffix}" for kind in ("caffemodel", "solverstate")]


@pytest.mark.parametrize("options", (("--hosts", "localhost:1"), ("--servers", 1)))
def test_one_worker_that_was_launched_stops_with_a_snapshot(bench, options):
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, snapshot_prefix=bench.folder / "snap")
    with bench.start(solver, *options) as job:
        assert job.out.wait(r"^iteration 10,")
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0, job.err.text
    assert len(snapshots(bench.folder)) == 1


def test_fine_tuning_begins_with_the_weights_of_the_layers_named_alike(bench):
    fields = {"snapshot_prefix": bench.folder / "snap"}
    first = bench.train(bench.solver(snapshot=30, **fields), "--workers", 2)
    renamed = (bench.folder / "net.prototxt").read_text().replace('"ip2"', '"other"')
    tuned = bench.train(
        bench.solver(net=bench.write("renamed.prototxt", renamed), **fields), "--workers", 2,
        "--weights", model(bench.folder, 30), run_dir="tuned")
    metrics = [json.loads(line) for line in (tuned.run_dir / "metrics.jsonl").open()]
    # The last layer starts anew, everything below it is trained, and the first worker says so.
    told = [line for line in tuned.out.lines if line.startswith("weights of ")]
    assert len(told) == 1 and told[0].endswith("; not in the net: ip2; not in the file, left as they were: other")
    scored = jobs.run(bench.poseidon, "test", "--model", bench.folder / "renamed.prototxt", "--weights",
                      model(bench.folder, 30), "--iterations", 1, "--threads", 1)
    assert [line for line in scored.err.lines if "left as they were: other" in line]
    assert metrics[0]["outputs"]["loss"] > 1
    same = bench.train(bench.solver(**fields), "--workers", 2, "--weights", model(bench.folder, 30),
                       run_dir="same")
    metrics = [json.loads(line) for line in (same.run_dir / "metrics.jsonl").open()]
    assert metrics[0]["iteration"] == 0
    assert metrics[0]["outputs"]["loss"] == pytest.approx(first.summary["test"]["loss"], rel=1e-5)


@pytest.mark.parametrize("workers", (1, 3))
def test_the_test_command_scores_what_training_reported(bench, workers):
    done = bench.train(bench.solver(max_iter=15, snapshot=15, snapshot_prefix=bench.folder / "snap"),
                       "--workers", workers)
    scored = jobs.run(bench.poseidon, "test", "--model", bench.folder / "net.prototxt", "--weights",
                      model(bench.folder, 15), "--iterations", 5, "--threads", 1)
    assert scored.code == 0, scored.err.text
    values = dict(line.split(" = ")[:2] for line in scored.out.lines if " = " in line)
    assert float(values["accuracy"]) == pytest.approx(done.summary["test"]["accuracy"], rel=1e-5)
    assert float(values["loss"].split()[0]) == pytest.approx(done.summary["test"]["loss"], rel=1e-4)


def train_without_snapshots(bench, solver, reason, left, **options):
    """Trains to the end while snapshots are refused for `reason`; the failed job, which says what is left."""
    done = jobs.run(bench.poseidon, *bench.arguments(solver, ("--workers", 2, *PINNED), "run"), cwd=bench.folder, **options)
    assert done.code == 1, done.err.text
    complaints = [line for line in done.err.lines if "no snapshot at iteration" in line]
    assert len(complaints) == 3 and all(reason in line for line in complaints), done.err.text
    assert "the model and state of iteration 30 are lost" in done.err.lines[-1] and left in done.err.lines[-1]
    summary = jobs.summary_of(bench.folder / "run")
    assert summary["iterations"] == 30 and summary["replicas_equal"]
    assert summary["snapshot"]["lost"]["iteration"] == 30 and reason in summary["snapshot"]["lost"]["reason"]
    assert summary["snapshot"]["written"] is None
    return done


def check_first_snapshot(bench, folder, **fields):
    """The earlier one is left, whole, and nothing of those that were refused."""
    assert not [path for path in folder.iterdir() if "tmp" in path.name], list(folder.iterdir())
    first = min(snapshots(folder))
    assert not set(snapshots(folder)) - {first}
    assert len(list(folder.glob("snap_iter_*"))) == 2, list(folder.iterdir())
    again = bench.train(bench.solver("again.prototxt", net=bench.folder / "net.prototxt",
                                     max_iter=first + 5, test_interval=None, test_iter=None,
                                     snapshot_prefix=bench.folder / "elsewhere", **fields),
                        "--workers", 2, *PINNED, "--snapshot", state(folder, first), run_dir="again")
    assert again.summary["iterations"] == first + 5


def with_first_snapshot(bench, folder, max_iter=5, **fields):
    bench.train(bench.solver(max_iter=max_iter, snapshot=max_iter, test_interval=None,
                             test_iter=None, snapshot_prefix=folder / "snap", **fields),
                "--workers", 2, *PINNED, run_dir="before")
    return bench.solver(snapshot=10, snapshot_prefix=folder / "snap", **fields)


@pytest.mark.parametrize("which", ("model", "state"))
def test_a_file_size_limit_stops_snapshots_not_training(bench, which):
    folder = bench.folder / "limited"
    folder.mkdir()
    # Adam's states hold two numbers for each weight.
    fields = {"type": "Adam", "base_lr": 0.001, "momentum2": 0.999}
    solver = with_first_snapshot(bench, folder, **fields)
    sizes = {"model": model(folder, 5).stat().st_size, "state": state(folder, 5).stat().st_size}
    assert sizes["model"] < sizes["state"]

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[which] - 1, sizes[which] - 1))

    # The trace is larger than a model: it too is refused, after the summary.
    done = train_without_snapshots(bench, solver, "File too large", "this run has none", before=limit)
    assert any("no trace" in line and "trace.json" in line for line in done.err.lines)
    check_first_snapshot(bench, folder, **fields)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB; skips where nothing can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_stops_snapshots_not_training(bench, small_disk):
    solver = with_first_snapshot(bench, small_disk)
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize - 8192))
    train_without_snapshots(bench, solver, "No space left on device", "this run has none")
    check_first_snapshot(bench, small_disk)


def test_a_full_disk_is_refused_at_the_start(bench, small_disk):
    solver = with_first_snapshot(bench, small_disk)
    (small_disk / "run").mkdir()
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
    for options, words in ((("--run-dir", small_disk / "run"), "run directory"), ((), "snapshot_prefix")):
        refused = jobs.run(bench.poseidon, "train", "--solver", solver, *options, cwd=bench.folder)
        assert refused.code == 1 and len(refused.err.lines) == 1, refused.err.text
        assert words in refused.err.text and "No space left on device" in refused.err.text


def test_the_last_line_names_the_snapshot_that_is_left(bench, small_disk):
    bench.lenet()
    solver = short(bench, "solver.prototxt", 1, max_iter=30, snapshot=10, snapshot_prefix=small_disk / "snap")
    done = jobs.run(bench.poseidon, *bench.arguments(solver, (), "run"), cwd=bench.folder)
    assert done.code == 1  # there is room for some of three, not for all
    left = max(snapshots(small_disk))
    assert left < 30
    assert f"the one of iteration {left} is left, {state(small_disk, left)}" in done.err.lines[-1]
    assert jobs.summary_of(bench.folder / "run")["snapshot"]["written"]["iteration"] == left


def test_a_run_directory_that_is_used_again_keeps_the_runs_apart(bench):
    bench.lenet()
    hashes = []
    for seed in (1, 2, 3):
        done = bench.train(short(bench, "solver.prototxt", seed, max_iter=5, snapshot_prefix=bench.folder / "snap"),
                           "--workers", 2)
        hashes.append(done.summary["weights_hash"])
    assert len(set(hashes)) == 3
    # A run that is refused leaves it as it was, and makes none.
    before = sorted(path.relative_to(done.run_dir) for path in done.run_dir.rglob("*"))
    for folder in (done.run_dir, bench.folder / "new" / "run"):
        refused = jobs.run(bench.poseidon, "train", "--solver", "nowhere.prototxt", "--run-dir", folder, cwd=bench.folder)
        assert refused.code == 2
    assert sorted(path.relative_to(done.run_dir) for path in done.run_dir.rglob("*")) == before
    assert not (bench.folder / "new").exists()
    for number, folder in enumerate((done.run_dir / "earlier" / "1", done.run_dir / "earlier" / "2", done.run_dir)):
        assert jobs.summary_of(folder)["weights_hash"] == hashes[number]
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert len({entry["iteration"] for entry in metrics if entry["kind"] == "train"}) == len(
            [entry for entry in metrics if entry["kind"] == "train"])


def test_a_read_only_disk_stops_snapshots_not_training(bench, small_disk):
    solver = with_first_snapshot(bench, small_disk, max_iter=10)
    bench.write("solver.prototxt", (bench.folder / "solver.prototxt").read_text()
                .replace("max_iter: 30", f"max_iter: {ENDLESS}")
                .replace("snapshot: 10", f"snapshot: {ENDLESS}"))
    with bench.start(solver, "--workers", 2, *PINNED) as job:
        job.members(2)
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        os.kill(job.pid, signal.SIGHUP)
        # Training says why and goes on.
        assert job.err.wait("no snapshot at iteration .*Read-only file system")
        before = len(job.out.lines)
        with job.out.changed:
            assert job.out.changed.wait_for(
                lambda: len([l for l in job.out.lines if l.startswith("iteration")]) > before + 1,
                jobs.PATIENCE)
        os.kill(job.pid, signal.SIGINT)
        assert job.finish() == 1
        assert "of the snapshots this run has none" in job.err.lines[-1]
    assert snapshots(small_disk) == [10]
    # A solver that will want snapshots there is refused at the start.
    refused = jobs.run(bench.poseidon, *bench.arguments(solver, (), "refused"))
    assert refused.code == 1 and len(refused.err.lines) == 1
    assert "Read-only file system" in refused.err.text
    again = bench.train(bench.solver("again.prototxt", net=bench.folder / "net.prototxt",
                                     max_iter=15, test_interval=None, test_iter=None,
                                     snapshot_prefix=bench.folder / "elsewhere"),
                        "--workers", 2, "--snapshot", state(small_disk, 10), run_dir="again")
    assert again.summary["iterations"] == 15


def test_a_full_disk_loses_trace_and_metrics_before_the_summary(bench, small_disk):
    solver = bench.solver(max_iter=ENDLESS, test_interval=None, test_iter=None, display=1)
    with bench.start(solver, run_dir="disk/run") as job:
        assert job.out.wait(r"^iteration 200,")  # whose trace takes more than a summary
        free = os.statvfs(small_disk)
        with contextlib.suppress(OSError):  # the run writes too, and may have taken some of it
            (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
        assert job.err.wait("metrics")
        os.kill(job.pid, signal.SIGINT)
        assert job.finish() == 0, job.err.text
    assert len(job.err.lines) == 2 and "metrics" in job.err.lines[0] and "no trace" in job.err.lines[1], job.err.text
    assert jobs.summary_of(small_disk / "run")["iterations"] > 200
    assert job.out.lines[-1].endswith("run: summary.json, metrics.jsonl")
    assert {path.name for path in (small_disk / "run").iterdir()} == {"summary.json", "metrics.jsonl"}


def test_a_run_directory_that_is_removed_is_an_error(bench):
    """Whenever that happens: rank 0 misses it for its results, or the launcher at the end."""
    solver = bench.solver(max_iter=ENDLESS, test_interval=None, test_iter=None, display=1)
    with bench.start(solver, "--workers", 2) as job:
        assert job.out.wait(r"^iteration [1-9]"), job.err.text
        shutil.rmtree(bench.folder / "run")
        os.kill(job.pid, signal.SIGINT)
        assert job.finish() == 1
    assert re.search(r"^poseidon: .*cannot open .*/run/summary.json.tmp", job.err.lines[-1]), job.err.text
    assert not job.out.count("results in")
    # In between: the results are there when the last of them is written.
    solver = bench.solver("short.prototxt", net=bench.folder / "net.prototxt", max_iter=30, test_interval=None,
                          test_iter=None, display=1)
    with bench.start(solver, "--workers", 2) as job:
        assert job.out.wait(r"^iteration [1-9]"), job.err.text
        (bench.folder / "run/members.jsonl").mkdir()
        assert job.finish() == 1
    assert re.search("^poseidon: the job ended well, and its results are not complete: .*members.jsonl", job.err.lines[-1])


def test_nothing_is_written_through_links_that_others_put_into_a_folder(bench):
    precious = bench.write("precious", "mine")
    (bench.folder / "run").mkdir()
    names = [f"run/{name}" for name in ("summary.json.tmp", "plan.json.tmp", "trace.json.tmp", "metrics.jsonl",
                                        "members.jsonl.tmp", "members.jsonl")]
    for name in (*names, "snap_iter_4.caffemodel.tmp", "snap_iter_4.solverstate.tmp"):
        (bench.folder / name).symlink_to(precious)
    solver = bench.solver(max_iter=4, test_interval=None, test_iter=None, snapshot=4, snapshot_prefix=bench.folder / "snap")
    assert bench.train(solver, "--workers", 2).summary["iterations"] == 4
    assert precious.read_text() == "mine"
    left = {path.name for path in (bench.folder / "run").iterdir()}
    assert left == {"summary.json", "metrics.jsonl", "plan.json", "trace.json", "members.jsonl", "earlier"}


def test_a_model_that_is_a_pipe_is_not_waited_for(bench):
    solver = bench.solver(max_iter=4, test_interval=None, test_iter=None, snapshot=4, snapshot_prefix=bench.folder / "snap")
    bench.train(solver)
    (bench.folder / "snap_iter_4.caffemodel").unlink()
    os.mkfifo(bench.folder / "snap_iter_4.caffemodel")
    refused = jobs.run(bench.poseidon, *bench.arguments(
        solver, ("--snapshot", bench.folder / "snap_iter_4.solverstate"), "refused"))
    assert refused.code == 1 and "is neither beside it nor at" in refused.err.lines[-1], refused.err.text


def test_hdf5_snapshots_resume_bit_for_bit_and_are_scored(bench):
    bench.lenet()
    fields = {"snapshot_prefix": bench.folder / "snap"}

    def hdf5(solver):
        solver.write_text(solver.read_text() + "snapshot_format: HDF5\n")
        return solver

    whole = bench.train(hdf5(short(bench, "whole.prototxt", 1, max_iter=8, snapshot=4, **fields)), "--workers", 2, *PINNED)
    names = {path.name for path in bench.folder.glob("snap_iter_*")}
    assert names == {f"snap_iter_{n}.{kind}.h5" for n in (4, 8) for kind in ("caffemodel", "solverstate")}
    resumed = bench.train(hdf5(short(bench, "resumed.prototxt", 1, max_iter=8, snapshot_prefix=bench.folder / "other")),
                          "--workers", 2, *PINNED, "--snapshot", bench.folder / "snap_iter_4.solverstate.h5", run_dir="resumed")
    assert resumed.summary["weights_hash"] == whole.summary["weights_hash"]
    weights = bench.folder / "snap_iter_8.caffemodel.h5"
    scored = jobs.run(bench.poseidon, "test", "--model", bench.folder / "net.prototxt", "--weights", weights,
                      "--iterations", 5, "--threads", 1)
    assert scored.code == 0 and "accuracy = " in scored.out.text and scored.err.text == "", scored.err.text
    listed = subprocess.run(["h5dump", "-n", weights], capture_output=True, text=True, check=True).stdout.split()
    assert {"/data/conv1/0", "/data/conv1/1", "/data/ip1/0", "/data/ip2/1"} <= set(listed)
    mixed = bench.folder / "mixed"
    mixed.mkdir()
    (mixed / "snap_iter_4.solverstate.h5").write_bytes((bench.folder / "snap_iter_4.solverstate.h5").read_bytes())
    (mixed / "snap_iter_4.caffemodel.h5").write_bytes(weights.read_bytes())
    (bench.folder / "snap_iter_4.caffemodel.h5").unlink()
    refused = jobs.run(bench.poseidon, *bench.arguments(
        bench.folder / "resumed.prototxt", ("--snapshot", mixed / "snap_iter_4.solverstate.h5"), "refused"))
    assert refused.code == 1 and "mixed/snap_iter_4.caffemodel.h5" in refused.err.lines[-1], refused.err.text
