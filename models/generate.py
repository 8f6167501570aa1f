#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes train_val.prototxt, deploy.prototxt and solver.prototxt of every net in models/.

  python3 -m models.generate            writes the files, into the folders beside this one
  python3 -m models.generate --check    says which files are not what would be written; exits 1 if there are any
"""

import argparse
import pathlib
import sys

from . import imagenet_nets, inception_nets, small_nets
from .prototxt import Net, solver_text
from .recipes import solver_fields

FOLDER = pathlib.Path(__file__).resolve().parent
WRITTEN = "Written by models/generate.py. Paths are relative to the folder where the command runs, the checkout."
DEPLOYED = "Written by models/generate.py: the net of train_val.prototxt for images without labels."

# Folder: the net's name in its files, and the function that writes it.
NETS = {
    "lenet": ("LeNet", small_nets.lenet),
    "cifar10_quick": ("CIFAR10_quick", small_nets.cifar10_quick),
    "cifar10_full": ("CIFAR10_full", small_nets.cifar10_full),
    "alexnet": ("AlexNet", imagenet_nets.alexnet),
    "caffenet": ("CaffeNet", imagenet_nets.caffenet),
    "googlenet": ("GoogLeNet", inception_nets.googlenet),
    "vgg16": ("VGG16", imagenet_nets.vgg16),
    "vgg19": ("VGG19", imagenet_nets.vgg19),
    "vgg19_22k": ("VGG19_22K", imagenet_nets.vgg19_22k),
    "inception_v3": ("InceptionV3", inception_nets.inception_v3),
    "resnet50": ("ResNet50", imagenet_nets.resnet50),
    "resnet152": ("ResNet152", imagenet_nets.resnet152),
}


def net_text(name, deploy):
    title, build = NETS[name]
    net = Net(title, deploy, [DEPLOYED if deploy else WRITTEN])
    build(net)
    return net.text()


def files():
    """Path below models/, and text, of every file."""
    for name in NETS:
        yield f"{name}/train_val.prototxt", net_text(name, deploy=False)
        yield f"{name}/deploy.prototxt", net_text(name, deploy=True)
        yield f"{name}/solver.prototxt", solver_text([WRITTEN, f"The recipe, and what it trains to: models/{name}/README.md."],
                                                     solver_fields(name))


def main():
    parser = argparse.ArgumentParser(prog="python3 -m models.generate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    other = 0
    for path, text in files():
        file = FOLDER / path
        if file.exists() and file.read_text() == text:
            continue
        other += 1
        print(f"models/{path} {'is not what models/generate.py writes' if check else 'written'}")
        if not check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    sys.exit(1 if check and other else 0)


if __name__ == "__main__":
    main()
