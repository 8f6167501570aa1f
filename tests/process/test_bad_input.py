# SPDX-License-Identifier: Apache-2.0
"""A user's mistake is answered with one sentence that says what, where and what was expected,
and a non-zero exit: no stack trace, no abort, no hanging."""

import os
import re
import socket
import stat

import pytest

import caffe_files
import job as jobs
import lmdb_files
import messages
from ports import free_port

CASES = []


def case(function):
    """Registers a case: given a bench, the arguments and what the sentence must contain."""
    CASES.append(pytest.param(function, id=function.__name__))
    return function


def edited(bench, old, new, name="net.prototxt"):
    """The small LeNet with one text replaced, and its solver."""
    text = caffe_files.small_lenet(bench.databases.train, bench.databases.test)
    assert old in text
    return bench.solver(net=bench.write(name, text.replace(old, new, 1)))


def with_source(bench, source):
    text = caffe_files.small_lenet(source, bench.databases.test)
    return bench.solver(net=bench.write("net.prototxt", text))


def line_of(path, text):
    return 1 + next(i for i, line in enumerate(path.read_text().splitlines()) if text in line)


# ---- prototxt

@case
def missing_solver(bench):
    return ["--solver", "nowhere.prototxt"], ["nowhere.prototxt"]


@case
def missing_net(bench):
    return ["--solver", bench.solver(net="no-net.prototxt")], ["no-net.prototxt"]


@case
def solver_without_net(bench):
    solver = bench.write("solver.prototxt", 'lr_policy: "fixed"\nmax_iter: 1\n')
    return ["--solver", solver], ["0 training nets"]


@case
def malformed_solver(bench):
    solver = bench.write("solver.prototxt", "base_lr: 0.1\nmax_iter: ten\n")
    return ["--solver", solver], [f"{solver}:2"]


@case
def malformed_net(bench):
    solver = edited(bench, 'type: "Pooling"', 'type: Pooling"')
    net = bench.folder / "net.prototxt"
    return ["--solver", solver], [f"{net}:{line_of(net, 'Pooling')}"]


@case
def net_that_ends_too_soon(bench):
    text = caffe_files.small_lenet(bench.databases.train, bench.databases.test).rstrip()
    solver = bench.solver(net=bench.write("net.prototxt", text[:-1]))
    return ["--solver", solver], ["net.prototxt:"]


@case
def unknown_field(bench):
    solver = edited(bench, "kernel_size: 5", "kernel_width: 5")
    net = bench.folder / "net.prototxt"
    return ["--solver", solver], [f"{net}:{line_of(net, 'kernel_width')}: unknown field 'kernel_width' in ConvolutionParameter "
                                  "of layer 'conv1' (Convolution)"]


@case
def several_layers_that_are_not_there(bench):
    text = caffe_files.small_lenet(bench.databases.train, bench.databases.test)
    text += """
layer { name: "roi" type: "RegionLoss" bottom: "conv1" top: "roi" region_loss_param { side: 6 } }
layer { name: "script" type: "Nothing" top: "script" cache_param { a: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "roi" top: "bn" batch_norm_param { relu: true } }
"""
    solver = bench.solver(net=bench.write("net.prototxt", text))
    return ["--solver", solver], ["unknown layer type 'RegionLoss' of YOLO in layer 'roi'", "unknown layer type 'Nothing' of layer 'script'",
                                  "unknown field 'relu' of Intel Caffe in BatchNormParameter of layer 'bn' (BatchNorm)"]


@case
def unknown_solver_field(bench):
    solver = bench.write("solver.prototxt", 'net: "net.prototxt"\nlearning_rate: 0.1\n')
    return ["--solver", solver], [f"{solver}:2", "learning_rate"]


@case
def unknown_layer_type(bench):
    return (["--solver", edited(bench, 'type: "Pooling"', 'type: "Poling"')],
            ["layer 'pool1': unknown layer type 'Poling' (did you mean 'Pooling'?)"])


