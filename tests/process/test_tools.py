# SPDX-License-Identifier: Apache-2.0
"""Caffe's tools on small data, compared with what is computed here by other means."""

import base64
import json
import os
import random
import re
import xml.etree.ElementTree

import numpy
import pytest

import caffe_files
import job as jobs
import lmdb_files
import messages
from messages import message
from tool_files import blob_of, caffemodel, features, image_of, png, read, weights_of

CIFAR_IMAGES = 6  # a file


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
def tool(poseidon, shared):
    """Runs a tool by the name of a link to the program, as Caffe's users do, and returns what it prints."""
    done = jobs.run(poseidon, "links", shared / "bin")
    assert done.code == 0, done.err.text
    names = done.out.text.partition(":")[2].split()
    assert sorted(os.listdir(shared / "bin")) == names and "caffe" in names and "compute_image_mean" in names

    def run(name, *arguments, code=0, cwd=shared):
        done = jobs.run(str(shared / "bin" / name), *arguments, cwd=cwd)
        assert done.code == code, f"{name} {arguments}: {done.code}\n{done.out.text}\n{done.err.text}"
        return done.out.text if code == 0 else done.err.text
    return run


# ---- names

def test_a_command_has_its_name_with_dashes_and_underscores(poseidon, tmp_path):
    for name in ("convert-mnist", "convert_mnist", "extract-features", "device_query"):
        done = jobs.run(poseidon, name, "--help")
        assert done.code == 0 and done.out.text.startswith("Usage: poseidon "), done.err.text
    assert jobs.run(poseidon, "device-query").code == 0


def test_links_leave_other_files(poseidon, tmp_path):
    (tmp_path / "caffe").write_text("mine")
    done = jobs.run(poseidon, "links", tmp_path)
    assert done.code == 1 and "exists already" in done.err.text
    assert os.listdir(tmp_path) == ["caffe"]
    folder = tmp_path / "new/bin"
    for _ in range(2):  # again is no error
        assert jobs.run(poseidon, "links", folder).code == 0


def test_the_caffe_program_takes_one_dash(tool, shared):
    assert "cores:" in tool("caffe", "device_query")
    assert "no such" in tool("caffe", "train", "-solver", shared / "none.prototxt", code=2).lower()


# ---- converters

@pytest.mark.parametrize("kind", ("lmdb", "leveldb"))
def test_mnist(tool, tmp_path, kind):
    images, labels = caffe_files.write_idx(tmp_path, "set", 30, seed=3)
    assert "Processed 30 files." in tool("convert_mnist_data", f"-backend={kind}", images, labels, tmp_path / "db")
    pixels = images.read_bytes()[16:]
    records = read(tmp_path / "db", kind)
    assert [key for key, _ in records] == [b"%08d" % i for i in range(30)]
    for i, (_, value) in enumerate(records):
        image, label = image_of(value)
        assert image.shape == (1, 28, 28) and image.tobytes() == pixels[784 * i:784 * (i + 1)] and label == i % 10


@pytest.fixture(scope="module")
def cifar(tool, shared):
    """CIFAR-10's files with few images, and both databases of each kind; the images as they were written."""
    source = random.Random(5)
    folder = shared / "cifar-10-batches-bin"
    folder.mkdir()
    written = []
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        images = [bytes([source.randrange(10)]) + source.randbytes(3072) for _ in range(CIFAR_IMAGES)]
        (folder / f"{name}.bin").write_bytes(b"".join(images))
        written += images
    for kind in ("lmdb", "leveldb"):
        assert f"{5 * CIFAR_IMAGES} images" in tool("convert_cifar_data", folder, shared, kind)
    return written


@pytest.mark.parametrize("kind", ("lmdb", "leveldb"))
def test_cifar(cifar, shared, kind):
    train, test = (read(shared / f"cifar10_{name}_{kind}", kind) for name in ("train", "test"))
    assert len(train) == 5 * CIFAR_IMAGES and len(test) == CIFAR_IMAGES
    for records, written in ((train, cifar[:len(train)]), (test, cifar[len(train):])):
        for i, ((key, value), expected) in enumerate(zip(records, written, strict=True)):
            image, label = image_of(value)
            assert key == b"%05d" % i and image.shape == (3, 32, 32)
            assert bytes([label]) + image.tobytes() == expected


