# SPDX-License-Identifier: Apache-2.0
"""Which trainings are measured."""
import dataclasses

RATES = {"1G": 1e9, "10G": 10e9, "40G": 40e9, "unshaped": None}
SEED = 1
WARM_UP = 15  # steps of Poseidon at least: its plan is made after ten
SCALE = 100   # by which sizes and rates of emulated computing are divided: the largest tensor has 4.1 MB
NETS = {"lenet": "LeNet", "mlp": "MLP 784-4096-4096-10", "resnet": "ResNet-20", "vgg19-22k": "VGG19-22K",
        "inception-v3": "Inception-V3"}
SYSTEMS = {
    "train": {
        "poseidon": "Keras 3 `model.fit` with `poseidon.keras.distribute` and `shard`",
        "stock": "MultiWorkerMirroredStrategy, ring over gRPC, in a loop of one's own under Keras 3",
        "local": "`model.fit`; nothing is synchronised, while all workers compute",
    },
    "overhead": {
        "poseidon": "`model.fit` with `distribute()` and `shard()` in a job of one worker",
        "local": "plain `model.fit`",
    },
    "servers": {
        "poseidon": "`poseidon.tensorflow.reduce` in a `tf.function`",
        "stock": "SyncReplicasOptimizer, a parameter server of TensorFlow on gRPC beside each worker, variables on the "
                 "servers in turn, as replica_device_setter puts them",
        "split": "the same with every variable in P parts, one on each server",
        "oldest": "as *stock*, with TensorFlow 2.16.2",
        "mirrored": "MultiWorkerMirroredStrategy, ring over gRPC, in a loop of one's own",
        "local": "nothing is synchronised, in the processes of Poseidon's workers",
    },
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One comparison. `goal`: of stock's step (`local`'s, where the overhead is measured) in Poseidon's steps; a bound
    of the ratio where it is to be no slower, else its median."""
    kind: str
    net: str
    workers: int
    rate: str
    steps: int  # of a turn
    turns: int
    goal: float | None = None
    bound: bool = False
    starts: int = 1  # of all processes anew: what one happens to be dealt in memory stays with it

    @property
    def name(self):
        return f"tensorflow-{self.kind}-{self.net}-p{self.workers}-{self.rate}"

    @property
    def systems(self):
        """By name. Inception-V3 has no large variable to split. The oldest TensorFlow and the strategy run where links are
        slow and nodes few."""
        few = self.rate == "10G" and self.workers <= 4
        return {name: words for name, words in SYSTEMS[self.kind].items()
                if (name, self.net) != ("split", "inception-v3") and (few or name not in ("oldest", "mirrored"))}

    @property
    def scale(self):
        return SCALE if self.kind == "servers" else 1

    @property
    def rate_bits(self):
        """Of the emulated links."""
        return RATES[self.rate] and RATES[self.rate] / self.scale

    @property
    def against(self):
        """The system that Poseidon is compared with."""
        return "local" if self.kind == "overhead" else "stock"

    def warm_up(self, name):
        """Turns. Where computing is emulated, what makes no plan needs fewer."""
        turns = -(-WARM_UP // self.steps)
        return min(turns, 2) if self.kind == "servers" and name != "poseidon" else turns

    def described(self):
        return {"kind": self.kind, "net": self.net, "workers": self.workers, "rate": self.rate,
                "rate_bits": self.rate_bits, "systems": list(self.systems), "scale": self.scale, "steps": self.steps, "turns": self.turns,
                "starts": self.starts, "warm_up": WARM_UP, "seed": SEED}


def cells():
    """By network, so that one serves all its cells."""
    training = [Cell("train", "mlp", 2, "1G", steps=10, turns=6, goal=4),
                Cell("train", "lenet", 2, "1G", steps=50, turns=24, goal=0.97, bound=True),
                Cell("train", "resnet", 2, "1G", steps=10, turns=24, goal=0.97, bound=True)]
    overhead = [Cell("overhead", net, 1, "unshaped", steps, turns=12, goal=1 / 1.02, starts=6)
                for net, steps in (("mlp", 5), ("lenet", 40), ("resnet", 5))]
    settings = (("vgg19-22k", "40G"), ("inception-v3", "40G"), ("vgg19-22k", "10G"))
    servers = [Cell("servers", net, workers, rate, steps=3, turns=3) for workers in (2, 4, 8)
               for net, rate in (*settings, *((("inception-v3", "10G"),) if workers <= 4 else ()))]
    return training + overhead + servers
