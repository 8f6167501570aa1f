# SPDX-License-Identifier: Apache-2.0
"""What Caffe accepts and prints, and what becomes of numbers that stop being finite."""

import json
import resource

import pytest

import job as jobs

SANITIZED = jobs.os.environ.get("POSEIDON_SANITIZE", "") not in ("", "OFF")


def exploding(bench, **fields):
    """Training that overflows after a few iterations: its rate is far too large."""
    fields = {"base_lr": 1e18, "max_iter": 40, "test_iter": None, "test_interval": None, **fields}
    return bench.solver("exploding.prototxt", **fields)


def sentences(job):
    return [line for line in job.err.lines if line.startswith("poseidon: ")]


@pytest.mark.parametrize("arguments", ((), ("--sync",), ("--workers", 2), ("--workers", 3, "--scheme", "ip1=sfb")))
def test_a_loss_that_is_not_finite_ends_the_run(bench, arguments):
    """Exit code 4, one sentence, the results say it, and what was saved before stays as it was."""
    solver = exploding(bench, snapshot=1, snapshot_after_train=True, snapshot_prefix=bench.folder / "snap")
    done = jobs.run(bench.poseidon, *bench.arguments(solver, arguments, "run"), cwd=bench.folder)
    assert done.code == 4, done.err.text
    assert len(sentences(done)) == 1, done.err.text
    assert "poseidon: the loss is " in done.err.text and "at iteration " in done.err.text
    assert "training stopped" in done.err.text
    summary = jobs.summary_of(bench.folder / "run")
    broken = summary["not_finite"]
    assert broken["stopped"] and broken["message"] in done.err.text
    # No snapshot holds what is broken: each can be resumed.
    states = sorted(bench.folder.glob("snap_iter_*.solverstate"))
    for state in states:
        assert int(state.stem.rsplit("_", 1)[1]) <= broken["iteration"]
    assert states
    bench.train(bench.solver("calm.prototxt", base_lr=0.0, momentum=0.0, max_iter=1, test_iter=None, test_interval=None),
                "--snapshot", states[-1], run_dir="again")


def test_go_goes_on_and_says_so_once(bench):
    done = bench.train(exploding(bench, max_iter=20), "--on-nan", "go", "--workers", 2)
    assert done.err.count("the loss is .*; training goes on") in (1, 2), done.err.text  # a line of each worker at most
    assert done.summary["iterations"] == 20
    assert not done.summary["not_finite"]["stopped"]


def test_layers_of_one_name_train_together(bench):
    """In the session they have names of their own; the model has Caffe's."""
    net = bench.lenet().read_text().replace('name: "ip2"', 'name: "ip1"')
    solver = bench.solver(net=bench.write("one-name.prototxt", net), max_iter=12, test_interval=6, snapshot=6,
                          snapshot_after_train=True,
                          snapshot_prefix=bench.folder / "snap")
    options = ("--workers", 2, "--scheme", "ip1=kv", "--scheme", "ip1#2=kv")
    bench.train(solver, *options[2:], run_dir="one-worker")
    done = bench.train(solver, *options)
    assert [layer["layer"] for layer in done.summary["plan"]] == ["conv1", "ip1", "ip1#2"]
    assert done.summary["replicas_equal"]
    resumed = bench.train(solver, *options, "--snapshot", bench.folder / "snap_iter_6.solverstate", run_dir="resumed")
    assert resumed.summary["weights_hash"] == done.summary["weights_hash"]
    assert resumed.summary["test"] == done.summary["test"]


def test_debug_info_is_printed(bench):
    done = bench.train(bench.solver(debug_info=True, max_iter=2, display=1), "--workers", 2)
    for line in (r"\[Forward\] Layer conv1, top blob conv1 data: ", r"\[Forward\] Layer conv1, param blob 0 data: ",
                 r"\[Backward\] Layer ip2, bottom blob ip1 diff: ", r"\[Update\] Layer ip2, param 1 data: "):
        assert done.err.count(line) == 2, done.err.text
    assert done.err.count(r"All net params \(data, diff\)") == 2


