# SPDX-License-Identifier: Apache-2.0
"""nn.Linear whose weight gradient is left to the core.

The gradient of a weight is dW = dy^T x. Where the plan sends factors, backward hands over dy and x and
never multiplies them; elsewhere it multiplies straight into the layer's memory, which saves a copy.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from . import transforms

if TYPE_CHECKING:
    from .product import Product


def asked(node: Any, number: int) -> bool | None:
    """Whether this backward pass is to leave a gradient at input `number` of the node, which is a parameter; None where it is
    to return it, as autograd.grad does."""
    parameter = node.next_functions[number][0] if number < len(node.next_functions) else None
    if parameter is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(parameter))
    except RuntimeError:
        return None


class WeightGradient(torch.autograd.Function):
    """Gives back `y`, what the Linear made of `x`; backward hands over the factors of the weight's and the bias's gradient.

    A node of its own, behind torch's that makes `y` and computes dx: the factors leave, and the network works, while dx is
    computed. They leave from the parameters' hooks, because other gradients may reach the parameters as well.
    """

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
                layer: Product) -> torch.Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        ctx.mark_dirty(y)  # else what is returned were a view, which nobody may change in place
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, = ctx.saved_tensors
        rows, flat = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        for_weight, for_bias = asked(ctx, 2), asked(ctx, 3)
        dw = db = None
        layer = ctx.layer
        if for_weight and (for_bias or not ctx.needs_input_grad[3]) and not torch.is_grad_enabled() and layer.may_emit():
            layer.emits.emit(layer, rows.contiguous(), flat.contiguous())
        else:  # as autograd would: what comes whole goes through the parameter's hook, or to whom autograd.grad was called by
            if for_weight is not False:
                dw = rows.t().mm(flat)
            if for_bias is not False:
                db = rows.sum(0)
        if torch.is_grad_enabled() and ctx.needs_input_grad[1]:  # dx has a gradient of the weight, which torch's node does not know
            return None, rows.mm(ctx.layer.parameters[0]).view(x.shape), dw, db, None
        return dy, None, dw, db, None


class Linear(torch.nn.Linear):
    """The class that wrap gives a plain nn.Linear: the same object and parameters, another backward pass."""

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Copies and pickles are plain. The empty object that they begin with draws no random number."""
        state = {name: value for name, value in vars(self).items() if name != "poseidon_layer"}
        return torch.nn.Linear, (1, 1, False, "meta"), state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer: Product | None = self.__dict__.get("poseidon_layer")  # none any more where a hook of this very call has made it plain
        # Under autocast, in another precision, of a weight that is computed from the parameter, with a hook that wants
        # to see it, or compiled (a compiler drops what backward does besides computing), the gradient comes whole,
        # through the parameter's hook. (self.weight would compute it.) So it does in transforms of torch.func and in a trace, which
        # know torch's own functions.
        if layer is None or torch.compiler.is_compiling() or not torch.is_grad_enabled() or transforms.is_inside():
            return torch.nn.Linear.forward(self, x)
        weight, *biases = layer.parameters
        bias = biases[0] if biases else None
        own = self._parameters
        if (own.get("weight") is not layer.parameters[0] or own.get("bias") is not bias or x.dtype is not torch.float32
                or not weight.requires_grad or weight._backward_hooks
                or bias is not None and (not bias.requires_grad or bias._backward_hooks)
                or torch.is_autocast_enabled(x.device.type)):
            return torch.nn.Linear.forward(self, x)
        # The parameters are no inputs of torch's node, so that what is done when their gradients are there does not wait for it.
        flat = x.dim() == 2 or not x.is_contiguous()  # else torch flattens it itself, and gives a view of the product
        y = functional.linear(x if flat else x.view(-1, x.shape[-1]), weight.detach(), None if bias is None else bias.detach())
        result: torch.Tensor = WeightGradient.apply(y, x, weight, bias, layer)  # type: ignore[no-untyped-call]
        return result if flat else result.view(*x.shape[:-1], result.shape[-1])


def take(module: torch.nn.Module, layer: Product) -> None:
    """Gives a plain nn.Linear this class."""
    module.__class__ = Linear
    vars(module)["poseidon_layer"] = layer


def make_plain(module: torch.nn.Module) -> None:
    """A Linear is the one that it was before."""
    if type(module) is Linear:
        module.__class__ = torch.nn.Linear  # type: ignore[assignment]  # see above
        vars(module).pop("poseidon_layer", None)
