# SPDX-License-Identifier: Apache-2.0
"""Every command that a guide quotes runs, or is in ELSEWHERE, which says why not and names what runs it. Of a block that quotes an output the
lines after `$ ` are commands; what they print is not compared, because it has times in it."""
import functools
import gzip
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent / "process"), str(HERE.parent / "shared")]

import caffe_files  # noqa: E402
import programs  # noqa: E402

PATIENCE = 300 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))  # seconds; a command takes a few
FIRST = ("README.md", "docs/torch.md", "docs/keras.md", "docs/caffe.md")
GUIDES = ("docs/index.md", "docs/install.md", "docs/two-hosts.md", "docs/compare.md", "docs/faq.md", "docs/gpu.md", "docs/multi-gpu.md", "docs/history.md",
          "docs/distributed.md", "docs/launchers.md", "docs/doctor.md", "docs/lost-members.md", "docs/bandwidth.md", "docs/strategies.md", "docs/c.md",
          "docs/torch/what-you-get.md", "docs/torch/from-ddp.md", "docs/torch/checks.md", "docs/torch/plan.md", "docs/torch/limits.md",
          "docs/keras/what-you-get.md", "docs/keras/data.md", "docs/keras/from-horovod.md", "docs/keras/overlap.md", "docs/keras/on-torch.md",
          "docs/keras/limits.md", "docs/watch.md", "docs/docker.md", "docs/convergence.md", "docs/drift.md", "docs/torch/tested.md",
          "docs/caffe/export.md", "docs/caffe/fork-layers.md", "docs/caffe/gpu.md", "docs/caffe/images.md", "docs/caffe/left-out.md", "docs/caffe/models.md",
          "docs/caffe/python.md", "docs/caffe/results.md", "docs/caffe/tools.md")
PAGES = FIRST + GUIDES  # docs/claims.md and docs/performance.md quote what benchmarks ran, which write these pages
PROGRAMS = re.compile(r"(poseidon|python3?|pip|make|sudo|source|mpirun|srun|torchrun|for|cd|ssh|scp|ssh-[\w-]+|\./[\w./]+)(?= |$)")

