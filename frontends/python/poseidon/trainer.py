# SPDX-License-Identifier: Apache-2.0
"""The trainer, which has a wheel of its own (poseidon_train_caffe): where its program is, and whether it fits what is installed."""
from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import re

from . import distribution

NAME = "poseidon-train-caffe"
# Caffe's, by whose names this command may be called (tools/console/programs.h).
PROGRAMS = ("classify", "compute_image_mean", "convert_cifar_data", "convert_imageset", "convert_mnist_data", "detect", "draw_net",
            "extract_features", "extract_seconds", "parse_log", "partition_data", "plot_training_log", "upgrade_net_proto_binary",
            "upgrade_net_proto_text", "upgrade_solver_proto_text")
COMMANDS = ("train", "test", "time", "device_query", "convert_mnist", "member", *PROGRAMS)


def is_needed(words: list[str]) -> bool:
    """Whether the command line `words` asks for something that only the trainer does."""
    command = next((word for word in words if not word.startswith("-")), "")
    return command.replace("-", "_") in COMMANDS or (command in ("plan", "profile") and any(word.endswith(".prototxt") for word in words)
                                   and not is_of_script(words))


def is_of_script(words: list[str]) -> bool:
    """Whether the command line measures a script, which brings its own framework."""
    return words[:1] == ["profile"] and any(word == "--" or word.endswith(".py") for word in words)


def folder_of(package: str) -> pathlib.Path | None:
    """Where a package is, without importing it."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return pathlib.Path(places[0]) if places else None


def of_minor(version: str) -> str:
    """"2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


@dataclasses.dataclass
class Trainer:
    program: pathlib.Path
    libraries: pathlib.Path | None  # torch's, where the program does not look for them by itself
    trouble: str  # a sentence where it cannot run; else empty


def find() -> Trainer | None:
    """The trainer that is installed beside this package; None where there is none, and in a checkout, which has its own."""
    own, ours, version = folder_of("poseidon_caffe"), distribution.find(NAME), distribution.version()
    if own is None or ours is None or version is None:
        return None
    program, torch = own / "bin" / "poseidon", folder_of("torch")
    libraries = torch / "lib" if torch is not None and torch.parent.resolve() != own.parent.resolve() else None
    if version != ours.version:
        return Trainer(program, libraries, f"{NAME} {ours.version} is installed beside {distribution.NAME} {version}, "
                       f"expected the same version of both: pip install poseidon_train_caffe-{version}-*.whl")
    return Trainer(program, libraries, trouble_with_torch(torch, " ".join(ours.requires or [])))


def trouble_with_torch(folder: pathlib.Path | None, requires: str) -> str:
    """A sentence where there is no torch, or one whose tensors have another layout than `requires` says; else empty."""
    needed = re.search(r"torch\s*==\s*(\d+\.\d+)", requires)
    minor = needed[1] if needed is not None else ""
    if folder is None:
        return f"the trainer computes with PyTorch, which is not installed: pip install 'torch=={minor}.*'"
    installed = distribution.find("torch")
    if installed is not None and of_minor(installed.version) != minor:
        return (f"the trainer is built for PyTorch {minor} and {installed.version} is installed, expected {minor}: "
                f"pip install 'torch=={minor}.*'")
    return ""
