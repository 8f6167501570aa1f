# SPDX-License-Identifier: Apache-2.0
"""A user's files: images in IDX files, nets and solvers in prototxt. Small ones."""

import random
import struct

TRAIN_IMAGES = 360
TEST_IMAGES = 100
TEST_BATCH = 20


def write_idx(folder, name, count, seed):
    """MNIST's two files for `count` images of ten classes: a bright bar per class, and noise."""
    source = random.Random(seed)
    labels = bytes(i % 10 for i in range(count))
    images = bytearray()
    for label in labels:
        image = bytearray(source.randrange(60) for _ in range(28 * 28))
        for row in range(4, 24):
            for column in range(2 * label + 3, 2 * label + 6):
                image[28 * row + column] = 200 + source.randrange(56)
        images += image
    (folder / f"{name}-images").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images)
    (folder / f"{name}-labels").write_bytes(struct.pack(">2I", 2049, count) + labels)
    return folder / f"{name}-images", folder / f"{name}-labels"


def data_layer(source, phase, batch):
    return f"""
layer {{
  name: "images" type: "Data" top: "data" top: "label"
  include {{ phase: {phase} }}
  transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
}}"""


def inner_product(name, bottom, outputs, extra=""):
    return f"""
layer {{
  name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"
  inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} {extra} }}
}}"""


def small_lenet(train, test, batch=12, hidden=48, dropout=False, labels="label"):
    """Convolution, pooling, two fully connected layers. Sizes divide by little."""
    net = 'name: "SmallLeNet"' + data_layer(train, "TRAIN", batch)
    net += data_layer(test, "TEST", TEST_BATCH)
    net += """
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 7 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } }
}
layer {
  name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 }
}"""
    net += inner_product("ip1", "pool1", hidden)
    net += '\nlayer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }'
    if dropout:
        net += '\nlayer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" }'
    net += inner_product("ip2", "ip1", 10)
    net += f"""
layer {{
  name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "{labels}" top: "accuracy"
  include {{ phase: TEST }}
}}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "{labels}" top: "loss" }}
"""
    return net


def small_layers(train, test, blocks=3, maps=15, batch=12):
    """Residual blocks of convolutions without bias, each with a BatchNorm and a Scale: many layers, all small."""
    def convolution(name, bottom, kernel, stride, pad):
        return f"""
layer {{
  name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
  convolution_param {{
    num_output: {maps} kernel_size: {kernel} stride: {stride} pad: {pad} bias_term: false
    weight_filler {{ type: "msra" }}
  }}
}}
layer {{ name: "{name}_norm" type: "BatchNorm" bottom: "{name}" top: "{name}" }}
layer {{ name: "{name}_scale" type: "Scale" bottom: "{name}" top: "{name}" scale_param {{ bias_term: true }} }}
layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}"""

    net = 'name: "SmallLayers"' + data_layer(train, "TRAIN", batch) + data_layer(test, "TEST", TEST_BATCH)
    net += convolution("conv", "data", kernel=5, stride=2, pad=0)
    below = "conv"
    for block in range(blocks):
        net += convolution(f"b{block}", below, kernel=3, stride=1, pad=1)
        net += f"""
layer {{ name: "sum{block}" type: "Eltwise" bottom: "{below}" bottom: "b{block}" top: "sum{block}" }}"""
        below = f"sum{block}"
    net += f"""
layer {{
  name: "pool" type: "Pooling" bottom: "{below}" top: "pool"
  pooling_param {{ pool: AVE kernel_size: 4 stride: 4 }}
}}"""
    net += inner_product("ip", "pool", 10)
    net += """
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
    return net


def names_of_small_layers(blocks=3):
    """Those of them that are trained and are small, in the net's order."""
    return [name + part for name in ("conv", *(f"b{block}" for block in range(blocks))) for part in ("", "_scale")]


def solver(net, **fields):
    """A solver's text: `net` is a path, fields replace or add to quiet defaults."""
    all_fields = {"base_lr": 0.02, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005,
                  "max_iter": 30, "display": 10, "test_iter": TEST_IMAGES // TEST_BATCH,
                  "test_interval": 15, "random_seed": 7, "snapshot_after_train": False}
    all_fields.update(fields)
    lines = [f'net: "{net}"']
    for name, value in all_fields.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif not isinstance(value, (int, float)):
            value = f'"{value}"'
        lines.append(f"{name}: {value}")
    return "\n".join(lines) + "\n"
