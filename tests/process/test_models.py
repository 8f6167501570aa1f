# SPDX-License-Identifier: Apache-2.0
"""Each net of models/ trains by its own solver, on images of the right shape: files as they are, but for how many images and
iterations. tests/models builds all of them."""

import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

import bvlc_forms
import job as jobs
import lmdb_files
import messages

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
SMALL = ("lenet", "cifar10_quick", "cifar10_full")
# Minutes and gigabytes: in `make soak`.
LARGE = ("alexnet", "caffenet", "googlenet", "vgg16", "vgg19", "vgg19_22k", "inception_v3", "resnet50", "resnet152")
WITH_HEADS = ("googlenet", "inception_v3")  # that are trained and not deployed
SOAK = os.environ.get("POSEIDON_CASES") == "all"
ITERATIONS = 2
WORKERS = (1, 3)


def database(folder, shape, count, classes):
    source = random.Random(3)
    size = shape[0] * shape[1] * shape[2]
    return lmdb_files.write(folder, [(b"%08d" % i, messages.datum(*shape, source.randrange(classes), source.randbytes(size)))
                                     for i in range(count)])


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """By the folder that a net reads them from: databases, and the mean image."""
    folder = tmp_path_factory.mktemp("images")
    made = {}
    for name, shape, count, classes in (("fashion-mnist", (1, 28, 28), 60, 10), ("cifar10", (3, 32, 32), 60, 10),
                                        ("pairs", (2, 28, 28), 60, 2),
                                        *((("ilsvrc12", (3, 256, 256), 6, 1000), ("imagenet22k", (3, 256, 256), 6, 21841)) if SOAK else ()),
                                        *((("large", (3, 320, 320), 6, 1000),) if SOAK else ())):
        made[name] = (database(folder / name, shape, count, classes),
                      messages.mean_file(folder / f"{name}.binaryproto", shape, 100))
    return made


def prepared(name, folder, images, batch):
    """Copies of the net and of its solver that find `images`, take `batch` of them, and stop after ITERATIONS."""
    net = (MODELS / name / "train_val.prototxt").read_text()
    read = re.search(r'source: "[^"]*?([^/"]+)/\w+"', net)[1]
    lmdb, mean = images["large" if name == "inception_v3" else read]
    net = re.sub(r'source: "[^"]*"', f'source: "{lmdb}"', net)
    net = re.sub(r'mean_file: "[^"]*"', f'mean_file: "{mean}"', net)
    net = re.sub(r"batch_size: \d+", f"batch_size: {batch}", net)
    (folder / "net.prototxt").write_text(net)
    solver = (MODELS / name / "solver.prototxt").read_text()
    for field, value in (("net", f'"{folder / "net.prototxt"}"'), ("max_iter", ITERATIONS), ("test_iter", 1), ("display", 1),
                         ("snapshot_prefix", f'"{folder / name}"')):
        solver, count = re.subn(rf"(?m)^{field}: .*$", f"{field}: {value}", solver)
        assert count == 1, (name, field)
    path = folder / "solver.prototxt"
    path.write_text(solver)
    return path


def trains(poseidon, name, folder, images, workers, batch):
    solver = prepared(name, folder, images, batch)
    done = jobs.run(poseidon, "train", "--solver", solver, "--threads", 1, "--run-dir", folder / "run", "--workers", workers, cwd=folder)
    assert done.code == 0, done.err.text
    summary = jobs.summary_of(folder / "run")
    assert summary["iterations"] == ITERATIONS
    assert summary["replicas_equal"]
    assert summary["workers"] == workers
    if workers > 1:
        assert done.out.find(r"^weights \w+, equal on all workers$"), done.out.text
        return
    # The net that is deployed takes what was trained.
    loaded = jobs.run(poseidon, "time", "--model", MODELS / name / "deploy.prototxt", "--phase", "TEST", "--iterations", 1, "--threads", 1,
                      "--weights", folder / f"{name}_iter_{ITERATIONS}.caffemodel", cwd=folder)
    assert loaded.code == 0, loaded.err.text
    assert "weights" not in loaded.err.text or name in WITH_HEADS, loaded.err.text


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", SMALL)
def test_small_nets_train(poseidon, tmp_path, images, name, workers):
    trains(poseidon, name, tmp_path, images, workers, batch=8)


