# SPDX-License-Identifier: Apache-2.0
"""LeNet and the two nets for CIFAR-10, layer by layer as in BVLC Caffe's examples."""

XAVIER = {"type": "xavier"}
BOTH_RATES = [(1, None), (2, None)]  # the bias learns twice as fast


def gaussian(deviation):
    return {"type": "gaussian", "std": deviation}


def end(net, top):
    net.accuracy("accuracy", top)
    net.loss("loss", top)
    net.probabilities(top)


def lenet(net):
    top = net.images("mnist", (1, 28, 28), (64, 100), ("demo/fashion-mnist/train_lmdb", "demo/fashion-mnist/test_lmdb"),
                     {"scale": 0.00390625}, deploy_batch=64)
    for i, outputs in enumerate((20, 50), 1):
        top = net.conv(f"conv{i}", top, outputs, 5, XAVIER, rates=BOTH_RATES)
        top = net.pool(f"pool{i}", top, "MAX", 2, 2)
    top = net.linear("ip1", top, 500, XAVIER, rates=BOTH_RATES)
    net.relu("relu1", top)
    end(net, net.linear("ip2", top, 10, XAVIER, rates=BOTH_RATES))


def cifar_images(net):
    return net.images("cifar", (3, 32, 32), (100, 100), ("data/cifar10/train_lmdb", "data/cifar10/test_lmdb"),
                      {"mean_file": "data/cifar10/mean.binaryproto"}, deploy_batch=1)


def cifar10_quick(net):
    top = cifar_images(net)
    top = net.conv("conv1", top, 32, 5, gaussian(0.0001), pad=2, rates=BOTH_RATES)
    top = net.relu("relu1", net.pool("pool1", top, "MAX", 3, 2))
    for i, outputs in ((2, 32), (3, 64)):
        top = net.relu(f"relu{i}", net.conv(f"conv{i}", top, outputs, 5, gaussian(0.01), pad=2, rates=BOTH_RATES))
        top = net.pool(f"pool{i}", top, "AVE", 3, 2)
    top = net.linear("ip1", top, 64, gaussian(0.1), rates=BOTH_RATES)
    end(net, net.linear("ip2", top, 10, gaussian(0.1), rates=BOTH_RATES))


def cifar10_full(net):
    def norm(name, bottom):
        return net.norm(name, bottom, size=3, alpha=0.00005, within=True)

    top = cifar_images(net)
    top = net.conv("conv1", top, 32, 5, gaussian(0.0001), pad=2, rates=BOTH_RATES)
    top = net.relu("relu1", net.pool("pool1", top, "MAX", 3, 2))
    top = norm("norm1", top)
    top = net.relu("relu2", net.conv("conv2", top, 32, 5, gaussian(0.01), pad=2, rates=BOTH_RATES))
    top = norm("norm2", net.pool("pool2", top, "AVE", 3, 2))
    top = net.relu("relu3", net.conv("conv3", top, 64, 5, gaussian(0.01), pad=2))
    top = net.pool("pool3", top, "AVE", 3, 2)
    # The only weights that are held back this much, and a bias that is not.
    end(net, net.linear("ip1", top, 10, gaussian(0.01), rates=[(1, 250), (2, 0)]))