def test_scoring_prints_a_line_a_batch(bench):
    bench.train(bench.solver(max_iter=2, test_iter=None, test_interval=None, snapshot_after_train=True,
                             snapshot_prefix=bench.folder / "snap"))
    done = jobs.run(bench.poseidon, "test", "--model", bench.lenet(), "--weights",
                    bench.folder / "snap_iter_2.caffemodel", "--iterations", 5)
    assert done.code == 0, done.err.text
    for batch in range(5):
        assert done.out.count(rf"^Batch {batch}, accuracy = ") == 1, done.out.text
        assert done.out.count(rf"^Batch {batch}, loss = ") == 1
    accuracies = [float(line.split(" = ")[1]) for line in done.out.lines if line.startswith("Batch") and "accuracy" in line]
    mean = float(done.out.find(r"^accuracy = (\S+)").group(1))
    assert abs(sum(accuracies) / 5 - mean) < 1e-4


@pytest.mark.parametrize("text,expected", (
    ('name: "empty"', "no layers"),
    ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 } } }', "no layer that learns"),
))
def test_a_net_that_learns_nothing_is_refused(bench, text, expected):
    solver = bench.solver(net=bench.write("nothing.prototxt", text), test_iter=None, test_interval=None)
    done = jobs.run(bench.poseidon, *bench.arguments(solver, (), "run"), cwd=bench.folder)
    assert done.code == 1
    assert len(done.err.lines) == 1 and expected in done.err.text


def test_a_long_test_ends_when_asked(bench):
    """Caffe's largest number of test batches: no memory is asked for up front, and SIGTERM is heard."""
    solver = bench.solver(test_iter=999999999)
    with bench.start(solver, "--workers", 2) as job:
        assert job.out.wait("^training ")
        job.process.terminate()
        assert job.finish() == 0, job.err.text


@pytest.mark.skipif(SANITIZED, reason="sanitizers reserve address space")
@pytest.mark.parametrize("megabytes", (150, 300, 450, 600, 750, 900, 1200, 1600, 2400))
@pytest.mark.parametrize("arguments", ((), ("--sync",)))
def test_little_address_space_ends_in_a_sentence(bench, megabytes, arguments):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    solver = bench.solver(max_iter=3, test_iter=None, test_interval=None)
    done = jobs.run(bench.poseidon, *bench.arguments(solver, arguments, "run"), cwd=bench.folder, before=limit)
    print(done.err.text)
    assert 0 <= done.code < 128, (done.code, done.err.text)
    assert "terminate called" not in done.err.text and "DefaultCPUAllocator" not in done.err.text
    if done.code != 0:
        assert len(done.err.lines) == 1, done.err.text


@pytest.mark.skipif(SANITIZED, reason="sanitizers reserve address space")
def test_a_layer_too_large_for_memory(bench):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    solver = bench.solver(net=bench.lenet(hidden=2_000_000_000))
    done = jobs.run(bench.poseidon, *bench.arguments(solver, (), "run"), cwd=bench.folder, before=limit)
    assert done.code == 1 and len(done.err.lines) == 1, done.err.text
    assert "layer 'ip1' (InnerProduct): out of memory: cannot allocate" in done.err.text


def test_what_trains_where_is_said(bench):
    """Also of a net without a name whose solver asks for a GPU, and of outputs beside the loss."""
    net = bench.lenet().read_text().replace('name: "SmallLeNet"', "")
    net = net.replace('top: "accuracy"\n  include { phase: TEST }', 'top: "accuracy"')
    solver = bench.solver(net=bench.write("net.prototxt", net), max_iter=1, display=1, solver_mode=1)
    done = bench.train(solver)
    assert "subnormal numbers flushed to zero" in done.out.text
    assert done.out.count("^solver_mode is GPU; the engine finds no GPU here") == 1
    assert done.out.find(rf"^training the net of {solver} with 1 worker"), done.out.text
    outputs = r"accuracy = \S+, loss = \S+ \(\* 1 = \S+ loss\)$"
    assert done.out.find("^iteration 0, outputs of the training net: " + outputs), done.out.text
    metrics = [json.loads(line) for line in (done.run_dir / "metrics.jsonl").open()]
    assert all(set(m["outputs"]) == {"accuracy", "loss"} for m in metrics if m["kind"] == "train")
