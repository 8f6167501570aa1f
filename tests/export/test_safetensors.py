# SPDX-License-Identifier: Apache-2.0
"""Weights go to safetensors and come back as they were."""

import json

import numpy
import pytest

import nets
from conftest import compute, export

safetensors = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")

TWO_OF_ONE_NAME = nets.DEPLOY.replace('name: "side"', 'name: "ip"')


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return compute({"deploy": nets.DEPLOY, "twice": TWO_OF_ONE_NAME}, tmp_path_factory.mktemp("cases"))


def test_there_and_back(cases):
    case = cases["deploy"]
    tensors, model, again = (case.folder / name for name in ("w.safetensors", "back.caffemodel", "again.safetensors"))
    assert "6 learned blobs" in export(case.net, case.weights, tensors)
    found = safetensors.load_file(tensors)
    assert sorted(found) == ["conv.0", "conv.1", "ip.0", "ip.1", "side.0", "side.1"]
    assert found["conv.0"].shape == (4, 2, 3, 3) and found["conv.0"].dtype == numpy.float32
    length = int.from_bytes(tensors.read_bytes()[:8], "little")
    assert json.loads(tensors.read_bytes()[8:8 + length])["__metadata__"]["format"] == "caffe"
    export(case.net, tensors, model)
    export(case.net, model, case.folder / "back.caffemodel.h5")
    export(case.net, case.folder / "back.caffemodel.h5", again)
    assert again.read_bytes() == tensors.read_bytes()


def test_tensors_that_others_wrote(cases):
    """Half floats become floats; what the net does not have is said; the order is any."""
    case = cases["deploy"]
    export(case.net, case.weights, case.folder / "w.safetensors")
    found = safetensors.load_file(case.folder / "w.safetensors")
    halves = {name: found[name].astype(numpy.float16) for name in reversed(sorted(found))}
    safetensors.save_file({**halves, "other.0": numpy.zeros(2, numpy.float64)}, case.folder / "half.safetensors")
    export(case.net, case.folder / "half.safetensors", case.folder / "from_half.safetensors")
    back = safetensors.load_file(case.folder / "from_half.safetensors")
    assert all((back[name] == halves[name].astype(numpy.float32)).all() for name in found) and back.keys() == found.keys()


def test_layers_of_one_name(cases):
    case = cases["twice"]
    export(case.net, case.weights, case.folder / "w.safetensors")
    found = safetensors.load_file(case.folder / "w.safetensors")
    assert sorted(found) == ["conv.0", "conv.1", "ip#2.0", "ip#2.1", "ip.0", "ip.1"]
    safetensors.save_file({**found, "ip#2.1": found["ip.1"] + 1}, case.folder / "w.safetensors")
    export(case.net, case.folder / "w.safetensors", case.folder / "again.safetensors")
    again = safetensors.load_file(case.folder / "again.safetensors")
    assert (again["ip#2.1"] == again["ip.1"] + 1).all()


def test_wrong_tensors_are_refused(cases):
    case = cases["deploy"]
    path, out = case.folder / "wrong.safetensors", case.folder / "out.caffemodel"
    rows = (({"conv": numpy.zeros(2, "f4")}, "expected LAYER.INDEX"), ({"conv.1": numpy.zeros(4, "f4")}, "no 'conv.0'"),
            ({"conv.0": numpy.zeros((4, 2, 3), "f4"), "conv.1": numpy.zeros(4, "f4")}, "has shape 4x2x3, the net's is 4x2x3x3"),
            ({"fc.0": numpy.zeros(4, "f4")}, "none of them is in the net"))
    for tensors, words in rows:
        safetensors.save_file(tensors, path)
        assert words in export(case.net, path, out, code=1)
    path.write_bytes(b"\xff" * 64)
    assert "wrong.safetensors is no whole safetensors file" in export(case.net, path, out, code=1)
    assert not out.exists()