@case
def unknown_solver_type(bench):
    return ["--solver", bench.solver(type="Newton")], ["Newton", "SGD", "Adam"]


@case
def unknown_policy_of_the_learning_rate(bench):
    return ["--solver", bench.solver(lr_policy="sometimes")], ["sometimes", "fixed"]


@case
def unknown_bottom(bench):
    return (["--solver", edited(bench, 'bottom: "pool1"', 'bottom: "pool2"')], ["ip1", "pool2"])


@case
def shapes_that_do_not_fit(bench):
    solver = edited(bench, 'layer { name: "relu1"', """layer {
  name: "sum" type: "Eltwise" bottom: "conv1" bottom: "pool1" top: "sum"
}
layer { name: "relu1\"""")
    return ["--solver", solver], ["'sum'", "12x7x12x12", "12x7x6x6"]


@case
def kernel_larger_than_the_image(bench):
    return ["--solver", edited(bench, "kernel_size: 5", "kernel_size: 50")], ["conv1", "50", "28"]


@case
def labels_out_of_range(bench):
    """The first test's images have labels 0 to 9 in turn."""
    return (["--solver", edited(bench, "num_output: 10", "num_output: 5")],
            ["label 9 is not among the 5 classes (row 9 of the batch, record 9 of " + str(bench.databases.test)])


@case
def interval_of_zero(bench):
    return ["--solver", bench.solver(test_interval=0)], ["test_interval"]


# ---- databases

@case
def missing_database(bench):
    source = bench.folder / "no-lmdb"
    return ["--solver", with_source(bench, source)], [str(source), "images"]


@case
def empty_database(bench):
    source = lmdb_files.write(bench.folder / "empty-lmdb", [])
    return ["--solver", with_source(bench, source)], [str(source), "is empty"]


@case
def folder_that_is_no_database(bench):
    source = bench.folder / "folder"
    source.mkdir()
    return ["--solver", with_source(bench, source)], [str(source)]


@case
def damaged_database(bench):
    source = bench.folder / "damaged-lmdb"
    source.mkdir()
    (source / "data.mdb").write_bytes(b"\x5a" * 20000)
    return ["--solver", with_source(bench, source)], [str(source)]


@case
def damaged_record(bench):
    good = messages.datum(1, 28, 28, 3)
    records = [(b"%08d" % i, good) for i in range(20)]
    records[13] = (b"00000013", b"\xff not a datum")
    source = lmdb_files.write(bench.folder / "record-lmdb", records)
    return ["--solver", with_source(bench, source), "--threads", 1], [str(source), "00000013"]


@case
def record_of_another_size(bench):
    records = [(b"%08d" % i, messages.datum(1, 28, 28, 3)) for i in range(20)]
    records[13] = (b"00000013", messages.datum(1, 28, 27, 3))
    source = lmdb_files.write(bench.folder / "size-lmdb", records)
    return (["--solver", with_source(bench, source), "--threads", 1],
            [str(source), "00000013", "28x28", "28x27"])


@case
def damaged_record_at_one_of_two_workers(bench):
    good = messages.datum(1, 28, 28, 3)
    records = [(b"%08d" % i, good) for i in range(48)]
    records[13] = (b"00000013", b"\xff not a datum")
    source = lmdb_files.write(bench.folder / "record-lmdb", records)
    return (["--solver", with_source(bench, source), "--workers", 2],
            [str(source), "00000013", "worker"])


# ---- weights and snapshots

def trained(bench, **options):
    """Files of a short run, and a solver whose net has another size."""
    bench.train(bench.solver(max_iter=2, snapshot=2, test_interval=None, test_iter=None,
                             snapshot_prefix=bench.folder / "snap"))
    return bench.solver(net=bench.lenet("other.prototxt", **options), test_interval=None,
                        test_iter=None)


