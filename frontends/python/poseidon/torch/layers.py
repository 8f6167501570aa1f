# SPDX-License-Identifier: Apache-2.0
"""A model's parameters as the layers that the core synchronises, and where their gradients are.

A layer is what one module owns directly: a Linear's weight and bias, a convolution's. Its gradient is one
piece of memory; the tensors' `.grad` are views into it. Where a layer is one tensor, the memory that autograd
made is lent as it is.

A gradient on a device is staged in pinned memory of the host, which is what the core is lent: see devices.py.

Small modules join one layer, as poseidon_join_small says. It leaves with its last gradient, in general that of its
first module, and is waited for before whichever of its modules runs first.

The weight of an Embedding(sparse=True) is a table, whose gradient is rows: no memory of the weight's size is made. The mean
is all workers' rows, unmerged, in the order of ranks.
"""
from __future__ import annotations

import array
import ctypes
import math
from collections.abc import Iterator, Set
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._C import _storage_Use_Count as storage_use_count

from .. import library as c
from ..errors import PoseidonError
from . import products
from .devices import can_stage, pinned

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..session import Session
    from .awaited import Awaited
    from .devices import Carrier, Moves
    from .exchange import Exchange

# Most tensors of a joined layer that a message lists one by one.
MOST_SHAPES = 8

DTYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.int64: c.I64}
HALVES = (torch.float16, torch.bfloat16)


def exchanged(dtype: torch.dtype) -> torch.dtype:
    """In which gradients of `dtype` travel: halves are summed in single precision, and rounded once at the end."""
    return torch.float32 if dtype in HALVES else dtype


def view_of(tensor: torch.Tensor) -> c.View:
    """The header's view of a contiguous tensor, which has to outlive it."""
    return c.View(memory=tensor.data_ptr(), elements=tensor.numel(), dtype=DTYPES[tensor.dtype])


def dimensions(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "1"


def bytes_of(tensor: torch.Tensor) -> bytes:
    host = tensor.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())


