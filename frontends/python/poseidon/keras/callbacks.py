# SPDX-License-Identifier: Apache-2.0
"""The callbacks of a fit: which run on which worker, which end training for all, and what the workers do together there."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from ..errors import PoseidonError

if TYPE_CHECKING:
    from ..session import Session
    from .training import Training

# Callbacks that write files; rank 0's write for all workers.
WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")
# Keras' own that do nothing with weights between batches.
HARMLESS = ("CSVLogger", "History", "ProgbarLogger", "TensorBoard")
ON_BATCHES = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


class Together(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no annotations
    """The last callback of a fit."""

    async_safe = True  # has nothing to do with batches

    def __init__(self, training: Training) -> None:
        super().__init__()
        self.training = training

    def on_train_begin(self, logs: Any = None) -> None:
        self.training.begin(self.params.get("steps"))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.training.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.training.record(logs or {})
        self.training.agree_to_stop()


class TogetherInBatches(Together):
    """The same where a callback may stop after a batch: all workers stop after it."""

    async_safe = False  # the callbacks before it have to be over

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.training.agree_to_stop()


def given(callbacks: Any) -> list[Any]:
    """The user's."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise PoseidonError("a CallbackList was given, expected a list of callbacks", "INVALID_ARGUMENT")
    return list(keras.tree.flatten(callbacks)) if callbacks else []


def of_kinds(callback: Any, names: Sequence[str]) -> bool:
    return isinstance(callback, tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name)))


def here(given: Sequence[Any], rank: int) -> list[Any]:
    """Those that run on this worker."""
    return [callback for callback in given if rank == 0 or not of_kinds(callback, WRITERS)]


def acts_on_batches(callback: Any) -> bool:
    """Whether it has anything to do between batches."""
    if of_kinds(callback, HARMLESS) or type(callback).__module__.startswith("keras.src.callbacks") and \
            getattr(callback, "save_freq", None) == "epoch":
        return False
    plain = keras.callbacks.Callback
    return any(name in vars(callback) or getattr(type(callback), name) is not getattr(plain, name) for name in ON_BATCHES)


def may_stop(callback: Any) -> bool:
    """Whether it could end training after a batch."""
    return acts_on_batches(callback) and not (of_kinds(callback, WRITERS) and
                                              type(callback).__module__.startswith("keras.src.callbacks"))


def share_best(session: Session, callbacks: Sequence[Any]) -> None:
    """What ModelCheckpoint on rank 0, where it runs, has found best is so everywhere."""
    own = [callback for callback in callbacks if of_kinds(callback, ["ModelCheckpoint"])]
    found = [None if callback.best is None else float(callback.best) for callback in own]
    best = json.loads(session.broadcast_bytes(json.dumps(found).encode()))
    if len(best) == len(own):
        for callback, value in zip(own, best):
            callback.best = value