def test_cifar_says_what_is_wrong(tool, tmp_path):
    assert "data_batch_1.bin cannot be opened" in tool("convert_cifar_data", tmp_path, tmp_path, "lmdb", code=1)
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(bytes(3073))
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(3000))
    assert "data_batch_3.bin has 3000 bytes" in tool("convert_cifar_data", tmp_path, tmp_path, "lmdb", code=1)
    assert "expected lmdb or leveldb" in tool("convert_cifar_data", tmp_path, tmp_path, "hdf5", code=2)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(3073))
    assert "test_batch.bin cannot be opened" in tool("convert_cifar_data", tmp_path, tmp_path, "lmdb", code=1)  # after the other
    assert not list(tmp_path.glob("cifar10*"))


# ---- the mean

@pytest.mark.parametrize("kind", ("lmdb", "leveldb"))
def test_mean(tool, cifar, shared, tmp_path, kind):
    out = tool("compute_image_mean", f"-backend={kind}", shared / f"cifar10_train_{kind}", tmp_path / "mean")
    images = numpy.array([list(image[1:]) for image in cifar[:5 * CIFAR_IMAGES]], numpy.float64).reshape(-1, 3, 32, 32)
    numpy.testing.assert_array_equal(blob_of(tmp_path / "mean")[0], images.mean(0).astype(numpy.float32))
    assert f"Processed {len(images)} files." in out and "Number of channels: 3" in out
    said = [float(value) for value in re.findall(r"mean_value channel \[\d\]: ([\d.]+)", out)]
    numpy.testing.assert_allclose(said, images.mean((0, 2, 3)), rtol=1e-5)