def at(address: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The numbers at an address, where they are."""
    if not math.prod(shape):
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = (ctypes.c_char * (dtype.itemsize * math.prod(shape))).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


class UnderWay(torch.Tensor):
    """The `grad` of a parameter whose gradient is on its way: whoever reads or changes it gets an exception. With
    None there clipping would clip nothing, and say that the norm is 0."""

    # torch declares the last two methods without types, and with other parameters than it passes.

    @staticmethod
    def __new__(cls, parameter: torch.Tensor) -> UnderWay:
        return torch.Tensor._make_wrapper_subclass(cls, parameter.shape, dtype=parameter.dtype, device=parameter.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (),  # type: ignore[override]  # see above
                           words: Any = None) -> NoReturn:
        raise PoseidonError("a gradient was read or changed while it is under way, expected distribute without "
                            "overlap=\"forward\", or synchronize(model) after backward()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # see above
        return "a gradient under way"


class Layer:
    """One layer: its parameters, its gradient's memory and where that gradient is on its way.

    Copies and pickles of a model leave its layers behind: they are None there.
    """

    exchange: Exchange  # both from when it is declared
    id: int
    adds: bool  # see next_backward
    stays: bool
    local: bool

    def __init__(self, name: str, parameters: list[torch.nn.Parameter], factors: bool, table: bool = False) -> None:
        self.name = name
        self.parameters = parameters
        self.factors = factors  # a Linear whose gradient is a product
        self.takes_factors = False  # under the plan that holds
        self.gathers = False    # and their product is made on the device that the gradient is on
        self.gathered = False   # as the mean of the last push is
        self.dtype = exchanged(parameters[0].dtype)  # in which its gradient travels and is summed
        self.device = parameters[0].device
        self.carrier: Carrier | None = None      # where it is on a device
        self.host: torch.Tensor | None = None    # there: what the core is lent of the gradient
        self.sent: Future[None] | None = None    # there: the push of this step
        self.table = table      # a weight whose gradient is sparse
        self.mean: torch.Tensor | None = None  # of a table: what has landed
        self.first: torch.nn.Module | None = None      # of those that use it
        self.uncalled: set[torch.nn.Module] = set()    # modules that use it and have not been seen in a forward pass
        self.flat: torch.Tensor | None = None  # memory of the gradient; made when first needed
        self.views: list[torch.Tensor] = []    # of `flat`, one per parameter
        self.own: torch.Tensor | None = None   # of a layer of one tensor: the memory that autograd made, lent as it is
        self.flying = False   # handed to the core, its memory is lent
        self.dropped = False  # zero_grad was called meanwhile
        self.used = [True] * len(parameters)  # by parameter: the last backward pass left a gradient, here or elsewhere
        # Numbers of the parameters' gradients that are not sent again: where factors will land over them, and of a table.
        self.before: torch.Tensor | None = None
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # (u, v) of a factor layer, one per use
        self.rows = 0
        self.retired = False  # others have its parameters now: graphs of before do not hand it factors any more
        self.came_whole = False  # in this step, on this worker, while all send factors
        self.steps_whole = 0     # in which it did on some worker
        self.guards: list[UnderWay] = []
        self.hidden: list[torch.nn.Parameter] = []  # see hide
        # The arguments of the core's calls, made once: the addresses of what the core reads change, the structs do not.
        self.view, self.more = c.View(dtype=DTYPES[self.dtype]), c.Push()
        self.u, self.v, self.product = c.View(dtype=c.F32), c.View(dtype=c.F32), c.Factors()
        self.product.u, self.product.v = ctypes.pointer(self.u), ctypes.pointer(self.v)
        self.to_view, self.to_more, self.to_product = map(ctypes.byref, (self.view, self.more, self.product))
        self.lent: object = ()  # factors, which must live unchanged until the mean has landed
        self.measure()
        self.next_backward()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def measure(self) -> None:
        self.sizes = [p.numel() for p in self.parameters]
        self.elements = self.view.elements = sum(self.sizes)
        self.all = [True] * len(self.sizes)
        self.is_one = len(self.sizes) == 1 and not self.factors  # tensor, whose memory is autograd's

    def join(self, other: Layer) -> None:
        """Takes in the parameters of a layer that is not declared; what has joined goes whole."""
        self.factors = False
        self.parameters = self.parameters + other.parameters
        self.used = self.used + other.used
        self.measure()
        self.next_backward()

    def used_by(self, module: torch.nn.Module) -> None:
        self.first = self.first or module
        self.uncalled.add(module)

    @property
    def shape(self) -> str:
        if len(self.parameters) > MOST_SHAPES:
            return f"{len(self.parameters)} tensors"
        return "+".join(map(dimensions, self.parameters))

    def declaration(self, position: int) -> c.Layer:
        declared = c.Layer(name=self.name.encode(), shape=self.shape.encode(), elements=self.elements,
                           dtype=DTYPES[self.dtype], forward_position=position)
        if self.factors or self.table:
            declared.outputs, declared.inputs = self.parameters[0].shape
            declared.bias = len(self.parameters) > 1
            declared.table = self.table
        return declared

    def test_product(self, declared: c.Layer, workers: int, tf32: bool) -> None:
        """Says in the declaration that the layer's device makes its products, and how."""
        test = products.test(self.device, *self.parameters[0].shape, len(self.parameters) > 1, workers, tf32)
        declared.product_rows, declared.product_hash, declared.product_seconds = test

    def take_rows(self, gathered: c.Gathered) -> None:
        """Copies a table's mean, behind what its gradient held before this backward pass."""
        weight = self.parameters[0]
        indices = at(gathered.indices, (1, gathered.count), torch.int64).clone().to(self.device)
        values = at(gathered.values, (gathered.count, weight.shape[1]), self.dtype).to(weight.dtype, copy=True).to(self.device)
        self.mean = torch.sparse_coo_tensor(indices, values, weight.shape, check_invariants=False)
        if self.before is not None:
            self.mean = self.before + self.mean
            self.before = None

    def multiply_gathered(self, gathered: c.Gathered, tf32: bool) -> None:
        """Makes the mean of all workers' factors, on the device, in the gradient's memory there. The session's memory is read
        until the current stream has come so far; the next push of this layer comes behind that."""
        flat = self.memory()
        if not gathered.count:
            flat.zero_()
            return
        weight, *biases = self.views
        u, v = (at(address, (gathered.count, width), torch.float32).to(self.device, non_blocking=True)
                for address, width in zip((gathered.u, gathered.values), weight.shape))
        products.multiply(u, v, weight, biases[0] if biases else None, tf32)

    # ---- the gradient's memory

    def memory(self) -> torch.Tensor:
        """The gradient's memory, to be written to; new where there is none, or where somebody keeps what it holds."""
        if self.flat is None or not self.stays and self.is_kept():
            flat = self.flat = torch.empty(self.elements, dtype=self.dtype, device=self.device)
            self.views = [piece.view(p.shape) for piece, p in zip(flat.split(self.sizes), self.parameters)]
            storage = flat.untyped_storage()
            self.storage, self.address = storage, storage._cdata
            self.alone = storage_use_count(self.address)
            self.holders = self.held()
            if self.carrier is None:
                self.view.memory = flat.data_ptr()
        return self.flat

    def is_kept(self) -> bool:
        """Whether somebody else has gradients of before, as after zero_grad(), which says that they are not to change: a slice
        or another tensor of the memory, or a view itself. Where they are still the parameters' gradients, backward adds to
        them, as it does alone."""
        kept, held = storage_use_count(self.address) != self.alone, self.held()
        if not kept and held == self.holders:
            return False
        shown = [p.grad is view for p, view in zip(self.parameters, self.views)]
        return not all(shown) and (kept or held != [holders + here for holders, here in zip(self.holders, shown)])

    def held(self) -> list[int]:
        """How often each view is held, in Python and in torch."""
        return [getrefcount(view) + view._use_count() for view in self.views]  # type: ignore[attr-defined]  # torch's own

    def gather(self) -> bool:
        """Brings the gradients that autograd left at the parameters into memory to lend, zero where there is none; False
        where there are none at all."""
        gradients: list[Any] = [p.grad for p in self.parameters]  # tensors or None
        used = self.used = [gradient is not None for gradient in gradients]
        if used != self.all:
            if not any(used):
                return False
            self.memory()
            for view, gradient in zip(self.views, gradients):
                if gradient is None:
                    view.zero_()
                elif gradient is not view:
                    view.copy_(gradient)
            return True
        if self.is_one:
            only = gradients[0]
            if only.dtype is self.dtype and only.is_contiguous():
                self.own, self.flat, self.views = only.detach() if only.requires_grad else only, None, []
                if self.carrier is None:
                    self.view.memory = only.data_ptr()
                return True
        self.memory()
        if gradients[0] is self.views[0]:  # backward added to some of them
            for view, gradient in zip(self.views, gradients):
                if gradient is not view:
                    view.copy_(gradient)
        else:
            torch._foreach_copy_(self.views, gradients)
        return True

    def multiply(self) -> None:
        """Leaves the gradient itself in the memory where factors of it came, with what autograd left at the parameters."""
        self.memory()
        weight, *biases = self.views
        for number, (dy, x) in enumerate(self.pending):
            if number == 0 and not self.adds:
                torch.mm(dy.t(), x, out=weight)
            else:
                weight.addmm_(dy.t(), x)
            for bias in biases:
                if number == 0 and not self.adds:
                    torch.sum(dy, 0, out=bias)
                else:
                    bias.add_(dy.sum(0))
        self.pending = []
        for view, parameter in zip(self.views, self.parameters):
            if parameter.grad is not None:
                view.add_(parameter.grad)

    def set_aside(self) -> None:
        """Keeps what the gradients hold of the backward passes before: products are added to it or, where factors will land
        over it, it is added to the mean."""
        if self.gather():
            if self.takes_factors and not self.local:
                self.before = self.memory().clone()
            self.adds = self.stays = True
            self.forget()

    def stage(self, carrier: Carrier) -> None:
        """Its gradient is on a device."""
        self.carrier = carrier

    def staging(self) -> torch.Tensor:
        """Memory of the host for the whole gradient, which is lent in its place; made when first needed."""
        if self.host is None:
            self.host = pinned(self.elements, self.dtype)
            self.view.memory = self.host.data_ptr()
        return self.host

    def whole(self) -> torch.Tensor:
        """The gradient that is sent, and in whose memory the mean lands."""
        whole = self.flat if self.own is None else self.own.view(-1)
        assert whole is not None  # it has been gathered
        return whole

    def lendable(self, *tensors: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], Moves]:
        """The tensors in memory of the host, and what has to be copied there first."""
        if self.carrier is None:
            return tensors, []
        moves = [(tensor, pinned(tensor.numel(), tensor.dtype).view(tensor.shape)) for tensor in tensors]
        return tuple(into for _, into in moves), moves

    def lend_factors(self, *factors: torch.Tensor) -> Moves:
        """(u, v), or none where this worker has no rows. Returns what has to be copied before they are pushed."""
        if not factors:
            self.product.rows = 0
            return []
        (u, v), moves = self.lendable(*factors)
        self.u.memory, self.u.elements, self.v.memory, self.v.elements = u.data_ptr(), u.numel(), v.data_ptr(), v.numel()
        self.product.rows = len(u)
        self.lent = u, v
        return moves

    def give(self) -> None:
        """Shows the landed mean as the gradients of those parameters that are used, in their precision."""
        if self.table:
            self.parameters[0].grad = self.mean if self.used[0] else None
            return
        if self.own is not None:
            parameter = self.parameters[0]
            if parameter.grad is not self.own:
                parameter.grad = self.own
            self.own = None
            return
        if self.used == self.all:
            try:
                for parameter, view in zip(self.parameters, self.views):
                    parameter.grad = view
                return
            except RuntimeError:  # another precision than it travelled in
                pass
        for parameter, view, used in zip(self.parameters, self.views, self.used):
            parameter.grad = view.to(parameter.dtype) if used else None  # rounded once, here

    def forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def guard(self) -> None:
        """Until the mean has landed or is not wanted, gradients are neither None nor to be had."""
        if not self.guards or self.guards[0].dtype is not self.parameters[0].dtype:
            self.guards = [UnderWay(parameter) for parameter in self.parameters]
        for parameter, guard, used in zip(self.parameters, self.guards, self.used):
            parameter.grad = guard if used else None

    def hide(self, awaited: type[Awaited]) -> None:
        """Until the parameters have been updated, those who read them get them from `awaited`."""
        self.hidden = [parameter for parameter in self.parameters if type(parameter) is torch.nn.Parameter]
        for parameter in self.hidden:
            parameter.__class__ = awaited  # the same object under another name

    def show(self) -> None:
        for parameter in self.hidden:
            parameter.__class__ = torch.nn.Parameter
        self.hidden = []

    def release(self) -> None:
        """Memory of one tensor goes when the gradient goes, as autograd's does."""
        self.own = self.mean = None
        if self.is_one:
            self.flat, self.views = None, []

    def next_backward(self) -> None:
        self.waiting_for = len(self.parameters)  # gradients of this backward pass
        self.emitted = False  # this backward pass went through WeightGradient
        self.adds = self.stays = False  # to what the memory holds of backward passes before, which is to stay where it is
        self.nested = False   # some of it was in a backward pass inside another, as of a reentrant checkpoint
        self.local = False    # its gradients hold some that were not exchanged (no_sync)


