# SPDX-License-Identifier: Apache-2.0
"""Poseidon under Keras 3.

  import poseidon.keras as poseidon
  model = poseidon.distribute(model)               # before or after compile(); one worker trains as always
  model.fit(poseidon.shard(dataset), epochs=5)     # on torch: a DataLoader

Gradients become means over all workers before the optimizer sees them; arrays given to fit are divided among the workers.
"""
from __future__ import annotations

import keras

from ..errors import PoseidonError

if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 5):
    raise PoseidonError(f"Keras is {keras.__version__}, expected 3.5 or newer", "UNIMPLEMENTED")
if keras.backend.backend() == "tensorflow":
    from .on_tensorflow import busy, check, distribute, init, plan, profile, rank, report, shard, shutdown, trace, workers
elif keras.backend.backend() == "torch":
    from .on_torch import busy, check, distribute, init, plan, profile, rank, report, shard, shutdown, trace, workers
else:
    raise PoseidonError(f"Keras' backend is {keras.backend.backend()}, expected tensorflow or torch (KERAS_BACKEND)",
                        "UNIMPLEMENTED")

__all__ = ["PoseidonError", "busy", "check", "distribute", "init", "plan", "profile", "rank", "report", "shard", "shutdown", "trace",
           "workers"]
