# SPDX-License-Identifier: Apache-2.0
"""The wheel beside TensorFlow: a model of Keras trains where nothing of the checkout is seen."""
import os
import pathlib
import re

import pytest

from conftest import ROOT, command, environment, lend_libraries, packages

PYTHON = pathlib.Path(os.environ.get("POSEIDON_TENSORFLOW_PYTHON", ROOT / ".venv-tensorflow" / "bin" / "python3"))

TRAIN = """
import hashlib, os, re
import keras, numpy as np
import poseidon.keras as poseidon

poseidon.init(wire="tls")  # beside the BoringSSL in TensorFlow
keras.utils.set_random_seed(1 + poseidon.rank())
model = keras.Sequential([keras.layers.Input((20,)), keras.layers.Dense(200, activation="tanh"), keras.layers.Dense(2)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
poseidon.distribute(model)
x = np.random.default_rng(7).normal(size=(640, 20)).astype("float32")
losses = model.fit(x, x[:, 0] > 0, batch_size=16, epochs=3, verbose=0).history["loss"]
bits = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in model.get_weights())).hexdigest()
with open("/proc/self/maps") as maps:
    libraries = sorted(set(re.findall(r"/\\S*/libposeidon[^/\\s]*", maps.read())))
print("trained", bits, losses[-1] < losses[0] / 2, poseidon.__file__, *libraries)
"""


@pytest.mark.skipif(not PYTHON.exists(), reason="TensorFlow is not installed (.venv-tensorflow)")
@pytest.mark.long
def test_keras_trains_on_two_workers(wheel, tmp_path):
    python = environment(tmp_path / "own", wheel, PYTHON.resolve())
    lend_libraries(python, packages(PYTHON))
    (tmp_path / "train.py").write_text(TRAIN)
    done = command(python, "run", "-n", "2", python, "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(re.findall(r"^\[([01])\] trained (.*)$", done.stdout, re.MULTILINE))
    assert said["0"] == said["1"], done.stdout  # the same bits
    _, learnt, *files = said["0"].split()
    own = packages(python) / "poseidon"
    assert learnt == "True"
    assert files == [str(own / name) for name in ("keras/__init__.py", "libposeidon.so", "libposeidon_tensorflow.so")]