@case
def weights_that_do_not_fit(bench):
    solver = trained(bench, hidden=50)
    return (["--solver", solver, "--weights", bench.folder / "snap_iter_2.caffemodel"],
            ["snap_iter_2.caffemodel", "ip1", "48x252", "50x252", "to learn the layer anew, give it another name"])


@case
def snapshot_that_does_not_fit(bench):
    solver = trained(bench, hidden=50)
    return (["--solver", solver, "--snapshot", bench.folder / "snap_iter_2.solverstate",
             "--workers", 2], ["ip1", "48x252", "50x252"])


@case
def missing_weights(bench):
    return ["--solver", bench.solver(), "--weights", "no.caffemodel"], ["no.caffemodel"]


@case
def weights_of_another_format(bench):
    path = bench.write("text.caffemodel", "these are no weights")
    return ["--solver", bench.solver(), "--weights", path], [str(path)]


@case
def missing_snapshot(bench):
    return ["--solver", bench.solver(), "--snapshot", "no.solverstate"], ["no.solverstate"]


@case
def weights_in_place_of_a_snapshot(bench):
    solver = trained(bench)
    return (["--solver", solver, "--snapshot", bench.folder / "snap_iter_2.caffemodel"],
            ["snap_iter_2.caffemodel holds a model's weights, expected a solver state; --weights"])


@case
def a_snapshot_in_place_of_weights(bench):
    solver = trained(bench)
    return (["--solver", solver, "--weights", bench.folder / "snap_iter_2.solverstate"],
            ["snap_iter_2.solverstate holds a solver's state, expected a model's weights; --snapshot"])


@case
def a_snapshot_of_the_other_format(bench):
    bench.write("snap_iter_2.solverstate.h5", "")
    return (["--solver", bench.solver(), "--snapshot", bench.folder / "snap_iter_2.solverstate"],
            ["No such file", f"there is {bench.folder}/snap_iter_2.solverstate.h5"])


@case
def weights_of_the_other_format(bench):
    bench.write("w.caffemodel.h5", "")
    return ["--solver", bench.solver(), "--weights", "w.caffemodel"], ["w.caffemodel: No such file or directory; there is w.caffemodel.h5"]


@case
def missing_snapshot_on_two_workers(bench):
    return (["--solver", bench.solver(), "--snapshot", "no.solverstate", "--workers", 2],
            ["no.solverstate"])


@case
def damaged_snapshot(bench):
    path = bench.folder / "cut.solverstate"
    path.write_bytes(b"\x08\x05\x12\xff")
    return ["--solver", bench.solver(), "--snapshot", path], [str(path)]


@case
def snapshot_whose_model_is_gone(bench):
    solver = trained(bench)
    (bench.folder / "snap_iter_2.caffemodel").unlink()
    return (["--solver", solver, "--snapshot", bench.folder / "snap_iter_2.solverstate"],
            ["snap_iter_2.caffemodel"])


@case
def snapshot_and_weights(bench):
    for name in "a.solverstate", "b.caffemodel":
        bench.write(name, "")
    return (["--solver", bench.solver(), "--snapshot", "a.solverstate", "--weights",
             "b.caffemodel"], ["snapshot", "weights", "not both"])


@case
def snapshot_prefix_in_no_folder(bench):
    return (["--solver", bench.solver(snapshot=10, snapshot_prefix="/dev/null/x/snap")],
            ["snapshot_prefix /dev/null/x/snap is in folder /dev/null/x, which cannot be made: "])


# ---- flags

@case
def gpu(bench):
    return ["--solver", bench.solver(), "-gpu", "0"], ["--gpu 0", "CPU", "leave the flag out"]


@case
def unknown_flag(bench):
    return ["--solver", bench.solver(), "--wokers", "2"], ["--wokers"]


@case
def no_solver(bench):
    return ["--workers", "2"], ["--solver"]


@case
def no_workers(bench):
    return ["--solver", bench.solver(), "--workers", "0"], ["--workers"]


@case
def unknown_policy(bench):
    return ["--solver", bench.solver(), "--policy", "luck"], ["--policy", "luck"]


