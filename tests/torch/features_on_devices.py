# SPDX-License-Identifier: Apache-2.0
"""Features that only devices have: see test_devices.py."""
import torch
from feature import EPS, SLOWLY, Feature, device_type
from torch import nn


class OnDevices(Feature):
    """A feature that only devices have: see test_devices.py."""


class Split(OnDevices):
    """Parts on two devices and on the host, small layers and batch norms among them."""

    optimizer_arguments = SLOWLY

    class Net(nn.Module):
        def __init__(self, devices):
            super().__init__()
            self.parts = nn.ModuleList(
                nn.Sequential(nn.Linear(10, 10, device=device), nn.BatchNorm1d(10, eps=EPS, device=device), nn.Tanh())
                for device in devices)
            self.devices = devices

        def forward(self, x):
            for part, device in zip(self.parts, self.devices):
                x = part(x.to(device))
            return x[:, :3].to(torch.get_default_device())

    by_rank = True

    def model(self):
        if device_type() == "cpu":
            return self.Net(["cpu"] * 5)
        import accelerator
        one, other = accelerator.two()
        return self.Net([one, other, "cpu", other, one])


class Counted(OnDevices):
    """Counts what a function of poseidon.torch's does while it trains."""

    def counted(self):
        """The function's owner, its name, and how much a result counts."""
        raise NotImplementedError

    def check(self):
        raise NotImplementedError

    def prepare(self, model, optimizer, step, ranks):
        if step == 0:
            owner, name, worth = self.counted()
            self.plain, self.count = vars(owner)[name], 0

            def counting(*arguments):
                result = self.plain(*arguments)
                self.count += worth(result)
                return result
            setattr(owner, name, counting)

    def update(self, model, optimizer, step):
        super().update(model, optimizer, step)
        if step == self.steps - 1:
            owner, name, _ = self.counted()
            setattr(owner, name, self.plain)
            if device_type() != "cpu":
                self.check()


class Multiplied(Counted):
    """The products of all workers' factors are made on the device."""

    def counted(self):
        from poseidon.torch.product import Product
        return Product, "multiply_gathered", lambda _: 1

    def check(self):
        assert self.count >= self.steps - 4, f"{self.count} products were made on the device"


class InParts(Counted):
    """Whole gradients that leave in parts of five numbers."""

    def counted(self):
        from poseidon.torch import devices
        return devices, "parts_of", len

    def prepare(self, model, optimizer, step, ranks):
        super().prepare(model, optimizer, step, ranks)
        if step == 0:
            from poseidon.torch import devices
            self.part, devices.PART = devices.PART, 20

    def update(self, model, optimizer, step):
        super().update(model, optimizer, step)
        if step == self.steps - 1:
            from poseidon.torch import devices
            devices.PART = self.part

    def check(self):
        # Two steps with whole gradients at least; the smaller of the first two Linears has 400 numbers.
        assert self.count >= 2 * 400 / 5, f"{self.count} parts were sent"


class Registered(Counted):
    """Gradients and means are copied to and from the memory that the workers of a host share: each layer's. A GPU's driver
    may register none of it: then they are copied through the workers' own, which is said."""

    refused = 0

    def counted(self):
        from poseidon.torch.devices import Carrier
        return Carrier, "register", self.worth

    def worth(self, taken):
        self.refused += not taken
        return int(taken)

    def check(self):
        if self.refused and not self.count and device_type() != "late":
            self.lacks = "the device registers no memory that workers share"
            return
        assert self.count and self.count % 2 == 0, f"{self.count} ranges were registered"


class Launched(OnDevices):
    """Nothing in a backward pass waits for the device."""

    def model(self):
        model = super().model()
        if device_type() != "cpu":
            import accelerator
            watch = accelerator.Watch()
            model[4].weight.register_post_accumulate_grad_hook(lambda _: watch.begin())
            model[0].weight.register_post_accumulate_grad_hook(lambda _: watch.end())
        return model
