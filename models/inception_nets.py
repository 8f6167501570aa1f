# SPDX-License-Identifier: Apache-2.0
"""GoogLeNet, named as BVLC Caffe's, and Inception-V3, named as in torchvision with "/" for "."."""

from .imagenet_nets import MSRA, RATES, end, imagenet, mean_values
from .small_nets import XAVIER, gaussian

# GoogLeNet


def conv_and_relu(net, folder, leaf, bottom, outputs, kernel, stride=None, pad=None, relu=None):
    """Convolution FOLDER/LEAF and its activation FOLDER/relu_LEAF."""
    top = net.conv(f"{folder}/{leaf}", bottom, outputs, kernel, XAVIER, stride, pad, bias=0.2, rates=RATES)
    return net.relu(f"{folder}/relu_{relu or leaf}", top)


def inception(net, name, bottom, c1, r3, c3, r5, c5, pooled):
    """Four branches, concatenated. Numbers are maps: of the 1 x 1, of the 3 x 3 and what reduces before it, of the 5 x 5 likewise,
    and behind the pooling."""
    def conv(leaf, below, outputs, kernel):
        return conv_and_relu(net, f"inception_{name}", leaf, below, outputs, kernel, pad=kernel // 2)

    one = conv("1x1", bottom, c1, 1)
    three = conv("3x3", conv("3x3_reduce", bottom, r3, 1), c3, 3)
    five = conv("5x5", conv("5x5_reduce", bottom, r5, 1), c5, 5)
    pool = conv("pool_proj", net.pool(f"inception_{name}/pool", bottom, "MAX", 3, 1, 1), pooled, 1)
    return net.concat(f"inception_{name}/output", one, three, five, pool)


def google_head(net, name, top, loss, weight):
    """A loss, and how often the label was first and among the first five. `loss`: the last parts of its name and of its top's."""
    net.loss(f"{name}/{loss[0]}", top, f"{name}/{loss[1]}", weight)
    net.accuracy(f"{name}/top-1", top)
    net.accuracy(f"{name}/top-5", top, best=5)


def auxiliary_head(net, name, bottom):
    """A classifier in the middle of the net. It exists only while training."""
    if net.deploy:
        return
    top = net.pool(f"{name}/ave_pool", bottom, "AVE", 5, 3)
    top = conv_and_relu(net, name, "conv", top, 128, 1)
    top = net.linear(f"{name}/fc", top, 1024, XAVIER, bias=0.2, rates=RATES)
    net.relu(f"{name}/relu_fc", top)
    net.dropout(f"{name}/drop_fc", top, 0.7)
    top = net.linear(f"{name}/classifier", top, 1000, XAVIER, rates=RATES)
    google_head(net, name, top, ("loss", "loss1"), 0.3)


def googlenet(net):
    top = imagenet(net, 224, (32, 50), mean_values(104, 117, 123))
    top = conv_and_relu(net, "conv1", "7x7_s2", top, 64, 7, 2, 3, relu="7x7")
    top = net.norm("pool1/norm1", net.pool("pool1/3x3_s2", top, "MAX", 3, 2))
    top = conv_and_relu(net, "conv2", "3x3_reduce", top, 64, 1)
    top = net.norm("conv2/norm2", conv_and_relu(net, "conv2", "3x3", top, 192, 3, pad=1))
    top = net.pool("pool2/3x3_s2", top, "MAX", 3, 2)
    top = inception(net, "3a", top, 64, 96, 128, 16, 32, 32)
    top = inception(net, "3b", top, 128, 128, 192, 32, 96, 64)
    top = net.pool("pool3/3x3_s2", top, "MAX", 3, 2)
    top = inception(net, "4a", top, 192, 96, 208, 16, 48, 64)
    auxiliary_head(net, "loss1", top)
    top = inception(net, "4b", top, 160, 112, 224, 24, 64, 64)
    top = inception(net, "4c", top, 128, 128, 256, 24, 64, 64)
    top = inception(net, "4d", top, 112, 144, 288, 32, 64, 64)
    auxiliary_head(net, "loss2", top)
    top = inception(net, "4e", top, 256, 160, 320, 32, 128, 128)
    top = net.pool("pool4/3x3_s2", top, "MAX", 3, 2)
    top = inception(net, "5a", top, 256, 160, 320, 32, 128, 128)
    top = inception(net, "5b", top, 384, 192, 384, 48, 128, 128)
    top = net.pool("pool5/7x7_s1", top, "AVE", 7, 1)
    net.dropout("pool5/drop_7x7_s1", top, 0.4)
    top = net.linear("loss3/classifier", top, 1000, XAVIER, rates=RATES)
    google_head(net, "loss3", top, ("loss3", "loss3"), 1)
    net.probabilities(top)


# Inception-V3


def normalised(net, name, bottom, outputs, kernel, stride=None, pad=None):
    """A convolution without bias, batch normalisation, and the activation."""
    top = net.conv(name, bottom, outputs, kernel, MSRA, stride, pad, bias=None)
    net.batch_norm(f"{name}/bn", top, f"{name}/scale", eps=0.001)
    return net.relu(f"{name}/relu", top)


def chain(net, block, bottom, *steps):
    """Steps one after another: (leaf, outputs, kernel, stride, pad), or "average" or "max" for a pooling."""
    top = bottom
    for step in steps:
        if step == "average":
            top = net.pool(f"{block}/pool", top, "AVE", 3, 1, 1)
        elif step == "max":
            top = net.pool(f"{block}/pool", top, "MAX", 3, 2)
        else:
            top = normalised(net, f"{block}/{step[0]}", top, *step[1:])
    return top


def mixed(net, block, bottom, *branches):
    return net.concat(block, *(chain(net, block, bottom, *steps) for steps in branches))


def block_a(net, name, bottom, pooled):
    """Of 35 x 35."""
    return mixed(net, name, bottom, [("branch1x1", 64, 1)],
                 [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5, 1, 2)],
                 [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1, 1), ("branch3x3dbl_3", 96, 3, 1, 1)],
                 ["average", ("branch_pool", pooled, 1)])


