# SPDX-License-Identifier: Apache-2.0
"""Image lists: training from them on several workers, and `poseidon convert_imageset`."""

import random

import numpy
import pytest

import job as jobs
import lmdb_files
import messages
from tool_files import image_of, png

IMAGES = 150
SIDE = 8


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder with IMAGES grey images of noise and their list, labels 0 to 15."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "some images").mkdir()
    source = random.Random(3)
    lines = []
    for i in range(IMAGES):
        pixels = numpy.frombuffer(bytes(source.randrange(256) for _ in range(SIDE * SIDE)), numpy.uint8).reshape(SIDE, SIDE)
        (folder / "some images" / f"{i} a.png").write_bytes(png(pixels))
        lines.append(f"some images/{i} a.png {source.randrange(16)}\n")
    (folder / "list.txt").write_text("".join(lines))
    return folder


def net_of(layer):
    """A linear model from crops, whose gradient at zero is a sum of whole numbers: any order of summation gives the same bits."""
    return f"""
layer {{
  name: "images" {layer} top: "data" top: "label"
  transform_param {{ crop_size: {SIDE - 2} mirror: true mean_value: 100 }}
}}
layer {{
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 1 bias_term: false
  weight_filler {{ type: "constant" value: 0 }} }}
}}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


SOLVER = """
net: "net.prototxt" base_lr: 0.0009765625 lr_policy: "fixed" max_iter: 1 iter_size: 8 random_seed: 5 snapshot_after_train: false
"""


@pytest.fixture
def weights(poseidon, tmp_path):
    """Trains for one iteration of 128 samples, 16 a pass, and returns the hash of the weights."""
    def train(layer, workers, *flags, batch=None):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "net.prototxt").write_text(net_of(layer.replace("BATCH", str(batch or 16 // workers))))
        (folder / "solver.prototxt").write_text(SOLVER)
        # In another folder than the files: the list lies beside the prototxt.
        done = jobs.run(poseidon, "train", "--solver", folder / "solver.prototxt", "--threads", 1, "--run-dir", folder / "run",
                        "--workers", workers, *flags, cwd=tmp_path)
        assert done.code == 0, done.err.text
        return jobs.summary_of(folder / "run")["weights_hash"]
    return train


def image_data(images, extra=""):
    return f"""type: "ImageData" image_data_param {{
      source: "{images / 'list.txt'}" root_folder: "{images}/" batch_size: BATCH is_color: false {extra} }}"""


def test_workers_share_a_list_as_they_share_its_database(poseidon, images, weights, tmp_path):
    one = weights(image_data(images), 1)
    assert weights(image_data(images), 4) == one
    done = jobs.run(poseidon, "convert_imageset", "--gray", f"{images}/", images / "list.txt", tmp_path / "lmdb")
    assert (done.code, done.out.text) == (0, f"A total of {IMAGES} images.\nProcessed {IMAGES} files."), done.err.text
    data = f'type: "Data" data_param {{ source: "{tmp_path}/lmdb" batch_size: BATCH backend: LMDB }}'
    assert weights(data, 2) == one


def test_workers_share_a_shuffled_list(images, weights):
    one = weights(image_data(images, "shuffle: true rand_skip: 40"), 1)
    assert weights(image_data(images, "shuffle: true rand_skip: 40"), 4, "--global-batch", batch=16) == one
    assert weights(image_data(images), 1) != one


def test_a_list_is_found_beside_the_net_and_names_its_bad_lines(poseidon, tmp_path):
    def refused(lines):
        (tmp_path / "list.txt").write_text(lines)
        done = jobs.run(poseidon, "time", "--model", tmp_path / "net.prototxt", "--iterations", 1, cwd="/")
        assert done.code == 1 and "\n" not in done.err.text, done.err.text
        return done.err.text

    pixels = numpy.zeros((SIDE, SIDE), numpy.uint8)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.png").write_bytes(png(pixels))
    (tmp_path / "here" / "cut.png").write_bytes(png(pixels)[:60])
    (tmp_path / "net.prototxt").write_text(net_of(  # in the old format
        'type: "ImageData" image_data_param { source: "list.txt" root_folder: "here/" batch_size: 2 is_color: false }'))
    assert "list.txt, line 2: image " in refused("a.png 1\ncut.png 2\n")
    assert "here/cut.png cannot be decoded: the PNG data is not valid (it ends early)" in refused("cut.png 2\n")
    assert "line 2: " in (none := refused("a.png 1\nnone.png 2\n")) and "none.png cannot be read: No such file" in none
    assert "line 2 is 'a.png', expected a path" in refused("a.png 1\na.png\n")
    (tmp_path / "list.txt").write_text("a.png 1\n")
    old = (tmp_path / "net.prototxt").read_text().replace("layer {", "layers {")
    for new, was in (("ImageData", "IMAGE_DATA"), ("InnerProduct", "INNER_PRODUCT"), ("EuclideanLoss", "EUCLIDEAN_LOSS")):
        old = old.replace(f'type: "{new}"', f"type: {was}")
    (tmp_path / "net.prototxt").write_text(old)
    done = jobs.run(poseidon, "time", "--model", tmp_path / "net.prototxt", "--iterations", 1, cwd="/")
    assert done.code == 0, done.err.text


# ---- convert_imageset

@pytest.fixture
def convert(poseidon, tmp_path):
    def run(*arguments, lines, code=0):
        (tmp_path / "list.txt").write_text(lines)
        database = tmp_path / f"db{len(list(tmp_path.iterdir()))}"
        done = jobs.run(poseidon, "convert_imageset", *arguments, f"{tmp_path}/", tmp_path / "list.txt", database)
        assert done.code == code, done.err.text
        return database if code == 0 else done.err.text
    return run


@pytest.fixture
def colours(tmp_path):
    pixels = numpy.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=numpy.uint8)
    (tmp_path / "a b.png").write_bytes(png(pixels))
    (tmp_path / "c.png").write_bytes(png(pixels[:2]))
    return pixels


def test_planes_are_blue_green_red_under_caffes_keys(convert, colours):
    records = lmdb_files.read(convert(lines="a b.png 7\nc.png -1\n"))
    assert [key for key, _ in records] == [b"00000000_a b.png", b"00000001_c.png"]
    image, label = image_of(records[0][1])
    assert label == 7 and (image == colours[:, :, ::-1].transpose(2, 0, 1)).all()
    assert messages.fields(records[0][1])[7] == [0]  # `encoded` is there, as Caffe writes it


def test_images_are_scaled(convert, colours):
    [(_, value)] = lmdb_files.read(convert("--resize_height=2", "--resize_width=3", lines="a b.png 7\n"))
    image, _ = image_of(value)
    whole = colours[:, :, ::-1].transpose(2, 0, 1).astype(int)
    assert (image == (whole[:, ::2, ::2] + whole[:, 1::2, ::2] + whole[:, ::2, 1::2] + whole[:, 1::2, 1::2] + 2) // 4).all()


def test_encoded_records_have_the_files_bytes(convert, colours, tmp_path):
    [(_, value)] = lmdb_files.read(convert("--encoded", "--encode_type", "png", lines="c.png 3\n"))
    fields = messages.fields(value)
    assert fields[4] == [(tmp_path / "c.png").read_bytes()] and (fields[5], fields[7]) == ([3], [1])


def test_leveldb_and_shuffling(convert, colours):
    lines = "".join(f"c.png {i}\n" for i in range(50))
    records = lmdb_files.read_leveldb(convert("--backend", "leveldb", "--shuffle", lines=lines))
    if records is None:
        pytest.skip("libleveldb is not installed")
    labels = [image_of(value)[1] for _, value in records]
    assert sorted(labels) == list(range(50)) != labels
    assert [key for key, _ in records] == [b"%08d_c.png" % i for i in range(50)]


def test_what_cannot_be_read_is_left_out(convert, colours, tmp_path, poseidon):
    (tmp_path / "bad.png").write_bytes(b"no image")
    database = convert(lines="bad.png 1\nc.png 2\nnone.png 3\n")
    assert [key for key, _ in lmdb_files.read(database)] == [b"00000001_c.png"]
    done = jobs.run(poseidon, "convert_imageset", f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "again")
    said = done.err.text.splitlines()
    assert len(said) == 2 and f"list.txt, line 1: image {tmp_path}/bad.png cannot be decoded" in said[0] and "line 3" in said[1]
    assert done.out.text.endswith("Processed 1 files.\n2 images are left out")
    assert "no image of it could be read" in convert(lines="bad.png 1\n", code=1)
    assert not [path for path in tmp_path.iterdir() if ".tmp." in path.name]


def test_refusals(convert, colours):
    assert "line 2: image" in (why := convert("--check_size", lines="a b.png 1\nc.png 2\n", code=1)) and "is 3x2x6, expected 3x4x6" in why
    assert "expected both or none" in convert("--resize_width", 3, lines="c.png 1\n", code=2)
    assert "not encoded again" in convert("--encoded", "--resize_width", 3, "--resize_height", 3, lines="c.png 1\n", code=1)
    assert "line 1 is 'c.png'" in convert(lines="c.png\n", code=1)