NETWORK, HOSTS, BUILDS, LONG = "needs a network", "needs other hosts", "builds for minutes", "takes long"
AS_ROOT, LAUNCHER = "changes the system as root", "needs the launcher"
ENGINE, FILES, GPU = "needs a container engine", "needs files that the page does not make", "needs a GPU"
MEETS, TRAINS = "tests/process/test_ssh.py::test_ranks_of_two_machines_meet", "tests/process/test_ssh.py::test_machines_train_as_one_machine_does"
ELSEWHERE = {  # by command: why it does not run here, and where it does, or None where no test runs it
    "sudo apt install python3-venv": ("needs root", "scripts/try_install.sh"),
    "python3 -m venv ~/poseidon && . ~/poseidon/bin/activate": ("the next lines need a network", "scripts/try_install.sh"),
    "pip install torch numpy --no-compile --index-url https://download.pytorch.org/whl/cpu": (NETWORK, "scripts/try_install.sh"),
    "pip install build/dist/poseidon_train-0.1.0-py3-none-manylinux_2_34_x86_64.whl": (BUILDS, "scripts/try_install.sh"),
    "pip install torch numpy --no-compile": (NETWORK, "scripts/try_install.sh"),
    "pip install poseidon_train-*.whl tensorflow-cpu": (NETWORK, "tests/wheel/test_tensorflow.py::test_keras_trains_on_two_workers"),
    "pip install poseidon_train-*.whl poseidon_train_caffe-*.whl": (BUILDS, "tests/wheel/test_index.py::test_pip_resolves_both_to_one_version"),
    **{command: (LONG, "tests/wheel/test_wheel.py::test_the_demonstration_shows_what_it_says") for command in (
        "poseidon demo", "poseidon run -n 2 python -m poseidon.demo.train", "poseidon run -n 2 python -m poseidon.demo.train --kill")},
    "python3 -m benchmarks.performance": (LONG, "benchmarks/performance/performance_test.py"),
    "python3 -m benchmarks.torch": (LONG, "tests/torch/test_benchmark.py"),
    "make demo": (BUILDS, "Makefile::demo"),
    "make build": (BUILDS, "Makefile::build"),
    "make test": (BUILDS, ".ci/run::make test"),
    "make wheel": (BUILDS, "Makefile::wheel"),
    "make site": ("needs an environment of its own", "tests/site/test_site.py::site"),
    "./install.sh": (BUILDS, "scripts/try_install.sh"),
    "poseidon doctor --hosts a,b": (HOSTS, "tests/guides/test_two_hosts.py::test_both_machines_train"),
    "poseidon doctor --hosts a,b,c": (HOSTS, "tests/doctor/test_hosts.py::test_healthy_hosts_are_well"),
    "poseidon run --hosts a,b,c python quickstart.py": (HOSTS, "tests/process/test_ssh.py::test_ranks_of_two_machines_meet"),
    "poseidon train --solver lenet_solver.prototxt --workers 4 --hosts a:2,b:2":
        (HOSTS, "tests/process/test_ssh.py::test_machines_train_as_one_machine_does"),
    "poseidon train --solver solver.prototxt --workers 3 --hosts a,b,c":
        (HOSTS, "tests/process/test_ssh.py::test_machines_train_as_one_machine_does"),
    **{command: (HOSTS, "scripts/try_two_hosts.sh") for command in (
        "sudo apt install openssh-server python3-venv",
        "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519",
        "for h in a b c; do ssh-copy-id $h; done",
        "for h in a b c; do scp poseidon_train-*.whl quickstart.py $h:; done",
        "for h in a b c; do ssh $h 'python3 -m venv poseidon && poseidon/bin/pip install torch numpy --no-compile --index-url "
        "https://download.pytorch.org/whl/cpu'; done",
        "for h in a b c; do ssh $h 'poseidon/bin/pip install poseidon_train-*.whl'; done",
        "cd && . poseidon/bin/activate")},
    "for h in a b c; do ssh $h 'python3 -m venv poseidon && poseidon/bin/pip install tensorflow-cpu'; done":
        (HOSTS, "tests/wheel/test_tensorflow.py::test_keras_trains_on_two_workers"),
    # docs/two-hosts.md, install.md
    "sudo apt install git make python3 python3-venv": (AS_ROOT, None),
    r"printf '192.0.2.1 a\n192.0.2.2 b\n' | sudo tee -a /etc/hosts": (AS_ROOT, None),
    "sudo apt install openssh-server openssh-client python3-venv": (AS_ROOT, None),
    "sudo nft add rule inet filter input ip saddr 192.0.2.2 tcp dport 32768-60999 accept": (AS_ROOT, None),
    "ssh-keygen -t ed25519": ("asks for a passphrase", "tests/process/machines.py::make_keys"),
    "ssh-copy-id b": ("asks for a password", None),
    "ssh b": (HOSTS, None),
    "ssh b hostname": (HOSTS, None),
    "scp poseidon_train-*.whl b:": (HOSTS, "scripts/try_install.sh"),
    "scp -r first b:": (HOSTS, None),
    "scp quickstart.pt b:first/": (HOSTS, None),
    "pip install ~/poseidon_train-*.whl": (BUILDS, "scripts/try_install.sh"),
    "cd ~/first && poseidon run --hosts a,b python quickstart.py": (HOSTS, "tests/guides/test_two_hosts.py::test_both_machines_train"),
    # docs/launchers.md, lost-members.md, bandwidth.md
    "poseidon run --hosts a:2,b:2 python train.py": (HOSTS, MEETS),
    "poseidon run --hostfile cluster.txt -n 6 python train.py --lr 0.1": (HOSTS, MEETS),
    "poseidon run -n 2 --hosts a,b": (HOSTS, MEETS),
    "mpirun -n 4 poseidon train --solver lenet_solver.prototxt": (LAUNCHER, "tests/process/test_launchers.py::test_the_real_launcher"),
    "srun -n 4 poseidon train --solver lenet_solver.prototxt --token-file ~/token":
        (LAUNCHER, "tests/process/test_launchers.py::test_three_processes_train_as_three_workers"),
    "torchrun --no-python --nproc-per-node 4 poseidon train --solver lenet_solver.prototxt":
        (LONG, "tests/process/test_launchers.py::test_the_real_launcher"),
    "mpirun -n 4 python3 train.py": (LAUNCHER, "tests/torch/test_meeting.py"),
    "srun -n 4 python3 train.py": (LAUNCHER, "tests/torch/test_meeting.py"),
    "torchrun --nproc-per-node 4 train.py": (LONG, "tests/torch/test_meeting.py"),
    "torchrun --max-restarts 3": (LONG, "tests/torch/test_faults.py::test_a_job_that_torchrun_restarts_ends_as_one_that_nothing_has_befallen"),
    "poseidon train --solver lenet_solver.prototxt --workers 4 --hostfile cluster.txt": (HOSTS, TRAINS),
    "poseidon train --solver lenet_solver.prototxt --workers 4 --snapshot lenet_iter_500.solverstate":
        (LONG, "tests/process/test_resume.py::test_resume_goes_on_bit_for_bit"),
    "poseidon train --solver solver.prototxt --hosts a,b,c --bandwidth 400Mbit": (HOSTS, TRAINS),
    "POSEIDON_BANDWIDTH=400Mbit poseidon run --hosts a,b,c python train.py": (HOSTS, MEETS),
    "python3 -m benchmarks.bandwidth": (LONG, None),
    # docs/strategies.md, c.md, torch and keras
    "poseidon compare --solver examples/lenet/lenet_solver.prototxt --workers 2": (LONG, "tests/process/test_train.py::test_strategies_are_compared"),
    "poseidon compare -n 2 python train.py": (LONG, "tests/process/test_train.py::test_strategies_are_compared_on_a_script"),
    "make build && cmake --install build/release --prefix DIR": (BUILDS, "tests/c_api/installed_test.py"),
    "poseidon run -n 2 .venv-tensorflow/bin/python3 examples/tensorflow/applications.py VGG19":
        (LONG, "tests/tensorflow/test_examples.py::test_an_example_runs"),
    "poseidon run -n 2 .venv-tensorflow/bin/python3 examples/tensorflow/applications.py NET 24":
        (LONG, "tests/tensorflow/test_examples.py::test_an_example_runs"),
    "python3 -m benchmarks.tensorflow.lanes VGG19.json docs/keras/lanes.svg --steps 1": (LONG, None),
    "python3 -m benchmarks.tensorflow": (LONG, None),
    "python3 -m benchmarks.convergence": (LONG, "benchmarks/convergence/convergence_test.py"),
    "python3 benchmarks/torch/drift.py --only autoencoder": (LONG, None),
    "make soak": (LONG, "Makefile::soak"),
    # docs/watch.md, docker.md
    "poseidon run -n 4 --watch python train.py": (LONG, "tests/process/test_watch.py::test_a_table_stays_below_what_the_ranks_of_a_script_print"),
    "poseidon train --solver solver.prototxt --hosts a:2,b:2 --workers 4 --watch":
        (HOSTS, "tests/process/test_watch.py::test_the_trainer_has_the_table_and_its_progress_below"),
    "poseidon run --hosts a:2,b:2 --metrics-port 9400 python train.py":
        (HOSTS, "tests/process/test_watch.py::test_the_launcher_serves_the_ranks_of_all_hosts"),
    "curl http://127.0.0.1:9400/metrics": ("asks a job that runs", "tests/process/test_watch.py::test_the_launcher_serves_the_ranks_of_all_hosts"),
    "ssh -L": (HOSTS, None),
    **{command: (ENGINE, "scripts/try_image.sh") for command in (
        "docker build -t poseidon .", "docker build -t poseidon:cuda --build-arg TORCH=cuda .", "docker run --rm poseidon demo",
        "docker run --rm poseidon doctor",
        'docker run --rm --init --user "$(id -u):$(id -g)" -v "$PWD:/work" poseidon run -n 2 python train.py', "mkdir -p runs",
        'docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/runs:/work" --entrypoint python3 poseidon    '
        """-c "import poseidon; poseidon.make_token_file('job.token')\"""",
        'JOB_USER="$(id -u):$(id -g)" docker compose up', "docker compose down")},
    'docker run --rm --init --network host --user "$(id -u):$(id -g)" -v "$PWD:/work"    '
    "-e RANK=0 -e WORLD_SIZE=3 -e MASTER_ADDR=a -e POSEIDON_PORT=29400 -e POSEIDON_TOKEN_FILE=job.token    "
    "--entrypoint python3 poseidon train.py": (ENGINE, None),
    "docker run --rm --gpus all poseidon:cuda doctor": (GPU, None),
    # docs/multi-gpu.md
    "poseidon run --hosts a:4,b:4 python train.py": (HOSTS, "tests/process/test_ssh.py::test_ranks_of_two_machines_meet"),
    "python3 -m benchmarks.multi_gpu": (BUILDS, None),
    # docs/caffe/gpu.md
    **{command: (GPU, "tests/process/test_device.py::test_a_job_trains_on_devices_as_on_the_cpu") for command in (
        "poseidon train --solver solver.prototxt --gpu 0", "poseidon train --solver solver.prototxt --gpu 0,1",
        "poseidon train --solver solver.prototxt --gpu all", "poseidon train --solver solver.prototxt --hosts a:4,b:4 --workers 8 --gpu all")},
    "poseidon test --model net.prototxt --weights net.caffemodel --gpu 0": (GPU, "tests/process/test_device.py::test_commands_compute_on_a_device"),
    "poseidon time --model net.prototxt --gpu 0": (GPU, "tests/process/test_device.py::test_commands_compute_on_a_device"),
    "poseidon device_query --gpu all": (GPU, "tests/process/test_device.py::test_devices_are_shown_as_caffe_shows_them"),
    "make gpu": (GPU, "benchmarks/gpu/gpu_test.py"),
    "python3 -m benchmarks.gpu --out FOLDER": (GPU, "benchmarks/gpu/gpu_test.py"),
    "make cuda TORCH=2.11.0": (NETWORK, "Makefile::cuda"),
    # docs/caffe
    "poseidon export deploy.prototxt model.caffemodel model.onnx": (FILES, "tests/export/test_onnx.py::test_layers"),
    "poseidon export deploy.prototxt model.caffemodel model.safetensors": (FILES, "tests/export/test_safetensors.py::test_there_and_back"),
    "poseidon export deploy.prototxt model.safetensors model.caffemodel": (FILES, "tests/export/test_safetensors.py::test_there_and_back"),
    "poseidon convert_imageset --resize_height 256 --resize_width 256 --shuffle images/ train.txt train_lmdb":
        (FILES, "tests/process/test_images.py::test_images_are_scaled"),
    "poseidon convert_imageset --encoded --backend leveldb images/ train.txt train_leveldb":
        (FILES, "tests/process/test_images.py::test_encoded_records_have_the_files_bytes"),
    "poseidon train --solver models/lenet/solver.prototxt --workers 4": (LONG, "tests/models/models_test.cc"),
    "poseidon train --solver models/resnet50/solver.prototxt --workers 8 --hosts a,b,c,d,e,f,g,h": (HOSTS, TRAINS),
    "poseidon test --model models/vgg16/train_val.prototxt --weights VGG_ILSVRC_16_layers.caffemodel --iterations 100":
        (NETWORK, "tests/process/test_tools.py::test_test_prints_as_caffe"),
    "poseidon train --solver models/caffenet/solver.prototxt --weights bvlc_reference_caffenet.caffemodel": (NETWORK, None),
    "pip install poseidon_train-*.whl poseidon_train_caffe-*.whl numpy protobuf pillow":
        (BUILDS, "tests/wheel/test_index.py::test_pip_resolves_both_to_one_version"),
    "poseidon run -n 4 python train.py solver.prototxt": (FILES, "tests/pycaffe/test_layers.py::test_a_loss_layer_trains_as_ours_does"),
    "poseidon compute_image_mean train_lmdb mean.binaryproto": (FILES, "tests/process/test_tools.py::test_mean"),
    "poseidon compute_image_mean test_leveldb mean.binaryproto": (FILES, "tests/process/test_tools.py::test_mean"),
    "poseidon links ~/bin": ("writes into the home folder", "tests/process/test_tools.py::test_links_leave_other_files"),
    "poseidon convert_mnist_data --backend=leveldb t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz test_leveldb":
        (FILES, "tests/process/test_tools.py::test_mnist"),
    "poseidon partition_data --num_partitions=4 test_leveldb": (FILES, "tests/process/test_tools.py::test_partition"),
    "poseidon extract_features small_iter_200.caffemodel net.prototxt ip1 features 10 lmdb --workers 2":
        (FILES, "tests/process/test_tools.py::test_features"),
    "poseidon classify --model deploy.prototxt --weights net.caffemodel --labels labels.txt --mean mean.binaryproto cat.jpg":
        (FILES, "tests/process/test_tools.py::test_classify_as_the_example"),
    "poseidon detect --model deploy.prototxt --weights net.caffemodel --mean-value 104,117,123 windows.csv":
        (FILES, "tests/process/test_detect.py::test_scores_are_those_of_pycaffes_arithmetic"),
    "poseidon detect --model_def deploy.prototxt --pretrained_model net.caffemodel --mean_file mean.npy images.txt "
    "--window_file windows.txt detections.csv": (FILES, "tests/process/test_detect.py::test_flags_are_detect_pys"),
}
MEANT = {  # where a word stands for any, or a flag is named without what else the command needs
    "poseidon COMMAND --help": "poseidon train --help", "poseidon report run": "poseidon report --help",
    "poseidon profile -- COMMAND": "poseidon profile --help", "poseidon train --strategy NAME": "poseidon train --help",
    "poseidon plan --strategy NAME": "poseidon plan --help", "poseidon profile train.py": "poseidon profile --help", "poseidon export MODEL WEIGHTS OUT": "poseidon export --help",
    "poseidon report RUN_DIR": "poseidon report --help", "poseidon classify INPUT OUTPUT.npy": "poseidon classify --help",
    "poseidon detect INPUT [OUTPUT.csv]": "poseidon detect --help", "poseidon run --hosts": "poseidon run --help"}


