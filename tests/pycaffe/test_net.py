# SPDX-License-Identifier: Apache-2.0
"""Nets, blobs, and the views that NumPy has of them."""
import ctypes
import gc

import files
import numpy
import pytest

import poseidon.caffe as caffe
from poseidon import PoseidonError


def test_the_graph_has_pycaffes_names(net):
    assert list(net._layer_names) == ["data", "conv", "ip", "loss"]
    assert list(net.blobs) == ["data", "label", "conv", "ip_blob", "loss"]
    assert (net.inputs, net.outputs) == ([], ["loss"])
    assert dict(net.top_names) == {"data": ["data", "label"], "conv": ["conv"], "ip": ["ip_blob"], "loss": ["loss"]}
    assert dict(net.bottom_names) == {"data": [], "conv": ["data"], "ip": ["conv"], "loss": ["ip_blob", "label"]}
    assert [layer.type for layer in net.layers] == ["DummyData", "Convolution", "InnerProduct", "SoftmaxWithLoss"]
    assert {name: [blob.shape for blob in blobs] for name, blobs in net.params.items()} == {
        "conv": [(11, 2, 2, 2), (11,)], "ip": [(13, 11 * 8 * 9), (13,)]}
    assert dict(net.blob_loss_weights)["loss"] == 1
    assert net.blobs["data"].num == 5 and net.blobs["data"].width == 4 and net.blobs["label"].channels == 1
    assert net.blobs["data"].count == 120


def test_splits_are_shown():
    text = files.DEPLOY + """
layer { name: "again" type: "Power" bottom: "pool1" top: "again" }"""
    net = caffe.Net(files.write("net.prototxt", text), caffe.TEST)
    assert net._layer_names[4] == "pool1_pool1_0_split"
    assert net.top_names["pool1_pool1_0_split"] == ["pool1_pool1_0_split_0", "pool1_pool1_0_split_1"]
    assert set(net.outputs) == {"prob", "again"}


def test_views_are_the_nets_own_memory(net):
    numbers = net.params["ip"][1].data
    numbers[...] = 5
    net.params["ip"][0].data[...] = 0
    assert (net.forward(blobs=["ip_blob"])["ip_blob"] == 5).all()
    assert net.params["ip"][1].data.ctypes.data == numbers.ctypes.data
    assert numbers.dtype == numpy.float32 and numbers.flags.writeable


def test_a_view_outlives_net_and_reshape(net):
    net.forward()
    weights, images, loss = net.params["conv"][0].data, net.blobs["conv"].data, net.blobs["loss"].data
    blobs = list(net.blobs.values())
    kept = weights.copy(), images.copy()
    net.blobs["data"].reshape(900, 2, 3, 4)
    net.blobs["label"].reshape(900)
    net.reshape()
    assert net.blobs["conv"].shape == (900, 11, 8, 9)
    del net
    gc.collect()
    blobs[0].data[...] = 1  # blobs keep their net
    del blobs
    gc.collect()
    for _ in range(50):  # memory that was freed would be taken again
        numpy.full(kept[1].shape, 7, numpy.float32)
        caffe.Net(files.write("other.prototxt", files.GRADIENTS), caffe.TRAIN).forward()
    assert (weights == kept[0]).all() and (images == kept[1]).all() and loss.shape == ()


def test_a_net_is_freed_with_its_last_name():
    path = files.write("net.prototxt", files.DEPLOY.replace("num_output: 5", "num_output: 200000"))

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    caffe.Net(path, caffe.TEST)
    before = resident()
    for _ in range(8):
        caffe.Net(path, caffe.TEST).blobs["data"].data[...] = 1
    assert resident() - before < 120e6  # one of them has 43 MB of weights


def test_forward_takes_inputs_and_gives_outputs():
    net = caffe.Net(files.write("deploy.prototxt", files.DEPLOY), caffe.TEST)
    images = numpy.random.default_rng(0).random((4, 3, 8, 8), numpy.float32)
    out = net.forward(blobs=["fc"], data=images)
    assert list(out) == ["prob", "fc"] and out["prob"].shape == (4, 5)
    numpy.testing.assert_allclose(out["prob"].sum(1), 1, rtol=1e-5)
    fc = out["fc"].copy()
    net.blobs["data"].data[...] = images
    assert (net.forward(end="fc")["fc"] == fc).all()
    net.blobs["pool1"].data[...] = 0
    assert (net.forward(start="fc", end="fc")["fc"] == 0).all()
    with pytest.raises(Exception, match="Input blob arguments do not match net inputs"):
        net.forward(image=images)
    with pytest.raises(Exception, match="Input is not batch sized"):
        net.forward(data=images[:3])
    with pytest.raises(ValueError, match="no layer 'conv9'"):
        net.forward(start="conv9")