def test_mean_takes_its_back_end_by_place(tool, cifar, shared, tmp_path):
    tool("compute_image_mean", shared / "cifar10_test_leveldb", tmp_path / "a", "leveldb")
    tool("compute_image_mean", shared / "cifar10_test_lmdb", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_mean_says_what_is_wrong(tool, cifar, shared, tmp_path):
    assert "does not exist" in tool("compute_image_mean", tmp_path / "none", code=1)
    assert "is of the kind lmdb" in tool("compute_image_mean", "-backend=leveldb", shared / "cifar10_test_lmdb", code=1)
    whole = (shared / "cifar10_test_lmdb/data.mdb").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/data.mdb").write_bytes(whole[:len(whole) // 2])
    assert "cut" in tool("compute_image_mean", tmp_path / "cut", tmp_path / "mean", code=1)
    mixed = lmdb_files.write(str(tmp_path / "mixed"), [(b"0", messages.datum(1, 2, 3, 0)), (b"1", messages.datum(1, 3, 2, 0))])
    assert "record 1 is 1x3x2, expected 1x2x3" in tool("compute_image_mean", mixed, tmp_path / "mean", code=1)
    huge = lmdb_files.write(str(tmp_path / "huge"), [(b"0", b"\x08\x01\x10\xff\xff\xff\x7f\x18\xff\xff\xff\x7f")])
    assert "record 0 is corrupt" in tool("compute_image_mean", huge, tmp_path / "mean", code=1)
    assert not (tmp_path / "mean").exists()


# ---- parts

@pytest.mark.parametrize("kind", ("lmdb", "leveldb"))
def test_partition(tool, cifar, shared, kind):
    database = shared / f"cifar10_train_{kind}"
    tool("partition_data", f"-backend={kind}", "-num_partitions=4", database)
    records = read(database, kind)
    for part in range(4):
        assert read(f"{database}_{part}", kind) == records[part::4]
    assert "exists already" in tool("partition_data", database, code=1)
    assert "6 records" in tool("partition_data", "--num_partitions", 7, shared / f"cifar10_test_{kind}", code=1)


# ---- features

@pytest.fixture(scope="module")
def trained(poseidon, databases, shared):
    """A net and its weights, trained for an iteration."""
    (shared / "net.prototxt").write_text(caffe_files.small_lenet(databases.train, databases.test))
    (shared / "solver.prototxt").write_text(caffe_files.solver(
        shared / "net.prototxt", max_iter=1, test_interval=None, test_iter=None, snapshot_prefix=shared / "snap",
        snapshot_after_train=True))
    done = jobs.run(poseidon, "train", "--solver", shared / "solver.prototxt", "--run-dir", shared / "run")
    assert done.code == 0, done.err.text
    return shared / "net.prototxt", shared / "snap_iter_1.caffemodel"


@pytest.mark.parametrize("kind,workers", (("lmdb", 1), ("leveldb", 2)))
def test_features(tool, trained, databases, tmp_path, kind, workers):
    net, model = trained
    count = caffe_files.TEST_IMAGES + caffe_files.TEST_BATCH  # one batch begins anew
    out = tool("extract_features", model, net, "pool1,ip1,label", f"{tmp_path}/pool,{tmp_path}/ip,{tmp_path}/label",
               count // caffe_files.TEST_BATCH, kind, "CPU", "--workers", workers, "--threads", 1)
    assert f"Extracted features of {count} query images for feature blob ip1" in out
    assert "Successfully extracted the features!" in out
    pool, ip, label = (read(tmp_path / name, kind) for name in ("pool", "ip", "label"))
    assert [key for key, _ in ip] == [b"%010d" % i for i in range(count)]
    shape = [messages.fields(pool[0][1])[number][0] for number in (1, 2, 3)]
    assert shape[0] == 7 and [messages.fields(ip[0][1])[number][0] for number in (1, 2, 3)] == [48, 1, 1]
    assert messages.fields(label[7][1])[1][0] == 1 and features(label)[:, 0].tolist() == [i % 10 for i in range(count)]
    # The layer above, computed here: a ReLU follows it in place.
    weights, bias = weights_of(model)["ip1"]
    expected = numpy.maximum(features(pool).astype(numpy.float64) @ weights.T.astype(numpy.float64) + bias, 0)
    numpy.testing.assert_allclose(features(ip), expected, rtol=1e-4, atol=1e-5)
    assert features(ip)[:20].tobytes() == features(ip)[100:].tobytes() and expected.std() > 0.01


def test_several_workers_write_what_one_writes(tool, trained, tmp_path):
    net, model = trained
    found = []
    for workers in (1, 3):
        path = tmp_path / f"by{workers}"
        tool("extract_features", model, net, "ip2", path, 5, "lmdb", "--workers", workers, "--threads", 1)
        found.append(lmdb_files.read(path))
    assert found[0] == found[1] and len(found[0]) == 5 * caffe_files.TEST_BATCH


def test_poseidon_caffes_features(tool, trained, tmp_path):
    net, model = trained
    tool("extract_features", "--gpu=-1", "--model", net, "--weights", model, "--extract_feature_blob_names=ip2,pool1",
         f"--save_feature_leveldb_names={tmp_path}/ip,{tmp_path}/pool", "--num_mini_batches=2")
    records = read(tmp_path / "ip_0_0", "leveldb")
    assert len(records) == 2 * caffe_files.TEST_BATCH
    for i, (_, value) in enumerate(records):
        datum = messages.fields(value)
        assert [datum[number][0] for number in (1, 2, 3, 5)] == [1, 10, 1, i % 10] and len(datum[6]) == 10
    assert read(tmp_path / "pool_0_0", "leveldb")


def test_features_say_what_is_wrong(tool, trained, tmp_path):
    net, model = trained

    def refusal(*arguments, code=2):
        return tool("extract_features", *arguments, code=code)
    assert "expected PRETRAINED PROTO" in refusal(model, net, "ip1")
    assert "1 names of blobs and 2 of databases" in refusal(model, net, "ip1", f"{tmp_path}/a,{tmp_path}/b", 1, "lmdb")
    assert "num_batches" in refusal(model, net, "ip1", tmp_path / "a", 0, "lmdb")
    assert "leave the flag out" in refusal(model, net, "ip1", tmp_path / "a", 1, "lmdb", "GPU", 0)
    for workers in (1, 3):
        said = refusal(model, net, "ip9", tmp_path / "a", 3, "lmdb", "--workers", workers, code=1)
        assert "unknown feature blob name ip9" in said and said.count("\n") == 0
    assert os.listdir(tmp_path) == []


# ---- old files

def test_upgrade(tool, trained, tmp_path):
    old = tmp_path / "old.prototxt"
    old.write_text("""
name: "old" input: "data" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 5
layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip" blobs_lr: 1 blobs_lr: 2
         inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }""")
    out = tool("upgrade_net_proto_text", old, tmp_path / "new.prototxt")
    assert "Wrote upgraded NetParameter text proto to" in out and "already" not in out
    new = (tmp_path / "new.prototxt").read_text()
    assert 'type: "InnerProduct"' in new and 'type: "Input"' in new and "lr_mult: 2" in new and "layers" not in new
    assert "File already in latest proto format" in tool("upgrade_net_proto_text", tmp_path / "new.prototxt", tmp_path / "newer.prototxt")
    assert (tmp_path / "newer.prototxt").read_text() == new
    # The same in binary: V1's layers are field 2, today's are field 100.
    ip = bytes([0x12, 4]) + b"data" + bytes([0x1a, 2]) + b"ip" + bytes([0x22, 2]) + b"ip" + bytes([0x28, 14])
    (tmp_path / "old.caffemodel").write_bytes(b"\x0a\x03old" + bytes([0x12, len(ip)]) + ip)
    tool("upgrade_net_proto_binary", tmp_path / "old.caffemodel", tmp_path / "new.caffemodel")
    net = messages.fields((tmp_path / "new.caffemodel").read_bytes())
    assert 2 not in net and messages.fields(net[100][0])[2] == [b"InnerProduct"]
    (tmp_path / "old_solver.prototxt").write_text('net: "a" solver_type: ADAM base_lr: 0.1')
    assert "SolverParameter" in tool("upgrade_solver_proto_text", tmp_path / "old_solver.prototxt", tmp_path / "solver.prototxt")
    assert 'type: "Adam"' in (tmp_path / "solver.prototxt").read_text()
    model = trained[1]
    assert "already" in tool("upgrade_net_proto_binary", model, tmp_path / "same.caffemodel")
    assert (tmp_path / "same.caffemodel").read_bytes() == model.read_bytes()


def test_upgrade_says_what_is_wrong(tool, trained, tmp_path):
    (tmp_path / "bad").write_text("layer { nonsense: 1 }")
    assert "bad:1: unknown field 'nonsense'" in tool("upgrade_net_proto_text", tmp_path / "bad", tmp_path / "new", code=1)
    (tmp_path / "cut").write_bytes(trained[1].read_bytes()[:1000])
    assert "cut" in tool("upgrade_net_proto_binary", tmp_path / "cut", tmp_path / "new", code=1)
    assert not (tmp_path / "new").exists()


# ---- classes

LABELS = ["dark", "n01 left, \"bright\"", "right", "noise"]


@pytest.fixture(scope="module")
def deployed(shared):
    """A net that sums up pixels of its input in four ways, written by hand, with its weights; the folder."""
    folder = shared / "deploy"
    folder.mkdir()
    (folder / "deploy.prototxt").write_text("""
name: "sums" input: "data" input_dim: 10 input_dim: 3 input_dim: 6 input_dim: 8
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }""")
    weights = numpy.random.default_rng(3).normal(0, 2e-3, (4, 144)).astype(numpy.float32)
    bias = numpy.array([0.1, 0.2, -0.1, 0], numpy.float32)
    (folder / "net.caffemodel").write_bytes(caffemodel(b"ip", weights, bias))
    mean = numpy.random.default_rng(4).uniform(90, 130, (3, 12, 16)).astype(numpy.float32)
    messages.mean_file(folder / "mean.binaryproto", mean.shape, mean.tobytes())
    numpy.save(folder / "mean.npy", mean)
    (folder / "labels.txt").write_text("\n".join(LABELS) + "\n")
    images = {}
    for seed, name, side in ((1, "fits", (6, 8)), (2, "wide", (9, 14))):
        pixels = numpy.random.default_rng(seed).integers(0, 256, (*side, 3), numpy.uint8)
        (folder / f"{name}.png").write_bytes(png(pixels))
        images[name] = pixels[:, :, ::-1].transpose(2, 0, 1).astype(numpy.float64)  # blue first
    return folder, weights.astype(numpy.float64), bias.astype(numpy.float64), mean.astype(numpy.float64), images


def softmax(rows):
    powers = numpy.exp(rows - rows.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_classify_as_the_example(tool, deployed):
    folder, weights, bias, mean, images = deployed
    expected = softmax(weights @ (images["fits"] - mean.mean((1, 2))[:, None, None]).ravel() + bias)
    out = tool("classify", "deploy.prototxt", "net.caffemodel", "mean.binaryproto", "labels.txt", "fits.png", cwd=folder)
    first, *lines = out.splitlines()
    assert first == "---------- Prediction for fits.png ----------"
    assert [line.split(" - ", 1)[1] for line in lines] == [f'"{LABELS[i]}"' for i in numpy.argsort(-expected)]
    numpy.testing.assert_allclose([float(line.split()[0]) for line in lines], sorted(expected)[::-1], atol=6e-5)
    # The same in our own words, of two images; and where nothing is subtracted.
    flags = ("--model", "deploy.prototxt", "--weights", "net.caffemodel")
    again = tool("classify", *flags, "--mean", "mean.npy", "--labels", "labels.txt", "--top", 1, "fits.png", "wide.png", cwd=folder)
    assert again.splitlines()[:2] == [first, lines[0]] and "Prediction for wide.png" in again
    (found,) = json.loads(tool("classify", *flags, "--json", "--mean-value", "100,110,120", "fits.png", cwd=folder))
    expected = softmax(weights @ (images["fits"] - numpy.array([100, 110, 120])[:, None, None]).ravel() + bias)
    scores = {one["class"]: one["score"] for one in found["predictions"]}
    numpy.testing.assert_allclose([scores[i] for i in range(4)], expected, rtol=1e-5)


def test_classify_as_the_example_converts_what_is_stored(tool, deployed, tmp_path):
    folder, weights, bias, _, images = deployed
    # Grey as cv::cvtColor makes it of colours: in 15 bits, rounded.
    grey = (numpy.tensordot([3735, 19235, 9798], images["fits"], 1) + (1 << 14)) // (1 << 15)
    (tmp_path / "grey.prototxt").write_text((folder / "deploy.prototxt").read_text().replace("input_dim: 3", "input_dim: 1"))
    loud = 20 * weights[:, :48]
    (tmp_path / "grey.caffemodel").write_bytes(caffemodel(b"ip", loud.astype(numpy.float32), bias.astype(numpy.float32)))
    messages.mean_file(tmp_path / "grey.binaryproto", (1, 1, 1), numpy.array([110], numpy.float32).tobytes())
    expected = softmax(loud @ (grey - 110).ravel() + bias)

    def scores(image):
        out = tool("classify", "grey.prototxt", "grey.caffemodel", "grey.binaryproto", folder / "labels.txt", image, cwd=tmp_path)
        return [float(line.split()[0]) for line in out.splitlines()[1:]]

    numpy.testing.assert_allclose(scores(folder / "fits.png"), sorted(expected)[::-1], atol=6e-5)
    # EXIF's orientation is not looked at, as in Caffe's example; in our own words it is.
    pixels = numpy.arange(144, dtype=numpy.uint8).reshape(6, 8, 3)
    for name, exif in (("upright.png", b""), ("turned.png", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")):
        (tmp_path / name).write_bytes(png(pixels, exif))
    assert scores("turned.png") == scores("upright.png")
    flags = ("--model", "grey.prototxt", "--weights", "grey.caffemodel", "--mean-value", "110")
    turned, upright = (tool("classify", *flags, name, cwd=tmp_path).splitlines()[1:] for name in ("turned.png", "upright.png"))
    assert turned != upright


def test_classify_draws_images_and_classes(tool, deployed, tmp_path):
    folder, *_ = deployed
    picture = tmp_path / "classes.svg"
    out = tool("classify", "--model", "deploy.prototxt", "--weights", "net.caffemodel", "--labels", "labels.txt", "--top", 2,
               "--picture", picture, "fits.png", "wide.png", cwd=folder)
    root = xml.etree.ElementTree.parse(picture).getroot()
    svg, link = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
    shown = [image.get(link).removeprefix("data:image/png;base64,") for image in root.iter(svg + "image")]
    assert [base64.b64decode(each, validate=True) for each in shown] == [(folder / name).read_bytes() for name in ("fits.png", "wide.png")]
    texts = [text.text for text in root.iter(svg + "text")]
    lines = [line.split(" - ", 1) for line in out.splitlines() if " - " in line]
    assert texts == ["fits.png", *(word for score, label in lines[:2] for word in (label[1:-1], score)),
                     "wide.png", *(word for score, label in lines[2:] for word in (label[1:-1], score))]
    bars = [float(bar.get("width")) for bar in root.iter(svg + "rect") if bar.get("x") is not None]
    numpy.testing.assert_allclose(bars, [max(1, 220 * float(score)) for score, _ in lines], atol=0.1)


@pytest.mark.parametrize("centre", (False, True))
def test_classify_as_pycaffe(tool, deployed, tmp_path, centre):
    """wide.png is 9x14 already: crops of 6x8, and a mean image that is not scaled."""
    folder, weights, bias, _, images = deployed
    mean = numpy.random.default_rng(5).uniform(90, 130, (3, 6, 8)).astype(numpy.float32)
    numpy.save(tmp_path / "mean.npy", mean)
    out = tool("classify", "--model_def", folder / "deploy.prototxt", "--pretrained_model", folder / "net.caffemodel", "--mean_file",
               tmp_path / "mean.npy", "--images_dim", "9,14", "--input_scale", 0.5, "--raw_scale", 127.5, "--channel_swap=0,1,2",
               *(["--center_only"] if centre else []), folder / "wide.png", tmp_path / "scores.npy")
    assert "Classifying 1 inputs." in out and "Saving results into" in out
    image = images["wide"][::-1]  # red first
    crops = [image[:, y:y + 6, x:x + 8] for y, x in ((0, 0), (0, 6), (3, 0), (3, 6), (1, 3))]
    crops = crops[4:] if centre else crops + [crop[:, :, ::-1] for crop in crops]
    rows = numpy.array([((crop / 2 - mean) / 2).ravel() for crop in crops])
    expected = softmax(rows @ weights.T + bias).mean(0)
    scores = numpy.load(tmp_path / "scores.npy")
    assert scores.shape == (1, 4) and scores.dtype == numpy.float32
    numpy.testing.assert_allclose(scores[0], expected, rtol=1e-5)


def test_classify_says_what_is_wrong(tool, deployed, trained, tmp_path):
    folder, *_ = deployed
    flags = ("--model", folder / "deploy.prototxt", "--weights", folder / "net.caffemodel")
    image = folder / "fits.png"
    (tmp_path / "cut.png").write_bytes(image.read_bytes()[:60])
    (tmp_path / "two.txt").write_text("a\nb\n")
    (tmp_path / "cut.binaryproto").write_bytes((folder / "mean.binaryproto").read_bytes()[:300])
    for code, expected, *arguments in (
            (2, "there is no image", *flags),
            (2, "--model and --weights are both needed", image),
            (2, "expected one", *flags, "--mean", folder / "mean.npy", "--mean-value", 3, image),
            (2, "--gpu", *flags, "--gpu", image),
            (2, "a.gif is no *.svg", *flags, "--picture", tmp_path / "a.gif", image),
            (2, "--picture is drawn beside printed lines alone", *flags, "--picture", tmp_path / "a.svg", "--json", image),
            (1, "cut.png", *flags, tmp_path / "cut.png"),
            (1, "none.jpg", *flags, tmp_path / "none.jpg"),
            (1, "2 labels and the net has 4 outputs", *flags, "--labels", tmp_path / "two.txt", image),
            (1, "cut.binaryproto", *flags, "--mean", tmp_path / "cut.binaryproto", image),
            (1, "scaled to 5x5, expected at least the net's input, 6x8", *flags, "--images-dim", "5,5", image),
            (1, "no Input layer", "--model", trained[0], "--weights", trained[1], image)):
        assert expected in tool("classify", *arguments, code=code)


# ---- scores

def test_test_prints_as_caffe(tool, trained):
    net, model = trained
    lines = tool("caffe", "test", "-model", net, "-weights", model, "-iterations", 2).splitlines()
    number = r"-?[\d.e-]+"
    expected = ["Use CPU.", "Running for 2 iterations.", *[f"Batch {i}, {name} = {number}" for i in (0, 1) for name in ("accuracy", "loss")],
                f"Loss: {number}", f"accuracy = {number}", rf"loss = {number} \(\* 1 = {number} loss\)"]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
