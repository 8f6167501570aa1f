# SPDX-License-Identifier: Apache-2.0
"""ImageSegData: images with a label for each of their pixels, scaled, cropped and padded together, beside NumPy."""
import files
import numpy
import pytest
from tool_files import png

import poseidon.caffe as caffe
from poseidon import PoseidonError


@pytest.fixture
def pair(in_folder):
    """An image of six rows and nine columns with its labels; a pixel's blue is its place, its label that of a column."""
    image = numpy.zeros((6, 9, 3), numpy.uint8)
    image[:, :, 2] = numpy.arange(54).reshape(6, 9) + 1
    labels = numpy.broadcast_to(numpy.arange(9, dtype=numpy.uint8), (6, 9)).copy()
    files.pathlib.Path("image.png").write_bytes(png(image))
    files.pathlib.Path("labels.png").write_bytes(png(labels))
    files.write("pairs.txt", "image.png labels.png\n")
    files.write("numbers.txt", "image.png 7\n")
    return image[:, :, ::-1].transpose(2, 0, 1), labels


def batches(count, options, transform, phase=caffe.TRAIN, source="pairs.txt"):
    """Data and labels of the first samples."""
    net = caffe.Net(files.write("net.prototxt", f"""
layer {{ name: "data" type: "ImageSegData" top: "data" top: "label" transform_param {{ {transform} }}
  image_data_param {{ source: "{source}" {options} }} }}"""), phase)
    found = []
    for _ in range(count):
        net.forward()
        found.append((net.blobs["data"].data[0].copy(), net.blobs["label"].data[0, 0].copy()))
    return found


def test_a_label_is_of_every_pixel(pair):
    image, labels = pair
    (data, label), = batches(1, "label_type: PIXEL", "")
    assert (data == image).all() and (label == labels).all()
    (data, label), = batches(1, "", "", source="numbers.txt")
    assert (data == image).all() and (label == 7).all()
    (data, label), = batches(1, "label_type: NONE ignore_label: 9", "")
    assert (label == 9).all()


def test_crops_are_drawn_in_training_and_centred_in_tests(pair):
    image, labels = pair
    places = {(data[0, 0, 0], label[0, 0]) for data, label in batches(150, "label_type: PIXEL", "crop_height: 4 crop_width: 5")}
    assert places == {(image[0, top, left], labels[top, left]) for top in range(3) for left in range(5)}
    for data, label in batches(3, "label_type: PIXEL", "crop_size: 4", caffe.TEST):
        assert (data == image[:, 1:5, 2:6]).all() and (label == labels[1:5, 2:6]).all()


def test_what_a_crop_does_not_fill_is_the_mean_and_not_labelled(pair):
    image, labels = pair
    sides = set()
    for data, label in batches(12, "label_type: PIXEL", "crop_size: 10 mirror: true mean_value: 3"):
        assert data.shape == (3, 10, 10)
        left = int(label[0, 0] == 255)
        sides.add(left)
        inner, inner_labels = data[:, :6, left:left + 9], label[:6, left:left + 9]
        wanted, wanted_labels = image.astype(numpy.float32) - 3, labels
        if left:
            wanted, wanted_labels = wanted[:, :, ::-1], wanted_labels[:, ::-1]
        assert (inner == wanted).all() and (inner_labels == wanted_labels).all()
        outside = numpy.ones((10, 10), bool)
        outside[:6, left:left + 9] = False
        assert (data[:, outside] == 0).all() and (label[outside] == 255).all()
    assert sides == {0, 1}


def test_one_of_the_scales_is_drawn(pair):
    _, labels = pair
    sizes = set()
    for _, label in batches(20, "label_type: PIXEL", "crop_size: 18 scale_factors: 1 scale_factors: 2 scale_factors: 0.5"):
        labelled = label != 255
        sizes.add((int(labelled.any(1).sum()), int(labelled.any(0).sum())))
        assert set(label[labelled]) <= set(labels.flat)
    assert sizes == {(6, 9), (12, 18), (3, 4)}


@pytest.mark.parametrize("options, transform, words", [
    ("label_type: PIXEL ignore_label: 300", "", "ignore_label is 300, expected 0 to 255"),
    ("label_type: PIXEL", "crop_height: 3", "has crop_height 3 and crop_width 0, expected both or none"),
    ("label_type: PIXEL", "mean_file: 'mean'", "expected mean_value"),
    ("label_type: PIXEL", "multi_scale: true", "transform_param has multi_scale, expected it in a layer of type VideoData alone"),
    ("", "", "pair 1 is 'image.png labels.png', expected the path of an image and its label, 0 to 255"),
])
def test_refusals_are_a_sentence(pair, options, transform, words):
    with pytest.raises(PoseidonError, match=words):
        batches(1, options, transform)


def test_other_layers_refuse_its_steps(pair):
    files.write("list.txt", "image.png 1\n")
    for options, transform, words in (("label_type: PIXEL", "", "ImageSegData alone"), ("", "scale_factors: 2", "ImageSegData alone")):
        with pytest.raises(PoseidonError, match=words):
            caffe.Net(files.write("net.prototxt", f"""
layer {{ name: "data" type: "ImageData" top: "data" top: "label" transform_param {{ {transform} }}
  image_data_param {{ source: "list.txt" {options} }} }}"""), caffe.TRAIN)
