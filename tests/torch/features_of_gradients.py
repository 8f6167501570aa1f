# SPDX-License-Identifier: Apache-2.0
"""Features of whose gradients an optimizer takes, and of backward passes that are no plain ones."""
import copy

import torch
from feature import LATE, Feature, noise


class MoreGroups(Feature):
    steps = LATE + 3

    def optimizer(self, model):
        return torch.optim.SGD(model[4].parameters(), lr=0.05)

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.1})


class Penalty(Feature):
    """Gradients of gradients, as WGAN-GP and R1 take them."""

    steps = LATE

    def loss(self, model, step, ranks):
        x = noise(step, ranks, 10).requires_grad_()
        result = model(x)
        slope, = torch.autograd.grad(result.sum(), x, create_graph=True)
        return result.square().mean() + (slope.norm(dim=1) - 1).square().mean()


class Graphed(Feature):
    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        self.loss(model, step, ranks).backward(create_graph=step % 2 == 0)


class WholeBatch(Feature):
    """LBFGS evaluates the loss as often as the loss requires."""

    steps = 3
    goes_on = False  # what is left of the loss then is rounding, and so is the direction

    def optimizer(self, model):
        return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, history_size=5, line_search_fn="strong_wolfe",
                                 tolerance_change=1e-4)

    def backward(self, model, optimizer, step, ranks):
        def closure():
            optimizer.zero_grad()
            loss = self.loss(model, 0, ranks)
            loss.backward()
            return loss
        optimizer.step(closure)

    def update(self, model, optimizer, step):
        pass


class Retained(Feature):
    """Several backward passes of one forward pass."""

    def backward(self, model, optimizer, step, ranks):
        optimizer.zero_grad()
        result = model(noise(step, ranks, 10))
        result.square().mean().backward(retain_graph=True)
        result.abs().mean().backward()


class Asked(Feature):
    """autograd.grad for weights is each worker's own, as with DistributedDataParallel; all other gradients are exchanged."""

    def backward(self, model, optimizer, step, ranks):
        loss = self.loss(model, step, ranks)
        own = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        optimizer.zero_grad()
        with_factors = torch.autograd.grad(loss, [model[0].weight], retain_graph=True)
        torch.testing.assert_close(with_factors[0], own[0])
        plain = copy.deepcopy(Feature().model())
        plain.load_state_dict(model.state_dict())
        expected = torch.autograd.grad(self.loss(plain, step, ranks), list(plain.parameters()))
        for one, other in zip(own, expected):
            torch.testing.assert_close(one, other)
        loss.backward()