def quoted(text):
    """The commands of a page in their order, each with whether it is among the words of a sentence."""
    commands = []
    for part in re.split(r"(?ms)^(```.*?^```)$", text):
        if not part.startswith("```"):
            spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", part))
            commands += [(span, True) for span in spans if PROGRAMS.match(span) and " " in span or span.startswith("./")]
            continue
        language, _, body = part.strip("`").partition("\n")
        lines = body.replace("\\\n", " ").splitlines()
        shown = [line[2:] for line in lines if line.startswith("$ ")] if language != "sh" else lines
        assert shown or language in ("python", "text") or not any(map(PROGRAMS.match, lines)), f"commands in a block that is no sh:\n{body}"
        commands += [(line.partition("  #")[0].strip(), False) for line in shown if line.strip()]
    return commands


def test_what_is_quoted_is_found():
    page = "A `poseidon help` and\n`pip install x`, `x`.\n```sh\na  # why\nb \\\n  c\n```\n```console\n$ d\n1\n```\n```text\nposeidon\n```\n"
    assert quoted(page) == [("poseidon help", True), ("pip install x", True), ("a", False), ("b    c", False), ("d", False)]
    with pytest.raises(AssertionError, match="in a block that is no sh"):
        quoted("```\nmake test\n```\n")