def test_a_reshaped_input_is_followed_by_the_next_pass():
    net = caffe.Net(files.write("deploy.prototxt", files.DEPLOY.replace("prob", "p")), caffe.TEST)
    images = numpy.random.default_rng(0).random((7, 3, 8, 8), numpy.float32)
    net.blobs["data"].reshape(*images.shape)
    whole = net.forward(data=images)["p"].copy()
    net.blobs["data"].reshape(1, 3, 8, 8)
    for image, expected in zip(images, whole):
        numpy.testing.assert_allclose(net.forward(data=image[numpy.newaxis])["p"][0], expected, rtol=1e-4)
    net.blobs["data"].reshape(1, 3, 9, 9)
    with pytest.raises(PoseidonError, match="layer 'fc'"):
        net.forward()
    for wrong in ((-1, 3), (2 ** 62, 2 ** 62), (1,) * 33):
        with pytest.raises(PoseidonError, match="a blob"):
            net.blobs["data"].reshape(*wrong)
    with pytest.raises(PoseidonError, match="learned blob"):
        net.params["fc"][0].reshape(1)


def test_a_blob_between_layers_may_be_reshaped_wrongly(net):
    net.blobs["ip_blob"].reshape(1, 1)  # the layer that makes it gives it its shape again
    net.backward()
    net.forward()
    net.blobs["ip_blob"].reshape(1, 1)
    net.backward()
    assert net.forward()["loss"] > 0 and net.blobs["ip_blob"].shape == (5, 13)


def test_backward_from_a_layer_to_a_layer(net):
    sample = numpy.random.default_rng(3).random((5, 13), numpy.float32)
    net.blobs["ip_blob"].diff[...] = sample
    found = net.backward(start="ip", end="ip")["conv"]
    expected = (sample @ net.params["ip"][0].data).reshape(found.shape)
    numpy.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_gradients_are_those_of_differences(net):
    net.forward()
    images = net.blobs["data"].data.copy()
    gradient = net.backward(diffs=["data"])["data"].copy()

    def loss(at, step):
        net.blobs["data"].data[...] = images
        net.blobs["data"].data[at] += step
        return float(net.forward(start="conv")["loss"])

    for at in (0, 1, 2, 1), (4, 0, 0, 0):
        numpy.testing.assert_allclose(gradient[at], (loss(at, 0.01) - loss(at, -0.01)) / 0.02, rtol=0.02, atol=1e-4)


def test_gradients_add_up_until_they_are_cleared(net):
    diff = net.params["conv"][0].diff
    assert (diff == 0).all()
    net.forward()
    net.backward()
    once = diff.copy()
    assert abs(once).max() > 0
    net.backward()
    numpy.testing.assert_allclose(diff, 2 * once, rtol=1e-4)
    net.clear_param_diffs()
    assert (diff == 0).all()
    diff[...] = 1  # what the user writes counts, too
    net.backward()
    numpy.testing.assert_allclose(diff, 1 + once, rtol=1e-4, atol=1e-4)


def test_batches_of_any_number_of_rows():
    net = caffe.Net(files.write("deploy.prototxt", files.DEPLOY), caffe.TEST)
    images = numpy.random.default_rng(0).random((10, 3, 8, 8), numpy.float32)
    out = net.forward_all(blobs=["fc"], data=images)
    assert out["prob"].shape == (10, 5) and out["fc"].shape == (10, 5)
    expected = net.forward(data=images[4:8])["prob"]
    assert (out["prob"][4:8] == expected).all()
    blobs, diffs = net.forward_backward_all(diffs=["fc"], data=images, prob=numpy.ones((10, 5), numpy.float32))
    assert blobs["prob"].shape == (10, 5) and diffs["data"].shape == (10, 3, 8, 8) and diffs["fc"].shape == (10, 5)


@pytest.mark.parametrize("name, save", [("net.caffemodel", "save"), ("net.caffemodel.h5", "save_hdf5")])
def test_weights_are_saved_and_read(net, name, save):
    getattr(net, save)(name)
    path = files.write("other.prototxt", files.GRADIENTS)
    made = [caffe.Net(path, name, caffe.TRAIN), caffe.Net(path, caffe.TRAIN, weights=name), caffe.Net(path, phase=caffe.TRAIN)]
    (made[2].load_hdf5 if save == "save_hdf5" else made[2].copy_from)(name)
    for layer, blobs in net.params.items():
        for other in made:
            for mine, theirs in zip(blobs, other.params[layer]):
                assert (mine.data == theirs.data).all()


def test_nets_share_weights(net):
    caffe.set_random_seed(5)
    other = caffe.Net(files.write("other.prototxt", files.GRADIENTS), caffe.TRAIN)
    assert (other.params["ip"][0].data != net.params["ip"][0].data).any()
    other.share_with(net)
    net.params["ip"][0].data[0, 0] = 42
    assert other.params["ip"][0].data[0, 0] == 42


