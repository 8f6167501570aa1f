# SPDX-License-Identifier: Apache-2.0
"""What Caffe's notebooks do, on small nets and random data: 00-classification, 01-learning-lenet, net_surgery, 02-fine-tuning and a
gradient ascent on an image."""
import files
import numpy as np
import pytest

import poseidon.caffe as caffe
from poseidon.caffe import layers as L
from poseidon.caffe import params as P
from poseidon.caffe.proto import caffe_pb2


def test_00_classification():
    caffe.set_mode_cpu()
    model_def = files.write("deploy.prototxt", files.DEPLOY)
    caffe.Net(model_def, caffe.TEST).save("weights.caffemodel")
    net = caffe.Net(model_def, "weights.caffemodel", caffe.TEST)
    mu = np.random.rand(3, 16, 16).mean(1).mean(1)
    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", mu)
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    net.blobs["data"].reshape(50, 3, 8, 8)
    image = np.random.rand(20, 30, 3).astype(np.float32)
    net.blobs["data"].data[...] = transformer.preprocess("data", image)
    output = net.forward()
    assert output["prob"].shape == (50, 5) and 0 <= output["prob"][0].argmax() < 5
    assert [(name, blob.data.shape) for name, blob in net.blobs.items()][1] == ("conv1", (50, 6, 6, 6))
    assert [(name, param[0].data.shape, param[1].data.shape) for name, param in net.params.items()][1] == ("fc", (5, 54), (5,))
    filters = net.params["conv1"][0].data.transpose(0, 2, 3, 1)
    assert filters.shape == (6, 3, 3, 3) and net.blobs["conv1"].data[0, :36].shape == (6, 6, 6)


def lenet(lmdb, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, backend=P.Data.LMDB, source=lmdb, transform_param=dict(scale=1. / 255), ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=4, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool1, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=3, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


def test_01_learning_lenet(database):
    caffe.set_device(0)
    caffe.set_mode_gpu()
    s = caffe_pb2.SolverParameter()
    s.random_seed = 0xCAFFE
    s.train_net = files.write("train.prototxt", lenet(database, 10))
    s.test_net.append(files.write("test.prototxt", lenet(database, 10)))
    s.test_interval = 500
    s.test_iter.append(6)
    s.max_iter = 1000
    s.type = "SGD"
    s.base_lr, s.momentum, s.weight_decay, s.lr_policy, s.gamma, s.power = 0.1, 0.9, 5e-4, "inv", 0.0001, 0.75
    s.display, s.snapshot, s.snapshot_prefix, s.solver_mode = 1000, 5000, "custom_net", caffe_pb2.SolverParameter.GPU
    solver = None
    solver = caffe.get_solver(files.write("solver.prototxt", s))
    assert [(k, v.data.shape) for k, v in solver.net.blobs.items()][0] == ("data", (10, 1, 8, 8))
    assert [(k, v[0].data.shape) for k, v in solver.net.params.items()][0] == ("conv1", (4, 1, 3, 3))
    solver.net.forward()
    solver.test_nets[0].forward()
    assert solver.net.blobs["data"].data[:8, 0].transpose(1, 0, 2).reshape(8, 64).shape == (8, 64)
    assert (solver.net.blobs["label"].data[:8] == [0, 1, 2] * 2 + [0, 1]).all()
    solver.step(1)
    assert abs(solver.net.params["conv1"][0].diff[:, 0].reshape(2, 2, 3, 3).transpose(0, 2, 1, 3)).max() > 0
    niter, train_loss, output = 40, np.zeros(40), np.zeros((40, 8, 3))
    for it in range(niter):
        solver.step(1)
        train_loss[it] = solver.net.blobs["loss"].data
        solver.test_nets[0].forward(start="conv1")
        output[it] = solver.test_nets[0].blobs["score"].data[:8]
    assert train_loss[-1] < 0.5 * train_loss[0] and (output[0] != output[-1]).any()
    correct = 0
    for _ in range(6):
        solver.test_nets[0].forward()
        correct += sum(solver.test_nets[0].blobs["score"].data.argmax(1) == solver.test_nets[0].blobs["label"].data)
    assert correct > 50


def test_net_surgery():
    conv = """
name: "convolution" input: "data" input_dim: 1 input_dim: 1 input_dim: 20 input_dim: 20
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 5 stride: 1 weight_filler { type: "gaussian" std: 0.01 } } }"""
    net = caffe.Net(files.write("conv.prototxt", conv), caffe.TEST)
    assert net.inputs == ["data"]
    im_input = np.random.rand(24, 30)[np.newaxis, np.newaxis, :, :]
    net.blobs["data"].reshape(*im_input.shape)
    net.blobs["data"].data[...] = im_input
    net.forward()
    conv0 = net.blobs["conv"].data[0, 0].copy()
    net.params["conv"][1].data[0] = 1.
    net.forward()
    assert net.blobs["conv"].data[0, 0].shape == (20, 26)
    np.testing.assert_allclose(net.blobs["conv"].data[0, 0], conv0 + 1, rtol=1e-4)
    net.params["conv"][0].data[1:] = 0.
    net.forward()
    assert (net.blobs["conv"].data[0, 1:] == 0).all()

    # Fully connected layers become convolutions.
    net = caffe.Net(files.write("deploy.prototxt", files.DEPLOY), caffe.TEST)
    full = files.DEPLOY.replace('"fc" type: "InnerProduct"', '"fc-conv" type: "Convolution"').replace(
        "inner_product_param { num_output: 5", "convolution_param { kernel_size: 3 num_output: 5")
    net_full_conv = caffe.Net(files.write("full_conv.prototxt", full), caffe.TEST)
    net.save("deploy.caffemodel")
    net_full_conv.copy_from("deploy.caffemodel")
    fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in ["fc"]}
    conv_params = {pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data) for pr in ["fc-conv"]}
    conv_params["fc-conv"][0].flat = fc_params["fc"][0].flat
    conv_params["fc-conv"][1][...] = fc_params["fc"][1]
    net_full_conv.save("full_conv.caffemodel")
    images = np.random.rand(4, 3, 8, 8)
    expected = net.forward_all(data=images)["prob"]
    np.testing.assert_allclose(net_full_conv.forward_all(data=images)["prob"][:, :, 0, 0], expected, rtol=1e-4)
    net_full_conv.blobs["data"].reshape(1, 3, 16, 16)
    assert net_full_conv.forward()["prob"].shape == (1, 5, 5, 5)