def test_what_runs_elsewhere_is_quoted_and_runs_there():
    everywhere = {command for page in PAGES for command, _ in quoted((ROOT / page).read_text())}
    assert [command for command in ELSEWHERE if command not in everywhere] == []
    for command, (_, place) in ELSEWHERE.items():
        if place is None:
            continue
        file, _, name = place.partition("::")
        assert (ROOT / file).is_file(), (command, place)
        assert re.search(rf"\bdef {name}\(|^{name}:|\b{name}$", (ROOT / file).read_text(), re.MULTILINE), (command, place)


TENSORFLOW = pathlib.Path(os.environ.get("POSEIDON_TENSORFLOW_PYTHON", ROOT / ".venv-tensorflow" / "bin" / "python3"))
TORCH = ("torch._dynamo", "torch._functorch.aot_autograd")  # what takes long of poseidon.torch and of an optimizer
SMALL = {
    "torch": """
import torch
from torch import nn
from torch.utils.data import TensorDataset
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dataset = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
""",
    "keras": """
import keras
import numpy as np
import tensorflow as tf
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
dataset = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "float32"), np.ones((64, 1), "float32"))).batch(8)
"""}
STEP = "optimizer.zero_grad(); nn.functional.mse_loss(model(x), y).backward(); optimizer.step()"


