# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as arrays, from the files of Debian's package dataset-fashion-mnist or of the folder FASHION_MNIST."""
import gzip
import os
import pathlib

import numpy as np

FOLDER = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def read(part, samples=None):
    """Images [samples, 28, 28, 1] as float32 between 0 and 1, and labels; `part` is train or t10k; of all samples, or the first."""
    with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images[:samples].astype("float32") / 255, labels[:samples].astype("int32")
