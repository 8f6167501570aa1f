# SPDX-License-Identifier: Apache-2.0
"""nn.Linear whose weight gradient is left to the core.

The gradient of a weight is dW = dy^T x. Where the plan sends factors, backward hands over dy and x and
never multiplies them; elsewhere it multiplies straight into the layer's memory, which saves a copy.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from ..errors import PoseidonError

if TYPE_CHECKING:
    from .layers import Layer


def wanted(node: Any, layer: Layer) -> bool:
    """Whether this backward pass is to leave gradients at weight and bias; not so where autograd.grad or
    backward(inputs=...) asks for others'."""
    try:
        asked = {torch._C._will_engine_execute_node(parameter) for parameter, _ in node.next_functions[1:] if parameter}
    except RuntimeError:
        raise PoseidonError(f"autograd.grad asks for the weight or bias of layer '{layer.name}', which the core "
                            "computes, expected factors=False in wrap") from None
    if len(asked) > 1:
        raise PoseidonError(f"backward asks for one of weight and bias of layer '{layer.name}', which the core "
                            "computes together, expected factors=False in wrap")
    return asked == {True}


class LinearGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
                layer: Layer) -> torch.Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        if torch.is_grad_enabled():
            raise PoseidonError(f"create_graph is not possible through layer '{ctx.layer.name}', expected "
                                "factors=False in wrap")
        x, weight = ctx.saved_tensors
        rows = dy.reshape(-1, dy.shape[-1]).contiguous()
        if wanted(ctx, ctx.layer):
            # The factors leave first: the network works while dx is computed.
            ctx.layer.exchange.emit(ctx.layer, rows, x.reshape(-1, x.shape[-1]).contiguous())
        dx = rows.mm(weight).view(x.shape) if ctx.needs_input_grad[0] else None
        return dx, None, None, None


class Linear(torch.nn.Linear):
    """What wrap makes of a plain nn.Linear: the same object and parameters, another backward pass."""

    poseidon_layer: Layer | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.poseidon_layer
        # Under autocast, in another precision, of a weight that is computed from the parameter, with a hook that wants
        # to see it, or compiled (a compiler drops what backward does besides computing), the gradient comes whole,
        # through the parameter's hook. (self.weight would compute it.)
        if (layer is None or torch.compiler.is_compiling() or not torch.is_grad_enabled()
                or self._parameters.get("weight") is not layer.parameters[0]
                or not self.weight.requires_grad or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
                or any(parameter._backward_hooks for parameter in layer.parameters)):
            return super().forward(x)
        layer.uses += 1
        result: torch.Tensor = LinearGradient.apply(x, self.weight, self.bias, layer)  # type: ignore[no-untyped-call]
        return result
