# SPDX-License-Identifier: Apache-2.0
"""Networks as lists of layers with their parameter tensors, computed from their architectures.

A builder walks the shapes of one sample through the net. It writes down each parameter tensor, the
floating-point operations of one sample's forward pass (a multiply-add is two) and the numbers that
element-wise neighbours (activation, normalisation, pooling) read and write; these are charged to
the layer with parameters before them, or after them where they come first.
"""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]

    @property
    def elements(self):
        return math.prod(self.shape)


@dataclasses.dataclass
class Layer:
    """Tensors that are synchronised as one: a weight and its bias, or a normalisation's scale and shift."""
    name: str
    tensors: list[Tensor]
    forward_flops: float = 0         # of one sample
    moved: float = 0                 # numbers that element-wise neighbours read and write, of one sample
    factors: dict | None = None      # of a fully connected layer: outputs, inputs, bias
    rows_per_sample: int = 1         # rows of the factors
    input_gradient: bool = True      # the first layer of a net computes none

    @property
    def elements(self):
        return sum(t.elements for t in self.tensors)

    @property
    def shape(self):
        return "+".join("x".join(map(str, t.shape)) for t in self.tensors)


class Builder:
    """Collects layers while a shape, (channels, height, width) or (features,), flows through."""

    def __init__(self, *shape):
        self.shape = shape
        self.layers = []
        self._before = 0  # numbers moved before the first layer

    def _add(self, layer):
        layer.moved += self._before
        self._before = 0
        self.layers.append(layer)

    def _weights(self, name, weight, bias):
        tensors = [Tensor(f"{name}.weight", weight)]
        return tensors + [Tensor(f"{name}.bias", (weight[0],))] if bias else tensors

    def conv(self, name, outputs, kernel, stride=1, pad=0, groups=1, bias=True):
        inputs, height, width = self.shape
        (kh, kw), (ph, pw) = ((v, v) if isinstance(v, int) else v for v in (kernel, pad))
        height, width = (height + 2 * ph - kh) // stride + 1, (width + 2 * pw - kw) // stride + 1
        weight = (outputs, inputs // groups, kh, kw)
        self._add(Layer(name, self._weights(name, weight, bias), 2 * math.prod(weight) * height * width,
                        input_gradient=bool(self.layers)))
        self.shape = (outputs, height, width)

    def linear(self, name, outputs, bias=True, rows=1, label=None, first=False):
        """A fully connected layer, used on `rows` rows of every sample."""
        inputs = math.prod(self.shape)
        self._add(Layer(label or name, self._weights(name, (outputs, inputs), bias),
                        2 * outputs * inputs * rows, input_gradient=not first, rows_per_sample=rows,
                        factors={"outputs": outputs, "inputs": inputs, "bias": bias}))
        self.shape = (outputs,)

    def norm(self, name, features=None, rows=None):
        """Batch or layer normalisation with scale and shift: reads twice, writes once."""
        features = features or self.shape[0]
        self._add(Layer(name, self._weights(name, (features,), True)))
        self.elementwise(3, features * rows if rows else None)

    def parameters(self, name, *tensors):
        """A layer whose forward pass is a copy: an embedding."""
        self._add(Layer(name, [Tensor(f"{name}.{leaf}" if leaf else name, shape) for leaf, shape in tensors]))

    def work(self, flops):
        """Operations without parameters (attention), charged like an element-wise neighbour."""
        self.layers[-1].forward_flops += flops

    def elementwise(self, passes=2, elements=None):
        """Reads and writes of the present shape: 2 for an activation in place."""
        moved = passes * (elements or math.prod(self.shape))
        if self.layers:
            self.layers[-1].moved += moved
        else:
            self._before += moved

    def pool(self, kernel, stride, pad=0, ceil=False):
        channels, height, width = self.shape
        before = math.prod(self.shape)
        rounded = math.ceil if ceil else math.floor
        height, width = (rounded((v + 2 * pad - kernel) / stride) + 1 for v in (height, width))
        self.shape = (channels, height, width)
        self.elementwise(1, before + math.prod(self.shape))

    def pool_all(self):
        before = math.prod(self.shape)
        self.shape = (self.shape[0],)
        self.elementwise(1, before + self.shape[0])

    def branches(self, *branches):
        """Runs each on the present shape; their channels are concatenated."""
        start, channels = self.shape, 0
        for branch in branches:
            self.shape = start
            branch()
            channels += self.shape[0]
        self.shape = (channels, *self.shape[1:])


def alexnet():
    """BVLC Caffe's: two groups, 227 x 227."""
    b = Builder(3, 227, 227)

    def conv(name, *args, normalised=False, pooled=False, **options):
        b.conv(name, *args, **options)
        b.elementwise()
        if normalised:
            b.elementwise(3)
        if pooled:
            b.pool(3, 2, ceil=True)

    conv("conv1", 96, 11, 4, normalised=True, pooled=True)
    conv("conv2", 256, 5, 1, 2, groups=2, normalised=True, pooled=True)
    conv("conv3", 384, 3, 1, 1)
    conv("conv4", 384, 3, 1, 1, groups=2)
    conv("conv5", 256, 3, 1, 1, groups=2, pooled=True)
    for name, outputs in (("fc6", 4096), ("fc7", 4096), ("fc8", 1000)):
        b.linear(name, outputs)
        b.elementwise(4 if outputs == 4096 else 2)
    return b.layers


def cifar10_quick():
    """BVLC Caffe's, as in models/cifar10_quick."""
    b = Builder(3, 32, 32)
    for name, outputs in (("conv1", 32), ("conv2", 32), ("conv3", 64)):
        b.conv(name, outputs, 5, 1, 2)
        if name == "conv1":
            b.pool(3, 2, ceil=True)
        b.elementwise()
        if name != "conv1":
            b.pool(3, 2, ceil=True)
    b.linear("ip1", 64)
    b.linear("ip2", 10)
    b.elementwise()
    return b.layers


def vgg(convolutions, classes=1000):
    """`convolutions`: how many in each of the five stages."""
    b = Builder(3, 224, 224)
    for stage, count in enumerate(convolutions, 1):
        for i in range(1, count + 1):
            b.conv(f"conv{stage}_{i}", min(64 << (stage - 1), 512), 3, 1, 1)
            b.elementwise()
        b.pool(2, 2)
    for name, outputs in (("fc6", 4096), ("fc7", 4096), ("fc8", classes)):
        b.linear(name, outputs)
        b.elementwise(4 if name != "fc8" else 2)
    return b.layers


def googlenet(auxiliary):
    """BVLC Caffe's. Its two auxiliary classifiers exist only while training."""
    b = Builder(3, 224, 224)

    def conv(name, outputs, kernel, stride=1, pad=0):
        b.conv(name, outputs, kernel, stride, pad)
        b.elementwise()

    def inception(name, c1, r3, c3, r5, c5, pooled):
        def chain(*steps):
            def run():
                for leaf, outputs, kernel in steps:
                    if leaf == "pool_proj":
                        b.pool(3, 1, 1)
                    conv(f"inception_{name}/{leaf}", outputs, kernel, 1, kernel // 2)
            return run
        b.branches(chain(("1x1", c1, 1)), chain(("3x3_reduce", r3, 1), ("3x3", c3, 3)),
                   chain(("5x5_reduce", r5, 1), ("5x5", c5, 5)), chain(("pool_proj", pooled, 1)))

    def auxiliary_head(name):
        if not auxiliary:
            return
        trunk = b.shape
        b.pool(5, 3)
        conv(f"{name}/conv", 128, 1)
        b.linear(f"{name}/fc", 1024)
        b.elementwise(4)
        b.linear(f"{name}/classifier", 1000)
        b.shape = trunk

    conv("conv1/7x7_s2", 64, 7, 2, 3)
    b.pool(3, 2, ceil=True)
    b.elementwise(3)
    conv("conv2/3x3_reduce", 64, 1)
    conv("conv2/3x3", 192, 3, 1, 1)
    b.elementwise(3)
    b.pool(3, 2, ceil=True)
    inception("3a", 64, 96, 128, 16, 32, 32)
    inception("3b", 128, 128, 192, 32, 96, 64)
    b.pool(3, 2, ceil=True)
    inception("4a", 192, 96, 208, 16, 48, 64)
    auxiliary_head("loss1")
    inception("4b", 160, 112, 224, 24, 64, 64)
    inception("4c", 128, 128, 256, 24, 64, 64)
    inception("4d", 112, 144, 288, 32, 64, 64)
    auxiliary_head("loss2")
    inception("4e", 256, 160, 320, 32, 128, 128)
    b.pool(3, 2, ceil=True)
    inception("5a", 256, 160, 320, 32, 128, 128)
    inception("5b", 384, 192, 384, 48, 128, 128)
    b.pool_all()
    b.linear("loss3/classifier", 1000)
    return b.layers


def resnet(blocks):
    """torchvision's (stride in the 3 x 3), tensor names included. `blocks`: of the four stages."""
    b = Builder(3, 224, 224)
    b.conv("conv1", 64, 7, 2, 3, bias=False)
    b.norm("bn1")
    b.elementwise()
    b.pool(3, 2, 1)
    for stage, count in enumerate(blocks, 1):
        width = 64 << (stage - 1)
        for i in range(count):
            name = f"layer{stage}.{i}"
            stride = 2 if stage > 1 and i == 0 else 1
            start = b.shape
            for part, (outputs, kernel, step) in enumerate(((width, 1, 1), (width, 3, stride), (4 * width, 1, 1)), 1):
                b.conv(f"{name}.conv{part}", outputs, kernel, step, kernel // 2, bias=False)
                b.norm(f"{name}.bn{part}")
                if part < 3:
                    b.elementwise()
            if i == 0:
                b.shape = start
                b.conv(f"{name}.downsample.0", 4 * width, 1, stride, bias=False)
                b.norm(f"{name}.downsample.1")
            b.elementwise(5)  # the sum, then the activation in place
    b.pool_all()
    b.linear("fc", 1000)
    return b.layers


def inception_v3(auxiliary):
    """torchvision's, tensor names included. Its auxiliary classifier exists only while training."""
    b = Builder(3, 299, 299)

    def conv(name, outputs, kernel, stride=1, pad=0):
        b.conv(f"{name}.conv", outputs, kernel, stride, pad, bias=False)
        b.norm(f"{name}.bn")
        b.elementwise()

    def chain(block, *steps):
        """Steps are (leaf, outputs, kernel, stride, pad), or "average" or "max" for a pooling."""
        def run():
            for step in steps:
                if step == "average":
                    b.pool(3, 1, 1)
                elif step == "max":
                    b.pool(3, 2)
                else:
                    conv(f"{block}.{step[0]}", *step[1:])
        return run

    def mixed(name, *branches):
        b.branches(*(chain(name, *steps) for steps in branches))

    def block_a(name, pooled):
        mixed(name, [("branch1x1", 64, 1)],
              [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5, 1, 2)],
              [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1, 1), ("branch3x3dbl_3", 96, 3, 1, 1)],
              ["average", ("branch_pool", pooled, 1)])

    def block_c(name, width):
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        mixed(name, [("branch1x1", 192, 1)],
              [("branch7x7_1", width, 1), ("branch7x7_2", width, *row), ("branch7x7_3", 192, *column)],
              [("branch7x7dbl_1", width, 1), ("branch7x7dbl_2", width, *column), ("branch7x7dbl_3", width, *row),
               ("branch7x7dbl_4", width, *column), ("branch7x7dbl_5", 192, *row)],
              ["average", ("branch_pool", 192, 1)])

    def block_e(name):
        row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))

        def forked(before, leaf):
            def run():
                chain(name, *before)()
                b.branches(chain(name, (f"{leaf}a", 384, *row)), chain(name, (f"{leaf}b", 384, *column)))
            return run
        b.branches(chain(name, ("branch1x1", 320, 1)),
                   forked([("branch3x3_1", 384, 1)], "branch3x3_2"),
                   forked([("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3, 1, 1)], "branch3x3dbl_3"),
                   chain(name, "average", ("branch_pool", 192, 1)))

    conv("Conv2d_1a_3x3", 32, 3, 2)
    conv("Conv2d_2a_3x3", 32, 3)
    conv("Conv2d_2b_3x3", 64, 3, 1, 1)
    b.pool(3, 2)
    conv("Conv2d_3b_1x1", 80, 1)
    conv("Conv2d_4a_3x3", 192, 3)
    b.pool(3, 2)
    block_a("Mixed_5b", 32)
    block_a("Mixed_5c", 64)
    block_a("Mixed_5d", 64)
    mixed("Mixed_6a", [("branch3x3", 384, 3, 2)],
          [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3, 1, 1), ("branch3x3dbl_3", 96, 3, 2)], ["max"])
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        block_c(name, width)
    if auxiliary:
        trunk = b.shape
        b.pool(5, 3)
        conv("AuxLogits.conv0", 128, 1)
        conv("AuxLogits.conv1", 768, 5)
        b.linear("AuxLogits.fc", 1000)
        b.shape = trunk
    mixed("Mixed_7a", [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3, 2)],
          [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, (1, 7), 1, (0, 3)),
           ("branch7x7x3_3", 192, (7, 1), 1, (3, 0)), ("branch7x7x3_4", 192, 3, 2)], ["max"])
    block_e("Mixed_7b")
    block_e("Mixed_7c")
    b.pool_all()
    b.linear("fc", 1000)
    return b.layers