def train(text, front_end):
    """A small program around a page's two lines, in whose loop a step takes the place of the dots."""
    [lines] = [block for block in re.findall(r"(?ms)^```python\n(.*?)^```$", text) if "distribute(" in block and "def main" not in block
               and "EPOCHS" not in block]
    lines = re.sub(r"(?m)^\.\.\. .*$", "for x, y in loader:\n    ...  #", lines)
    return SMALL[front_end] + re.sub(r"(?m)^    \.\.\. .*$", "    " + STEP, lines)


def script(text):
    """The whole script that a page quotes."""
    [found] = [block for block in re.findall(r"(?ms)^```python\n(.*?)^```$", text) if "EPOCHS" in block]
    return found


def prepared(page, text, folder):
    """The files that the page's commands name."""
    if page in ("README.md", "docs/torch.md"):
        (folder / "train.py").write_text(train(text, "torch"))
    if page in GUIDES:  # the first page's script, of which the others speak
        (folder / "train.py").write_text(train((ROOT / "docs/torch.md").read_text(), "torch"))
    if page == "docs/keras.md":
        (folder / "train.py").write_text(train(text, "keras"))
    if page in ("docs/torch.md", "docs/keras.md"):
        (folder / "quickstart.py").write_text(script(text))
    if page == "README.md":  # a profile measures a net, without data
        (folder / "net.prototxt").write_text('layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 8 } } }'
                                             + caffe_files.inner_product("ip", "data", 4))
    if page == "docs/caffe.md":
        for name in "net.prototxt", "solver.prototxt":
            (folder / name).write_text(re.search(rf"`{name}`:\n\n```\n(.*?)```\n", text, re.DOTALL)[1])
        for seed, (name, images) in enumerate((("train", 360), ("t10k", 100))):
            written = caffe_files.write_idx(folder, name, images, seed)
            for file, kind in zip(written, ("images-idx3", "labels-idx1")):
                (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(file.read_bytes(), 1))


