# SPDX-License-Identifier: Apache-2.0
"""Gradients and weights are those of torch's DistributedDataParallel over gloo, with the same workers and batches."""
import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

import features  # noqa: E402
from conftest import free_port  # noqa: E402
from test_checks import SOME  # noqa: E402

# Features that DDP does not have, and why.
NOT_THERE = {
    **dict.fromkeys(["Thawed", "ThawedInBetween", "ThawedBehindNoSync", "ThawedBetweenForwards"],
                    "what is frozen when DDP is made is not exchanged later"),
    "Grown": "parameters that come later are not exchanged",
    "Graphed": "a gradient that has a graph cannot be divided in place",
    "WholeBatch": "each worker's line search follows its own loss, and their numbers of backward passes differ",
    "Retained": "the second backward pass of a forward pass is not exchanged",
    **dict.fromkeys(["HalvesRounded", "HalvesOfFloat16Rounded"], "sums of halves are made in halves"),
    **dict.fromkeys([name for name in features.FEATURES if name.startswith("Synchronized")],
                    "torch's SyncBatchNorm refuses tensors of the host")}
# What DDP has to be told.
OPTIONS = {"Unused": {"find_unused_parameters": True}, "Frozen": {"find_unused_parameters": True},
           "CheckpointedReentrantly": {"static_graph": True}}


@pytest.mark.parametrize("name", [name for name in features.FEATURES if name not in NOT_THERE][SOME])
def test_gradients_and_weights_are_those_of_ddp(planned, name):
    tolerance = features.ALL[name].tolerance
    theirs, *_ = planned.train(name, ddp={"port": free_port(), **OPTIONS.get(name, {})})
    ours, *_ = planned.train(name)
    for step, (own, other) in enumerate(zip(ours.gradients, theirs.gradients, strict=True)):
        assert [gradient is None for gradient in own] == [gradient is None for gradient in other]
        largest = max(abs(gradient[numpy.isfinite(gradient)]).max(initial=0) for gradient in other if gradient is not None)
        for number, both in enumerate(zip(own, other)):
            if both[0] is not None:
                numpy.testing.assert_allclose(*both, rtol=0, atol=tolerance * largest, err_msg=f"step {step}, parameter {number}")
    for key, tensor in theirs.weights.items():
        torch.testing.assert_close(ours.weights[key], tensor, rtol=tolerance, atol=tolerance,
                                   msg=lambda text, key=key: f"{key}: {text}")
