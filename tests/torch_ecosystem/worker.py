# SPDX-License-Identifier: Apache-2.0
"""One process of a job: trains an example, or one of the cases below. Arguments: the case, who averages gradients (poseidon or
ddp), and the folder of the job, in which each rank leaves what it ends with and has a folder of its own to run in."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "frontends" / "python"), str(ROOT / "examples" / "torch"), str(ROOT / "tests" / "shared")]

import torch  # noqa: E402

import poseidon.torch as poseidon  # noqa: E402
from poseidon.torch import job  # noqa: E402
from refusals import refused  # noqa: E402

RANK, WORKERS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def watch(folder):
    """The files in the ranks' folders below `folder` that this process opens for writing, or moves there, from here on."""
    wrote = set()

    def heard(event, arguments):
        path = None
        if event == "open" and isinstance(arguments[0], (str, os.PathLike)) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            path = os.path.realpath(arguments[0])
        elif event in ("os.rename", "shutil.move"):
            path = os.path.realpath(arguments[1])
        if path is not None and path.startswith(f"{folder}{os.sep}rank"):
            wrote.add(os.path.relpath(path, folder))
    sys.addaudithook(heard)
    return wrote


# ---- the examples: the model that they train, and what they measure of it

def lightning(who, **options):
    import with_lightning as example
    if WORKERS == 1:
        example.DataLoader = as_of_several
    trainer = example.train("out", WORKERS, "ddp" if who == "ddp" else "poseidon", **options)
    assert trainer.world_size == WORKERS and trainer.global_rank == RANK and trainer.is_global_zero == (RANK == 0)
    return trainer.lightning_module, {name: float(value) for name, value in trainer.callback_metrics.items()}


def as_of_several(dataset, batch_size, shuffle=False):
    """A DataLoader in whose order several workers together see samples under Lightning, which gives each another sampler."""
    from torch.utils.data import DataLoader, DistributedSampler
    return DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset, 1, 0, seed=1) if shuffle else None)


def lightning_resumed(who):
    """The second epoch in a trainer of its own, from rank 0's checkpoint of the first."""
    lightning(who, epochs=1)
    (last,) = (pathlib.Path("..") / "rank0").rglob("*.ckpt")
    return lightning(who, resume=last)


def accelerate(who, **options):
    import accelerate as package
    import with_accelerate as example
    kind = package.Accelerator if who == "ddp" else example.Accelerator
    used = kind(gradient_accumulation_steps=2, cpu=True, **options) if who == "ddp" or options else None
    accelerator, model, (loss, accuracy) = example.train("out", used)
    assert (accelerator.num_processes, accelerator.process_index) == (WORKERS, RANK)
    assert accelerator.is_main_process == (RANK == 0)
    accelerator.wait_for_everyone()
    if who == "poseidon" and WORKERS > 1:  # two batches a step
        assert job.exchange_of(model).step == 7168 // 128 * 2 // 2
    return accelerator.unwrap_model(model), {"loss": loss, "accuracy": accuracy}


def accelerate_compiled_in_half(who):
    return accelerate(who, mixed_precision="bf16", dynamo_backend="aot_eager")


def accelerate_on_devices(who):
    """Each worker on a device of its own, named or not."""
    load_late()
    import accelerate as package

    from poseidon.accelerate import DEVICE, Accelerator
    os.environ[DEVICE] = f"late:{1 - RANK}"  # the user's word goes first
    accelerator = Accelerator()
    del os.environ[DEVICE]
    assert accelerator.device == torch.device("late", 1 - RANK)
    package.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator()
    assert accelerator.device == torch.device("late", RANK)
    refused("the model has other parameters on late", lambda: accelerator.prepare(torch.nn.Linear(2, 2)))
    refused("was given the device cpu and Accelerate's state was made with late", lambda: Accelerator(device="cpu"))
    model, measured = accelerate(who, device=f"late:{RANK}")
    assert {parameter.device for parameter in model.parameters()} == {torch.device("late", RANK)}
    return model.cpu(), measured


def lightning_on_devices(who):
    load_late()
    import lightning as package
    import with_lightning as example

    class Late(package.pytorch.accelerators.Accelerator):
        def setup_device(self, device):
            torch.accelerator.set_device_index(device.index)

        def teardown(self):
            pass

        @staticmethod
        def parse_devices(devices):
            return devices

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device("late", number) for number in range(devices)]

        @staticmethod
        def auto_device_count():
            return torch.accelerator.device_count()

        @staticmethod
        def is_available():
            return True

        @staticmethod
        def name():
            return "late"

    class Watched(example.Perceptron):
        def on_after_backward(self):
            assert {parameter.grad.device for parameter in self.parameters()} == {torch.device("late", RANK)}
    example.Perceptron = Watched
    return lightning(who, accelerator=Late())


def load_late():
    sys.path.append(str(ROOT / "tests" / "torch"))
    import late
    late.load()
    late.library.late_set_delays(20, 200)