def bert_base(tokens=64):
    """The uncased encoder with its pooler, sequences of `tokens`; names as in `transformers`."""
    width, inner, heads = 768, 3072, 12
    b = Builder(width)
    for name, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        b.parameters(f"embeddings.{name}_embeddings", ("weight", (rows, width)))
        b.elementwise(2, tokens * width)
    b.norm("embeddings.LayerNorm", rows=tokens)

    def linear(name, outputs, passes):
        b.linear(name, outputs, rows=tokens)
        b.elementwise(passes, tokens * outputs)

    for i in range(12):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", width, 1)
            b.shape = (width,)
        b.work(4 * tokens * tokens * width)               # scores, and their product with the values
        b.elementwise(6, heads * tokens * tokens)         # scale, softmax, dropout
        linear(f"{layer}.attention.output.dense", width, 5)  # dropout, sum
        b.norm(f"{layer}.attention.output.LayerNorm", rows=tokens)
        linear(f"{layer}.intermediate.dense", inner, 2)
        linear(f"{layer}.output.dense", width, 5)
        b.norm(f"{layer}.output.LayerNorm", rows=tokens)
    b.linear("pooler.dense", width)
    return b.layers


def mlp():
    b = Builder(784)
    for i, outputs in enumerate((4096, 4096, 10), 1):
        b.linear(f"fc{i}", outputs, first=i == 1)
        b.elementwise()
    return b.layers


