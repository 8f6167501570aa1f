# SPDX-License-Identifier: Apache-2.0
"""Lightning, Accelerate and the Hugging Face Trainer train with Poseidon what they train in one process, and what they train
with DistributedDataParallel over gloo."""
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

HERE = pathlib.Path(__file__).resolve().parent
FRONT_END = HERE.parents[1] / "frontends" / "python"
LATE = pathlib.Path(os.environ.get("POSEIDON_LATE_DEVICE")
                    or HERE.parents[1] / "build" / "release" / "tests" / "shared" / "liblate_device.so")  # as late.py has it
sys.path.append(str(HERE.parent / "shared"))
import programs  # noqa: E402

# Lightning itself reads its rank when it is imported, and Hugging Face's hub whether it may reach out.
SLOW = [name for name in ("torchmetrics", "transformers.trainer", "accelerate") if importlib.util.find_spec(name.partition(".")[0])]
PREPARED = programs.Prepared(sys.executable, "torch._dynamo", *SLOW, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
PATIENCE = 180 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))  # a job; most of it goes to imports
NEEDED = {"lightning": "lightning", "accelerate": "accelerate", "trainer": "transformers", "tensorboard": "tensorboard"}
LAUNCHERS = {"alone": [], "run": [sys.executable, "-B", "-m", "poseidon", "run", "-n", "2"],
             "torchrun": [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                          "--no-python"]}
LAUNCHED = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "ACCELERATE_", "PL_")


def require(case):
    package = NEEDED[case.partition("_")[0]]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed for this interpreter")


def launch(launcher, folder, case, who, prepared=True):
    """The ended launcher of worker.py's processes, which run in `folder`."""
    folder.mkdir(exist_ok=True)
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(LAUNCHED) and name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    clean |= {"PYTHONPATH": str(FRONT_END), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}
    python = PREPARED.command() if prepared else [sys.executable, "-B"]
    worker = [*map(str, python), str(HERE / "worker.py"), case, who, str(folder)]
    return subprocess.run([*LAUNCHERS[launcher], *worker], cwd=folder, env=clean, capture_output=True, text=True, timeout=PATIENCE)


class Trained:
    """A job that has succeeded, its folder, and what every rank ended with: all have the same bits, and measured the same."""

    def __init__(self, launcher, folder, case, who):
        self.folder = folder
        ended = launch(launcher, folder, case, who)
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]
        self.results = [torch.load(folder / f"result{rank}") for rank in range(1 if launcher == "alone" else 2)]
        self.weights, self.measured = self.results[0]["weights"], self.results[0]["measured"]
        for other in self.results[1:]:
            assert all(torch.equal(tensor, other["weights"][name]) for name, tensor in self.weights.items())
            assert other["measured"] == self.measured


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs each job once, however many tests ask for it."""
    @functools.cache
    def train(launcher, case, who="poseidon"):
        require(case)
        return Trained(launcher, tmp_path_factory.mktemp(case), case, who)
    return train


def apart(one, other):
    """How far parameters are apart, by the largest of all."""
    largest = max(tensor.abs().max() for tensor in one.values())
    return max((tensor - other[name].view_as(tensor)).abs().max() for name, tensor in one.items()).item() / largest.item()


def compare(one, other):
    far = apart(one.weights, other.weights)
    print(f"weights are {far:.1e} apart; {one.measured} beside {other.measured}")
    assert far <= TOLERANCE
    assert one.measured == pytest.approx(other.measured, rel=1e-4)


EXAMPLES = [("lightning", "run"), ("accelerate", "torchrun"), ("trainer", "run")]
TOLERANCE = 1e-5  # of sums in another order, over two epochs


@pytest.mark.long
@pytest.mark.parametrize("case, launcher", EXAMPLES)
def test_two_workers_train_what_one_process_does(trained, case, launcher):
    together = trained(launcher, case)
    compare(together, trained("alone", case))
    measured = together.measured
    assert measured.get("accuracy", measured.get("val_accuracy")) > 0.4  # by chance: 0.1, of letters 0.04


@pytest.mark.long
@pytest.mark.parametrize("case, launcher", [("lightning", "torchrun"), ("accelerate", "run"), ("trainer", "torchrun"),
                                            ("accelerate_compiled_in_half", "torchrun")])
def test_ddp_trains_the_same(trained, case, launcher):
    ours, theirs = trained(launcher, case), trained("torchrun", case, "ddp")
    compare(ours, theirs)
    only_rank_0_wrote(ours)
    assert files_of(ours.folder / "rank0") == files_of(theirs.folder / "rank0")


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def only_rank_0_wrote(job):
    """But for random numbers, of which Accelerate and the Trainer keep every rank's."""
    assert len(files_of(job.folder / "rank0")) > 1
    for path in [*job.results[1]["wrote"], *files_of(job.folder / "rank1")]:
        assert pathlib.Path(path).name in ("random_states_1.pkl", "rng_state_1.pth"), path


def test_checkpoints_have_the_models_own_keys(trained):
    (file,) = trained("run", "lightning").folder.rglob("*.ckpt")
    assert {name.partition(".")[0] for name in torch.load(file, weights_only=True)["state_dict"]} == {"layers"}


@pytest.mark.long
@pytest.mark.parametrize("straight, resumed", [("lightning", "lightning_resumed"), ("trainer", "trainer_resumed")])
def test_a_training_goes_on_from_a_checkpoint(trained, straight, resumed):
    compare(trained("run", straight), trained("run", resumed))


@pytest.mark.long
@pytest.mark.parametrize("case", ["lightning_by_hand", "lightning_synchronized"])
def test_more_of_lightning_trains_as_in_one_process(trained, case):
    compare(trained("run", case), trained("alone", case))


@pytest.mark.long
@pytest.mark.parametrize("case", ["lightning", "accelerate", "trainer"])
def test_workers_on_devices_train_what_one_process_does(trained, case):
    """Devices whose work ends late: tests/shared/late_device."""
    if not LATE.exists():
        pytest.skip(f"{LATE.name} is not built")
    compare(trained("run", f"{case}_on_devices"), trained("alone", case))


@pytest.mark.long
@pytest.mark.parametrize("case", ["lightning_shares", "accelerate_refuses"])
def test_what_is_shared_and_what_is_refused(trained, case):
    trained("run", case)


def test_tensorboard_reads_the_scalars(trained):
    trained("run", "tensorboard")


@pytest.mark.long
def test_a_worker_that_fails_ends_all_and_is_named(tmp_path):
    require("lightning")
    ended = launch("torchrun", tmp_path, "lightning_fails", "poseidon", prepared=False)  # it gets torchrun's signal
    assert ended.returncode != 0
    said = (ended.stdout + ended.stderr).splitlines()
    assert any("PoseidonError" in line and "worker 1" in line and "the data are gone" in line for line in said), said[-60:]
