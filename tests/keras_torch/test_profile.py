# SPDX-License-Identifier: Apache-2.0
"""A profile of a Keras model on torch has the layers of a job, and its plan is the job's."""
import json
import pathlib
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import profiles  # noqa: E402
import programs  # noqa: E402
from test_fit import PATIENCE, keras_is_there, start  # noqa: E402, F401  # the second is a fixture

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "shared" / "keras_profiled.py"


@pytest.mark.skipif(not profiles.PROGRAM, reason="POSEIDON_PROGRAM is not set: it is not built")
def test_the_plan_of_a_scripts_profile_is_that_of_the_job(tmp_path):
    done = profiles.profile(sys.executable, tmp_path, "--steps", 4, "--out", "net.json", SCRIPT, patience=PATIENCE,
                            KERAS_BACKEND="torch", KERAS_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "net.json").read_text())
    assert (document["name"], document["batch"]) == ("sequential", 16)
    assert [(layer["name"], layer["shape"]) for layer in document["layers"]] == [
        ("sequential/words", "3000x64"), ("sequential/wide", "512x512+512"), ("sequential/head", "512x10+10")]
    assert all(layer["forward_seconds"] > 0 and layer["backward_seconds"] > 0 for layer in document["layers"]), document
    ranks = start(tmp_path, 2, SCRIPT)
    said = programs.said(ranks, PATIENCE)
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert profiles.planned(tmp_path, tmp_path / "net.json") == json.loads(said[0][0].splitlines()[-1])


def test_a_call_measures_a_fit(tmp_path):
    ranks = start(tmp_path, 1, SCRIPT, "call", tmp_path / "net.json")
    (out, errors), = programs.said(ranks, PATIENCE)
    assert ranks[0].returncode == 0, errors
    assert len(json.loads((tmp_path / "net.json").read_text())["layers"]) == 3
    assert out.splitlines()[-1] == "sequential has made 2 training steps of which layers are timed, expected 9 or more"
