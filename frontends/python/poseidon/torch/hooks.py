# SPDX-License-Identifier: Apache-2.0
"""Hooks of modules and parameters that copies and pickles leave behind."""
from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import PoseidonError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class NotAFunction(PoseidonError, AttributeError):
    """What has no name, for those who ask whether it has one."""


class Hook:
    """A module's hook, which copies and pickles of the module leave behind."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    @property
    def __name__(self) -> str:
        """Which torch.jit.script asks for first, to compile the hook."""
        raise NotAFunction("a hook of a model that poseidon.torch.distribute synchronises is no function that torch.jit.script compiles, "
                           "expected copy.deepcopy(model), which is plain, or poseidon.torch.release(model) before", "UNIMPLEMENTED")

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (nothing,)


def nothing(*_: object) -> None:
    pass


class Hooks(collections.OrderedDict[int, Any]):
    """A module's hooks. Copies and pickles have those that are not ours, in what torch has for them: a file with a class of ours
    could not be read with weights_only=True."""

    def __reduce__(self) -> tuple[Any, ...]:
        kept = [(number, hook) for number, hook in self.items() if not isinstance(hook, Hook)]
        return collections.OrderedDict, (), None, None, iter(kept)


def keep_hooks_out_of_pickles(module: torch.nn.Module) -> None:
    """Where there is none yet: the handles of those that are there lead to the dictionary that they are in."""
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        if not getattr(module, name):
            setattr(module, name, Hooks())


def watch(parameter: torch.nn.Parameter, hook: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Calls `hook` when a backward pass has left the parameter's gradient, also where it is frozen now."""
    wants = parameter.requires_grad
    handle: RemovableHandle = parameter.requires_grad_(True).register_post_accumulate_grad_hook(hook)
    parameter.requires_grad_(wants)
    return handle
