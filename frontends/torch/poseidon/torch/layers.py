# SPDX-License-Identifier: Apache-2.0
"""A model's parameters as the layers that the core synchronises, and where their gradients lie.

A layer is what one module owns directly: a Linear's weight and bias, a convolution's, a batch norm's. Its
gradient is one piece of memory; the tensors' `.grad` are views into it. Where a layer is one tensor, the
memory that autograd made is lent as it is.
"""
import torch

from .. import library as c

DTYPES = {torch.float32: c.F32, torch.float64: c.F64, torch.int64: c.I64}


def view_of(tensor):
    """The header's view of a contiguous tensor, which has to outlive it."""
    return c.View(memory=tensor.data_ptr(), elements=tensor.numel(), dtype=DTYPES[tensor.dtype])


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
        self.sizes = [p.numel() for p in parameters]
        self.elements = sum(self.sizes)
        self.flat = None   # memory of the gradient; made when first needed
        self.views = None  # of `flat`, one per parameter
        self.flying = False   # handed to the core, its memory is lent
        self.dropped = False  # zero_grad was called meanwhile
        self.waiting_for = len(parameters)  # gradients of this backward pass
        self.arrived = [False] * len(parameters)
        self.lent = ()        # what must live, unchanged, until the mean has landed
        self.pending = []     # (u, v) of a factor layer, one per use
        self.emitted = False  # this backward pass went through LinearGradient
        self.before = None    # what the parameters' gradients held, where factors will land over it
        self.uses = 0         # forward passes through a Linear since the last backward
        self.called = False   # its module has been seen in a forward pass
        self.rows = 0

    def __reduce__(self):
        return type(None), ()

    @property
    def shape(self):
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

    def take(self, index):
        """Brings the gradient that autograd left at a parameter into the layer's memory."""
        parameter = self.parameters[index]
        gradient = parameter.grad
        if gradient.is_sparse:
            raise c.PoseidonError(f"the gradient of layer '{self.name}' is sparse, expected a dense one "
                                  "(Embedding with sparse=False)", "UNIMPLEMENTED")
        if len(self.parameters) == 1 and gradient.is_contiguous() and not self.factors:
            if self.flat is None or self.flat.data_ptr() != gradient.data_ptr():
                self.use(gradient.detach().view(-1))
            return
        if self.flat is None:
            self.place()
        if gradient.data_ptr() != self.views[index].data_ptr():
            self.views[index].copy_(gradient)
            parameter.grad = self.views[index]

    def give(self):
        """Shows the landed mean as the parameters' gradients."""
        for parameter, view in zip(self.parameters, self.views):
            parameter.grad = view

    def forget(self):
        for parameter in self.parameters:
            parameter.grad = None

    def release(self):
        """Memory that autograd made goes when the gradient goes."""
        if len(self.parameters) == 1 and not self.factors:
            self.flat = self.views = None

    def next_backward(self):
        self.waiting_for = len(self.parameters)
        self.arrived = [False] * len(self.parameters)
        self.emitted = False
        self.uses = 0


def check(name, tensor, requires_sum=True):
    if tensor.device.type != "cpu":
        raise c.PoseidonError(f"parameter '{name}' is on {tensor.device}, expected the CPU", "UNIMPLEMENTED")
    if tensor.dtype not in DTYPES and requires_sum:
        raise c.PoseidonError(f"parameter '{name}' is {tensor.dtype}, expected float32 or float64",
                              "UNIMPLEMENTED")


def can_send_factors(module, owners):
    """A plain Linear, in float32, whose tensors are its own."""
    tensors = [p for p in module.parameters(recurse=False)]
    return (type(module) is torch.nn.Linear and "forward" not in vars(module)
            and all(type(p) is torch.nn.Parameter and p.requires_grad and p.dtype == torch.float32
                    and owners[p] == 1 for p in tensors))


def layers_of(model, factors=True):
    """The model's layers in the order of its modules, and for each module the layers it uses."""
    owners = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter] = owners.get(parameter, 0) + 1
    layers, home, users = [], {}, {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        new = {}
        for parameter_name, parameter in own.items():
            if parameter.requires_grad and parameter not in home:
                check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
                new.setdefault(parameter.dtype, []).append(parameter)
        for number, parameters in enumerate(new.values()):
            layer_name = (name or "model") + (f".{number}" if number else "")
            linear = factors and len(new) == 1 and can_send_factors(module, owners)
            layers.append(Layer(layer_name, parameters, linear))
            home.update((parameter, layers[-1]) for parameter in parameters)
        used = list(dict.fromkeys(home[p] for p in own.values() if p in home))
        if used:
            users[module] = used
    if not layers:
        raise c.PoseidonError("the model has no parameter that requires a gradient", "INVALID_ARGUMENT")
    return layers, users


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