@case
def unknown_scheme(bench):
    return (["--solver", bench.solver(), "--workers", 2, "--scheme", "ip1=fast"],
            ["fast", "ip1", "expected kv"])


@case
def machines_of_other_workers(bench):
    return (["--solver", bench.solver(), "--workers", 3, "--machines", "a,b"],
            ["machines names 2", "3 workers"])


@case
def scheme_without_layer(bench):
    return ["--solver", bench.solver(), "--workers", 2, "--scheme", "sfb"], ["LAYER=kv"]


@case
def scheme_of_an_unknown_layer(bench):
    return (["--solver", bench.solver(), "--workers", 2, "--scheme", "ip9=sfb"],
            ["ip9", "conv1", "ip1", "ip2"])


@case
def factors_of_a_convolution(bench):
    return (["--solver", bench.solver(), "--workers", 2, "--scheme", "conv1=sfb"],
            ["conv1", "factors"])


@case
def missing_plan(bench):
    return ["--solver", bench.solver(), "--workers", 2, "--plan", "no.json"], ["no.json"]


@case
def plan_that_joins_an_unknown_layer(bench):
    plan = '{"layers": [{"layer": "conv1", "scheme": "kv", "joined": ["conv1", "conv9"]}]}'
    return (["--solver", bench.solver(), "--workers", 2, "--plan", bench.write("plan.json", plan)],
            ["plan.json joins layer 'conv9'", "conv1, ip1, ip2"])


@case
def plan_that_joins_what_is_no_list(bench):
    plan = '{"layers": [{"layer": "conv1", "scheme": "kv", "joined": "ip1"}]}'
    return (["--solver", bench.solver(), "--workers", 2, "--plan", bench.write("plan.json", plan)],
            ["plan.json", "'joined'", "conv1"])


@case
def plan_that_is_none(bench):
    return (["--solver", bench.solver(), "--workers", 2, "--plan",
             bench.write("plan.json", '{"layers": [{"layer": "ip1"}]}')], ["plan.json", "scheme"])


@case
def batch_that_cannot_be_divided(bench):
    return (["--solver", bench.solver(), "--workers", 5, "--global-batch"],
            ["images", "batch_size 12", "5 workers"])


@case
def run_dir_that_cannot_be_made(bench):
    bench.write("file", "")
    return ["--solver", bench.solver(), "--run-dir", bench.folder / "file/run"], ["file/run"]


@case
def token_file_open_to_others(bench):
    path = bench.write("token", "ab" * 32 + "\n")
    path.chmod(0o644)
    return ["--solver", bench.solver(), "--workers", 2, "--token-file", path], [str(path), "0600"]


@case
def token_file_that_is_short(bench):
    path = bench.write("token", "abcd\n")
    path.chmod(0o600)
    return (["--solver", bench.solver(), "--workers", 2, "--token-file", path],
            [str(path), "64 hexadecimal"])


@case
def missing_token_file(bench):
    return (["--solver", bench.solver(), "--workers", 2, "--token-file", "no-token"],
            ["no-token"])


# ---- hosts

@case
def bad_hosts(bench):
    return ["--solver", bench.solver(), "--hosts", "a:2,b:many", "--workers", 2], ["b:many"]


@case
def too_few_slots(bench):
    return (["--solver", bench.solver(), "--hosts", "a:1,b:1", "--workers", 3], ["2", "3"])


@case
def missing_hostfile(bench):
    return ["--solver", bench.solver(), "--hostfile", "no-hosts", "--workers", 2], ["no-hosts"]


@case
def bad_hostfile(bench):
    path = bench.write("hosts", "# two\na slots=2\nb slots=2 what\n")
    return ["--solver", bench.solver(), "--hostfile", path, "--workers", 2], [f"{path}:3"]


@case
def bad_old_hostfile(bench):
    path = bench.write("hosts", "0 127.0.0.1 9999\n2 127.0.0.1 9999\n")
    return ["--solver", bench.solver(), "--hostfile", path, "--workers", 2], [f"{path}:2", "1"]


