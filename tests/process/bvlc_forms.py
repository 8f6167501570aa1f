# SPDX-License-Identifier: Apache-2.0
"""Nets of the forms of BVLC Caffe's examples that models/ has not, in our own words and smaller: pairs of images, an autoencoder with
stages, sigmoids with batch normalisation, and a solver that holds its net in the oldest form that is still written."""

from caffe_files import inner_product

GAUSSIAN = 'weight_filler { type: "gaussian" std: 1 sparse: 5 }'


def data(source, phase, batch, tops='top: "data" top: "label"', stage=""):
    stage = f'stage: "{stage}"' if stage else ""
    return f"""
layer {{ name: "images" type: "Data" {tops} include {{ phase: {phase} {stage} }} transform_param {{ scale: 0.00390625 }}
        data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }} }}"""


def siamese(source):
    """Both channels of an image go through the same weights; the label says whether they show the same thing."""
    def tower(side):
        def shared(layer):
            return f'param {{ name: "{layer}_w" lr_mult: 1 }} param {{ name: "{layer}_b" lr_mult: 2 }}'

        return f"""
layer {{ name: "conv{side}" type: "Convolution" bottom: "image{side}" top: "conv{side}" {shared("conv")}
        convolution_param {{ num_output: 8 kernel_size: 5 stride: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu{side}" type: "ReLU" bottom: "conv{side}" top: "conv{side}" }}
layer {{ name: "feature{side}" type: "InnerProduct" bottom: "conv{side}" top: "feature{side}" {shared("feature")}
        inner_product_param {{ num_output: 2 weight_filler {{ type: "xavier" }} }} }}"""

    tops = 'top: "pair" top: "same"'
    return ('name: "Siamese"' + data(source, "TRAIN", 8, tops) + data(source, "TEST", 8, tops) + """
layer { name: "slice" type: "Slice" bottom: "pair" top: "image" top: "image_p" slice_param { slice_dim: 1 slice_point: 1 } }"""
            + tower("") + tower("_p") + """
layer { name: "loss" type: "ContrastiveLoss" bottom: "feature" bottom: "feature_p" bottom: "same" top: "loss"
        contrastive_loss_param { margin: 1 } }
""")


def autoencoder(train, test):
    """Learns to draw its input again. Two test nets, told apart by stages; a second loss that is looked at and not trained on."""
    net = 'name: "Autoencoder"' + data(train, "TRAIN", 8, 'top: "data"')
    net += data(train, "TEST", 8, 'top: "data"', "on-train") + data(test, "TEST", 8, 'top: "data"', "on-test")
    net += '\nlayer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }'
    below = "data"
    for name, outputs in (("encode1", 40), ("encode2", 10), ("decode2", 40), ("decode1", 784)):
        net += inner_product(name, below, outputs).replace('weight_filler { type: "xavier" }', GAUSSIAN)
        if name in ("encode2", "decode1"):
            below = name
        else:
            net += f'\nlayer {{ name: "{name}neuron" type: "Sigmoid" bottom: "{name}" top: "{name}neuron" }}'
            below = f"{name}neuron"
    return net + """
layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "decode1" bottom: "flat" top: "cross_entropy_loss" loss_weight: 1 }
layer { name: "sigmoid" type: "Sigmoid" bottom: "decode1" top: "drawn" }
layer { name: "euclidean" type: "EuclideanLoss" bottom: "drawn" bottom: "flat" top: "l2_error" include { phase: TEST } }
"""


AUTOENCODER_TESTS = 'test_state { stage: "on-train" }\ntest_iter: 1\ntest_state { stage: "on-test" }\ntest_iter: 1\n'


def sigmoids(train, test):
    """A convolution without bias, normalised by its batch, whose three statistics are told not to learn; then LRN within channels."""
    fixed = "param { lr_mult: 0 } " * 3
    return f"""name: "Sigmoids"{data(train, "TRAIN", 8)}{data(test, "TEST", 8)}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param {{ num_output: 8 kernel_size: 5 pad: 2 bias_term: false weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {{ pool: MAX kernel_size: 3 stride: 2 }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "pool" top: "bn" {fixed}}}
layer {{ name: "sigmoid" type: "Sigmoid" bottom: "bn" top: "bn" }}
layer {{ name: "norm" type: "LRN" bottom: "bn" top: "norm"
        lrn_param {{ local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL }} }}
{inner_product("ip", "norm", 10)}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def consolidated(train, test):
    """Fields of a solver: its net, layers of the form before this one, tested on both databases by stages."""
    def layers(text):
        return "layers { " + text + " }\n"

    def images(source, include):
        return layers(f"""name: "mnist" type: DATA top: "data" top: "label" include {{ {include} }}
  data_param {{ source: "{source}" backend: LMDB batch_size: 8 }} transform_param {{ scale: 0.00390625 }}""")

    return ('net_param { name: "Consolidated"\n' + images(train, "phase: TRAIN") + images(test, 'phase: TEST stage: "on-test"')
            + images(train, 'phase: TEST stage: "on-train"') + layers("""name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip"
  blobs_lr: 1 blobs_lr: 2 inner_product_param { num_output: 10 weight_filler { type: "xavier" } }""")
            + layers('name: "accuracy" type: ACCURACY bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST }')
            + layers('name: "loss" type: SOFTMAX_LOSS bottom: "ip" bottom: "label" top: "loss"') + "}\n" + AUTOENCODER_TESTS)
