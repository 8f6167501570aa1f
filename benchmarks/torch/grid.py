# SPDX-License-Identifier: Apache-2.0
"""Which trainings are measured: a net with so many workers on links of a rate."""
import dataclasses

RATES = {"1G": 1e9, "unshaped": None}
TURNS = 4
NO_SLOWER_TURNS = 100  # where the goal is a bound of the ratio and not its median
# One worker's systems train by turns in so many processes, one after the other: two starts of one program differ by more than a
# percent, by the addresses of their memory.
STARTS, TURNS_OF_A_START = 5, 20
PLAN_STEP = 6  # Poseidon's final plan
TURN_SECONDS = 1.2  # of counted steps, of every system, at least one step
# Many short turns: the machine is slower for seconds at a time, for all systems alike only where they follow one another sooner.
NO_SLOWER_TURN_SECONDS = 0.35
SEED = 1
SYSTEMS = {
    "overlap": "Poseidon, each layer waited for before it runs in the next forward pass",
    "waiting": "Poseidon, all layers waited for at the end of backward",
    "ddp": "PyTorch DDP over gloo: bucket views, static graph",
    "ddp4": "the same over four interfaces, which gloo takes for four connections",
    "local": "nothing is synchronised, while all workers compute",
}
# Numbers that a row of the batch sends of a layer by factors: its outputs and its inputs.
FACTORS = {"mlp": {"1": 4096 + 784, "3": 4096 + 4096, "5": 10 + 4096}}
NETS = {
    "lenet": "LeNet", "mlp": "MLP 784-4096-4096-10", "resnet": "ResNet-20", "bert": "BERT-style, 128 tokens a worker",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training; `goal` is what DDP's step should at least be, in steps of the overlap mode; of one worker what a plain step
    should be, in steps of a script that calls distribute."""
    net: str
    workers: int
    rate: str
    goal: float | None = None

    @property
    def name(self):
        return f"torch-{self.net}-p{self.workers}-{self.rate}"

    @property
    def systems(self):
        return list(SYSTEMS) if self.workers > 1 else ["alone", "waiting", "local"]

    @property
    def no_slower(self):
        return self.workers > 1 and self.goal == 1

    @property
    def turns(self):
        if self.workers == 1:
            return TURNS_OF_A_START
        return NO_SLOWER_TURNS if self.no_slower else TURNS

    @property
    def turn_seconds(self):
        return NO_SLOWER_TURN_SECONDS if self.no_slower or self.workers == 1 else TURN_SECONDS

    @property
    def starts(self):
        return STARTS if self.workers == 1 else 1

    def described(self):
        return {"net": self.net, "workers": self.workers, "rate": self.rate, "rate_bits": RATES[self.rate],
                "plan_step": PLAN_STEP, "systems": self.systems, "turns": self.turns, "starts": self.starts,
                "turn_seconds": self.turn_seconds, "seed": SEED}


def cells():
    """By network, so that one network serves all its cells."""
    return [Cell("mlp", 2, "1G", 6), *(Cell(net, 2, "1G", 1) for net in ("lenet", "resnet", "bert")), Cell("mlp", 4, "1G", 4),
            *(Cell(net, 1, "unshaped", 1 / 1.011) for net in ("resnet", "bert"))]