@case
def ssh_that_refuses(bench):
    return (["--solver", bench.solver(), "--hosts", "localhost:1,127.0.0.2:1", "--workers", 2,
             "--ssh", "/bin/false"], ["worker 1 on host 127.0.0.2"])


@case
def ssh_that_refuses_at_the_first_host(bench):
    return (["--solver", bench.solver(), "--hosts", "127.0.0.2:1,127.0.0.3:1", "--workers", 2,
             "--ssh", "/bin/false"], ["worker 0 on host 127.0.0.2"])


@case
def ssh_that_is_not_there(bench):
    return (["--solver", bench.solver(), "--hosts", "127.0.0.2:1,127.0.0.3:1", "--workers", 2,
             "--ssh", "/nowhere/ssh"], ["worker 0 on host 127.0.0.2", "/nowhere/ssh"])


@case
def unreachable_host(bench):
    """A real ssh, and a port where nothing listens."""
    return (["--solver", bench.solver(), "--hosts", "localhost:1,127.0.0.2:1", "--workers", 2,
             "--ssh", f"ssh -p {free_port()} -o StrictHostKeyChecking=no "
                      "-o UserKnownHostsFile=/dev/null"], ["worker 1 on host 127.0.0.2", "ssh"])


@case
def loopback_among_other_hosts(bench):
    """The other host cannot reach it."""
    return (["--solver", bench.solver(), "--hosts", "127.0.0.2:1,192.0.2.7:1", "--workers", 2,
             "--ssh", "/bin/false"], ["127.0.0.2", "192.0.2.7"])


@case
def host_without_address(bench):
    return (["--solver", bench.solver(), "--hosts", "localhost:1,no..name:1", "--workers", 2,
             "--ssh", "/bin/false"], ["no..name", "address"])


@pytest.mark.parametrize("make", CASES)
def test_one_sentence(bench, make):
    arguments, expected = make(bench)
    if "--run-dir" not in arguments:
        arguments += ["--run-dir", bench.folder / "bad-run"]
    done = jobs.run(bench.poseidon, "train", *arguments, cwd=bench.folder)
    check_sentence(done, expected)
    # A run directory holds something, the ends of a job's members or what was trained before, or there is none.
    run_dir = bench.folder / "bad-run"
    assert not run_dir.exists() or any(run_dir.iterdir())


def check_sentence(done, expected):
    print(done.err.text)
    assert done.code in (1, 2), (done.code, done.err.text)
    # What ssh itself says comes before.
    lines = [line for line in done.err.lines if not line.startswith(("ssh: ", "Warning: "))]
    assert len(lines) == 1, done.err.text
    assert lines[0].startswith("poseidon: ")
    for text in expected:
        assert text in lines[0], f"{text!r} is not in: {lines[0]}"
    assert "terminate called" not in done.err.text and "Traceback" not in done.err.text


@pytest.mark.parametrize("first", (True, False))
def test_port_in_use(bench, first):
    """Old host files give the port; somebody else has it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used, free = taken.getsockname()[1], free_port()
        ports = (used, free) if first else (free, used)
        path = bench.write("hosts", "".join(f"{i} 127.0.0.1 {p}\n" for i, p in enumerate(ports)))
        done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), (
            "--hostfile", path, "--workers", 2), "bad-run"), cwd=bench.folder)
    check_sentence(done, [f"127.0.0.1:{used}", "in use"])


def test_an_old_host_file_sets_the_ports(bench):
    ports = (free_port(), free_port())
    path = bench.write("hosts", "".join(f"{i} 127.0.0.1 {p}\n" for i, p in enumerate(ports)))
    solver = bench.solver(max_iter=10_000_000, test_interval=10_000_000)
    with bench.start(solver, "--hostfile", path, "--workers", 2) as job:
        assert jobs.listening_sockets(job.members(2)) == {("127.0.0.1", port) for port in ports}


def other_folder_ssh(bench, folder):
    """An ssh that runs the command on this machine, in another folder."""
    script = bench.write("ssh", f"""#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
