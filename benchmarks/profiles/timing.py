# SPDX-License-Identifier: Apache-2.0
"""Spreads a step's published time over the layers of a network, and writes the profile.

A layer's forward pass takes flops / F for its products plus moved bytes / W for its element-wise
neighbours and for its update (a solver with momentum reads three and writes two numbers per
parameter); backward takes twice the forward's flops and bytes, the first layer's product once. W is
the memory bandwidth that the card's maker states. F is what is left free: it makes the sum over the
layers the published time of the whole step. Where no time was published, F is that of another
profile on the same card, named as such.
"""
import dataclasses
import json

from .architectures import ARCHITECTURES

BYTES = 4
UPDATE_PASSES = 5

# Memory bandwidth, bytes per second.
TITAN_X = 336e9
RTX_2080_TI = 616e9
CPU = 20e9

ATC17 = "Zhang et al., USENIX ATC 2017"
SHI21 = "Shi et al., IEEE Network 2021 (raw results of ddl-benchmarks; card taken to be an RTX 2080 Ti)"


@dataclasses.dataclass(frozen=True)
class Anchor:
    """The source of F: seconds of a step of `batch` samples, or the F of profile `rate_of`, or F itself."""
    batch: int
    memory: float
    source: str
    seconds: float | None = None
    rate_of: str | None = None
    flops: float | None = None


ANCHORS = {
    "cifar10-quick": Anchor(100, CPU, "0.0775 s per 100 images, the least of four runs of poseidon time, two threads of an AMD EPYC", 0.0775),
    "alexnet": Anchor(256, TITAN_X, f"0.25 s per 256 images, one Titan X, {ATC17} (quoted from memory)", 0.25),
    "googlenet": Anchor(128, TITAN_X, f"257 images/s, Caffe, one Titan X, {ATC17} (quoted from memory)", 128 / 257),
    "googlenet-aux": Anchor(128, TITAN_X, "speed of the googlenet profile", rate_of="googlenet"),
    "vgg16": Anchor(32, TITAN_X, "speed of the vgg19-22k profile", rate_of="vgg19-22k"),
    "vgg19": Anchor(32, TITAN_X, "speed of the vgg19-22k profile", rate_of="vgg19-22k"),
    "vgg19-22k": Anchor(32, TITAN_X, f"0.925 s, Caffe, one Titan X, raw times of a figure of {ATC17}", 0.925),
    "resnet-50": Anchor(64, RTX_2080_TI, f"253.1 images/s, one GPU, {SHI21}", 64 / 253.1),
    "resnet-152": Anchor(32, RTX_2080_TI, "speed of the resnet-50 profile", rate_of="resnet-50"),
    "inception-v3": Anchor(32, TITAN_X, f"43.2 images/s, TensorFlow, one Titan X, {ATC17} (quoted from memory)", 32 / 43.2),
    "inception-v3-noaux": Anchor(32, TITAN_X, "speed of the inception-v3 profile", rate_of="inception-v3"),
    "bert-base": Anchor(64, RTX_2080_TI, f"212.8 sequences/s of 64 tokens, one GPU, {SHI21}", 64 / 212.8),
    "mlp": Anchor(64, CPU, "nothing published: a CPU worker of 50 GFLOP/s and 20 GB/s is assumed", flops=50e9),
    "lstm": Anchor(20, TITAN_X, "speed of the vgg19-22k profile", rate_of="vgg19-22k"),
}


def _backward_flops(layer):
    return layer.forward_flops * (2 if layer.input_gradient else 1)


def _moved_seconds(layer, batch, memory):
    """Of the element-wise neighbours in one forward pass, and of the update."""
    return layer.moved * batch * BYTES / memory, layer.elements * UPDATE_PASSES * BYTES / memory


def rate(name):
    """F, FLOP/s."""
    anchor = ANCHORS[name]
    if anchor.flops:
        return anchor.flops
    if anchor.rate_of:
        return rate(anchor.rate_of)
    return _rate_for(ARCHITECTURES[name](), anchor.batch, anchor.memory, anchor.seconds)


def _rate_for(layers, batch, memory, seconds):
    left = seconds
    for layer in layers:
        moved, update = _moved_seconds(layer, batch, memory)
        left -= 3 * moved + update
    if left <= 0:
        raise ValueError(f"{seconds:g} s is less than the {seconds - left:.3g} s that element-wise work and "
                         f"updates take at {memory / 1e9:g} GB/s")
    return batch * sum(layer.forward_flops + _backward_flops(layer) for layer in layers) / left


def profile(name, batch=None, seconds=None):
    """The profile NAME as in README.md. `seconds` per step takes the place of the published time."""
    anchor = ANCHORS[name]
    layers = ARCHITECTURES[name]()
    speed, source = rate(name), anchor.source
    batch = batch or anchor.batch
    if seconds:
        speed, source = _rate_for(layers, batch, anchor.memory, seconds), f"{seconds:g} s per step, given"
    elif batch != anchor.batch:
        source += f"; scaled from batch {anchor.batch}"
    entries = []
    for layer in layers:
        moved, update = _moved_seconds(layer, batch, anchor.memory)
        entry = {"name": layer.name, "shape": layer.shape, "elements": layer.elements,
                 "forward_flops": layer.forward_flops,
                 "forward_seconds": layer.forward_flops * batch / speed + moved + update,
                 "backward_seconds": _backward_flops(layer) * batch / speed + 2 * moved,
                 "tensors": [{"name": t.name, "shape": list(t.shape)} for t in layer.tensors]}
        if layer.factors:
            entry |= {"factors": layer.factors, "rows": batch * layer.rows_per_sample}
        entries.append(entry)
    return {"format": 1, "name": name, "batch": batch, "source": source, "product_flops": speed, "layers": entries}


def text_of(document):
    """JSON, a layer a line."""
    head = json.dumps(document | {"layers": []}, indent=1).removesuffix("[]\n}")
    return head + "[\n  " + ",\n  ".join(map(json.dumps, document["layers"])) + "\n ]\n}\n"


def seconds_of(document):
    return sum(layer["forward_seconds"] + layer["backward_seconds"] for layer in document["layers"])


def ridge(document, workers, goodput=0.956):
    """The line rate in bit/s at which the key-value scheme's transfers take as long as computing."""
    elements = sum(layer["elements"] for layer in document["layers"])
    return 2 * (workers - 1) / workers * elements * BYTES * 8 / seconds_of(document) / goodput
