# SPDX-License-Identifier: Apache-2.0
"""What a backward pass, an optimizer or a program must not do to a model whose gradients are exchanged, as errors, and how it is
noticed."""
from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING

import torch

from ..declared import dimensions
from ..errors import PoseidonError, kind_of

if TYPE_CHECKING:
    from .layer import Layer

# Optimizers that update every parameter by itself, so that layers may be updated one at a time.
BY_PARAMETER = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


# ---- of distribute

OVERLAPS = ("backward", "forward")


def check_distributed(model: object, optimizer: object, overlap: object, factors: object, check_every: object, tf32: object) -> None:
    """Refuses what distribute cannot be given, on any number of workers."""
    def refused(what: str, given: str, expected: str) -> PoseidonError:
        return PoseidonError(f"distribute was given {what}{given}, expected {expected}", "INVALID_ARGUMENT")
    if overlap not in OVERLAPS:
        raise refused("overlap=", repr(overlap), " or ".join(OVERLAPS))
    if not isinstance(model, torch.nn.Module):
        raise refused("", kind_of(model), "a torch.nn.Module")
    if not isinstance(optimizer, (torch.optim.Optimizer, type(None))):
        raise refused("as optimizer ", kind_of(optimizer), "a torch.optim.Optimizer")
    for name, value in ("factors", factors), ("tf32", tf32):
        if not isinstance(value, bool):
            raise refused(f"{name}=", repr(value), "True or False")
    if check_every is not None and (not isinstance(check_every, numbers.Integral) or check_every < 1):
        raise refused("check_every=", repr(check_every), "a number of steps from 1, or None")


# ---- of a backward pass

def came_again(layer: Layer) -> PoseidonError:
    return PoseidonError(f"the gradient of layer '{layer.name}' came again before its mean, expected one "
                         "backward pass per forward pass of the distributed model, which is called itself and not by its forward "
                         "method, no reentrant checkpointing, and with overlap=\"forward\" one backward pass per step")


def broke_off(layer: Layer) -> PoseidonError:
    return PoseidonError(f"the backward pass before ended by an exception after the gradient of layer '{layer.name}' had left, "
                         "expected that the program ends: other workers wait for the rest", "FAILED_PRECONDITION")


def captured() -> PoseidonError:
    return PoseidonError("a step of the distributed model is captured in a graph of the device, expected that it runs each time: a graph "
                         "that runs again computes gradients which no worker sends", "UNIMPLEMENTED")


def captured_collective() -> PoseidonError:
    return PoseidonError("a collective of torch.distributed is captured in a graph of the device, expected one that runs: the network "
                         "is not part of the graph", "UNIMPLEMENTED")


def read_ahead() -> PoseidonError:
    return PoseidonError("the last batch of a loader of poseidon.torch.loader or shard was read ahead of its use, and has fewer samples than "
                         "the others: its gradient would count for too much, expected that each batch is used before the next is "
                         "read, or drop_last=True", "UNIMPLEMENTED")


def began_unseen() -> PoseidonError:
    return PoseidonError("the backward pass of a checkpoint ended inside one whose beginning the distributed model has not "
                         "seen, expected use_reentrant=False, or that the distributed model itself is called and returns "
                         "tensors, alone or in tuples, lists, dictionaries or objects with attributes")


def check_form(layer: Layer, gradient: torch.Tensor) -> None:
    """Refuses a sparse gradient of what is no table, and a dense one of what is."""
    if gradient.is_sparse != layer.table:
        raise PoseidonError(f"the gradient of layer '{layer.name}' is " +
                            ("dense, expected a weight of Embedding(sparse=True) that nothing else uses, or sparse=False"
                             if layer.table else "sparse, expected Embedding(sparse=False) where something else uses its "
                             "weight"), "UNIMPLEMENTED")


def set_under_way(layer: Layer) -> PoseidonError:
    return PoseidonError(f"a gradient of layer '{layer.name}' was set while it is under way, expected distribute without "
                         "overlap=\"forward\", or synchronize(model) after backward()")


# ---- of an optimizer

def check_optimizer(optimizer: object) -> None:
    """Refuses one that cannot update layers one at a time, as overlap="forward" does."""
    if type(optimizer) not in BY_PARAMETER:
        raise PoseidonError(f"overlap is not possible with {type(optimizer).__name__}, expected one of "
                            + ", ".join(kind.__name__ for kind in BY_PARAMETER), "INVALID_ARGUMENT")


def given_closure() -> PoseidonError:
    return PoseidonError("optimizer.step was given a closure, expected none with overlap", "INVALID_ARGUMENT")