def trainer(who, **options):
    import transformers
    import with_trainer as example
    kind = transformers.Trainer if who == "ddp" else example.Trainer
    trained = example.train("out", kind, workers=WORKERS, **options)
    assert (trained.args.world_size, trained.args.process_index) == (WORKERS, RANK)
    if who == "poseidon" and WORKERS > 1 and not options.get("resume"):
        assert job.exchange_of(trained.model).step == trained.state.global_step  # two batches each
    known = [entry for entry in trained.state.log_history if "eval_loss" in entry][-1]
    return trained.model, {name: known[f"eval_{name}"] for name in ("loss", "accuracy")}


def trainer_on_devices(who):
    """Each worker on a device of its own, which nothing in the script names."""
    load_late()
    import with_trainer as example

    class Tied(example.Trainer):
        def _move_model_to_device(self, model, device):
            super()._move_model_to_device(model, device)
            model.tie_weights()  # which torch parts on the way to a device that is no CPU and no GPU
    example.Trainer = Tied
    model, measured = trainer(who)
    assert {parameter.device for parameter in model.parameters()} == {torch.device("late", RANK)}
    model.cpu().tie_weights()
    return model, measured


def trainer_resumed(who):
    trainer(who, epochs=1)
    poseidon.barrier()
    (last,) = (pathlib.Path("..") / "rank0").rglob("checkpoint-*")
    return trainer(who, resume=str(last))


# ---- cases

def lightning_shares(who):
    """A strategy's calls besides training, and what it refuses; all workers call everything."""
    import lightning as package
    import with_lightning as example
    from torch.utils.data import TensorDataset

    def trainer_with(**options):
        return package.Trainer(**{"strategy": "poseidon", "accelerator": "cpu", "devices": WORKERS, "logger": False,
                                  "enable_checkpointing": False, "enable_model_summary": False, "max_epochs": 1, **options})
    strategy = trainer_with().strategy
    own = torch.full((2, 3), RANK + 1.0)
    assert strategy.reduce(own).eq(1.5).all() and strategy.reduce(own, reduce_op="max").eq(2).all()
    counts = strategy.reduce(torch.tensor(RANK + 1, dtype=torch.int32), reduce_op=torch.distributed.ReduceOp.SUM)
    assert counts == 3 and counts.dtype == torch.int32 and strategy.reduce("text") == "text"
    assert strategy.reduce_boolean_decision(RANK == 1, all=False) and not strategy.reduce_boolean_decision(RANK == 1)
    assert strategy.all_gather(own).tolist() == [[[1.0] * 3] * 2, [[2.0] * 3] * 2]
    part = own.clone().requires_grad_()
    (strategy.all_gather(part, sync_grads=True)[1] * (RANK + 1)).sum().backward()
    assert part.grad.eq(3.0 * RANK).all()
    for thing in (None, "ä", 3, 0.25, [True, {"loss": float("inf")}]):
        assert strategy.broadcast(thing if RANK == 1 else "another", src=1) == thing
    assert (strategy.local_rank, strategy.node_rank) == (RANK, 0)
    lists = poseidon.all_gather(torch.arange(RANK, dtype=torch.int64))
    assert [part.tolist() for part in lists] == [[], [0]]
    for thing in ((1, 2), {1: 2}, {1, 2}, strategy):
        refused("broadcast_object was given", lambda: poseidon.broadcast_object(thing, RANK))  # noqa: B023  # called at once
    refused("has devices=3 and num_nodes=1 and the job 2 workers", lambda: trainer_with(devices=3))
    refused("the operation 'product'", lambda: strategy.reduce(own, reduce_op="product"))
    refused("a process group of torch was given", lambda: strategy.reduce(own, group="some"))
    loader = poseidon.loader(TensorDataset(torch.zeros(8, 100), torch.zeros(8, dtype=torch.int64)), batch_size=2)
    refused("the Trainer was given a loader of poseidon.torch.loader",
            lambda: trainer_with(use_distributed_sampler=False).fit(example.Perceptron(), loader))
    torch.manual_seed(RANK)
    module = example.Perceptron()  # rank 0's is validated
    (known,) = trainer_with(enable_progress_bar=False).validate(
        module, torch.utils.data.DataLoader(example.clusters(samples=64), 16), verbose=False)
    return module, known


