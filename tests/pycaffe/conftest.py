# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "frontends" / "python"), str(pathlib.Path(__file__).resolve().parent)]
sys.path += [str(ROOT / "tests" / "process")]

for package in ("numpy", "google.protobuf"):
    pytest.importorskip(package, reason=f"{package} is not installed for this interpreter")

import files  # noqa: E402

import poseidon.caffe as caffe  # noqa: E402


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    """Each test has a working directory of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """An LMDB of 60 small images in three classes."""
    return files.write_database(caffe, tmp_path_factory.mktemp("data") / "lmdb")


@pytest.fixture
def net():
    """Data of fillers, a convolution, a fully connected layer and a loss, all with gradients."""
    made = caffe.Net(files.write("net.prototxt", files.GRADIENTS), caffe.TRAIN)
    made.blobs["label"].data[...] = [0, 1, 2, 3, 4]
    return made


@pytest.fixture
def user_layers():
    """The user's module of layers, as a net finds it."""
    caffe.stand_in()
    return importlib.import_module("user_layers")
