# SPDX-License-Identifier: Apache-2.0
"""The published claims, a row each: what was claimed and where, and how ours is found."""
import dataclasses
from collections.abc import Callable

from . import ours

REPORT = "2015 report"         # Zhang et al., Poseidon: A System Architecture for Efficient GPU-based Deep Learning on Multiple Machines
PAPER = "2017 paper"           # Zhang et al., Poseidon: An Efficient Communication Architecture for Distributed Deep Learning, USENIX ATC 2017
RELEASE = "release page"       # of Poseidon for TensorFlow, 2017
WIKI = "Caffe wiki"            # of Poseidon-enabled Caffe, 2016

SIMULATED = "simulated"
EMULATED = "emulated network"
CALCULATED = "calculated"
REAL = "computed for real"
NOT_SHOWN = "not shown"
KINDS = (REAL, EMULATED, SIMULATED, CALCULATED, NOT_SHOWN)

TIMES = "computing takes a published time of another GPU"


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim. `find` returns what ours.py describes; None where the claim is not shown, and then `instead` says what is."""
    name: str
    claim: str
    source: str
    published: str
    kind: str
    differs: str
    find: Callable | None = None
    instead: str = ""
    minutes: float = 0.1  # that finding takes, on two cores


ROWS = (
    Row("inception-v3-32", "Inception-V3 scales to 32 nodes", f"{PAPER}, {RELEASE}", "31.5x; stock TensorFlow 20x; 40 Gbit/s, batch 32, Titan X",
        SIMULATED, TIMES, lambda: ours.speedup("inception-v3", 32, "40Gbit"), minutes=1),
    Row("vgg19-22k-32", "VGG19-22K scales to 32 nodes", f"{PAPER}, {RELEASE}", "30x on TensorFlow, where stock TensorFlow gets slower; 40 Gbit/s",
        SIMULATED, TIMES, lambda: ours.speedup("vgg19-22k", 32, "40Gbit"), minutes=2),
    Row("stock-tensorflow", "Stock TensorFlow's parameter servers do not scale, and get slower", f"{PAPER}, {RELEASE}",
        "Inception-V3 20x of 32; VGG19-22K slower with more nodes", EMULATED,
        "2, 4 and 8 workers of TensorFlow 2.21, real gRPC and real sockets; sizes and rate divided by 100, computing is slept",
        lambda: ours.beside_stock_tensorflow((("inception-v3", "40Gbit"), ("vgg19-22k", "40Gbit"), ("vgg19-22k", "10Gbit")))),
    Row("whole-variables", "Why they do not: whole variables on servers in turn, VGG19-22K", PAPER, "servers of large layers are the bottleneck; 4.4x at 32, Caffe engine",
        CALCULATED, "fitted to stock TensorFlow with 1 and 2 workers at two rates. Servers take variables in turn, so that all weights are on every "
        "second server. What the processors of 8 servers spend is not in it, which may be the residual at 40 Gbit/s",
        ours.whole_variables),
    Row("three-systems-32", "Factors and overlap, overlap only, a plain parameter server: VGG19-22K, 32 nodes", f"{PAPER}, Caffe engine",
        "29.5x / 21.4x / 4.4x at 40 Gbit/s", SIMULATED,
        f"{TIMES}; the parameter server of the papers also spends processor time, ours counts bytes alone",
        lambda: ours.three_systems("vgg19-22k", 32, "40Gbit"), minutes=4),
    Row("three-systems-10g", "The same where the network is slower", "ours, beside the row above", "-", SIMULATED, TIMES,
        lambda: ours.three_systems("vgg19-22k", 32, "10Gbit"), minutes=4),
    Row("resnet-152-32", "ResNet-152 scales to 32 nodes", PAPER, "about 31x; 40 Gbit/s", SIMULATED, TIMES,
        lambda: ours.speedup("resnet-152", 32, "40Gbit"), minutes=1),
    Row("vgg19-32", "VGG19 scales to 32 nodes", PAPER, "a figure; 40 Gbit/s", SIMULATED, TIMES,
        lambda: ours.speedup("vgg19", 32, "40Gbit"), minutes=1),
    Row("vgg19-22k-16", "15.5x on 16 machines at 10 Gbit/s, VGG19-22K", PAPER, "15.5x", SIMULATED, TIMES,
        lambda: ours.speedup("vgg19-22k", 16, "10Gbit"), minutes=1),
    Row("vgg19-22k-8", "The same net on 8 machines at 10 Gbit/s, over real sockets", PAPER, "7.6x at 40 Gbit/s (Caffe engine)", EMULATED,
        "sizes and rate divided by one number, computing is slept", lambda: ours.emulated("vgg19-22k-p8-10G", "ps-2017", "ddp-4")),
    Row("googlenet-bandwidth", "GoogLeNet on slow networks, 16 nodes", PAPER, "a figure; 2, 5, 10 Gbit/s",
        SIMULATED, TIMES, lambda: ours.sweep("googlenet", 16, ("2Gbit", "5Gbit", "10Gbit")), minutes=1),
    Row("vgg19-bandwidth", "VGG19 on slow networks, 16 nodes", PAPER, "a figure; 10, 20, 30 Gbit/s", SIMULATED, TIMES,
        lambda: ours.sweep("vgg19", 16, ("10Gbit", "20Gbit", "30Gbit")), minutes=3),
    Row("alexnet-8", "AlexNet on 8 nodes", f"{REPORT}; {WIKI}", "4.5x; 5 to 7x against another baseline; 40 Gbit/s, K20", EMULATED,
        "10 Gbit/s, a faster GPU, sizes and rate divided by one number, computing is slept", lambda: ours.emulated("alexnet-p8-10G", "ps-2017", "ddp-4")),
    Row("googlenet-8", "GoogLeNet on 8 nodes", f"{REPORT}; {WIKI}", "4x; 40 Gbit/s, K20", SIMULATED, "10 Gbit/s, a faster GPU",
        lambda: ours.speedup("googlenet", 8, "10Gbit"), minutes=0.5),
    Row("cifar10-8", "CIFAR-10's quick net on 8 nodes", REPORT, "4x; 40 Gbit/s, K20", SIMULATED, "10 Gbit/s; batch 100 on every worker",
        lambda: ours.speedup("cifar10-quick", 8, "10Gbit", scale=1), minutes=0.5),
    Row("balance", "Traffic is balanced among the nodes, and less bursty", PAPER, "a figure", SIMULATED,
        "VGG19-22K, 4 nodes, 10 Gbit/s", lambda: ours.burstiness("vgg19-22k", 4, "10Gbit"), minutes=0.2),
    Row("stalls", "GPUs rarely wait for the network", PAPER, "a figure; 8 nodes", SIMULATED,
        f"{TIMES}; the share of a step in which nothing is computed",
        lambda: ours.stalls((("inception-v3", 8, "40Gbit"), ("vgg19", 8, "40Gbit"), ("vgg19-22k", 8, "40Gbit"))), minutes=1),
    Row("one-node", "One worker trains as fast as the engine alone", PAPER, "34.2 images/s of 34.6, VGG19-22K, Caffe engine", REAL,
        "LeNet by the trainer, the others by PyTorch and Keras", ours.one_node, minutes=2),
    Row("sfb", "Sufficient factors spare most of what fully connected layers send", f"{REPORT}; {PAPER}", "2K(P-1)(M+N) instead of 2MN numbers", CALCULATED,
        "VGG19-22K, 8 workers, batch 32, the whole net", lambda: ours.factors("vgg19-22k", 8, "10Gbit")),
    Row("objective", "Workers reach the objective of one machine", PAPER, "the same error curves", REAL,
        "LeNet, CIFAR-10 quick and a perceptron on Fashion-MNIST and the digits ([convergence](convergence.md)), 2, 4 and 8 workers at one global batch",
        ours.objectives),
    Row("imagenet-day", "AlexNet reaches its accuracy in less than a day on 8 machines", f"{RELEASE}; {WIKI}",
        "about 1 day, 56.5 % top-1; one machine 5 to 7 days; 80 % top-5 in under 24 h", CALCULATED,
        f"time alone, of 90 epochs at 10 Gbit/s; {TIMES}; no accuracy, for which ImageNet would have to be trained",
        lambda: ours.budget("alexnet", 8, "10Gbit", 1_281_167, 90)),
    Row("imagenet-22k", "ImageNet-22K in 3 days on 8 machines, 13 % of the machines and 30 % of the time of Adam", WIKI,
        "3 days, train 41 %, test 23.7 %", CALCULATED, f"time alone, of VGG19-22K, one pass over 14.2 million images at 10 Gbit/s; {TIMES}; no accuracy",
        lambda: ours.budget("vgg19-22k", 8, "10Gbit", 14_197_122, 1)),
    Row("accuracy", "41 % and 23.7 % on ImageNet-22K, 67.1 % of GoogLeNet, 80 % top-5", f"{WIKI}; {RELEASE}", "as said", NOT_SHOWN, "-",
        instead="no data of ImageNet was trained. All workers end every step with the same bits, and what they differ by from one process on the same batches are "
                "roundings ([drift](drift.md)), so that accuracy is that of one machine with the global batch"),
    Row("managed", "Managed communication: a budget of bandwidth, the urgent first", REPORT, "a budget, no figure", EMULATED,
        f"VGG19, 4 workers at 10 Gbit/s, encrypted, held to 0.4 of every link ([more](bandwidth.md)); {TIMES}", ours.managed, minutes=0.6),
    Row("ssp", "Bounded staleness of the parameter server beneath", REPORT, "SSP", NOT_SHOWN, "-",
        instead="steps are exact, and staleness is 0 on purpose ([why](decisions/staleness.md))"),
)
