# SPDX-License-Identifier: Apache-2.0
"""Nets that read HDF5 lists and write HDF5 files, and nets in Caffe's first format."""

import random

import pytest

import caffe_files
import job as jobs

h5py = pytest.importorskip("h5py")

ROWS = (70, 50, 60)  # of each file; batches span files, and 180 rows are no multiple of them
INPUTS = 12


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """A folder with train.txt, whose three files are stored in different ways, and their paths relative to it."""
    import numpy

    folder = tmp_path_factory.mktemp("lists")
    source = random.Random(3)
    for number, rows in enumerate(ROWS):
        labels = numpy.array([source.randrange(4) for _ in range(rows)])
        data = numpy.array([[source.random() + (3 if column % 4 == label else 0) for column in range(INPUTS)]
                            for label in labels])
        with h5py.File(folder / f"part{number}.h5", "w") as file:
            packed = {"chunks": (16, 5), "compression": "gzip", "shuffle": True} if number == 1 else {}
            file.create_dataset("data", data=data.astype("f4" if number else "f8"), **packed)
            file.create_dataset("image", data=data.astype("f4").reshape(rows, 1, 4, 3))
            file.create_dataset("label", data=labels.astype("i4" if number else "f4"))
    (folder / "train.txt").write_text("".join(f"part{number}.h5\n" for number in range(len(ROWS))))
    return folder


def net_text(lists, batch, shuffle=True, output=""):
    return f"""
name: "lists"
layer {{ name: "rows" type: "HDF5Data" top: "data" top: "label" include {{ phase: TRAIN }}
        hdf5_data_param {{ source: "{lists / 'train.txt'}" batch_size: {batch} shuffle: {str(shuffle).lower()} }} }}
layer {{ name: "rows" type: "HDF5Data" top: "data" top: "label" include {{ phase: TEST }}
        hdf5_data_param {{ source: "{lists / 'train.txt'}" batch_size: 20 }} }}
{caffe_files.inner_product("ip1", "data", 8)}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
{caffe_files.inner_product("ip2", "ip1", 4)}
{output}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""


def solver(bench, lists, batch, name, **fields):
    net = bench.write(f"{name}-net.prototxt", net_text(lists, batch, fields.pop("shuffle", True), fields.pop("output", "")))
    fields = {"test_iter": 9, "test_interval": 20, "snapshot": 20, "max_iter": 40,
              "snapshot_prefix": bench.folder / f"{name}-snap", **fields}
    return bench.solver(f"{name}.prototxt", net=net, **fields)


# Which worker adds which gradients decides the last bits of a sum; a scheme fixes it, and the number of workers.
KV = ("--scheme", "ip1=kv", "--scheme", "ip2=kv")


@pytest.mark.parametrize("shuffle", (False, True), ids=("in_order", "shuffled"))
def test_workers_train_on_the_rows_of_one(bench, lists, shuffle):
    one = bench.train(solver(bench, lists, 15, "one", shuffle=shuffle), run_dir="one")
    three = bench.train(solver(bench, lists, 5, "three", shuffle=shuffle), "--workers", 3, *KV, run_dir="three")
    assert three.summary["replicas_equal"] is True
    # The same rows: the losses are equal but for the order of sums.
    for key in ("loss", "accuracy"):
        assert three.summary["test"][key] == pytest.approx(one.summary["test"][key], rel=1e-4)
    assert one.summary["test"]["accuracy"] > 0.8
    again = bench.train(solver(bench, lists, 15, "again", shuffle=shuffle), "--workers", 3, "--global-batch", *KV, run_dir="again")
    assert again.summary["weights_hash"] == three.summary["weights_hash"]


def test_other_workers_go_on_at_the_same_row(bench, lists):
    whole = bench.train(solver(bench, lists, 15, "whole"), run_dir="whole")
    # Three workers took 20 batches of 15 rows; one goes on with the same rows as the run that was never stopped.
    first = solver(bench, lists, 5, "first", max_iter=20)
    bench.train(first, "--workers", 3, *KV, run_dir="first")
    state = bench.folder / "first-snap_iter_20.solverstate"
    for workers, batch in ((1, 15), (3, 5)):
        name = f"on{workers}"
        resumed = bench.train(solver(bench, lists, batch, name), *(("--workers", workers, *KV) if workers > 1 else ()),
                              "--snapshot", state, run_dir=name)
        assert resumed.summary["iterations"] == 40
        assert resumed.summary["test"]["loss"] == pytest.approx(whole.summary["test"]["loss"], rel=1e-4)
    straight = bench.train(solver(bench, lists, 5, "straight"), "--workers", 3, *KV, run_dir="straight")
    assert straight.summary["weights_hash"] == jobs.summary_of(bench.folder / "on3")["weights_hash"]


def test_every_worker_writes_its_rows(bench, lists):
    output = (f'layer {{ name: "out" type: "HDF5Output" bottom: "ip2" bottom: "label" include {{ phase: TEST }} '
              f'hdf5_output_param {{ file_name: "{bench.folder / "scores.h5"}" }} }}')
    text = solver(bench, lists, 5, "out", output=output, max_iter=1, test_interval=1, test_initialization=False)
    bench.train(text, "--workers", 2)
    rows = 0
    for name in ("scores.h5", "scores.h5.1"):
        with h5py.File(bench.folder / name) as file:
            assert file["data"].shape[1:] == (4, 1, 1) and file["label"].shape[1:] == (1, 1, 1)
            assert len(file["data"]) == len(file["label"])
            rows += len(file["data"])
    assert rows == 9 * 20


@pytest.mark.parametrize("damage,words", (
    (lambda folder: (folder / "part1.h5").write_bytes((folder / "part1.h5").read_bytes()[:1000]), "part1.h5 is not a whole HDF5 file"),
    (lambda folder: (folder / "part2.h5").unlink(), "cannot open part2.h5"),
    (lambda folder: (folder / "train.txt").write_text(""), "names no file"),
))
def test_what_is_wrong_with_a_list_is_one_sentence(bench, lists, tmp_path, damage, words):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in lists.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    damage(folder)
    done = jobs.run(bench.poseidon, *bench.arguments(solver(bench, folder, 5, "bad"), (), "run"), cwd=bench.folder)
    assert done.code == 1
    assert len(done.err.lines) == 1 and words in done.err.text and "layer 'rows' (HDF5Data)" in done.err.text, done.err.text


def test_fields_that_change_nothing_are_said_once(bench, lists):
    more = """