def whole_as_factors(weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors (u, v) whose product u^T v, in full precision, is the gradient `weight`, to the bit, and whose column sum of u is
    `bias`, to rounding: a product of an identity and the gradient, of as many rows as the gradient's shorter side.

    A power of two times the identity, so small that the sum of its column and of the last row is the bias alone.
    """
    outputs, inputs = weight.shape
    short, small = min(outputs, inputs), 1.0 if bias is None else 2.0 ** -60
    rows = short + (bias is not None)
    u, v = weight.new_zeros(rows, outputs), weight.new_zeros(rows, inputs)
    if outputs <= inputs:
        u[:short].fill_diagonal_(small)
        torch.mul(weight, 1 / small, out=v[:short])
    else:
        torch.mul(weight.t(), small, out=u[:short])
        v[:short].fill_diagonal_(1 / small)
    if bias is not None:
        torch.sub(bias, u[:short].sum(0), out=u[short])
    return u, v


class Usage:
    """Flags that all workers agree on after every backward pass: a layer of its own, of which each gets the mean: one number
    per parameter, one per layer that may send factors, and one more. A number is 1 or 0, less MARK times the number of workers
    where it is marked; the mean shows how many have marked it, and whether it was 1 on some.

    Of a parameter: 1 where it got a gradient. No worker's absent gradient means None and not zero, as in torch: weight decay and
    momentum would move what is zero. Marked where it is frozen. Of a layer with factors: marked where its gradient came whole
    while they all send factors. The last one: marked where this worker declares its layers anew.
    """

    name = "poseidon.used"
    MARK = 2

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.layers = exchange, exchange.layers
        self.with_factors = [layer for layer in self.layers if layer.factors]
        self.parameters = sum(len(layer.parameters) for layer in self.layers)
        self.own = torch.empty(self.parameters + len(self.with_factors) + 1, device="cpu")
        self.noted: list[int] = []  # what `own` says
        self.parted = False  # some workers have frozen a parameter, or declare anew, and others not
        self.flat = torch.empty_like(self.own)
        self.to_view = ctypes.byref(view_of(self.flat))
        self.to_more = None
        self.needed = False  # before the next forward pass
        self.sent, self.device = None, None  # made on the host
        self.id: int | None = None
        self.flying = False

    def declaration(self, position: int) -> c.Layer:
        return c.Layer(name=self.name.encode(), elements=self.flat.numel(), dtype=c.F32, forward_position=position)

    def note(self) -> None:
        mark = self.MARK * self.exchange.session.workers
        frozen = mark if self.exchange.joining is None else 0  # a worker without batches does not follow who freezes
        numbers = [used if parameter.requires_grad else used - frozen
                   for layer in self.layers for parameter, used in zip(layer.parameters, layer.used)]
        numbers += [1 - mark * layer.came_whole for layer in self.with_factors]
        numbers.append(1 - mark * self.exchange.renewing)
        for layer in self.with_factors:
            layer.came_whole = False
        if numbers != self.noted:
            self.noted = numbers
            self.own = torch.tensor(numbers, dtype=torch.float32, device="cpu")
        self.flat.copy_(self.own)

    def tell(self) -> None:
        """The landed numbers, where this worker has no gradient: another one may have."""
        if self.flat.min() > 0:  # every parameter has a gradient on some worker, and nobody has marked anything
            for layer in self.layers:
                layer.used = layer.all
            return
        means = self.flat.tolist()
        marks = [round(0.25 - mean / self.MARK) for mean in means]
        used = iter([mean + self.MARK * marked > 0.5 / self.exchange.session.workers for mean, marked in zip(means, marks)])
        for layer in self.layers:
            layer.used = [next(used) for _ in layer.parameters]
        for layer, marked in zip(self.with_factors, marks[self.parameters:]):
            layer.steps_whole += marked > 0
        self.parted = any(0 < marked < self.exchange.session.workers for marked in (*marks[:self.parameters], marks[-1]))


class Buffers:
    """A model's buffers, which it saves with its parameters, as the statistics of batch norms: after every backward
    pass rank 0's on all ranks, synchronised as a layer of its own, in double precision, which holds floats and counts as
    they are. DistributedDataParallel has rank 0's before every forward pass."""

    name = "poseidon.buffers"

    def __init__(self, model: torch.nn.Module, rank: int) -> None:
        named = {id(buffer): (module, name) for module in model.modules() for name, buffer in module._buffers.items()
                 if buffer is not None and name not in module._non_persistent_buffers_set
                 and buffer.numel() and not buffer.is_complex() and buffer.dtype != torch.bool}
        self.places = list(named.values())  # modules may put others there
        buffers = self.buffers()
        # By dtype: a device copies a list of tensors in one launch only where all have the same.
        self.lots: dict[torch.dtype, list[int]] = {}
        for number, buffer in enumerate(buffers):
            self.lots.setdefault(buffer.dtype, []).append(number)
        self.device = next((buffer.device for buffer in buffers if buffer.device.type != "cpu"), None)
        self.flat = torch.empty(sum(buffer.numel() for buffer in buffers), dtype=torch.float64, device="cpu",
                                pin_memory=self.device is not None)
        # On a device: the same there. One copy of all crosses the bus, not one of each.
        self.there = torch.empty_like(self.flat, device=self.device, pin_memory=False) if self.device is not None else self.flat
        self.pieces = [piece.view(buffer.shape) for piece, buffer in
                       zip(self.there.split([buffer.numel() for buffer in buffers]), buffers)]
        self.to_view = ctypes.byref(view_of(self.flat))
        self.sent: Future[None] | None = None
        self.id: int | None = None
        self.flying = False
        self.take_from(0, rank)

    def declaration(self, position: int) -> c.Layer:
        return c.Layer(name=self.name.encode(), elements=self.flat.numel(), dtype=c.F64, forward_position=position)

    def take_from(self, leader: int, rank: int) -> None:
        """From now on those of rank `leader` are sent, as the mean of the one that has weight."""
        self.mine = rank == leader
        self.needed = not self.mine  # before the next forward pass
        self.to_more = ctypes.byref(c.Push(absent=not self.mine, weight=int(self.mine)))

    def buffers(self) -> list[torch.Tensor]:
        return [module._buffers[name] for module, name in self.places]  # type: ignore[misc]  # None is not among them

    def note(self) -> None:
        if self.mine:
            self.copy(self.pieces, self.buffers())

    def moves(self) -> Moves:
        """Of buffers on a device: to the memory that is lent."""
        return [(self.there, self.flat)] if self.mine else []

    def tell(self) -> None:
        if not self.mine:
            if self.there is not self.flat:
                self.there.copy_(self.flat, non_blocking=True)
            self.copy(self.buffers(), self.pieces)

    def copy(self, into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
        for lot in self.lots.values():
            torch._foreach_copy_([into[number] for number in lot], [source[number] for number in lot])


def check(name: str, tensor: torch.Tensor, requires_sum: bool = True) -> None:
    if tensor.device.type != "cpu" and not can_stage(tensor.device):
        raise PoseidonError(f"parameter '{name}' is on {tensor.device}, expected the CPU or a device with streams, as CUDA has "
                            "them", "UNIMPLEMENTED")
    if exchanged(tensor.dtype) not in DTYPES and requires_sum:
        raise PoseidonError(f"parameter '{name}' is {tensor.dtype}, expected float32, float64, bfloat16 or float16",
                            "UNIMPLEMENTED")


def check_rows(name: str, module: torch.nn.Module) -> None:
    """Refuses what changes the rows of its weight that a batch names: each worker's batch names others."""
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None:
        raise PoseidonError(f"{type(module).__name__} '{name}' has max_norm={module.max_norm}, which changes its weight in the "
                            "forward pass by each worker's own batch, expected None", "UNIMPLEMENTED")


def parameters_of(module: torch.nn.Module, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
    """Also of a class that has another method of that name."""
    return torch.nn.Module.parameters(module, recurse)


def is_table(module: torch.nn.Module, owners: dict[torch.nn.Parameter, list[torch.nn.Module]]) -> bool:
    """Whether the gradient of a module's weight is sparse, whichever of its owners uses it."""
    own = dict(module.named_parameters(recurse=False))
    return list(own) == ["weight"] and all(
        isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and owner.sparse for owner in owners[own["weight"]])


def can_send_factors(module: torch.nn.Module, owners: dict[torch.nn.Parameter, list[torch.nn.Module]],
                     known: Set[torch.nn.Parameter], whole: Set[torch.nn.Parameter]) -> bool:
    """A plain Linear, in float32, whose tensors are its own: weight_norm and the like keep its class and compute
    the weight of others. Not one whose gradients keep coming `whole`."""
    own = dict(module.named_parameters(recurse=False))
    return (type(module) is torch.nn.Linear and "forward" not in vars(module)
            and list(own) in (["weight"], ["weight", "bias"])
            and all(type(p) is torch.nn.Parameter and (p.requires_grad or p in known) and p.dtype == torch.float32
                    and len(owners[p]) == 1 and p not in whole for p in own.values()))


def layers_of(model: torch.nn.Module, session: Session, factors: bool = True,
              known: Set[torch.nn.Parameter] = frozenset(),
              whole: Set[torch.nn.Parameter] = frozenset()) -> tuple[list[Layer], dict[torch.nn.Module, list[Layer]]]:
    """The model's layers in the order of its modules, and for each module the layers it uses. Of parameters that require a
    gradient, and of those `known` that did before."""
    owners: dict[torch.nn.Parameter, list[torch.nn.Module]] = {}
    for module in model.modules():
        for parameter in parameters_of(module, recurse=False):
            owners.setdefault(parameter, []).append(module)
    layers: list[Layer] = []
    home: dict[torch.nn.Parameter, Layer] = {}
    names: set[str] = set()
    for name, module in model.named_modules():
        if session.workers > 1:
            check_rows(name, module)
        own = dict(module.named_parameters(recurse=False))
        new: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter_name, parameter in own.items():
            if (parameter.requires_grad or parameter in known) and parameter not in home:
                check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
                new.setdefault((exchanged(parameter.dtype), parameter.device), []).append(parameter)
        for number, parameters in enumerate(new.values()):
            layer_name = (name or "model") + (f".{number}" if number else "")
            while layer_name in names:  # a child may be called what its parent's own tensors are
                layer_name += "'"
            names.add(layer_name)
            layers.append(Layer(layer_name, parameters,
                                factors and len(new) == 1 and can_send_factors(module, owners, known, whole), is_table(module, owners)))
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


def join_small(layers: list[Layer], session: Session) -> tuple[list[Layer], dict[Layer, Layer]]:
    """Those that are left, and for each of `layers` the one that it has joined or is: one of the same device. All workers call it:
    where one of them has its model on a device all join as many."""
    joined_in: dict[Layer, Layer] = dict.fromkeys(layers, layers[0])  # in their order
    on_device = array.array("q", [any(layer.device.type != "cpu" for layer in layers)])
    session.sum(on_device)
    for device in {layer.device for layer in layers}:
        those = [(position, layer) for position, layer in enumerate(layers) if layer.device == device]
        declared = [layer.declaration(position) for position, layer in those]
        for each in declared:
            each.on_device = on_device[0]
        first = session.join_small(declared)
        joined_in.update((layer, those[number][1]) for (_, layer), number in zip(those, first))
    for layer, home in joined_in.items():
        if home is not layer:
            home.join(layer)
    return list(dict.fromkeys(joined_in.values())), joined_in


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Its parameters and buffers."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def compare(session: Session, model: torch.nn.Module) -> None:
    """Raises PoseidonError on a worker whose parameters and buffers are not named, shaped, typed and frozen as rank 0's, which ends
    the job. The core compares layers, and knows nothing of the tensors in them."""
    lines = []
    for name, tensor in named_tensors(model):
        if torch.nn.parameter.is_lazy(tensor):
            raise PoseidonError(f"'{name}' of a lazy module has no shape yet, expected a forward pass before distribute",
                                "INVALID_ARGUMENT")
        frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
        lines.append(f"{name} {dimensions(tensor)} {str(tensor.dtype).removeprefix('torch.')}" + (", frozen" if frozen else ""))
    session.compare_models(lines)


def broadcast(session: Session, model: torch.nn.Module, root: int = 0) -> None:
    """Leaves the parameters and buffers of rank `root` on every rank, one message per dtype."""
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for name, tensor in named_tensors(model):
        check(name, tensor, requires_sum=False)
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())
    for dtype, tensors in by_dtype.items():
        flat = torch.cat([tensor.reshape(-1).cpu() for tensor in tensors])
        numbers = flat if dtype in DTYPES else as_integers(flat)
        session.broadcast(view_of(numbers), root)
        if numbers is not flat:
            flat = numbers.view(torch.uint8)[:flat.numel() * flat.element_size()].view(dtype)
        for tensor, piece in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            # An equal tensor is left alone: a graph may hold it, and counts its changes.
            if not torch.equal(tensor.reshape(-1).cpu().view(torch.uint8), piece.view(torch.uint8)):
                tensor.copy_(piece.view(tensor.shape))


def as_integers(flat: torch.Tensor) -> torch.Tensor:
    """The bytes of any dtype as whole int64 numbers, which a broadcast leaves as they are."""
    raw = flat.view(torch.uint8)
    padded = torch.zeros(-(-raw.numel() // 8) * 8, dtype=torch.uint8, device="cpu")
    padded[:raw.numel()] = raw
    return padded.view(torch.int64)
