# SPDX-License-Identifier: Apache-2.0
"""Small nets, solvers and a database."""
import os  # noqa: F401
import pathlib

import lmdb_files
import numpy

GRADIENTS = """
name: "gradients" force_backward: true
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 5 dim: 2 dim: 3 dim: 4 } shape { dim: 5 }
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 11 kernel_size: 2 pad: 3 weight_filler { type: "gaussian" std: 0.5 } bias_filler { value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip_blob"
  inner_product_param { num_output: 13 weight_filler { type: "gaussian" std: 0.02 } bias_filler { value: -3 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip_blob" bottom: "label" top: "loss" }
"""

DEPLOY = """
name: "deploy"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool1" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def write(name, text):
    """Writes a file into the working directory and returns its path."""
    path = pathlib.Path(name).resolve()
    path.write_text(str(text))
    return str(path)


def write_database(caffe, folder):
    """60 images of 1x8x8 bytes in three classes, each with a bright row of its own."""
    draw = numpy.random.default_rng(1)
    records = []
    for number in range(60):
        image = draw.integers(0, 90, (1, 8, 8), dtype=numpy.uint8)
        image[0, 2 * (number % 3) + 1] += 150
        records.append((b"%08d" % number, caffe.io.array_to_datum(image, number % 3).SerializeToString()))
    return str(lmdb_files.write(folder, records))


def train_net(database, batch=6):
    return f"""
name: "bars"
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{database}" batch_size: {batch} backend: LMDB }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param {{ num_output: 4 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "drop1" type: "Dropout" bottom: "conv1" top: "conv1" }}
layer {{ name: "score" type: "InnerProduct" bottom: "conv1" top: "score"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "score" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }}
"""


def solver(database, batch=6, **fields):
    """A solver's file with its net beside it. `fields` come before those there are."""
    net = write("train_val.prototxt", train_net(database, batch))
    kind = fields.get("type", '"SGD"').strip('"')
    known = {"net": f'"{net}"', "type": f'"{kind}"', "base_lr": 0.05, "weight_decay": 0.001, "lr_policy": '"step"', "gamma": 0.5,
             "stepsize": 8, "max_iter": 12, "display": 4, "test_iter": 3, "test_interval": 6, "snapshot_prefix": '"bars"', "random_seed": 7}
    if kind not in ("AdaGrad", "RMSProp"):
        known["momentum"] = 0.9
    return write("solver.prototxt", "\n".join(f"{name}: {value}" for name, value in {**known, **fields}.items()))
