# SPDX-License-Identifier: Apache-2.0
"""Messages, nets written in Python, images, classifiers and pictures of nets."""
import json
import subprocess
import sys

import files
import numpy
import pytest
import window_models
from test_solver import PROGRAM

import poseidon.caffe as caffe
from poseidon import PoseidonError
from poseidon.caffe import layers as L
from poseidon.caffe import params as P
from poseidon.caffe.proto import caffe_pb2


# --- Messages --------------------------------------------------------------------------------------

def test_messages_have_caffes_names():
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST, caffe_pb2.Phase.Name(1)) == (0, 1, "TEST")
    assert caffe_pb2.SolverParameter.GPU == 1 and caffe_pb2.PoolingParameter.AVE == 1
    assert caffe_pb2.NetParameter.DESCRIPTOR.full_name == "caffe.NetParameter"
    net = caffe_pb2.NetParameter(name="n", layer=[caffe_pb2.LayerParameter(name="a", type="ReLU")])
    assert caffe_pb2.NetParameter.FromString(net.SerializeToString()) == net


def test_models_are_messages(net):
    net.save("net.caffemodel")
    model = caffe_pb2.NetParameter.FromString(files.pathlib.Path("net.caffemodel").read_bytes())
    blob = next(layer for layer in model.layer if layer.name == "ip").blobs[0]
    numpy.testing.assert_array_equal(caffe.io.blobproto_to_array(blob), net.params["ip"][0].data)


def test_blobs_and_datums_become_arrays():
    array = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    blob = caffe.io.array_to_blobproto(array, -array)
    numpy.testing.assert_array_equal(caffe.io.blobproto_to_array(blob), array)
    numpy.testing.assert_array_equal(caffe.io.blobproto_to_array(blob, return_diff=True), -array)
    old = caffe_pb2.BlobProto(num=1, channels=2, height=3, width=4, data=array.ravel().tolist())
    assert caffe.io.blobproto_to_array(old).shape == (1, 2, 3, 4)
    with pytest.raises(ValueError):
        caffe.io.blobproto_to_array(caffe_pb2.BlobProto(data=[1, 2]))
    several = caffe.io.blobprotovector_str_to_arraylist(caffe.io.arraylist_to_blobprotovector_str([array, array[0]]))
    assert [each.shape for each in several] == [(2, 3, 4), (3, 4)]
    for given in array, array.astype(numpy.uint8):
        datum = caffe.io.array_to_datum(given, 7)
        assert datum.label == 7 and bool(datum.data) == (given.dtype == numpy.uint8)
        numpy.testing.assert_array_equal(caffe.io.datum_to_array(datum), given)
    with pytest.raises(ValueError, match="expected channels"):
        caffe.io.array_to_datum(array[0])


def test_caffe_may_mean_this_package():
    # Another process: the name stays.
    script = ("import poseidon.caffe\nposeidon.caffe.stand_in()\nimport caffe\nfrom caffe.proto import caffe_pb2\nimport caffe.io\n"
              "from caffe import layers as L, params as P\nfrom poseidon.caffe.proto import caffe_pb2 as same\n"
              "assert caffe is poseidon.caffe and caffe_pb2 is same and caffe.io is poseidon.caffe.io\n"
              "assert caffe.io.__spec__.name == 'poseidon.caffe.io', caffe.io.__spec__\n")
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True,
                         env={**files.os.environ, "PYTHONPATH": str(files.pathlib.Path(caffe.__file__).parents[2])})
    assert run.returncode == 0, run.stderr


# --- Nets written in Python ------------------------------------------------------------------------

