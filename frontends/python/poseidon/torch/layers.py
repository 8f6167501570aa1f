# SPDX-License-Identifier: Apache-2.0
"""A model's parameters as the layers that the core synchronises, and where their gradients lie.

A layer is what one module owns directly: a Linear's weight and bias, a convolution's. Its gradient is one
piece of memory; the tensors' `.grad` are views into it. Where a layer is one tensor, the memory that autograd
made is lent as it is.

Small modules join one layer, as poseidon_join_small says. It leaves with its last gradient, in general that of its
first module, and is waited for before whichever of its modules runs first.

The weight of an Embedding(sparse=True) is a table, whose gradient is rows: no memory of the weight's size is made. The mean
is all workers' rows, unmerged, in the order of ranks.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .. import library as c
from ..errors import PoseidonError

if TYPE_CHECKING:
    from ..session import Session
    from .exchange import Exchange

# Tensors of a joined layer that are told one by one.
MOST_SHAPES = 8

DTYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.int64: c.I64}


def view_of(tensor: torch.Tensor) -> c.View:
    """The header's view of a contiguous tensor, which has to outlive it."""
    return c.View(memory=tensor.data_ptr(), elements=tensor.numel(), dtype=DTYPES[tensor.dtype])


def copied(address: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of its own with the numbers at an address."""
    tensor = torch.empty(shape, dtype=dtype)
    ctypes.memmove(tensor.data_ptr(), address, tensor.numel() * tensor.element_size())
    return tensor


class UnderWay(torch.Tensor):
    """What stands at a parameter whose gradient is on its way: whoever reads or changes it gets a sentence. With
    nothing there clipping would clip nothing, and say that the norm is 0."""

    # torch declares the last two without types and not as it calls them.

    @staticmethod
    def __new__(cls, parameter: torch.Tensor) -> UnderWay:
        return torch.Tensor._make_wrapper_subclass(cls, parameter.shape, dtype=parameter.dtype)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (),  # type: ignore[override]  # see above
                           words: Any = None) -> NoReturn:
        raise PoseidonError("a gradient was read or changed while it is under way, expected overlap=False in wrap, or "
                            "synchronize() of what wrap returned after backward()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # see above
        return "a gradient under way"


class Layer:
    """One layer: its parameters, its gradient's memory and where that gradient is on its way.

    Copies and pickles of a model leave its layers behind: they are None there.
    """

    exchange: Exchange  # both from when it is declared
    id: int
    view: c.View  # of `flat`

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], factors: bool, table: bool = False) -> None:
        self.name = name
        self.parameters = parameters
        self.factors = factors  # a Linear whose gradient is a product
        self.table = table      # a weight whose gradient is sparse
        self.mean: torch.Tensor | None = None  # of a table: what has landed
        self.first: torch.nn.Module | None = None      # of those that use it
        self.uncalled: set[torch.nn.Module] = set()    # modules that use it and have not been seen in a forward pass
        self.flat: torch.Tensor | None = None  # memory of the gradient; made when first needed
        self.views: list[torch.Tensor] = []    # of `flat`, one per parameter
        self.flying = False   # handed to the core, its memory is lent
        self.dropped = False  # zero_grad was called meanwhile
        self.lent: object = ()  # what must live, unchanged, until the mean has landed
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # (u, v) of a factor layer, one per use
        self.used = [True] * len(parameters)  # by parameter: this worker's last backward pass left a gradient
        # What the parameters' gradients held and is not sent again: where factors will land over it, and of a table.
        self.before: torch.Tensor | None = None
        self.rows = 0
        self.more = c.Push()
        self.next_backward()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    @property
    def sizes(self) -> list[int]:
        return [p.numel() for p in self.parameters]

    @property
    def elements(self) -> int:
        return sum(self.sizes)

    def join(self, other: Layer) -> None:
        """Takes in the parameters of a layer that is not declared."""
        self.parameters = self.parameters + other.parameters
        self.used = self.used + other.used
        self.next_backward()

    def used_by(self, module: torch.nn.Module) -> None:
        self.first = self.first or module
        self.uncalled.add(module)

    @property
    def shape(self) -> str:
        if len(self.parameters) > MOST_SHAPES:
            return f"{len(self.parameters)} tensors"
        return "+".join("x".join(map(str, p.shape)) or "1" for p in self.parameters)

    def declaration(self, position: int) -> c.Layer:
        declared = c.Layer(name=self.name.encode(), shape=self.shape.encode(), elements=self.elements,
                           dtype=DTYPES[self.parameters[0].dtype], forward_position=position)
        if self.factors or self.table:
            declared.outputs, declared.inputs = self.parameters[0].shape
            declared.bias = len(self.parameters) > 1
            declared.table = self.table
        return declared

    def take_rows(self, gathered: c.Gathered) -> None:
        """Copies a table's mean, behind what its gradient held before this backward pass."""
        weight = self.parameters[0]
        indices = copied(gathered.indices, (1, gathered.count), torch.int64)
        values = copied(gathered.values, (gathered.count, weight.shape[1]), weight.dtype)
        self.mean = torch.sparse_coo_tensor(indices, values, weight.shape, check_invariants=False)
        if self.before is not None:
            self.mean = self.before + self.mean
            self.before = None

    def memory(self) -> torch.Tensor:
        """The gradient's memory, which is made where there is none."""
        if self.flat is None:
            return self.use(torch.empty(self.elements, dtype=self.parameters[0].dtype))
        return self.flat

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Takes `flat` for the gradient's memory."""
        self.flat = flat
        self.views = [piece.view(p.shape) for piece, p in zip(flat.split(self.sizes), self.parameters)]
        self.view = view_of(flat)
        return flat

    def gather(self) -> bool:
        """Brings the gradients that autograd left at the parameters into the layer's memory, zero where there
        is none; False where there are none at all."""
        gradients = [p.grad for p in self.parameters]
        if all(gradient is None for gradient in gradients):
            return False
        only = gradients[0] if len(gradients) == 1 and not self.factors else None
        if only is not None and only.is_contiguous():
            if self.flat is None or self.flat.data_ptr() != only.data_ptr():
                self.use(only.detach().view(-1))
            return True
        self.memory()
        elsewhere = []
        for view, gradient in zip(self.views, gradients):
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr():
                elsewhere.append((view, gradient))
        if elsewhere:
            torch._foreach_copy_([view for view, _ in elsewhere], [gradient for _, gradient in elsewhere])
        return True

    def note_use(self) -> None:
        """Notes, when a backward pass ends, which parameters have a gradient."""
        self.used = [self.emitted or parameter.grad is not None for parameter in self.parameters]

    def give(self) -> None:
        """Shows the landed mean as the gradients of those parameters that are used."""
        means = [self.mean] if self.table else self.views
        for parameter, view, used in zip(self.parameters, means, self.used):
            parameter.grad = view if used else None

    def forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def guard(self) -> None:
        """Until the mean has landed or is not wanted, gradients are neither None nor to be had."""
        for parameter, used in zip(self.parameters, self.used):
            parameter.grad = UnderWay(parameter) if used else None

    def release(self) -> None:
        """Memory that autograd made goes when the gradient goes."""
        self.mean = None
        if len(self.parameters) == 1 and not self.factors:
            self.flat, self.views = None, []

    def next_backward(self) -> None:
        self.waiting_for = len(self.parameters)  # gradients of this backward pass
        self.whole = False    # some gradient of it came whole
        self.emitted = False  # this backward pass went through LinearGradient
        self.uses = 0         # forward passes through a Linear since the last backward


class Usage:
    """Which parameters got a gradient on some worker, so that all agree which have none: one number per parameter,
    synchronised as a layer of its own. No worker's absent gradient means None and not zero, as in torch: weight decay
    and momentum would move what is zero."""

    name = "poseidon.used"

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.flat = torch.empty(sum(len(layer.parameters) for layer in layers))
        self.view = view_of(self.flat)
        self.id: int | None = None
        self.flying = False

    def declaration(self, position: int) -> c.Layer:
        return c.Layer(name=self.name.encode(), elements=self.flat.numel(), dtype=c.F32, forward_position=position)

    def note(self) -> None:
        for layer in self.layers:
            layer.note_use()
        self.flat.copy_(torch.tensor([float(used) for layer in self.layers for used in layer.used]))

    def tell(self) -> None:
        """The landed numbers, where this worker has no gradient: another one may have."""
        for layer, counts in zip(self.layers, self.flat.split([len(layer.parameters) for layer in self.layers])):
            layer.used = [count > 0 for count in counts.tolist()]


def check(name: str, tensor: torch.Tensor, requires_sum: bool = True) -> None:
    if tensor.device.type != "cpu":
        raise PoseidonError(f"parameter '{name}' is on {tensor.device}, expected the CPU", "UNIMPLEMENTED")
    if tensor.dtype not in DTYPES and requires_sum:
        raise PoseidonError(f"parameter '{name}' is {tensor.dtype}, expected float32 or float64",
                            "UNIMPLEMENTED")


def is_table(module: torch.nn.Module, owners: dict[torch.nn.Parameter, list[torch.nn.Module]]) -> bool:
    """Whether the gradient of a module's weight is sparse, whichever of its owners uses it."""
    own = dict(module.named_parameters(recurse=False))
    return list(own) == ["weight"] and all(
        isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and owner.sparse for owner in owners[own["weight"]])


def can_send_factors(module: torch.nn.Module, owners: dict[torch.nn.Parameter, list[torch.nn.Module]]) -> bool:
    """A plain Linear, in float32, whose tensors are its own: weight_norm and the like keep its class and compute
    the weight of others."""
    own = dict(module.named_parameters(recurse=False))
    return (type(module) is torch.nn.Linear and "forward" not in vars(module)
            and list(own) in (["weight"], ["weight", "bias"])
            and all(type(p) is torch.nn.Parameter and p.requires_grad and p.dtype == torch.float32
                    and len(owners[p]) == 1 for p in own.values()))


def layers_of(model: torch.nn.Module, session: Session,
              factors: bool = True) -> tuple[list[Layer], dict[torch.nn.Module, list[Layer]]]:
    """The model's layers in the order of its modules, and for each module the layers it uses."""
    owners: dict[torch.nn.Parameter, list[torch.nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    layers: list[Layer] = []
    home: dict[torch.nn.Parameter, Layer] = {}
    names: set[str] = set()
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        new: dict[torch.dtype, list[torch.nn.Parameter]] = {}
        for parameter_name, parameter in own.items():
            if parameter.requires_grad and parameter not in home:
                check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
                new.setdefault(parameter.dtype, []).append(parameter)
        for number, parameters in enumerate(new.values()):
            layer_name = (name or "model") + (f".{number}" if number else "")
            while layer_name in names:  # a child may be called what its parent's own tensors are
                layer_name += "'"
            names.add(layer_name)
            layers.append(Layer(layer_name, parameters, factors and len(new) == 1 and can_send_factors(module, owners),
                                is_table(module, owners)))
            home.update((parameter, layers[-1]) for parameter in parameters)
    if not layers:
        raise PoseidonError("the model has no parameter that requires a gradient", "INVALID_ARGUMENT")
    layers, joined_in = join_small(layers, session)
    users = {}
    for module in model.modules():
        used = dict.fromkeys(joined_in[home[p]] for p in module.parameters(recurse=False) if p in home)
        if used:
            users[module] = list(used)
        for layer in used:
            layer.used_by(module)
    return layers, users


def join_small(layers: list[Layer], session: Session) -> tuple[list[Layer], dict[Layer, Layer]]:
    """Those that are left, and for each of `layers` the one that it has joined or is."""
    first = session.join_small([layer.declaration(position) for position, layer in enumerate(layers)])
    joined_in = {layer: layers[number] for layer, number in zip(layers, first)}
    for layer, home in joined_in.items():
        if home is not layer:
            home.join(layer)
    return list(dict.fromkeys(joined_in.values())), joined_in


def broadcast(session: Session, model: torch.nn.Module) -> None:
    """Leaves rank 0's parameters and buffers on every rank, one message per dtype."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        check(name, tensor, requires_sum=False)
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())
    for dtype, tensors in by_dtype.items():
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        numbers = flat if dtype in DTYPES else as_integers(flat)
        session.broadcast(view_of(numbers))
        if numbers is not flat:
            flat = numbers.view(torch.uint8)[:flat.numel() * flat.element_size()].view(dtype)
        for tensor, piece in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(piece.view(tensor.shape))


def as_integers(flat: torch.Tensor) -> torch.Tensor:
    """The bytes of any dtype as whole int64 numbers, which a broadcast leaves as they are."""
    raw = flat.view(torch.uint8)
    padded = torch.zeros(-(-raw.numel() // 8) * 8, dtype=torch.uint8)
    padded[:raw.numel()] = raw
    return padded.view(torch.int64)
