# SPDX-License-Identifier: Apache-2.0
"""Features of how a model is built and called."""
import torch
from feature import SLOWLY, Feature, noise
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


class Checkpointed(Feature):
    optimizer_arguments = SLOWLY
    reentrant = False

    class Net(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant = reentrant
            self.first = nn.Linear(10, 24)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Tanh()) for _ in range(3))
            self.last = nn.Linear(24, 3)

        def forward(self, x):
            x = self.first(x)
            for block in (*self.blocks, self.blocks[0]):  # one of them twice
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            return {"out": self.last(x)}["out"]

    def model(self):
        return self.Net(self.reentrant)


class CheckpointedReentrantly(Checkpointed):
    reentrant = True


class CheckpointedWhole(Checkpointed):
    """Everything that has parameters is in the inner backward pass; what the model returns is not a tensor."""

    class Net(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant, self.inner = reentrant, Feature().model()

        def forward(self, x):
            return {"out": [checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)]}

    reentrant = True

    def loss(self, model, step, ranks):
        return super().loss(lambda x: model(x)["out"][0], step, ranks)


class Spectral(Feature):
    def model(self):
        model = super().model()
        nn.utils.spectral_norm(model[2])
        parametrizations.spectral_norm(model[4])
        return model


class Parametrized(Feature):
    def model(self):
        model = super().model()
        parametrizations.weight_norm(model[0])
        parametrizations.orthogonal(model[2])
        return model


class Adapted(Feature):
    """Low-rank adapters beside frozen Linears."""

    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    def model(self):
        model = super().model()
        for at in (0, 2, 4):
            model[at] = self.Adapter(model[at])
        return model


class Recurrent(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.last = nn.LSTM(10, 12, num_layers=2, batch_first=True), nn.Linear(12, 3)

        def forward(self, x):
            return self.last(self.memory(x)[0][:, -1])

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        return (model(noise(step, ranks, 5, 10)) - noise(step, ranks, 3, stream=1)).square().mean()


class Attention(Feature):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(10, 2, batch_first=True), nn.Linear(10, 3)

        def forward(self, x):
            return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))

    def model(self):
        return self.Net()

    loss = Recurrent.loss


class Transformer(Attention):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(10, 2, 16, dropout=0.0, batch_first=True)
            self.encoder, self.last = nn.TransformerEncoder(layer, 2), nn.Linear(10, 3)

        def forward(self, x):
            return self.last(self.encoder(x).mean(1))


class InPlace(Feature):
    """The output of a Linear is changed in place, of two dimensions and of three."""

    optimizer_arguments = SLOWLY

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(5, 24), nn.Linear(24, 16), nn.Linear(32, 3)

        def forward(self, x):
            y = torch.nn.functional.elu_(self.first(x.view(-1, 2, 5)))
            y = self.second(y).add_(1).tanh_().flatten(1)
            return self.last(y).mul_(2)

    def model(self):
        return self.Net()


class Encoded(Feature):
    """A model that returns what its other result is made of, and the same tensor twice; the loss is of all of them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(10, 6), nn.Linear(6, 10)

        def forward(self, x):
            code = torch.tanh(self.encode(x))
            return self.decode(code), code, code

    def model(self):
        return self.Net()

    def loss(self, model, step, ranks):
        x = noise(step, ranks, 10)
        result, code, again = model(x)
        return (result - x).square().mean() + code.square().mean() + again.mean()
