# SPDX-License-Identifier: Apache-2.0
"""Layers in Python, by Caffe's protocol."""
import gc
import traceback

import files
import numpy
import pytest

import poseidon.caffe as caffe
from poseidon import PoseidonError


def python(name, kind, bottom, top, more=""):
    bottoms, tops = (" ".join(f'{what}: "{name}"' for name in names) for what, names in (("bottom", bottom), ("top", top)))
    return f'layer {{ name: "{name}" type: "Python" {bottoms} {tops} python_param {{ module: "user_layers" layer: "{kind}" {more} }} }}\n'


INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }\n'


def net_of(text, phase=caffe.TEST):
    return caffe.Net(files.write("net.prototxt", text), phase)


def test_forward_backward_and_reshape():
    net = net_of("force_backward: true\n" + INPUT + python("one", "Scale", ["data"], ["one"])
                 + python("two", "Scale", ["one"], ["two"], 'param_str: "3"')
                 + 'layer { name: "loss" type: "Reduction" bottom: "two" top: "loss" loss_weight: 1 }')
    net.blobs["data"].data[...] = 2
    assert net.forward()["loss"] == 6 * 60
    assert (net.backward()["data"] == 30).all()
    net.blobs["data"].reshape(5, 1, 4)
    net.blobs["data"].data[...] = 1
    assert (net.forward(blobs=["two"])["two"] == numpy.full((5, 1, 4), 30)).all()
    assert net.layers[1].type == "Python"


def test_a_loss_layer_trains_as_ours_does(database):
    def weights_by(loss):
        text = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.004 }}
  data_param {{ source: "{database}" batch_size: 6 backend: LMDB }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param {{ num_output: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "flat" type: "Reshape" bottom: "label" top: "flat" reshape_param {{ shape {{ dim: 0 dim: 1 }} }} }}
{loss}"""
        path = files.write("solver.prototxt", f'net: "{files.write("net.prototxt", text)}" base_lr: 0.05 lr_policy: "fixed" random_seed: 3')
        solver = caffe.SGDSolver(path)
        solver.step(8)
        return solver.net.params["fc"][0].data.copy()

    ours = weights_by('layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "flat" top: "loss" }')
    theirs = weights_by(python("loss", "EuclideanLoss", ["fc", "flat"], ["loss"]).replace("python_param", "loss_weight: 1 python_param"))
    assert numpy.abs(ours).max() > 0.01
    numpy.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-6)


# What pycaffe of BVLC Caffe 1.0 has after the thirty steps of the test below.
WEIGHTS_OF_BVLC = {
    "fc1": ([-0.9893715, 0.1548609, -0.8290064, 0.1121761, -0.3921255, 0.3093514, -0.5256222, 0.7019253, -0.317394, 0.8060403, -0.1615847,
             0.8931704], [0.6513068, -0.4501705, 0.7134714, -0.447166]),
    "bias": ([-0.06604117, 1.117746, 1.703239, 2.452177],),
    "fc2": ([0.03268845, 0.847815, 0.5989444, -0.394982, -0.2966622, -0.4207408, -0.03837546, -0.1383544], [-0.2103245, 0.4687113])}


def test_thirty_steps_have_the_weights_of_bvlc_caffe():
    def numbers(shape, seed):
        return ((numpy.arange(numpy.prod(shape)) * 7 + seed * 5) % 13 - 6).reshape(shape) / 6

    net = files.write("net.prototxt", """
layer { name: "in" type: "Input" top: "data" top: "wanted" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } } }
layer { name: "fc1" type: "InnerProduct" bottom: "data" top: "fc1" inner_product_param { num_output: 4 } }
layer { name: "tanh" type: "TanH" bottom: "fc1" top: "fc1" }
""" + python("bias", "Bias", ["fc1"], ["bias"]) + python("scale", "Scale", ["bias"], ["scale"], 'param_str: "0.5"') + """
layer { name: "fc2" type: "InnerProduct" bottom: "scale" top: "fc2" inner_product_param { num_output: 2 } }
""" + python("loss", "EuclideanLoss", ["fc2", "wanted"], ["loss"]).replace("python_param", "loss_weight: 2 python_param"))
    solver = caffe.SGDSolver(files.write(
        "solver.prototxt", f'net: "{net}" base_lr: 0.02 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001 max_iter: 30'))
    for i, name in enumerate(("fc1", "fc2")):
        for j, blob in enumerate(solver.net.params[name]):
            blob.data[...] = numbers(blob.data.shape, i + 2 * j)
    for step in range(30):
        solver.net.blobs["data"].data[...] = numbers((4, 3), step)
        solver.net.blobs["wanted"].data[...] = numbers((4, 2), 3 * step)
        solver.step(1)
    for name, expected in WEIGHTS_OF_BVLC.items():
        for blob, values in zip(solver.net.params[name], expected, strict=True):
            numpy.testing.assert_allclose(blob.data.ravel(), values, rtol=2e-5, atol=2e-6)


def test_a_data_layer_has_other_shapes_in_every_pass():
    net = net_of(python("data", "Data", [], ["data", "label"], """param_str: '{"width": 4}'""")
                 + 'layer { name: "sum" type: "Reduction" bottom: "data" top: "sum" reduction_param { axis: 1 } }')
    for number in range(5):
        assert net.forward()["sum"].shape == (number % 3 + 1,)
        assert (net.blobs["label"].data == number).all()


def test_learned_blobs_train_and_are_saved():
    net = files.write("net.prototxt", """
