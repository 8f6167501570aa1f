# SPDX-License-Identifier: Apache-2.0
"""Poseidon under Keras 3.

    import poseidon.keras as poseidon
    model = poseidon.distribute(model)               # before or after compile(); one worker trains as always
    model.fit(poseidon.shard(dataset), epochs=5)     # on torch: a DataLoader

Gradients become means over all workers before the optimizer sees them; arrays given to fit are divided among the workers.
"""
from __future__ import annotations

import os as _os
from typing import Any as _Any

import keras

from .. import profiling as _profiling
from ..errors import PoseidonError
from .models import check_is_model as _check_is_model

if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 5):
    raise PoseidonError(f"Keras is {keras.__version__}, expected 3.5 or newer", "UNIMPLEMENTED")
if keras.backend.backend() == "tensorflow":
    from .on_tensorflow import busy, check, distribute, init, measurement, plan, rank, report, shard, shutdown, trace, workers
elif keras.backend.backend() == "torch":
    from .on_torch import busy, check, distribute, init, measurement, plan, rank, report, shard, shutdown, trace, workers
else:
    raise PoseidonError(f"Keras' backend is {keras.backend.backend()}, expected tensorflow or torch (KERAS_BACKEND)",
                        "UNIMPLEMENTED")

__all__ = ["PoseidonError", "busy", "check", "distribute", "init", "plan", "profile", "rank", "report", "shard", "shutdown", "trace",
           "workers"]


def profile(model: _Any, file: str | _os.PathLike[str], *, steps: int = 20) -> _profiling.Profile:
    """Measures the training steps of `model` in a `with` block into `file`, a profile from which
    `poseidon plan` predicts the step on a cluster that need not exist. On one worker; distribute need not be called.

        with poseidon.profile(model, "net.json"):
            model.fit(x, y, batch_size=32, steps_per_epoch=30)
        $ poseidon plan net.json --workers 8 --rate 10G

    The first 5 steps of the block are left out; of the others the last `steps` (3 or more) count, and a block of fewer than 9 steps
    raises PoseidonError at its end. The profile has, for each layer of a job, the median seconds of its forward and backward pass, the
    shapes of its variables, on TensorFlow the rows of a Dense kernel's factors or of an Embedding (on torch all go whole), and `batch`,
    the samples of the last step. At the end of the block the model is as it was, with its last weights; what was measured is printed,
    with a line where other programs used the machine. Where the block raises, nothing is written."""
    _check_is_model(model)
    _profiling.check_steps(steps)
    init()
    _profiling.check_alone(workers())
    return _profiling.Profile(lambda: measurement(model, steps), file)
