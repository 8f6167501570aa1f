# SPDX-License-Identifier: Apache-2.0
"""Which parameters of a model are one layer, and of which kind it is."""
from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

import torch

from ..errors import PoseidonError
from .dense import Dense
from .product import Product
from .replicas import check
from .table import Table
from .tensors import exchanged, parameters_of

if TYPE_CHECKING:
    from ..session import Session
    from .layer import Layer

    Owners = dict[torch.nn.Parameter, list[torch.nn.Module]]


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What of a model is to travel, and how."""

    factors: bool = True  # of Linears
    tf32: bool = False    # a GPU may round their products so
    known: Set[torch.nn.Parameter] = frozenset()  # that travel whether they require a gradient now or not
    whole: Set[torch.nn.Parameter] = frozenset()  # of Linears that send no factors any more


def partition(model: torch.nn.Module, session: Session, wishes: Wishes) -> tuple[list[Layer], dict[torch.nn.Module, list[Layer]]]:
    """The model's layers in the order of its modules, and for each module the layers it uses. Of parameters that require a
    gradient, and of those known. All workers call it."""
    owners = owners_of(model)
    layers: list[Layer] = []
    home: dict[torch.nn.Parameter, Layer] = {}
    names: set[str] = set()
    for name, module in model.named_modules():
        check_rows(name, module)
        own = own_parameters(name, module, home, wishes)
        for number, parameters in enumerate(own):
            layer_name = (name or "model") + (f".{number}" if number else "")
            while layer_name in names:  # a child may be called what its parent's own tensors are
                layer_name += "'"
            names.add(layer_name)
            layers.append(layer_of(layer_name, module, parameters, owners, wishes, alone=len(own) == 1))
            home.update((parameter, layers[-1]) for parameter in parameters)
    if not layers:
        raise PoseidonError("the model has no parameter that requires a gradient", "INVALID_ARGUMENT")
    layers, joined_in = join_small(layers, session)
    users = {}
    for module in model.modules():
        used = dict.fromkeys(joined_in[home[p]] for p in parameters_of(module, recurse=False) if p in home)
        if used:
            users[module] = list(used)
        for layer in used:
            layer.used_by(module)
    return layers, users


def owners_of(model: torch.nn.Module) -> Owners:
    owners: Owners = {}
    for module in model.modules():
        for parameter in parameters_of(module, recurse=False):
            owners.setdefault(parameter, []).append(module)
    return owners


def own_parameters(name: str, module: torch.nn.Module, home: dict[torch.nn.Parameter, Layer],
                   wishes: Wishes) -> list[list[torch.nn.Parameter]]:
    """Parameters of a module itself that are in no layer yet, in lots that may be one layer."""
    lots: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for parameter_name, parameter in module.named_parameters(recurse=False):
        if (parameter.requires_grad or parameter in wishes.known) and parameter not in home:
            check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
            lots.setdefault((exchanged(parameter.dtype), parameter.device), []).append(parameter)
    return list(lots.values())


def layer_of(name: str, module: torch.nn.Module, parameters: list[torch.nn.Parameter], owners: Owners, wishes: Wishes,
             alone: bool) -> Layer:
    """Of the kind that the module allows. `alone`: the module has no other layer."""
    if is_table(module, owners):
        return Table(name, parameters)
    if wishes.factors and alone and can_send_factors(module, owners, wishes):
        return Product(name, parameters, wishes.tf32)
    return Dense(name, parameters)


def check_rows(name: str, module: torch.nn.Module) -> None:
    """Refuses what changes the rows of its weight that a batch names: each worker's batch names others."""
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None:
        raise PoseidonError(f"{type(module).__name__} '{name}' has max_norm={module.max_norm}, which changes its weight in the "
                            "forward pass by each worker's own batch, expected None", "UNIMPLEMENTED")


def is_table(module: torch.nn.Module, owners: Owners) -> bool:
    """Whether the gradient of a module's weight is sparse, whichever of its owners uses it."""
    own = dict(module.named_parameters(recurse=False))
    return list(own) == ["weight"] and all(
        isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and owner.sparse for owner in owners[own["weight"]])


def can_send_factors(module: torch.nn.Module, owners: Owners, wishes: Wishes) -> bool:
    """A plain Linear, in float32, whose tensors are its own: weight_norm and the like keep its class and compute
    the weight of others. Not one whose gradients keep coming whole."""
    own = dict(module.named_parameters(recurse=False))
    return (type(module) is torch.nn.Linear and "forward" not in vars(module)
            and list(own) in (["weight"], ["weight", "bias"])
            and all(type(p) is torch.nn.Parameter and (p.requires_grad or p in wishes.known) and p.dtype == torch.float32
                    and len(owners[p]) == 1 and p not in wishes.whole for p in own.values()))


def join_small(layers: list[Layer], session: Session) -> tuple[list[Layer], dict[Layer, Layer]]:
    """Those that are left, and for each of `layers` the one that it has joined or is: one of the same device. All workers call it:
    where one of them has its model on a device all join as many."""
    joined_in: dict[Layer, Layer] = dict.fromkeys(layers, layers[0])  # in their order
    on_device = array.array("q", [any(layer.staged for layer in layers)])
    session.sum(on_device)
    for device in {layer.device for layer in layers}:
        those = [(position, layer) for position, layer in enumerate(layers) if layer.device == device]
        declared = [layer.declaration(position) for position, layer in those]
        for each in declared:
            each.on_device = on_device[0]
        joined_in.update(in_groups([layer for _, layer in those], session.join_small(declared)))
    return list(dict.fromkeys(joined_in.values())), joined_in


def in_groups(layers: list[Layer], first: list[int]) -> Iterator[tuple[Layer, Layer]]:
    """Each of `layers` with the layer that its parameters are in. `first`: by layer, the number of the first one of its group."""
    groups: dict[int, list[Layer]] = {}
    for layer, number in zip(layers, first):
        groups.setdefault(number, []).append(layer)
    for group in groups.values():
        home = group[0] if len(group) == 1 else Dense.joined(group)
        yield from ((layer, home) for layer in group)
