# SPDX-License-Identifier: Apache-2.0
"""DenseImageData: images with a label for each of their pixels, beside NumPy."""
import subprocess

import files
import numpy
import pytest
from test_solver import PROGRAM, train
from tool_files import png

import poseidon.caffe as caffe

PAIRS = 7


@pytest.fixture
def pairs(in_folder):
    """Colours with their labels, in planes as Caffe has them: blue first. The number of a pair is in its first label."""
    draw = numpy.random.default_rng(2)
    made = []
    for number in range(PAIRS):
        image = draw.integers(0, 256, (6, 9, 3), dtype=numpy.uint8)
        labels = draw.integers(0, 12, (6, 9), dtype=numpy.uint8)
        labels[0, 0] = number
        files.pathlib.Path(f"image{number}.png").write_bytes(png(image))
        files.pathlib.Path(f"labels{number}.png").write_bytes(png(labels))
        made.append((image[:, :, ::-1].transpose(2, 0, 1), labels[None]))
    files.write("list.txt", "".join(f"image{number}.png labels{number}.png\n" for number in range(PAIRS)))
    return made


def layer(options, transform="", batch=2):
    return (f'layer {{ name: "data" type: "DenseImageData" top: "data" top: "label" transform_param {{ {transform} }} '
            f'dense_image_data_param {{ source: "list.txt" batch_size: {batch} {options} }} }}\n')


def batches(count, options="", transform="", batch=2):
    """Data and labels of the first samples."""
    net = caffe.Net(files.write("net.prototxt", layer(options, transform, batch)), caffe.TRAIN)
    found = []
    for _ in range(count):
        net.forward()
        found += zip(net.blobs["data"].data.copy(), net.blobs["label"].data.copy())
    return found


def test_pairs_come_in_the_lists_order(pairs):
    found = batches(5)
    for number, (data, label) in enumerate(found):
        image, labels = pairs[number % PAIRS]
        assert data.shape == (3, 6, 9) and label.shape == (1, 6, 9)
        assert (data == image).all() and (label == labels).all()


def test_labels_keep_what_the_transform_changes(pairs):
    for (data, label), (image, labels) in zip(batches(2, transform="scale: 0.5 mean_value: 100"), pairs):
        assert (data == (image.astype(numpy.float32) - 100) * 0.5).all() and (label == labels).all()


def test_shuffled_epochs_have_every_pair_once(pairs):
    numbers = [int(label[0, 0, 0]) for _, label in batches(2 * PAIRS, "shuffle: true", batch=1)]
    assert sorted(numbers[:PAIRS]) == sorted(numbers[PAIRS:]) == list(range(PAIRS))
    assert numbers[:PAIRS] != numbers[PAIRS:] and numbers[:PAIRS] != list(range(PAIRS))


def test_crops_and_mirrors_move_both(pairs):
    places = set()
    for number, (data, label) in enumerate(batches(4 * PAIRS, "mirror: true crop_height: 4 crop_width: 5", batch=1)):
        image, labels = pairs[number % PAIRS]
        matches = [(top, left, flip) for top in range(3) for left in range(5) for flip in (False, True)
                   for part in [(..., slice(top, top + 4), slice(left, left + 5))]
                   if (data == (image[..., ::-1] if flip else image)[part]).all()
                   and (label == (labels[..., ::-1] if flip else labels)[part]).all()]
        assert len(matches) == 1, number
        places.add(matches[0])
    assert len(places) > 12 and {flip for *_, flip in places} == {False, True}


def test_labels_are_scaled_by_the_nearest_pixel(pairs):
    """As OpenCV's INTER_NEAREST: pixel x of 14 is pixel floor(x * 9 / 14) of 9."""
    (data, label), *_ = batches(1, "new_height: 4 new_width: 14 is_color: false")
    assert data.shape == (1, 4, 14)
    rows, columns = [int(y * 6 / 4) for y in range(4)], [int(x * 9 / 14) for x in range(14)]
    assert (label[0] == pairs[0][1][0][rows][:, columns]).all()


TAIL = """layer { name: "sum" type: "InnerProduct" bottom: "data" top: "sum" inner_product_param { num_output: 54 bias_term: false
  weight_filler { type: "constant" value: 0 } } }
layer { name: "flat" type: "Flatten" bottom: "label" top: "flat" }
layer { name: "loss" type: "EuclideanLoss" bottom: "sum" bottom: "flat" top: "loss" }
"""


def test_workers_share_a_list(pairs):
    """The first gradient is a sum of whole numbers: any order gives the same bits."""
    def hash_of(workers, batch):
        net = files.write("net.prototxt", layer("shuffle: true mirror: true", batch=batch) + TAIL)
        solver = files.write("solver.prototxt", f'net: "{net}" base_lr: 0.0009765625 lr_policy: "fixed" max_iter: 1 iter_size: 2 '
                                                'random_seed: 5 snapshot_after_train: false')
        return train(solver, "--workers", str(workers), "--threads", "1")[0]
    assert hash_of(1, 8) == hash_of(4, 2)


@pytest.mark.parametrize("text, options, sentence", [
    ("image0.png\n", "", "pair 1 is 'image0.png', expected the paths of an image and of its labels"),
    ("\n", "", "is empty, expected lines with the paths of an image and of its labels"),
    ("image0.png none.png\n", "", "none.png cannot be read"),
    ("image0.png small.png\n", "", "labels small.png are 2x3, expected 6x9 as the image image0.png"),
    ("image0.png labels0.png\n", "crop_height: 7 crop_width: 3", "is 6x9, expected at least the crop's 7x3"),
    ("image0.png labels0.png\n", "crop_height: 7", "crop_height 7 and crop_width 0, expected both or none"),
    ("image0.png labels0.png\n", "} transform_param { mirror: true", "expected mirror, crop_height and crop_width in dense_image_data_param"),
])
def test_what_is_wrong_is_a_sentence(pairs, text, options, sentence):
    files.write("list.txt", text)
    files.pathlib.Path("small.png").write_bytes(png(numpy.zeros((2, 3), numpy.uint8)))
    net = files.write("net.prototxt", layer(options).replace("transform_param {  }", "") + TAIL)
    ended = subprocess.run([PROGRAM, "time", "--model", net, "--iterations", "1"], capture_output=True, text=True)
    assert ended.returncode == 1 and sentence in ended.stderr and "\n" not in ended.stderr.strip(), ended.stderr