ROW, COLUMN = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))  # kernel, stride, pad


def block_c(net, name, bottom, width):
    """Of 17 x 17: 7 x 7 as a row and a column."""
    return mixed(net, name, bottom, [("branch1x1", 192, 1)],
                 [("branch7x7_1", width, 1), ("branch7x7_2", width, *ROW), ("branch7x7_3", 192, *COLUMN)],
                 [("branch7x7dbl_1", width, 1), ("branch7x7dbl_2", width, *COLUMN), ("branch7x7dbl_3", width, *ROW),
                  ("branch7x7dbl_4", width, *COLUMN), ("branch7x7dbl_5", 192, *ROW)],
                 ["average", ("branch_pool", 192, 1)])


def block_e(net, name, bottom):
    """Of 8 x 8: two branches end in a row and a column beside each other."""
    def forked(leaf, *before):
        top = chain(net, name, bottom, *before)
        return (chain(net, name, top, (f"{leaf}a", 384, (1, 3), 1, (0, 1))), chain(net, name, top, (f"{leaf}b", 384, (3, 1), 1, (1, 0))))

    return net.concat(name, chain(net, name, bottom, ("branch1x1", 320, 1)),
                      *forked("branch3x3_2", ("branch3x3_1", 384, 1)),
                      *forked("branch3x3dbl_3", ("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3, 1, 1)),
                      chain(net, name, bottom, "average", ("branch_pool", 192, 1)))


def v3_auxiliary_head(net, bottom):
    """Exists only while training."""
    if net.deploy:
        return
    top = net.pool("AuxLogits/pool", bottom, "AVE", 5, 3)
    top = normalised(net, "AuxLogits/conv0", top, 128, 1)
    top = normalised(net, "AuxLogits/conv1", top, 768, 5)
    net.loss("AuxLogits/loss", net.linear("AuxLogits/fc", top, 1000, gaussian(0.001)), weight=0.4)


def inception_v3(net):
    top = imagenet(net, 299, (32, 25), mean_values(128, 128, 128) | {"scale": 0.0078125})
    top = normalised(net, "Conv2d_1a_3x3", top, 32, 3, 2)
    top = normalised(net, "Conv2d_2a_3x3", top, 32, 3)
    top = normalised(net, "Conv2d_2b_3x3", top, 64, 3, 1, 1)
    top = net.pool("maxpool1", top, "MAX", 3, 2)
    top = normalised(net, "Conv2d_3b_1x1", top, 80, 1)
    top = normalised(net, "Conv2d_4a_3x3", top, 192, 3)
    top = net.pool("maxpool2", top, "MAX", 3, 2)
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        top = block_a(net, name, top, pooled)
    top = mixed(net, "Mixed_6a", top, [("branch3x3", 384, 3, 2)],
                [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1, 1), ("branch3x3dbl_3", 96, 3, 2)], ["max"])
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        top = block_c(net, name, top, width)
    v3_auxiliary_head(net, top)
    top = mixed(net, "Mixed_7a", top, [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3, 2)],
                [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, *ROW), ("branch7x7x3_3", 192, *COLUMN),
                 ("branch7x7x3_4", 192, 3, 2)], ["max"])
    top = block_e(net, "Mixed_7b", top)
    top = block_e(net, "Mixed_7c", top)
    top = net.pool_all("avgpool", top)
    net.dropout("dropout", top, 0.2)
    end(net, net.linear("fc", top, 1000, gaussian(0.001)))