@pytest.mark.skipif(not SOAK, reason="large nets train in make soak")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", LARGE)
def test_large_nets_train(poseidon, tmp_path, images, name, workers):
    trains(poseidon, name, tmp_path, images, workers, batch=1)
    for file in tmp_path.iterdir():  # gigabytes
        if file.suffix in (".caffemodel", ".solverstate"):
            file.unlink()


@pytest.mark.skipif(not SOAK, reason="the recipe of ImageNet runs in make soak")
@pytest.mark.parametrize("net,iterations", (("caffenet", 60), ("vgg19_22k", 4)))
def test_the_recipe_of_imagenet_goes_the_whole_way(poseidon, tmp_path, net, iterations):
    folder = tmp_path / "recipe"
    done = subprocess.run([sys.executable, "-B", MODELS.parent / "examples/imagenet/run.py", "--net", net, "--poseidon", poseidon,
                           "--folder", folder, "--iterations", str(iterations)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal on all workers") == 2
    for name in ("train_lmdb_0", "train_lmdb_1", "features_lmdb", f"{net}_iter_{iterations // 2}.solverstate"):
        assert (folder / name).exists(), name
    first = re.findall(r'Prediction for val/0000\d.png -+\n[\d.]+ - "class (\d+)"', done.stdout)
    assert len(first) == 2, done.stdout
    if net == "caffenet":
        assert first == ["0", "249"]


# What BVLC Caffe's models/ and examples/ have, and which net of ours stands for it: of models/, of bvlc_forms, or none yet where the
# file needs data or a program that is not beside it (docs/caffe/models.md says which).
BVLC = {
    "models": {"bvlc_alexnet": "alexnet", "bvlc_reference_caffenet": "caffenet", "bvlc_googlenet": "googlenet",
               "bvlc_reference_rcnn_ilsvrc13": "caffenet", "finetune_flickr_style": "caffenet"},
    "examples/cifar10": {"cifar10_quick": "cifar10_quick", "cifar10_full": "cifar10_full", "cifar10_full_sigmoid": "sigmoids",
                         "cifar10_full_sigmoid_bn": "sigmoids"},
    "examples/mnist": {"lenet": "lenet", "lenet_consolidated": "consolidated", "mnist_autoencoder": "autoencoder"},
    "examples/siamese": {"mnist_siamese": "siamese"},
    "examples/net_surgery": {"bvlc_caffenet_full_conv": "caffenet", "conv": "lenet"},
    "examples/feature_extraction": {"imagenet_val": "caffenet"},
    "examples/finetune_pascal_detection": {"pascal_finetune": "caffenet"},
    "examples/hdf5_classification": {"nonlinear_auto": None, "nonlinear": None, "train_val": None},
    "examples/pycaffe": {"linreg": None},
}
FORMS = ("siamese", "autoencoder", "sigmoids", "consolidated")


def test_every_net_of_bvlc_has_a_row_and_one_that_stands_for_it():
    page = (MODELS.parent / "docs" / "caffe" / "models.md").read_text()
    for folder, nets in BVLC.items():
        for net, ours in nets.items():
            assert re.search(rf"(?m)^\| `{folder}/[^|]*\b{net}\b", page), f"{folder}/{net}"
            assert ours is None or (MODELS / ours).is_dir() or ours in FORMS, net


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_the_other_examples_train(bench, images, form):
    train = images["fashion-mnist"][0]
    fields = {"max_iter": ITERATIONS, "test_interval": 1, "test_iter": 1, "display": 1}
    if form == "siamese":
        solver = bench.solver(net=bench.write("net.prototxt", bvlc_forms.siamese(images["pairs"][0])), **fields)
    elif form == "sigmoids":
        solver = bench.solver(net=bench.write("net.prototxt", bvlc_forms.sigmoids(train, train)), **fields)
    else:
        fields |= {"test_iter": None}
        if form == "autoencoder":
            net = bench.write("net.prototxt", bvlc_forms.autoencoder(train, train))
            solver = bench.solver(net=net, type="AdaGrad", momentum=0, **fields)
            more = bvlc_forms.AUTOENCODER_TESTS
        else:
            solver = bench.solver(net="none", **fields)
            more = bvlc_forms.consolidated(train, train)
        text = solver.read_text().replace('net: "none"\n', "")
        solver.write_text(text + more)
    done = bench.train(solver)
    assert done.summary["iterations"] == ITERATIONS
    tests = done.out.count(rf"^test .*at iteration {ITERATIONS}")
    assert tests == (2 if form in ("autoencoder", "consolidated") else 1), done.out.text