def test_a_net_of_net_spec_is_built():
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(shape=[dict(dim=[2, 1, 28, 28]), dict(dim=[2, 1, 1, 1])], transform_param=dict(scale=1. / 255), ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"), param=[dict(lr_mult=1), dict(lr_mult=2)])
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool1, num_output=50, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    proto = n.to_proto()
    assert [layer.name for layer in proto.layer] == ["data", "conv1", "pool1", "ip1", "relu1", "ip2", "loss"]
    assert list(proto.layer[0].top) == ["data", "label"] and list(proto.layer[4].top) == ["ip1"]
    assert list(proto.layer[1].convolution_param.kernel_size) == [5] and proto.layer[1].param[1].lr_mult == 2
    net = caffe.Net(files.write("net.prototxt", proto), caffe.TRAIN)
    assert net.forward()["loss"] > 0 and net.params["conv1"][0].shape == (20, 1, 5, 5)


def test_names_that_nobody_gave():
    data = L.DummyData(ntop=2)
    ip = L.InnerProduct(data[0], num_output=3)
    proto = caffe.to_proto(L.Silence(data[1], ntop=0).inputs[0], L.InnerProduct(ip, num_output=2))
    assert [layer.name for layer in proto.layer] == ["DummyData1", "InnerProduct1", "InnerProduct2"]
    assert list(proto.layer[0].top) == ["DummyData1", "DummyData2"]
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(ntop=2)
    n["quiet"] = L.Silence(n.label, ntop=0)
    assert n.to_proto().layer[1].name == "quiet" and n["data"] is n.data
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(data, ntop=0)
    with pytest.raises(AttributeError, match="num_outputs"):
        L.InnerProduct(data[0], num_outputs=3).to_proto()


def test_a_net_deeper_than_pythons_stack():
    top = L.Input(shape=dict(dim=[1, 2]))
    for _ in range(3000):
        top = L.Power(top)
    assert len(top.to_proto().layer) == 3001


# --- Images ----------------------------------------------------------------------------------------

def image_file(name, array):
    pytest.importorskip("PIL").__name__
    from PIL import Image
    Image.fromarray(array).save(name)
    return name


def test_images_are_loaded_as_numbers_from_0_to_1():
    colours = numpy.zeros((4, 5, 3), numpy.uint8)
    colours[..., 0], colours[..., 1], colours[..., 2] = 255, 51, 102
    loaded = caffe.io.load_image(image_file("colours.png", colours))
    assert loaded.dtype == numpy.float32 and loaded.shape == (4, 5, 3)
    numpy.testing.assert_allclose(loaded[0, 0], [1, 0.2, 0.4], rtol=1e-6)
    numpy.testing.assert_allclose(caffe.io.load_image("colours.png", color=False)[0, 0], [0.2125 + 0.2 * 0.7154 + 0.4 * 0.0721], rtol=1e-6)
    grey = image_file("grey.png", colours[..., 1])
    assert caffe.io.load_image(grey).shape == (4, 5, 3) and caffe.io.load_image(grey, color=False).shape == (4, 5, 1)
    files.write("broken.png", "no image")
    with pytest.raises(OSError, match="broken.png"):
        caffe.io.load_image("broken.png")


def test_images_are_resized_linearly():
    ramp = numpy.tile(numpy.arange(8, dtype=numpy.float32)[:, None, None], (1, 6, 2))
    half = caffe.io.resize_image(ramp, (4, 3))
    numpy.testing.assert_allclose(half[:, 0, 0], [0.5, 2.5, 4.5, 6.5])
    twice = caffe.io.resize_image(ramp, (16, 6))
    numpy.testing.assert_allclose(twice[1:5, 0, 0], [0.25, 0.75, 1.25, 1.75])
    assert twice.min() == 0 and twice.max() == 7 and twice.shape == (16, 6, 2)
    assert set(caffe.io.resize_image(ramp, (5, 5), interp_order=0).ravel()) <= set(range(8))
    assert (caffe.io.resize_image(numpy.full((2, 2, 3), 3.0), (5, 7)) == 3).all()
    with pytest.raises(PoseidonError, match="interp_order"):
        caffe.io.resize_image(ramp, (4, 3), interp_order=3)


def test_ten_crops():
    image = numpy.arange(6 * 7 * 2, dtype=numpy.float32).reshape(6, 7, 2)
    crops = caffe.io.oversample([image, image + 1], (4, 3))
    assert crops.shape == (20, 4, 3, 2) and (crops[10:] == crops[:10] + 1).all()
    for crop, (top, left) in zip(crops, [(0, 0), (0, 4), (2, 0), (2, 4), (1, 2)]):
        assert (crop == image[top:top + 4, left:left + 3]).all()
    assert (crops[5:10] == crops[:5, :, ::-1]).all()


def test_the_transformer_prepares_and_restores():
    made = caffe.io.Transformer({"data": (1, 3, 4, 4)})
    image = numpy.random.default_rng(0).random((4, 4, 3), numpy.float32)
    before = image.copy()
    made.set_transpose("data", (2, 0, 1))
    made.set_channel_swap("data", (2, 1, 0))
    made.set_raw_scale("data", 255)
    made.set_mean("data", numpy.array([104.0, 117.0, 123.0]))
    made.set_input_scale("data", 0.5)
    prepared = made.preprocess("data", image)
    assert prepared.dtype == numpy.float32 and (image == before).all()
    numpy.testing.assert_allclose(prepared[0], (image[:, :, 2] * 255 - 104) / 2, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(made.deprocess("data", prepared), image, atol=1e-5)
    assert made.preprocess("data", numpy.ones((9, 5, 3))).shape == (3, 4, 4)
    made.set_mean("data", numpy.arange(192.0).reshape(3, 8, 8))
    assert made.mean["data"].shape == (3, 4, 4)
    for wrong in (lambda: made.set_mean("data", numpy.ones(2)), lambda: made.set_transpose("data", (1, 0)),
                  lambda: made.set_channel_swap("data", (1, 0)), lambda: made.preprocess("nodata", image)):
        with pytest.raises(Exception, match="[Mm]ean|order|Channel swap|not one of the net inputs"):
            wrong()


def saved_deploy():
    path = files.write("deploy.prototxt", files.DEPLOY)
    caffe.Net(path, caffe.TEST).save("deploy.caffemodel")
    return path


@pytest.mark.parametrize("oversample", [True, False])
def test_a_classifier_predicts(oversample):
    made = caffe.Classifier(saved_deploy(), "deploy.caffemodel", image_dims=(10, 12), mean=numpy.array([0.1, 0.2, 0.3]), raw_scale=2,
                            channel_swap=(2, 1, 0))
    images = list(numpy.random.default_rng(0).random((3, 20, 20, 3), numpy.float32))
    found = made.predict(images, oversample)
    assert found.shape == (3, 5)
    numpy.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    if not oversample:
        cropped = caffe.io.resize_image(images[1], (10, 12))[1:9, 2:10]
        expected = (cropped[:, :, ::-1] * 2 - [0.1, 0.2, 0.3]).transpose(2, 0, 1).astype(numpy.float32)
        made.blobs["data"].data[...] = expected
        numpy.testing.assert_allclose(made.forward()["prob"][0], found[1], rtol=1e-4)


def test_a_detector_looks_at_windows():
    colours = numpy.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=numpy.uint8)
    file = image_file("image.png", colours)
    for pad in None, 2:
        made = caffe.Detector(saved_deploy(), "deploy.caffemodel", mean=numpy.array([0.1, 0.2, 0.3]), context_pad=pad)
        found = made.detect_windows([(file, [numpy.array([0, 0, 10, 10]), (5, 5, 30, 40)])])
        assert [each["filename"] for each in found] == [file] * 2 and all(each["prediction"].shape == (5,) for each in found)
    # A window in a corner: the context that is not in the image is the mean.
    assert (made.crop(caffe.io.load_image(file), (0, 0, 10, 10))[0, 0] == made.crop_mean[0, 0]).all()
    with pytest.raises(PoseidonError, match="outside"):
        made.crop(caffe.io.load_image(file), (50, 50, 60, 60))


@pytest.mark.parametrize("pad", [None, 2])
def test_the_command_detects_as_a_detector(pad):
    colours = numpy.random.default_rng(3).integers(0, 256, (30, 40, 3), dtype=numpy.uint8)
    file = image_file("windows.png", colours)
    windows = [(0, 0, 10, 10), (5, 5, 30, 40), (20, 3, 29, 17), (2, 30, 30, 40), (11, 12, 12, 13), (0, 0, 30, 40), (7, 0, 19, 8)]
    deploy = saved_deploy()
    made = caffe.Detector(deploy, "deploy.caffemodel", mean=numpy.array([104.0, 117.0, 123.0]), input_scale=0.01, raw_scale=255,
                          channel_swap=(2, 1, 0), context_pad=pad)
    found = made.detect_windows([(file, windows)])
    lines = "".join(f"{file},{','.join(map(str, window))}\n" for window in windows)
    files.write("windows.csv", "filename,ymin,xmin,ymax,xmax\n" + lines)
    run = subprocess.run([PROGRAM, "detect", "--model_def", deploy, "--pretrained_model", "deploy.caffemodel", "--mean-value", "104,117,123",
                          "--input_scale", "0.01", "--context_pad", str(pad or 0), "--json", "windows.csv"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    detected = json.loads(run.stdout)
    assert [tuple(each["window"]) for each in detected] == windows
    numpy.testing.assert_allclose([each["prediction"] for each in detected], [each["prediction"] for each in found], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("pad", [None, 2])
def test_a_detector_crops_as_its_arithmetic_says(pad):
    colours = numpy.random.default_rng(4).integers(0, 256, (30, 40, 3), dtype=numpy.uint8)
    file = image_file("crops.png", colours)
    mean = numpy.array([104.0, 117.0, 123.0])
    made = caffe.Detector(saved_deploy(), "deploy.caffemodel", mean=mean, input_scale=0.5, raw_scale=255, channel_swap=(2, 1, 0), context_pad=pad)
    image = caffe.io.load_image(file)
    for window in [(0, 0, 10, 10), (5, 5, 30, 40), (20, 3, 29, 17), (2, 30, 30, 40), (11, 12, 12, 13), (0, 0, 30, 40)]:
        row = made.transformer.preprocess("data", made.crop(image, window))
        numpy.testing.assert_allclose(row, window_models.detector(colours, window, 8, pad, mean, input_scale=0.5), atol=1e-3)


def test_pictures_of_nets():
    from google.protobuf import text_format
    proto = text_format.Parse(files.DEPLOY, caffe_pb2.NetParameter())
    dot = caffe.draw.get_dot(proto, "TB")
    assert "rankdir=TB" in dot and '"blob data" -> layer1' in dot and "conv1 (Convolution)" in dot
    try:
        caffe.draw.draw_net_to_file(proto, "net.svg")
        assert "<svg" in files.pathlib.Path("net.svg").read_text()
    except PoseidonError as error:
        assert "Graphviz" in str(error)
