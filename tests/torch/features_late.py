# SPDX-License-Identifier: Apache-2.0
"""Features that begin when the plan is final, on all workers or on one of them alone."""
from feature import LATE, Feature
from features_of_steps import Autocast
from torch import nn
from torch.nn.utils import prune


class Late(Feature):
    steps = LATE + 4

    def begins(self, step, ranks):
        return step >= LATE


class LateAutocast(Late, Autocast):
    pass


class LateHook(Late):
    hook = None

    def prepare(self, model, optimizer, step, ranks):
        if self.hook is not None:
            self.hook.remove()
        self.hook = model[2].weight.register_hook(lambda gradient: gradient * 2) if self.begins(step, ranks) else None


class LatePruning(Late):
    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            prune.l1_unstructured(model[2], "weight", 0.5)


class LatePenalty(Late):
    """On the weights beside the loss: products and whole gradients of one layer in one pass."""

    def loss(self, model, step, ranks):
        loss = super().loss(model, step, ranks)
        if self.begins(step, ranks):
            loss = loss + 0.1 * model[2].weight.square().sum() + 0.1 * model[4].bias.square().sum()
        return loss


class OnRank1:
    """Begins on one of the ranks alone."""

    by_rank = True

    def begins(self, step, ranks):
        return step >= LATE and ranks == (1,)


class LateAutocastOnRank1(OnRank1, LateAutocast):
    pass


class LateHookOnRank1(OnRank1, LateHook):
    pass


class LatePenaltyOnRank1(OnRank1, LatePenalty):
    pass


class PenaltyInSomeSteps(LatePenalty):
    def begins(self, step, ranks):
        return step % 2 == 0


class WholeFromTheSwitch(LateHook):
    """From the step in which a plan of step 10 begins to hold."""

    steps = 10 + 10 + 2 + 12  # until the next plan holds

    def begins(self, step, ranks):
        return step >= 10


class WholeFromTheSwitchOnRank1(OnRank1, WholeFromTheSwitch):
    def begins(self, step, ranks):
        return step >= 10 and ranks == (1,)


class Parted(Feature):
    """Something that only one of the workers does, which ends in a sentence."""

    steps = LATE + 3
    frozen = None

    def model(self):
        model = super().model()
        if self.frozen is not None:
            model[self.frozen].requires_grad_(False)
        return model

    def prepare(self, model, optimizer, step, ranks):
        if step == LATE:
            self.part(model, ranks[0])


class FrozenOnRank1(Parted):
    def part(self, model, rank):
        model[2].requires_grad_(rank != 1)


class ThawedOnRank1(Parted):
    frozen = 2

    def part(self, model, rank):
        model[2].requires_grad_(rank == 1)


class ThawedOnRank0(Parted):
    frozen = 2

    def part(self, model, rank):
        model[2].bias.requires_grad_(rank == 0)


class ThawedInOthers(Parted):
    frozen = 2

    def part(self, model, rank):
        list(model[2].parameters())[rank % 2].requires_grad_(True)


class GrownOnRank1(Parted):
    def part(self, model, rank):
        if rank == 1:
            model[4] = nn.Linear(16, 3)


class Renormed(Parted):
    """An embedding whose forward pass changes its weight."""

    def model(self):
        return nn.Sequential(nn.Linear(10, 3), nn.Embedding(10, 3, max_norm=1.0))

    def part(self, model, rank):
        assert False, "it has trained"