@functools.cache
def ready(python, *modules):
    # One thread, as `poseidon run` gives two ranks on two cores: what is read at import is the same for all.
    return programs.Prepared(python, *modules, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


@pytest.fixture
def run(tmp_path):
    """Runs a page's commands, but for those in `known`, in a folder that has what they name; returns what each printed."""
    def of(page, *modules, python=sys.executable, known=()):
        # A script is forked from a Python that has imported `modules`, which would be most of the time.
        forked = shlex.join(map(str, ready(python, *modules).command())) if modules else f"{python} -B"
        there = tmp_path / "bin"
        there.mkdir(exist_ok=True)
        for name, words in (("python", ""), ("python3", ""), ("poseidon", "-m poseidon")):
            (there / name).write_text(f'#!/bin/sh\ncase "$1" in *.py) exec {forked} "$@" ;; esac\nexec {python} -B {words} "$@"\n')
            (there / name).chmod(0o755)
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        text = (ROOT / page).read_text()
        prepared(page, text, folder)
        environment = {**os.environ, "PATH": f"{there}:{os.environ['PATH']}", "PYTHONPATH": str(programs.FRONT_END),
                       "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
        printed = {}
        for command, in_words in quoted(text):
            if command in ELSEWHERE or command in printed or command in known:
                continue
            words = MEANT.get(command, command)
            if in_words and re.fullmatch(r"poseidon [a-z-]+", words):
                words += " --help"  # a sentence names the command alone
            done = subprocess.run(["bash", "-o", "pipefail", "-c", words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, f"{page}: `{command}` ended with {done.returncode}\n{done.stdout}{done.stderr}"
            assert "worked alone" not in done.stderr, f"{page}: `{command}`\n{done.stderr}"
            printed[command] = done.stdout
        return printed
    return of


def test_readme(run):
    assert len(run("README.md", *TORCH)) > 6


def test_torch(run):
    printed = run("docs/torch.md", *TORCH)
    assert re.findall(r"epoch (\d)", printed["poseidon run -n 2 python quickstart.py 3"]) == ["1", "2"]


@pytest.mark.skipif(not TENSORFLOW.exists(), reason="TensorFlow is not installed (.venv-tensorflow)")
def test_keras(run):
    printed = run("docs/keras.md", "keras", "tensorflow", python=TENSORFLOW)
    assert re.findall(r"epoch (\d)", printed["poseidon run -n 2 python quickstart.py 3"]) == ["1", "2"]


def test_caffe(run):
    printed = run("docs/caffe.md")
    first = "poseidon train --solver solver.prototxt --workers 2"
    weights = [re.findall(r"^weights (\w+), equal on all workers$", printed[command], re.MULTILINE)
               for command in (first, f"{first} --snapshot small_iter_100.solverstate")]
    assert len(weights[0]) == 1 and weights[0] == weights[1]


def test_the_other_guides(run):
    known = {command for page in FIRST for command, _ in quoted((ROOT / page).read_text())}  # with the same script
    first = len(known)
    for page in GUIDES:
        known |= set(run(page, *TORCH, known=known))
    assert len(known) > first + 5


def test_every_page_that_a_newcomer_reads_is_here():
    """The site's first section, and the pages of its others that are short guides."""
    pages = re.findall(r"^ +- (?:[^\n]*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    start = pages[:pages.index("CHANGELOG.md")]
    expected = [page for page in start if page.startswith("docs/") and (ROOT / page).exists()]
    assert [page for page in expected if page not in PAGES] == []
