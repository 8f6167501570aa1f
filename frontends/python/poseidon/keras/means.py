# SPDX-License-Identifier: Apache-2.0
"""Losses that each worker divides by something else than its samples, so that the mean over workers is not what one process has."""
from __future__ import annotations

from typing import Any

import keras


def why_another(model: Any, weighted: bool) -> str | None:
    """In a sentence, why a compiled `model` trains on another mean than one process; None where nothing shows it. `weighted`: samples
    may have weights."""
    losses = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
    reductions = {getattr(loss, "reduction", None) for loss in losses}
    if weighted and "mean_with_sample_weight" in reductions:
        return ("a loss with reduction='mean_with_sample_weight' divides by the weights of each worker's own samples, and in one process by "
                "those of all; reduction='sum_over_batch_size' is the same in both")
    if "sum" in reductions and not has_weights(model):
        return ("a loss with reduction='sum' is on several workers the mean of their sums, and in one process their sum; with "
                "loss_weights of 1 / batch_size it is the same in both")
    masking = next((f"layer '{layer.name}' masks" for layer in model._flatten_layers() if masks(layer)), None)
    if any(map(ignores, losses)):
        masking = "a loss has an ignore_class"
    if masking is not None and reductions - {"sum"}:
        return (f"{masking}, and a loss is the mean over what is left of each worker's own samples, in one process of all; "
                "reduction='sum' with loss_weights of 1 / batch_size is the same in both")
    return None


def has_weights(model: Any) -> bool:
    """Of its losses."""
    return getattr(model, "_compile_config", None) is not None and model._compile_config.config.get("loss_weights") is not None


def masks(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Masking) or bool(getattr(layer, "mask_zero", False))


def ignores(loss: Any) -> bool:
    return (getattr(loss, "_fn_kwargs", None) or {}).get("ignore_class") is not None
