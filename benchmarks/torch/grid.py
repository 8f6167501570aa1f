# SPDX-License-Identifier: Apache-2.0
"""Which trainings are measured: a net with so many workers on links of a rate."""
import dataclasses

RATES = {"100M": 100e6, "1G": 1e9, "unshaped": None}
TURNS = 4
NO_SLOWER_TURNS = 36  # where the goal is a bound of the ratio and not its median
TURN_SECONDS = 1.5  # of counted steps, of every system, at least one step
SEED = 1
SYSTEMS = {
    "overlap": "Poseidon, each layer waited for before it runs in the next forward pass",
    "waiting": "Poseidon, all layers waited for at the end of backward",
    "ddp": "PyTorch DDP over gloo, one connection: bucket views, static graph",
    "local": "nothing is synchronised, while all workers compute",
}
# Numbers that a row of the batch sends of a layer by factors: its outputs and its inputs.
FACTORS = {"mlp": {"1": 4096 + 784, "3": 4096 + 4096, "5": 10 + 4096}}
NETS = {
    "lenet": "LeNet", "mlp": "MLP 784-4096-4096-10", "alexnet-67": "AlexNet, 67x67", "resnet": "ResNet-20",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training; `goal` is what DDP's step should at least be, in steps of the overlap mode."""
    net: str
    workers: int
    rate: str
    goal: float | None = None

    @property
    def name(self):
        return f"torch-{self.net}-p{self.workers}-{self.rate}"

    @property
    def no_slower(self):
        return self.goal is not None and self.goal < 1

    @property
    def turns(self):
        return NO_SLOWER_TURNS if self.no_slower else TURNS

    @property
    def plan_step(self):
        """Poseidon's final plan: until then all gradients go whole, slowly on a slow link. 4 is the least with
        which a step is measured whose updates find their memory."""
        return 4 if self.rate == "100M" else 6

    def described(self):
        return {"net": self.net, "workers": self.workers, "rate": self.rate, "rate_bits": RATES[self.rate],
                "plan_step": self.plan_step, "systems": list(SYSTEMS), "turns": self.turns,
                "turn_seconds": TURN_SECONDS, "seed": SEED}


def cells():
    """By network, so that one network serves all its cells."""
    goals = {("mlp", 2, "1G"): 4, ("mlp", 4, "1G"): 5, ("mlp", 2, "100M"): 20, ("mlp", 4, "100M"): 20}
    goals |= {(net, 2, rate): 0.97 for net in ("lenet", "resnet") for rate in RATES}
    return [Cell(net, workers, rate, goals.get((net, workers, rate)))
            for workers, nets in ((2, NETS), (4, ("mlp",))) for rate in RATES for net in nets]