def lstm(steps=35):
    """The large word-level language model of Zaremba et al. 2014: two layers of 1500, 10,000 words.

    Samples are sequences of `steps` words. Each gate weight is a layer with its own bias, as the
    factors of its gradient are the gate gradients and its input: the row of a step and sample.
    """
    width, words = 1500, 10000
    b = Builder(width)
    b.parameters("embedding", ("weight", (words, width)))
    b.elementwise(2, steps * width)
    for i in range(2):
        for part in ("ih", "hh"):
            b.shape = (width,)
            b.linear(f"lstm.{part}_l{i}", 4 * width, rows=steps)
        # torch's names
        for layer, part in zip(b.layers[-2:], ("ih", "hh")):
            layer.tensors = [Tensor(f"lstm.{t.name.split('.')[-1]}_{part}_l{i}", t.shape) for t in layer.tensors]
        b.elementwise(3, steps * 4 * width)  # gates and cell
        b.shape = (width,)
    b.linear("decoder", words, rows=steps)
    b.elementwise(3, steps * words)
    return b.layers


ARCHITECTURES = {
    "cifar10-quick": cifar10_quick,
    "alexnet": alexnet,
    "googlenet": lambda: googlenet(auxiliary=False),
    "googlenet-aux": lambda: googlenet(auxiliary=True),
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
    "vgg19-22k": lambda: vgg((2, 2, 4, 4, 4), classes=21841),
    "resnet-50": lambda: resnet((3, 4, 6, 3)),
    "resnet-152": lambda: resnet((3, 8, 36, 3)),
    "inception-v3": lambda: inception_v3(auxiliary=True),
    "inception-v3-noaux": lambda: inception_v3(auxiliary=False),
    "bert-base": bert_base,
    "mlp": mlp,
    "lstm": lstm,
}