layer { name: "data" type: "DummyData" top: "data" top: "wanted" dummy_data_param { shape { dim: 2 dim: 3 }
  data_filler { type: "constant" } data_filler { type: "constant" value: 5 } } }
""" + python("bias", "Bias", ["data"], ["out"]) + 'layer { name: "loss" type: "EuclideanLoss" bottom: "out" bottom: "wanted" top: "loss" }')
    solver = caffe.SGDSolver(files.write("solver.prototxt", f'net: "{net}" base_lr: 0.5 lr_policy: "fixed" max_iter: 5 snapshot_prefix: "b"'))
    assert (solver.net.params["bias"][0].data == [0, 1, 2]).all()
    solver.step(1)
    numpy.testing.assert_allclose(solver.net.params["bias"][0].data, [2.5, 3, 3.5])
    solver.step(20)
    numpy.testing.assert_allclose(solver.net.params["bias"][0].data, 5, rtol=1e-3)
    solver.net.save("net.caffemodel")
    again = caffe.Net(net, caffe.TEST, weights="net.caffemodel")
    assert (again.params["bias"][0].data == solver.net.params["bias"][0].data).all()


@pytest.mark.parametrize("where, first", [("setup", 1), ("reshape", 101)])
def test_setup_in_a_test_net_leaves_learned_blobs_alone(user_layers, where, first):
    """Those that it shares are the training net's, which was made before it."""
    user_layers.Counted.made = 0
    net = files.write("net.prototxt", INPUT + python("counted", "Counted", ["data"], ["out"], f'param_str: "{where}"')
                      + 'layer { name: "loss" type: "Reduction" bottom: "out" top: "loss" loss_weight: 1 }')
    solver = caffe.SGDSolver(files.write("solver.prototxt", f'net: "{net}" base_lr: 0.5 lr_policy: "fixed" snapshot_after_train: false '
                                         "test_iter: 1 test_interval: 100 test_initialization: false"))
    assert user_layers.Counted.made == 2
    train, test = solver.net.params["counted"][0], solver.test_nets[0].params["counted"][0]
    assert train.data[0] == test.data[0] == first
    assert (solver.test_nets[0].forward()["loss"] == 6 * first).all()
    solver.step(1)
    assert train.data[0] == test.data[0] == first - 0.5 * 6


def test_setup_leaves_the_blob_of_an_earlier_layer_alone(user_layers):
    user_layers.Counted.made = 0
    named = [python(name, "Counted", [bottom], [name]).replace("python_param", 'param { name: "one" } python_param')
             for name, bottom in (("first", "data"), ("second", "first"))]
    net = net_of(INPUT + "".join(named))
    assert net.params["first"][0].data[0] == net.params["second"][0].data[0] == 1
    assert (net.forward()["second"] == 2).all()


def test_phase_is_told():
    for phase in caffe.TRAIN, caffe.TEST:
        assert net_of(python("phase", "Phase", [], ["phase"]), phase).forward()["phase"] == phase


def test_what_a_layer_raises_is_raised_with_its_place():
    net = net_of(INPUT + python("broken", "Broken", ["data"], ["out"]))
    with pytest.raises(LookupError, match="nothing there") as raised:
        net.forward()
    assert "user_layers.py" in "".join(traceback.format_tb(raised.value.__traceback__))
    with pytest.raises(ValueError, match="takes one bottom"):
        net_of(INPUT + python("two", "Scale", ["data", "data"], ["out"]))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        net_of(INPUT + python("none", "Scale", ["data"], ["out"]).replace("user_layers", "no_such_module"))
    with pytest.raises(AttributeError, match="NoClass"):
        net_of(INPUT + python("none", "NoClass", ["data"], ["out"]))
    with pytest.raises(NotImplementedError, match="backward"):
        files_net = net_of("force_backward: true\n" + INPUT + python("phase", "Phase", ["data"], ["phase"])
                           + 'layer { name: "loss" type: "Power" bottom: "phase" top: "loss" loss_weight: 1 }')
        files_net.forward()
        files_net.backward()


def test_mistakes_of_a_class_are_sentences():
    with pytest.raises(PoseidonError, match="layer 'none'.*has not given top 0 a shape"):
        net_of(INPUT + python("none", "Shapeless", ["data"], ["out"]))
    with pytest.raises(PoseidonError, match="expected module and layer"):
        net_of(INPUT + 'layer { name: "p" type: "Python" bottom: "data" top: "out" }')


def test_what_a_layer_keeps_of_a_net_that_is_gone(user_layers):
    net = net_of(INPUT + python("keeps", "Keeping", ["data"], ["out"]))
    net.blobs["data"].data[...] = 1
    net.forward()
    del net
    gc.collect()
    blob, array = user_layers.kept.pop()
    assert (array == 10).all()
    with pytest.raises(PoseidonError, match="a net that is gone"):
        blob.data