def lightning_by_hand(who):
    """A generator and a discriminator, each with its optimizer, stepped by hand, and not after every batch; a second fit of the
    same module."""
    import lightning as package
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import poseidon.lightning  # noqa: F401  # its strategy

    class Pair(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.discriminator = nn.Linear(8, 16), nn.Linear(16, 1)

        def training_step(self, batch, number):
            (noise,) = batch
            judge = nn.functional.binary_cross_entropy_with_logits
            for optimizer, wanted in zip(self.optimizers(), (1.0, 0.0)):
                with optimizer.toggle_model(sync_grad=number % 3 > 0):
                    scores = self.discriminator(torch.tanh(self.generator(noise)))
                    self.manual_backward(judge(scores, torch.full_like(scores, wanted)))
                if number % 3 > 0:
                    optimizer.step()
                    optimizer.zero_grad()

        def on_train_end(self):
            exchange = job.exchange_of(self)
            assert (exchange is None) == (WORKERS == 1)
            assert exchange is None or exchange.step == 2 * 13 * 2  # epochs, of 20 batches each 13, optimizers

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.generator, self.discriminator)]

    package.seed_everything(1, verbose=False)
    loader = as_of_several if WORKERS == 1 else DataLoader
    noise = loader(TensorDataset(torch.randn(240, 8, generator=torch.Generator().manual_seed(2))), 12 // WORKERS, shuffle=True)
    module = Pair()
    for _ in range(2):
        package.Trainer(strategy="poseidon", accelerator="cpu", devices=WORKERS, max_epochs=2, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(module, noise)
    assert not module._forward_hooks and type(module.generator) is nn.Linear  # plain again
    return module, {}


def lightning_synchronized(who):
    """Batch norms over all workers' samples, and none of them afterwards."""
    import lightning as package
    import with_lightning as example
    from torch import nn
    from torch.utils.data import DataLoader

    import poseidon.lightning  # noqa: F401  # its strategy
    package.seed_everything(1, verbose=False)
    module = example.Perceptron()
    module.layers.insert(1, nn.BatchNorm1d(module.layers[0].out_features))
    loader = (as_of_several if WORKERS == 1 else DataLoader)(example.clusters(samples=1024), 64 // WORKERS, shuffle=True)
    package.Trainer(strategy="poseidon", accelerator="cpu", devices=WORKERS, max_epochs=2, logger=False, sync_batchnorm=True,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(module, loader)
    assert not any(isinstance(part, nn.SyncBatchNorm) for part in module.modules())
    return module, {}


def lightning_fails(who):
    """Rank 1 in its third step."""
    import with_lightning as example

    class Failing(example.Perceptron):
        def training_step(self, batch, number):
            if number == 2 and RANK == 1:
                raise ValueError("the data are gone")
            return super().training_step(batch, number)
    example.Perceptron = Failing
    return lightning(who)


def tensorboard(who):
    """TensorBoard's own reader on the file that torch's writer has made of the scalars of a training."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch import nn
    from torch.utils.tensorboard import SummaryWriter
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    model, optimizer = poseidon.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    wrote = {}
    with SummaryWriter("out") as writer:
        for step in range(15):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            if step % 5 == 4:
                for name, value in poseidon.scalars(model).items():
                    writer.add_scalar(name, value, step)
                    wrote.setdefault(name, []).append((step, float(torch.tensor(value, dtype=torch.float32))))
    events = EventAccumulator("out")
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == sorted(wrote) and len(wrote) == 6
    for name, values in wrote.items():
        assert [(event.step, event.value) for event in events.Scalars(name)] == values, name
    return model, {}


def accelerate_refuses(who):
    import accelerate as package
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from poseidon.accelerate import Accelerator
    accelerator = Accelerator()
    data = TensorDataset(torch.zeros(8, 3))
    refused("prepare was given a loader of poseidon.torch.loader",
            lambda: accelerator.prepare(poseidon.loader(data, batch_size=2)))
    model = nn.Linear(3, 3)
    refused("prepare was given LBFGS", lambda: accelerator.prepare(torch.optim.LBFGS(model.parameters())))
    hook = package.DistributedDataParallelKwargs(comm_hook=package.utils.DDPCommunicationHookType.FP16)
    refused("has a comm_hook", lambda: Accelerator(kwargs_handlers=[hook]))
    plugin = package.FullyShardedDataParallelPlugin()
    refused("Accelerate is asked for FSDP, expected", lambda: Accelerator(fsdp_plugin=plugin))
    del os.environ["ACCELERATE_USE_FSDP"]  # which Accelerate has set
    prepared, _ = accelerator.prepare(model, DataLoader(data))
    assert prepared is model and accelerator.prepare(model) is model
    assert poseidon.plan(model)
    accelerator.free_memory(model)
    assert not poseidon.plan(model) and not model._forward_hooks
    package.state.AcceleratorState._reset_state(reset_partial_state=True)
    package.PartialState()
    refused("expected cpu=True where Accelerate's state is made first", Accelerator)
    return nn.Module(), {}


def main(case, who, folder):
    torch.set_num_threads(1)
    folder = os.path.realpath(folder)
    wrote = watch(folder)
    own = pathlib.Path(folder, f"rank{RANK}")
    own.mkdir()
    os.chdir(own)
    model, measured = globals()[case](who)
    wrote = sorted(wrote)
    torch.save({"weights": dict(model.named_parameters()), "measured": measured, "wrote": wrote},
               pathlib.Path(folder, f"result{RANK}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
