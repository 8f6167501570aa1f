# SPDX-License-Identifier: Apache-2.0
"""Features of training scripts, each with the reference of one process on the concatenated batch: see test_features.py.

The features are in the modules features_*.py, by subject; here is how one is trained.
"""
import copy
import hashlib
from typing import NamedTuple

import features_late
import features_of_gradients
import features_of_models
import features_of_norms
import features_of_parameters
import features_of_steps
import features_of_types
import features_on_devices
import products
import torch
from feature import LATE, STEPS, Feature, device_type
from features_late import Late, Parted
from features_on_devices import Counted, OnDevices
from torch import nn

ALL = {name: one
       for module in (features_of_steps, features_of_parameters, features_of_models, features_of_norms, features_of_gradients,
                      features_of_types, features_late, features_on_devices)
       for name, one in vars(module).items()
       if isinstance(one, type) and issubclass(one, Feature) and one.__module__ == module.__name__
       and one not in (Late, Parted, OnDevices, Counted)}
for one in ALL.values():
    if one.goes_on:
        one.steps = max(one.steps, STEPS)
FEATURES = {name: one for name, one in ALL.items() if not issubclass(one, (OnDevices, Parted))}
# Of Linears alone, whose names are those of Feature's model: they go as factors from the first step where that is asked.
FACTORS = {"0": "sfb", "2": "sfb", "4": "sfb"}
FORCED = ["Plain", "Accumulation", "Autocast", "Scaled", "Frozen", "Penalty", "Graphed", "WholeBatch", "Retained", "Asked",
          *(name for name in FEATURES if name.startswith("Late") and "Pruning" not in name), "PenaltyInSomeSteps"]


class Answer(NamedTuple):
    """A worker's, of a feature that it has trained."""
    weights: dict
    schemes: dict
    said: list  # lines of the log
    digests: list  # of its parameters after every step
    gradients: list  # of the first steps, an array or None for each parameter
    lacks: str = ""  # why the machine does not show what the feature is about


class Looks:
    """What somebody sees who looks at a model after every step."""

    def __init__(self):
        self.digests, self.gradients = [], []

    def __call__(self, model):
        self.digests.append(digest_of(model))
        if len(self.gradients) < LATE:
            self.gradients.append([None if p.grad is None else p.grad.detach().float().numpy().copy() for p in model.parameters()])


class Ddp(nn.parallel.DistributedDataParallel):
    """Torch's, whose layers and weights a feature finds where the model has them."""

    def __getitem__(self, at):
        return self.module[at]

    def state_dict(self, *arguments, **words):
        return self.module.state_dict(*arguments, **words)


def digest_of(model):
    digest = hashlib.sha1()
    for parameter in model.parameters():
        digest.update(parameter.detach().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def train(feature, ranks, wrap=lambda model, optimizer: (model, None), look=lambda model: None):
    """The weights after the feature's steps. What wrap returns first trains; the other comes back. After every step somebody may
    look at the model."""
    if device_type() == "cpu":
        model = feature.model()
    else:
        import accelerator
        model = accelerator.as_on_the_host(feature.model)
    optimizer = feature.optimizer(model)
    called, exchange = wrap(model, optimizer)
    for step in range(feature.steps):
        feature.prepare(called, optimizer, step, ranks)
        feature.backward(called, optimizer, step, ranks)
        feature.update(called, optimizer, step)
        look(model)
    return dict(model.state_dict()), exchange


def mean_of_ranks(feature, workers):
    """The weights of one process that computes the gradients of every rank and applies their mean. Buffers are rank 0's."""
    model = feature.model()
    optimizer = feature.optimizer(model)
    for step in range(feature.steps):
        sums, used = [torch.zeros_like(p) for p in model.parameters()], set()
        buffers = copy.deepcopy(dict(model.named_buffers()))
        for rank in reversed(range(workers)):
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
            feature.prepare(model, optimizer, step, (rank,))
            feature.backward(model, optimizer, step, (rank,))
            for total, parameter in zip(sums, model.parameters()):
                if parameter.grad is not None:
                    total.add_(parameter.grad)
                    used.add(parameter)
        for total, parameter in zip(sums, model.parameters()):
            parameter.grad = total / workers if parameter in used else None
        feature.update(model, optimizer, step)
    return dict(model.state_dict())


def reference(name, workers):
    torch.manual_seed(1)
    feature = ALL[name]()
    return mean_of_ranks(feature, workers) if feature.by_rank else train(feature, tuple(range(workers)))[0]


def beside_ddp(name, rank, workers, port, **words):
    """The Answer of a worker whose gradients DistributedDataParallel exchanges."""
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    looks = Looks()
    weights, _ = train(ALL[name](), (rank,), lambda model, optimizer: (Ddp(model, **words), None), looks)
    torch.distributed.destroy_process_group()
    return Answer(weights, {}, [], [], looks.gradients)


def work(rank, options, requests, device=None, delays=None):
    """A worker of a job: trains what it is asked for and sends its Answer, until it is asked for nothing."""
    torch.set_num_threads(1)
    if device is not None:
        import accelerator
        accelerator.load(delays)
        torch.set_default_device(device)
    import poseidon.torch
    products.stay_alone()
    said = []
    poseidon.torch.init(rank=rank, threads=1, log=lambda level, line: said.append(line), **options)

    def answer(name, words):
        feature, looks = ALL[name](), Looks()
        free = device is None and not words.get("overlap")  # else to look is to wait for what the feature does not wait for
        weights, exchange = train(feature, (rank,),
                                  lambda model, optimizer: (model, poseidon.torch.wrap(model, optimizer, **words)),
                                  looks if free else lambda model: None)
        if words.get("overlap"):
            exchange.synchronize()
        schemes = {layer: scheme for layer, (scheme, _) in exchange.plan().items()}
        exchange.detach()
        return Answer({name: tensor.cpu() for name, tensor in weights.items()}, schemes, list(said),
                      looks.digests, looks.gradients, feature.lacks)

    while (request := requests.recv()) is not None:
        name, words = request
        said.clear()
        if words.get("check_every"):  # gradients of every step
            from poseidon.torch import checks
            checks.STEPS = 100
        torch.manual_seed(1 + rank)  # other weights on every rank: rank 0's have to reach all
        try:
            if "ddp" in words:
                requests.send(beside_ddp(name, rank, options["workers"], **words["ddp"]))
            else:
                requests.send(answer(name, words))
        except Exception:
            import traceback
            requests.send(traceback.format_exc())
            break
    else:
        poseidon.torch.shutdown()
