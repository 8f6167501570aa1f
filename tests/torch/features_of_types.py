# SPDX-License-Identifier: Apache-2.0
"""Features of parameters in half precision."""
import torch
from feature import Feature, noise
from torch import nn


class Halves(Feature):
    """Parameters in bfloat16, and some in single precision among them."""

    dtype = torch.bfloat16
    tolerance = 4e-2  # numbers near 1 have steps of 0.008, and both round in every step
    optimizer_arguments = {"lr": 0.05}

    def model(self):
        model = super().model().to(self.dtype)
        model[2].float()
        model[2].register_forward_pre_hook(lambda module, arguments: (arguments[0].float(),))
        model[2].register_forward_hook(lambda module, arguments, result: result.to(self.dtype))
        return model

    def loss(self, model, step, ranks):
        result = model(noise(step, ranks, 10).to(self.dtype))
        return (result.float() - noise(step, ranks, 3, stream=1)).square().mean()


class HalvesRounded(Halves):
    """The mean of gradients in bfloat16 is their sum in single precision, rounded once."""

    def model(self):
        return Feature.model(self).to(self.dtype)

    def backward(self, model, optimizer, step, ranks):
        super().backward(model, optimizer, step, ranks)
        if len(ranks) == 1:
            from poseidon.torch import workers
            sums = [torch.zeros(p.shape) for p in model.parameters()]
            for rank in range(workers()):
                plain = self.model()
                plain.load_state_dict(model.state_dict())
                self.loss(plain, step, (rank,)).backward()
                for total, parameter in zip(sums, plain.parameters()):
                    total.add_(parameter.grad.float())
            for total, parameter in zip(sums, model.parameters()):
                assert torch.equal((total / workers()).to(self.dtype), parameter.grad)


class HalvesOfFloat16(Halves):
    dtype = torch.float16
    tolerance = 5e-3  # steps of 0.001


class HalvesOfFloat16Rounded(HalvesRounded):
    dtype = torch.float16
    tolerance = 5e-3


class HalvesOfBothKinds(Halves):
    """In one layer: a weight in float16, added up in bfloat16."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 10).half())
            self.bias = nn.Parameter(torch.randn(3).bfloat16())

        def forward(self, x):
            return nn.functional.linear(x, self.weight).bfloat16() + self.bias

    dtype = torch.float16

    def model(self):
        return self.Net()
