# SPDX-License-Identifier: Apache-2.0
"""A profile of a Keras model on TensorFlow has the layers of a job, and its plan is the job's."""
import json
import pathlib

import pytest
from conftest import PATIENCE, PREPARED, PYTHON, needs_tensorflow

import profiles
import programs

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "shared" / "keras_profiled.py"
pytestmark = needs_tensorflow


@pytest.mark.skipif(not profiles.PROGRAM, reason="POSEIDON_PROGRAM is not set: it is not built")
def test_the_plan_of_a_scripts_profile_is_that_of_the_job(tmp_path):
    done = profiles.profile(PYTHON, tmp_path, "--steps", 4, "--out", "net.json", SCRIPT, patience=PATIENCE,
                            KERAS_BACKEND="tensorflow", KERAS_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "net.json").read_text())
    assert (document["name"], document["batch"]) == ("sequential", 16)
    assert {layer["name"]: (layer["shape"], layer.get("factors"), layer.get("rows")) for layer in document["layers"]} == {
        "sequential/words/embeddings": ("3000x64", {"outputs": 3000, "inputs": 64, "bias": False, "table": True}, 128),
        "sequential/wide/kernel": ("512x512", {"outputs": 512, "inputs": 512, "bias": False}, 16),
        "sequential/wide/bias": ("512+512x10+10", None, None)}
    assert all(layer["forward_seconds"] + layer["backward_seconds"] > 0 for layer in document["layers"]), document
    ranks = programs.start(PREPARED, tmp_path, 2, SCRIPT, KERAS_BACKEND="tensorflow", KERAS_HOME=str(tmp_path))
    said = programs.said(ranks, PATIENCE)
    assert [rank.returncode for rank in ranks] == [0, 0], said
    of_job = json.loads(said[0][0].splitlines()[-1])
    assert profiles.planned(tmp_path, tmp_path / "net.json") == of_job
    assert {name: scheme for name, (scheme, _) in of_job.items()} == {
        "sequential/words/embeddings": "sfb", "sequential/wide/kernel": "sfb", "sequential/wide/bias": "kv"}


def test_a_call_measures_a_fit(tmp_path):
    ranks = programs.start(PREPARED, tmp_path, 1, SCRIPT, "call", tmp_path / "net.json", KERAS_BACKEND="tensorflow",
                           KERAS_HOME=str(tmp_path))
    (out, errors), = programs.said(ranks, PATIENCE)
    assert ranks[0].returncode == 0, errors
    assert len(json.loads((tmp_path / "net.json").read_text())["layers"]) == 3
    assert out.splitlines()[-1] == "sequential has made 2 training steps of which layers are timed, expected 9 or more"