def test_02_fine_tuning(database):
    weight_param, learned = dict(lr_mult=1, decay_mult=1), [dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)]
    frozen = [dict(lr_mult=0)] * 2

    def net_of(data, label=None, train=True, num_classes=3, classifier_name="fc8", learn_all=False):
        n = caffe.NetSpec()
        n.data = data
        param = learned if learn_all else frozen
        n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=4, group=1, param=param, weight_filler=dict(type="gaussian", std=0.1),
                                bias_filler=dict(type="constant", value=0.1))
        n.relu1 = L.ReLU(n.conv1, in_place=True)
        n.norm1 = L.LRN(n.relu1, local_size=3, alpha=1e-4, beta=0.75)
        n.fc7 = fc7input = L.InnerProduct(n.norm1, num_output=8, param=[weight_param, weight_param], weight_filler=dict(type="gaussian", std=0.05))
        if train:
            n.drop7 = fc7input = L.Dropout(n.fc7, in_place=True)
        fc8 = L.InnerProduct(fc7input, num_output=num_classes, param=learned, weight_filler=dict(type="gaussian", std=0.05))
        setattr(n, classifier_name, fc8)
        if not train:
            n.probs = L.Softmax(fc8)
        if label is not None:
            n.label = label
            n.loss = L.SoftmaxWithLoss(fc8, n.label)
            n.acc = L.Accuracy(fc8, n.label)
        return files.write(f"{classifier_name}{int(train)}.prototxt", n.to_proto())

    trained = caffe.Net(net_of(L.DummyData(shape=dict(dim=[1, 1, 8, 8])), train=False, num_classes=9), caffe.TEST)
    trained.forward()
    trained.save("weights.caffemodel")
    data, label = L.Data(transform_param=dict(mirror=True, scale=1. / 255), source=database, backend=P.Data.LMDB, batch_size=10, ntop=2)
    path = net_of(data, label, classifier_name="fc8_style")
    solvers = []
    for pretrained in True, False:
        s = caffe_pb2.SolverParameter(train_net=path, base_lr=0.1, lr_policy="step", gamma=0.1, stepsize=20000, max_iter=100000, momentum=0.9,
                                      weight_decay=5e-4, display=1000, snapshot=10000, snapshot_prefix="style", random_seed=1)
        solver = caffe.get_solver(files.write("solver.prototxt", s))
        if pretrained:
            solver.net.copy_from("weights.caffemodel")
        solvers.append(("pretrained" if pretrained else "scratch", solver))
    first = solvers[0][1].net.params["conv1"][0].data.copy()
    np.testing.assert_array_equal(first, trained.params["conv1"][0].data)
    loss, acc = ({name: np.zeros(10) for name, _ in solvers} for _ in range(2))
    for it in range(10):
        for name, s in solvers:
            s.step(1)
            loss[name][it], acc[name][it] = (s.net.blobs[b].data.copy() for b in ["loss", "acc"])
    np.testing.assert_array_equal(solvers[0][1].net.params["conv1"][0].data, first)  # frozen
    solvers[0][1].net.save("tuned.caffemodel")
    style_data, style_label = L.Data(source=database, backend=P.Data.LMDB, batch_size=10, transform_param=dict(scale=1. / 255), ntop=2)
    test_net = caffe.Net(net_of(style_data, style_label, train=False, classifier_name="fc8_style"), "tuned.caffemodel", caffe.TEST)
    assert sum(float(test_net.forward()["acc"]) for _ in range(6)) >= 0
    test_net.blobs["data"].data[0, ...] = np.random.rand(1, 8, 8)
    assert test_net.forward(start="conv1")["probs"][0].sum() == pytest.approx(1, rel=1e-4)


def test_gradient_ascent_on_an_image():
    text = "force_backward: true" + files.DEPLOY
    net = caffe.Net(files.write("deploy.prototxt", text), caffe.TEST)
    src, dst = net.blobs["data"], net.blobs["pool1"]
    src.reshape(1, 3, 8, 8)
    src.data[0] = np.random.default_rng(0).random((3, 8, 8))
    seen = []
    for _ in range(10):
        net.forward(end="pool1")
        seen.append(float((dst.data ** 2).sum()))
        dst.diff[:] = dst.data
        net.backward(start="pool1")
        gradient = src.diff[0]
        src.data[:] += 0.1 / np.abs(gradient).mean() * gradient
    assert seen[-1] > 2 * seen[0] and seen == sorted(seen)