cd {folder}
exec /bin/sh -c "exec ${{1##*exec }}"
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


@pytest.mark.parametrize("difference,expected", (
    (("num_output: 500", "num_output: 520"), ["ip1", "500x252", "520x252", "worker 1"]),
    (('"ip2"', '"ip3"'), ["ip2", "ip3", "worker 1"]),
))
def test_nets_that_differ(bench, difference, expected):
    """The second host has another net under the same name."""
    there = bench.folder / "there"
    there.mkdir()
    bench.lenet(hidden=500)  # else ip2 goes with conv1
    solver = caffe_files.solver("net.prototxt")
    bench.write("solver.prototxt", solver)
    (there / "solver.prototxt").write_text(solver)
    (there / "net.prototxt").write_text(
        (bench.folder / "net.prototxt").read_text().replace(*difference))
    done = jobs.run(bench.poseidon, "train", "--solver", "solver.prototxt", "--hosts",
                    "localhost:1,127.0.0.2:1", "--workers", 2, "--ssh",
                    other_folder_ssh(bench, there), "--run-dir", "bad-run", cwd=bench.folder)
    check_sentence(done, expected)


def test_hosts_that_agree_train(bench):
    """The same detour with the same files: TLS between two addresses, and the usual bits."""
    there = bench.folder / "there"
    there.mkdir()
    net = bench.lenet()
    solver = bench.solver(net=net)
    options = ("--scheme", "ip1=sfb", "--workers", 2)
    done = bench.train(solver, "--hosts", "127.0.0.2:1,127.0.0.3:1", "--ssh",
                       other_folder_ssh(bench, there), *options)
    assert done.summary["traffic"]["encryption_bytes_sent"] > 1000
    here = bench.train(solver, *options, run_dir="here")
    assert here.summary["weights_hash"] == done.summary["weights_hash"]


@pytest.mark.parametrize("arguments,expected", (
    ((), "there is no command"),
    (("trian",), "trian"),
    (("test", "--model", "no.prototxt", "--weights", "w"), "no.prototxt"),
    (("test", "--model", "/dev/null"), "--weights"),
    (("time", "--model", "no.prototxt"), "no.prototxt"),
    (("time", "--model", "/dev/null", "-gpu", "all"), "leave the flag out"),
    (("profile", "--model", "no.prototxt"), "no.prototxt"),
    (("convert-mnist", "no-images", "no-labels", "db"), "no-images"),
    (("member",), "poseidon train"),
))
def test_other_commands(poseidon, tmp_path, arguments, expected):
    done = jobs.run(poseidon, *arguments, cwd=tmp_path)
    check_sentence(done, [expected])


def test_a_score_needs_weights(poseidon, tmp_path):
    net = tmp_path / "net.prototxt"
    net.write_text("""layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 } }""")
    done = jobs.run(poseidon, "test", "--model", net, "--weights", "")
    check_sentence(done, ["cannot open"])


@pytest.mark.parametrize("what", ("labels of images", "too short", "database exists"))
def test_convert_mnist(poseidon, tmp_path, databases, what):
    images, labels = caffe_files.write_idx(tmp_path, "set", 10, seed=5)
    database = tmp_path / "db"
    if what == "labels of images":
        arguments, expected = (labels, images, database), str(labels)
    elif what == "too short":
        images.write_bytes(images.read_bytes()[:-1])
        arguments, expected = (images, labels, database), str(images)
    else:
        database.mkdir()
        arguments, expected = (images, labels, database), str(database)
    done = jobs.run(poseidon, "convert-mnist", *arguments)
    check_sentence(done, [expected])
    assert not (database / "data.mdb").exists()
    assert re.fullmatch(r"(set-images|set-labels|db)( (set-images|set-labels|db))*",
                        " ".join(sorted(os.listdir(tmp_path))))