layer { name: "shape" type: "Reshape" bottom: "ip2" top: "shape" reshape_param { shape { dim: 0 dim: 1 dim: 2 dim: 2 } } }
layer { name: "cols" type: "Im2col" bottom: "shape" top: "cols" convolution_param { kernel_size: 1 force_nd_im2col: true } }
layer { name: "silence" type: "Silence" bottom: "cols" }"""
    text = solver(bench, lists, 5, "said", output=more, layer_wise_reduce=False, max_iter=1, test_iter=None,
                  test_interval=None)
    done = bench.train(text, "--workers", 2)
    assert done.err.count("'layer_wise_reduce' is not looked at") == 1, done.err.text
    assert done.err.count("'force_nd_im2col' is not looked at") == 1, done.err.text


def test_a_net_in_caffes_first_format_trains(bench, lists):
    """The same net in the first format and in today's, from the same seed: the same bits."""
    old = f"""
name: "v0"
layers {{ layer {{ name: "rows" type: "hdf5_data" source: "{lists / 'train.txt'}" batchsize: 12 }} top: "image" top: "label" }}
layers {{ layer {{ name: "pad1" type: "padding" pad: 2 }} bottom: "image" top: "pad1" }}
layers {{ layer {{ name: "conv1" type: "conv" num_output: 5 kernelsize: 3 stride: 2 weight_filler {{ type: "xavier" }}
         blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 }} bottom: "pad1" top: "conv1" }}
layers {{ layer {{ name: "ip" type: "innerproduct" num_output: 4 weight_filler {{ type: "xavier" }} }} bottom: "conv1" top: "ip" }}
layers {{ layer {{ name: "loss" type: "softmax_loss" }} bottom: "ip" bottom: "label" }}
"""
    new = f"""
name: "v2"
layer {{ name: "rows" type: "HDF5Data" top: "image" top: "label"
        hdf5_data_param {{ source: "{lists / 'train.txt'}" batch_size: 12 }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "image" top: "conv1" param {{ lr_mult: 1 decay_mult: 1 }}
        param {{ lr_mult: 2 decay_mult: 0 }}
        convolution_param {{ num_output: 5 kernel_size: 3 stride: 2 pad: 2 weight_filler {{ type: "xavier" }} }} }}
{caffe_files.inner_product("ip", "conv1", 4)}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
    hashes = []
    for name, text in (("old", old), ("new", new)):
        text = bench.solver(f"{name}-solver.prototxt", net=bench.write(f"{name}.prototxt", text), max_iter=5, test_iter=None,
                            test_interval=None)
        hashes.append(bench.train(text, run_dir=name).summary["weights_hash"])
    assert hashes[0] == hashes[1]
