# SPDX-License-Identifier: Apache-2.0
"""A model's parameters as the layers that the core synchronises, and where their gradients lie.

A layer is what one module owns directly: a Linear's weight and bias, a convolution's. Its gradient is one
piece of memory; the tensors' `.grad` are views into it. Where a layer is one tensor, the memory that autograd
made is lent as it is.

Small modules join one layer, as poseidon_join_small says. It leaves with its last gradient, in general that of its
first module, and is waited for before whichever of its modules runs first.
"""
import ctypes

import torch

from .. import library as c
from ..errors import PoseidonError

# Tensors of a joined layer that are told one by one.
MOST_SHAPES = 8

DTYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.int64: c.I64}


def view_of(tensor):
    """The header's view of a contiguous tensor, which has to outlive it."""
    return c.View(memory=tensor.data_ptr(), elements=tensor.numel(), dtype=DTYPES[tensor.dtype])


class UnderWay(torch.Tensor):
    """What stands at a parameter whose gradient is on its way: whoever reads or changes it gets a sentence. With
    nothing there clipping would clip nothing, and say that the norm is 0."""

    @staticmethod
    def __new__(cls, parameter):
        return torch.Tensor._make_wrapper_subclass(cls, parameter.shape, dtype=parameter.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), words=None):
        raise PoseidonError("a gradient was read or changed while it is under way, expected overlap=False in wrap, or "
                            "synchronize() of what wrap returned after backward()")

    def __repr__(self):
        return "a gradient under way"


class Layer:
    """One layer: its parameters, its gradient's memory and where that gradient is on its way.

    Copies and pickles of a model leave its layers behind: they are None there.
    """

    def __init__(self, name, parameters, factors):
        self.name = name
        self.parameters = parameters
        self.factors = factors  # a Linear whose gradient is a product
        self.exchange = None
        self.id = None
        self.first = None      # module of those that use it
        self.uncalled = set()  # modules that use it and have not been seen in a forward pass
        self.flat = None   # memory of the gradient; made when first needed
        self.views = None  # of `flat`, one per parameter
        self.flying = False   # handed to the core, its memory is lent
        self.dropped = False  # zero_grad was called meanwhile
        self.lent = ()        # what must live, unchanged, until the mean has landed
        self.pending = []     # (u, v) of a factor layer, one per use
        self.used = [True] * len(parameters)  # by parameter: this worker's last backward pass left a gradient
        self.before = None    # what the parameters' gradients held, where factors will land over it
        self.rows = 0
        self.more = c.Push()
        self.next_backward()

    def __reduce__(self):
        return type(None), ()

    @property
    def sizes(self):
        return [p.numel() for p in self.parameters]

    @property
    def elements(self):
        return sum(self.sizes)

    def join(self, other):
        """Takes in the parameters of a layer that is not declared."""
        self.parameters = self.parameters + other.parameters
        self.used = self.used + other.used
        self.next_backward()

    def used_by(self, module):
        self.first = self.first or module
        self.uncalled.add(module)

    @property
    def shape(self):
        if len(self.parameters) > MOST_SHAPES:
            return f"{len(self.parameters)} tensors"
        return "+".join("x".join(map(str, p.shape)) or "1" for p in self.parameters)

    def declaration(self, position):
        declared = c.Layer(name=self.name.encode(), shape=self.shape.encode(), elements=self.elements,
                           dtype=DTYPES[self.parameters[0].dtype], forward_position=position)
        if self.factors:
            declared.outputs, declared.inputs = self.parameters[0].shape
            declared.bias = len(self.parameters) > 1
        return declared

    def place(self):
        """Makes the gradient's memory and its views."""
        first = self.parameters[0]
        self.use(torch.empty(self.elements, dtype=first.dtype))

    def use(self, flat):
        self.flat = flat
        self.views = [piece.view(p.shape) for piece, p in zip(flat.split(self.sizes), self.parameters)]
        self.view = view_of(flat)

    def gather(self):
        """Brings the gradients that autograd left at the parameters into the layer's memory, zero where there
        is none; False where there are none at all."""
        gradients = [p.grad for p in self.parameters]
        if all(gradient is None for gradient in gradients):
            return False
        if len(gradients) == 1 and gradients[0].is_contiguous() and not self.factors:
            if self.flat is None or self.flat.data_ptr() != gradients[0].data_ptr():
                self.use(gradients[0].detach().view(-1))
            return True
        if self.flat is None:
            self.place()
        elsewhere = []
        for view, gradient in zip(self.views, gradients):
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr():
                elsewhere.append((view, gradient))
        if elsewhere:
            torch._foreach_copy_(*map(list, zip(*elsewhere)))
        return True

    def note_use(self):
        """Notes, when a backward pass ends, which parameters have a gradient."""
        self.used = [self.emitted or parameter.grad is not None for parameter in self.parameters]

    def give(self):
        """Shows the landed mean as the gradients of those parameters that are used."""
        for parameter, view, used in zip(self.parameters, self.views, self.used):
            parameter.grad = view if used else None

    def forget(self):
        for parameter in self.parameters:
            parameter.grad = None

    def guard(self):
        """Until the mean has landed or is not wanted, gradients are neither None nor to be had."""
        for parameter, used in zip(self.parameters, self.used):
            parameter.grad = UnderWay(parameter) if used else None

    def release(self):
        """Memory that autograd made goes when the gradient goes."""
        if len(self.parameters) == 1 and not self.factors:
            self.flat = self.views = None

    def next_backward(self):
        self.waiting_for = len(self.parameters)  # gradients of this backward pass
        self.whole = False    # some gradient of it came whole
        self.emitted = False  # this backward pass went through LinearGradient
        self.uses = 0         # forward passes through a Linear since the last backward