def check_outside_backward(optimizer: torch.optim.Optimizer) -> None:
    """Before the step of an optimizer of distributed parameters: refuses one that a hook calls inside backward, where it finds this
    worker's own gradients."""
    if torch._C._current_graph_task_id() >= 0:
        raise PoseidonError(f"{type(optimizer).__name__}.step was called inside backward(), where gradients are this worker's own, "
                            "expected it behind backward()", "UNIMPLEMENTED")


def optimized(optimizer: torch.optim.Optimizer) -> int:
    """How many parameters the optimizer has; groups and their parameters are only ever added."""
    return sum(len(group["params"]) for group in optimizer.param_groups)


class Strangers:
    """Parameters of an optimizer that are in no model of the job: each worker would train its own."""

    def __init__(self) -> None:
        self.looked_at = 0  # how many parameters the optimizer had then
        self.found: list[tuple[int, torch.Tensor]] = []  # with the numbers of their groups

    def refuse(self, optimizer: torch.optim.Optimizer, known: Callable[[], Set[torch.Tensor]]) -> None:
        """Raises where one of them has a gradient. `known`: gives all parameters of all models."""
        if self.looked_at != optimized(optimizer):
            self.looked_at = optimized(optimizer)
            those = known()
            self.found = [(number, parameter) for number, group in enumerate(optimizer.param_groups)
                          for parameter in group["params"] if parameter not in those]
        for number, parameter in self.found:
            if parameter.grad is not None:
                raise PoseidonError(f"a parameter of {dimensions(parameter.shape)} in group {number} of the optimizer is in no "
                                    "model that distribute was given: its gradient is this worker's own, expected one model that holds "
                                    "all that is trained, or distribute for each", "INVALID_ARGUMENT")


def not_exchanged(optimizer: torch.optim.Optimizer, name: str) -> PoseidonError:
    return PoseidonError(f"{type(optimizer).__name__}.step was called with a gradient of parameter '{name}' that no backward pass of the "
                         "distributed model has left since the step before, so that it is this worker's own, expected backward(), "
                         "which leaves the mean of all workers (torch.autograd.grad, and what is set by hand, do not), or "
                         "poseidon.torch.all_reduce of every such gradient")


# ---- of parameters that change, or that several models have

def check_shared(root: torch.nn.Module, known: Set[torch.nn.Parameter],
                 others: Iterable[tuple[torch.nn.Module, Set[torch.nn.Parameter]]]) -> None:
    """Refuses a model that trains what one of the `others`, each with its parameters that travel, trains: each would exchange the
    gradient. `known`: those of the model itself that travel whether they require a gradient or not."""
    for other, theirs in others:
        if other is root:
            raise PoseidonError("the model was given to distribute before, expected one distribute for each model, or "
                                "poseidon.torch.release(model) before the next", "INVALID_ARGUMENT")
        for name, parameter in root.named_parameters():
            if parameter in theirs and (parameter.requires_grad or parameter in known):
                raise PoseidonError(f"parameter '{name}' is trained in another model that distribute was given before "
                                    f"({type(other).__name__}), expected one distribute of a module that holds all that share it "
                                    "(torch.nn.ModuleList), or poseidon.torch.release of the other before", "INVALID_ARGUMENT")


def wants_gradient(name: str) -> PoseidonError:
    return PoseidonError(f"parameter '{name}' requires a gradient and did not when the model was distributed, "
                         "expected a forward pass of the distributed model itself after such a change")


def no_parameter() -> PoseidonError:
    return PoseidonError("a tensor that is no torch.nn.Parameter is in the place of one in the model and requires a gradient, "
                         "expected the model's own parameters (torch.func.functional_call gives it others)", "UNIMPLEMENTED")


def changed_in_join() -> PoseidonError:
    return PoseidonError("a layer was thawed or added inside join, expected it before: a worker without batches does "
                         "not see it", "UNIMPLEMENTED")


def changed_on_one(name: str, there: str, rank: int, here: str) -> PoseidonError:
    return PoseidonError(f"parameter '{name}' is {there} on rank {rank} and {here} on rank 0, expected that "
                         "parameters are frozen, thawed and added on all workers in the same step", "FAILED_PRECONDITION", rank)


def changed_on_some() -> PoseidonError:
    return PoseidonError("a parameter was frozen, thawed or added in the last step on some workers alone, expected it on all "
                         "workers in the same step", "FAILED_PRECONDITION")


def check_none_left(layers: Sequence[Layer]) -> None:
    """After a backward pass that has not come to its end: others have what it handed over, and wait for the rest."""
    for layer in layers:
        if layer.flying:
            raise broke_off(layer)