def test_memory_data():
    net = caffe.Net(files.write("memory.prototxt", """
layer { name: "data" type: "MemoryData" top: "data" top: "label" memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }
layer { name: "twice" type: "Power" bottom: "data" top: "twice" power_param { scale: 2 } }"""), caffe.TEST)
    with pytest.raises(PoseidonError, match="layer 'data' .MemoryData.: has no data yet"):
        net.forward()
    data, labels = numpy.arange(24, dtype=numpy.float32).reshape(4, 1, 2, 3), numpy.arange(4, dtype=numpy.float32)
    net.set_input_arrays(data, labels)
    for begin in 0, 2, 0:
        assert (net.forward()["twice"] == 2 * data[begin:begin + 2]).all()
        assert (net.blobs["label"].data == labels[begin:begin + 2]).all()
    for wrong in ((data[:3], labels[:3]), (data[:, :, :1], labels), (data[:0], labels[:0])):
        with pytest.raises(PoseidonError, match="layer 'data'"):
            net.set_input_arrays(*wrong)
    for wrong in ((data.astype(float), labels), (data, labels[:2]), (data[0], labels), (data, list(labels))):
        with pytest.raises(PoseidonError, match="expected"):
            net.set_input_arrays(*wrong)
    with pytest.raises(PoseidonError, match="expected MemoryData"):
        caffe.Net(files.write("deploy.prototxt", files.DEPLOY), caffe.TEST).set_input_arrays(data, labels)


def test_data_layers_give_the_next_batch(database):
    net = caffe.Net(files.write("net.prototxt", files.train_net(database)), caffe.TEST)
    seen = [net.forward() and net.blobs["label"].data.copy() for _ in range(11)]
    assert all((label == [0, 1, 2, 0, 1, 2]).all() for label in seen)
    batches = [net.forward() and net.blobs["data"].data.copy() for _ in range(11)]
    assert (batches[0] == batches[10]).all() and (batches[0] != batches[1]).any()
    once = net.blobs["data"].data.copy()
    net.forward(start="conv1")
    assert (net.blobs["data"].data == once).all()


@pytest.mark.parametrize("layer", [
    'type: "Pooling" pooling_param { pool: MAX kernel_size: 2 }', 'type: "LRN"', 'type: "Dropout"', 'type: "PReLU"', 'type: "BatchNorm"',
    'type: "Softmax"', 'type: "Eltwise" bottom: "data" eltwise_param { operation: MAX }', 'type: "SPP" spp_param { pyramid_height: 2 }'])
def test_backward_without_forward_or_behind_a_reshape(layer):
    net = caffe.Net(files.write("net.prototxt", "force_backward: true" + files.DEPLOY + f"""
layer {{ name: "x" bottom: "data" top: "x" {layer} }}
layer {{ name: "loss" type: "Reduction" bottom: "x" top: "loss" loss_weight: 1 }}"""), caffe.TRAIN)
    net.backward()
    net.blobs["x"].reshape(1, 1)
    net.backward()
    net.blobs["data"].reshape(9, 3, 8, 8)
    assert net.backward()["data"].shape == (9, 3, 8, 8)


@pytest.mark.parametrize("text, sentence", [
    (None, "cannot open"), ("layer { name: 'a' type: 'Nothing' top: 'b' }", "unknown layer type 'Nothing'"), ("", "no layers"),
    ("layer {", "net.prototxt"), ('layer { name: "a" type: "ReLU" bottom: "x" top: "x" }', "blob 'x'")])
def test_a_wrong_net_is_a_sentence(text, sentence):
    if text is not None:
        files.write("net.prototxt", text)
    with pytest.raises(RuntimeError, match=sentence):
        caffe.Net("net.prototxt", caffe.TEST)


def test_wrong_arguments_are_sentences(net):
    with pytest.raises(PoseidonError, match="phase is 2"):
        caffe.Net("net.prototxt", 2)
    with pytest.raises(PoseidonError, match="added in the setup"):
        net.params["ip"].add_blob(1)
    files.write("model", "no model")
    with pytest.raises(PoseidonError, match="model"):
        net.copy_from("model")


def test_stages_and_levels_choose_layers():
    path = files.write("net.prototxt", files.DEPLOY + """
layer { name: "top" type: "Silence" bottom: "prob" include { stage: "quiet" min_level: 2 } }""")
    assert caffe.Net(path, caffe.TEST).outputs == ["prob"]
    assert caffe.Net(path, caffe.TEST, level=2, stages=["quiet"]).outputs == []


def test_torch_computes_beside_it(net):
    torch = pytest.importorskip("torch")
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "libtorch_cpu.so" in line}
    assert len(paths) == 1, paths
    weights = torch.from_numpy(net.params["ip"][0].data)
    weights.zero_()
    assert (net.params["ip"][0].data == 0).all()
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad.shape == (2, 3)
    tiny = ctypes.c_float(1e-40)
    net.forward()
    assert (torch.tensor([tiny.value]) * 1).item() != 0  # subnormal numbers are the net's own affair


def test_settings_are_accepted(capfd, monkeypatch):
    monkeypatch.setattr("poseidon.caffe.settings._told", set())
    caffe.set_mode_cpu()
    for _ in range(2):
        caffe.set_mode_gpu()
        caffe.set_device(0)
    assert capfd.readouterr().err.count("nets of Python programs compute on the CPU, and so these do") == 2
    assert {"Convolution", "Python", "MemoryData"} <= set(caffe.layer_type_list())
    assert (caffe.TRAIN, caffe.TEST) == (0, 1) and caffe.__version__.startswith("1.0")
    with pytest.raises(PoseidonError, match="seed"):
        caffe.set_random_seed(-1)