class Usage:
    """Which parameters got a gradient on some worker, so that all agree which have none: one number per parameter,
    synchronised as a layer of its own. No worker's absent gradient means None and not zero, as in torch: weight decay
    and momentum would move what is zero."""

    name = "poseidon.used"

    def __init__(self, layers):
        self.layers = layers
        self.flat = torch.empty(sum(len(layer.parameters) for layer in layers))
        self.view = view_of(self.flat)
        self.id = None
        self.flying = False

    def declaration(self, position):
        return c.Layer(name=self.name.encode(), elements=self.flat.numel(), dtype=c.F32, forward_position=position)

    def note(self):
        for layer in self.layers:
            layer.note_use()
        self.flat.copy_(torch.tensor([float(used) for layer in self.layers for used in layer.used]))

    def tell(self):
        """The landed numbers, where this worker has no gradient: another one may have."""
        for layer, counts in zip(self.layers, self.flat.split([len(layer.parameters) for layer in self.layers])):
            layer.used = [count > 0 for count in counts.tolist()]


def check(name, tensor, requires_sum=True):
    if tensor.device.type != "cpu":
        raise PoseidonError(f"parameter '{name}' is on {tensor.device}, expected the CPU", "UNIMPLEMENTED")
    if tensor.dtype not in DTYPES and requires_sum:
        raise PoseidonError(f"parameter '{name}' is {tensor.dtype}, expected float32 or float64",
                            "UNIMPLEMENTED")


def can_send_factors(module, owners):
    """A plain Linear, in float32, whose tensors are its own: weight_norm and the like keep its class and compute
    the weight of others."""
    own = dict(module.named_parameters(recurse=False))
    return (type(module) is torch.nn.Linear and "forward" not in vars(module)
            and list(own) in (["weight"], ["weight", "bias"])
            and all(type(p) is torch.nn.Parameter and p.requires_grad and p.dtype == torch.float32
                    and owners[p] == 1 for p in own.values()))


def layers_of(model, session, factors=True):
    """The model's layers in the order of its modules, and for each module the layers it uses."""
    owners = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter] = owners.get(parameter, 0) + 1
    layers, home, names = [], {}, set()
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        new = {}
        for parameter_name, parameter in own.items():
            if parameter.requires_grad and parameter not in home:
                check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
                new.setdefault(parameter.dtype, []).append(parameter)
        for number, parameters in enumerate(new.values()):
            layer_name = (name or "model") + (f".{number}" if number else "")
            while layer_name in names:  # a child may be called what its parent's own tensors are
                layer_name += "'"
            names.add(layer_name)
            layers.append(Layer(layer_name, parameters, factors and len(new) == 1 and can_send_factors(module, owners)))
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


def join_small(layers, session):
    """Those that are left, and for each of `layers` the one that it has joined or is."""
    declared = [layer.declaration(position) for position, layer in enumerate(layers)]
    pointers = (ctypes.POINTER(c.Layer) * len(layers))(*map(ctypes.pointer, declared))
    first = (ctypes.c_uint32 * len(layers))()
    session.c.join_small(session.handle, pointers, len(layers), first)
    joined_in = {layer: layers[number] for layer, number in zip(layers, first)}
    for layer, home in joined_in.items():
        if home is not layer:
            home.join(layer)
    return list(dict.fromkeys(joined_in.values())), joined_in


def broadcast(session, model):
    """Leaves rank 0's parameters and buffers on every rank, one message per dtype."""
    by_dtype = {}
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


def as_integers(flat):
    """The bytes of any dtype as whole int64 numbers, which a broadcast leaves as they are."""
    raw = flat.view(torch.uint8)
    padded = torch.zeros(-(-raw.numel() // 8) * 8, dtype=torch.uint8)
    padded[:raw.numel()] = raw
    return padded.view(torch.int64)
