# SPDX-License-Identifier: Apache-2.0
"""The nets for ImageNet. Layers have the names and shapes of the weights that their authors published, where there are some."""

from . import small_nets
from .small_nets import XAVIER, gaussian

RATES = [(1, 1), (2, 0)]  # the bias learns twice as fast and does not decay
MSRA = {"type": "msra"}
TRAIN, VALIDATION = "data/ilsvrc12/train_lmdb", "data/ilsvrc12/val_lmdb"
MEAN_IMAGE = {"mean_file": "data/ilsvrc12/mean.binaryproto"}


def imagenet(net, size, batches, transform, sources=(TRAIN, VALIDATION), deploy_batch=10):
    return net.images("data", (3, size, size), batches, sources, {"mirror": True, "crop_size": size} | transform, deploy_batch)


def mean_values(blue, green, red):
    return {"mean_value": [blue, green, red]}


def end(net, top):
    net.accuracy("accuracy", top)
    net.accuracy("accuracy_top5", top, best=5)
    net.loss("loss", top)
    net.probabilities(top)


def fully_connected(net, top, classes, deviations, bias):
    """fc6, fc7 and fc8. `deviations`: of the weights of the first two, and of the last."""
    for i in (6, 7):
        top = net.linear(f"fc{i}", top, 4096, deviations[0], bias=bias, rates=RATES)
        net.relu(f"relu{i}", top)
        net.dropout(f"drop{i}", top, 0.5)
    return net.linear("fc8", top, classes, deviations[1], rates=RATES)


# AlexNet and CaffeNet


def krizhevsky(net, pool_first, bias):
    """Five convolutions, two of them normalised, and three fully connected layers. `bias`: what most biases begin with."""
    def conv(i, bottom, outputs, kernel, pad=None, group=None, begin=bias, stride=None):
        name = net.conv(f"conv{i}", bottom, outputs, kernel, gaussian(0.01), stride, pad, group, begin, RATES)
        return net.relu(f"relu{i}", name)

    def pool_and_norm(i, top):
        if pool_first:
            return net.norm(f"norm{i}", net.pool(f"pool{i}", top, "MAX", 3, 2))
        return net.pool(f"pool{i}", net.norm(f"norm{i}", top), "MAX", 3, 2)

    top = imagenet(net, 227, (256, 50), MEAN_IMAGE)
    top = pool_and_norm(1, conv(1, top, 96, 11, begin=0, stride=4))
    top = pool_and_norm(2, conv(2, top, 256, 5, pad=2, group=2))
    top = conv(3, top, 384, 3, pad=1, begin=0)
    top = conv(4, top, 384, 3, pad=1, group=2)
    top = conv(5, top, 256, 3, pad=1, group=2)
    top = net.pool("pool5", top, "MAX", 3, 2)
    small_nets.end(net, fully_connected(net, top, 1000, (gaussian(0.005), gaussian(0.01)), bias))


def alexnet(net):
    krizhevsky(net, pool_first=False, bias=0.1)


def caffenet(net):
    krizhevsky(net, pool_first=True, bias=1)


# VGG


def vgg(net, convolutions, classes=1000, sources=(TRAIN, VALIDATION)):
    """`convolutions`: how many in each of the five stages."""
    top = imagenet(net, 224, (32, 25), mean_values(103.939, 116.779, 123.68), sources)
    for stage, count in enumerate(convolutions, 1):
        for i in range(1, count + 1):
            outputs = min(64 << (stage - 1), 512)
            top = net.conv(f"conv{stage}_{i}", top, outputs, 3, XAVIER, pad=1, rates=RATES)
            net.relu(f"relu{stage}_{i}", top)
        top = net.pool(f"pool{stage}", top, "MAX", 2, 2)
    end(net, fully_connected(net, top, classes, (XAVIER, XAVIER), 0))


def vgg16(net):
    vgg(net, (2, 2, 3, 3, 3))


def vgg19(net):
    vgg(net, (2, 2, 4, 4, 4))


def vgg19_22k(net):
    vgg(net, (2, 2, 4, 4, 4), 21841, ("data/imagenet22k/train_lmdb", "data/imagenet22k/val_lmdb"))


# ResNet


def norm_and_relu(net, top, tail, relu):
    """After convolution res<tail> (or conv1): bn<tail> and scale<tail>, and an activation where `relu` names one."""
    net.batch_norm(f"bn{tail}", top, f"scale{tail}")
    return net.relu(relu, top) if relu else top


def bottleneck(net, name, bottom, width, stride, projected):
    """1 x 1, 3 x 3, 1 x 1, and what goes around them: the first of a stage changes the shape there too."""
    def conv(branch, below, outputs, kernel, step, relu):
        top = net.conv(f"res{name}_{branch}", below, outputs, kernel, MSRA, step, kernel // 2, bias=None)
        return norm_and_relu(net, top, f"{name}_{branch}", relu and f"res{name}_{branch}_relu")

    around = conv("branch1", bottom, 4 * width, 1, stride, False) if projected else bottom
    top = conv("branch2a", bottom, width, 1, stride, True)
    top = conv("branch2b", top, width, 3, 1, True)
    top = conv("branch2c", top, 4 * width, 1, 1, False)
    top = net.layer("Eltwise", f"res{name}", [around, top])
    return net.relu(f"res{name}_relu", top)


def resnet(net, blocks, letters, bias):
    """`blocks` in each of the four stages. `letters`: whether all blocks are named by letters. `bias`: of the first convolution,
    which the published ResNet-50 has and the deeper ones have not."""
    top = imagenet(net, 224, (32, 25), mean_values(104, 117, 123))
    top = net.conv("conv1", top, 64, 7, MSRA, 2, 3, bias=bias)
    top = norm_and_relu(net, top, "_conv1", "conv1_relu")
    top = net.pool("pool1", top, "MAX", 3, 2)
    for stage, count in enumerate(blocks, 2):
        for i in range(count):
            name = f"{stage}{'abcdef'[i]}" if letters or count <= 3 else f"{stage}{f'b{i}' if i else 'a'}"
            top = bottleneck(net, name, top, 64 << (stage - 2), 2 if stage > 2 and i == 0 else 1, i == 0)
    top = net.pool("pool5", top, "AVE", 7, 1)
    end(net, net.linear("fc1000", top, 1000, MSRA))


def resnet50(net):
    resnet(net, (3, 4, 6, 3), letters=True, bias=0)


def resnet152(net):
    resnet(net, (3, 8, 36, 3), letters=False, bias=None)
