# SPDX-License-Identifier: Apache-2.0
"""How the authors trained each net, as fields of a solver. What each recipe leaves open is in the README.md beside it."""

from .prototxt import Word

MOMENTUM = {"momentum": 0.9}


def tests(iterations, interval, at_first=True):
    return {"test_iter": iterations, "test_interval": interval, "test_initialization": None if at_first else False}


def steps(rate, at, end, decay):
    """A rate that is divided by ten `at` these iterations."""
    return {"base_lr": rate, "lr_policy": "multistep", "gamma": 0.1, "stepvalue": at, "max_iter": end} | MOMENTUM | {"weight_decay": decay}


def krizhevsky():
    """Of AlexNet and CaffeNet."""
    return tests(1000, 1000) | {"base_lr": 0.01, "lr_policy": "step", "gamma": 0.1, "stepsize": 100000, "max_iter": 450000} | MOMENTUM | {
        "weight_decay": 0.0005, "display": 20, "snapshot": 10000}


def vgg():
    return tests(2000, 5000, at_first=False) | steps(0.01, [100000, 200000, 300000], 370000, 0.0005) | {
        "display": 20, "snapshot": 10000}


def resnet():
    return tests(2000, 5000, at_first=False) | steps(0.1, [150000, 300000, 450000], 600000, 0.0001) | {
        "display": 20, "average_loss": 20, "snapshot": 10000}


RECIPES = {
    "lenet": tests(100, 500) | {"base_lr": 0.01, "lr_policy": "inv", "gamma": 0.0001, "power": 0.75, "max_iter": 10000} | MOMENTUM | {
        "weight_decay": 0.0005, "display": 100, "snapshot": 5000},
    "cifar10_quick": tests(100, 500) | steps(0.001, [4000], 5000, 0.004) | {"display": 100, "snapshot": 4000},
    "cifar10_full": tests(100, 1000) | steps(0.001, [60000, 65000], 70000, 0.004) | {"display": 200, "snapshot": 10000},
    "alexnet": krizhevsky(),
    "caffenet": krizhevsky(),
    "googlenet": tests(1000, 4000, at_first=False) | {
        "base_lr": 0.01, "lr_policy": "poly", "power": 0.5, "max_iter": 2400000} | MOMENTUM | {
        "weight_decay": 0.0002, "display": 40, "average_loss": 40, "snapshot": 40000},
    "vgg16": vgg(),
    "vgg19": vgg(),
    "vgg19_22k": vgg(),
    # 0.94 every two epochs of 1,281,167 images in batches of 50 x 32.
    "inception_v3": tests(2000, 5000, at_first=False) | {
        "type": "RMSProp", "base_lr": 0.045, "lr_policy": "step", "gamma": 0.94, "stepsize": 1600, "max_iter": 80000, "rms_decay": 0.9,
        "delta": 1.0, "clip_gradients": 2.0, "weight_decay": 0.00004, "display": 20, "average_loss": 20, "snapshot": 5000},
    "resnet50": resnet(),
    "resnet152": resnet(),
}


def solver_fields(name):
    return {"net": f"models/{name}/train_val.prototxt"} | RECIPES[name] | {
        "snapshot_prefix": name, "solver_mode": Word("CPU"), "random_seed": 1}
