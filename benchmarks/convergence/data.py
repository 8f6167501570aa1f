# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as the databases that the nets of models/ read, in a folder of the benchmark's own."""
import gzip
import os
import pathlib
import subprocess

import numpy as np

from benchmarks.cells import ROOT
from benchmarks.performance.standalone import Failed

ORIGINALS = pathlib.Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist


def originals(part):
    """The files of the images and labels of `part`: train or t10k."""
    files = [ORIGINALS / f"{part}-images-idx3-ubyte.gz", ORIGINALS / f"{part}-labels-idx1-ubyte.gz"]
    for file in files:
        if not file.exists():
            raise Failed(f"{file} is missing, expected it from Debian's package dataset-fashion-mnist")
    return files


def arrays(part):
    """Images (N, 28, 28) and labels (N), uint8."""
    images, labels = (gzip.decompress(file.read_bytes()) for file in originals(part))
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


def digits():
    """scikit-learn's handwritten digits: images (N, 8, 8) and labels (N), uint8, those to train with and those of the test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise Failed("scikit-learn is missing, expected it by scripts/setup.sh develop") from None
    found = load_digits()
    images, labels = found.images.astype(np.uint8), found.target.astype(np.uint8)
    return (images[:-360], labels[:-360]), (images[-360:], labels[-360:])


def as_cifar(images, labels):
    """The records of CIFAR-10's binary files: black borders of two pixels, three equal planes."""
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    planes = np.repeat(padded[:, None], 3, axis=1).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).astype(np.uint8)


def run(program, folder, *words):
    done = subprocess.run([program, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "frontends/python")})
    if done.returncode != 0:
        raise Failed(f"poseidon {words[0]} ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}")


def make_mnist(program, folder):
    """demo/fashion-mnist/{train,test}_lmdb, as models/lenet names them."""
    (folder / "demo/fashion-mnist").mkdir(parents=True, exist_ok=True)
    for part, name in ("train", "train"), ("t10k", "test"):
        target = folder / f"demo/fashion-mnist/{name}_lmdb"
        if not target.exists():
            run(program, folder, "convert-mnist", *originals(part), target)


def make_cifar(program, folder):
    """data/cifar10/{train,test}_lmdb and mean.binaryproto, as models/cifar10_quick names them: the first 50,000 images, and the tests."""
    made = folder / "data/cifar10"
    if (made / "mean.binaryproto").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    records = as_cifar(*arrays("train"))
    for number in range(5):
        records[10_000 * number:10_000 * (number + 1)].tofile(made / f"data_batch_{number + 1}.bin")
    as_cifar(*arrays("t10k")).tofile(made / "test_batch.bin")
    run(program, folder, "convert_cifar_data", made, made, "lmdb")
    for name in "train", "test":
        (made / f"cifar10_{name}_lmdb").rename(made / f"{name}_lmdb")
    run(program, folder, "compute_image_mean", made / "train_lmdb", made / "mean.binaryproto")
