#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ImageNet's way from images to answers, on images that are made up: each command is printed before it runs, to be taken over.

  examples/imagenet/run.py                    CaffeNet, 1,000 classes
  examples/imagenet/run.py --net vgg19_22k    VGG19 with ImageNet-22K's classifier of 21,841 classes

Images have the shape and the files the lists of the real ones: put yours in their place (README.md beside this file). Nets are
those of models/ with fewer maps (--divide), so that the whole takes minutes and little memory on two cores.
"""

import argparse
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLASSES = {"caffenet": 1000, "vgg19_22k": 21841}
SIDE = 256


def png(pixels, width, height):
    """A PNG file of `pixels`, bytes of red, green and blue by row."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + pixels[3 * width * row:3 * width * (row + 1)] for row in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def image(label, source, width, height):
    """A picture of its class: stripes whose colours and breadth say which, and noise."""
    of_class = random.Random(label)
    colours = [[of_class.randrange(20, 236) for _ in range(3)] for _ in range(2)]
    breadth = 8 + label % 23
    row = bytes(colour + source.randrange(-20, 20) for x in range(width) for colour in colours[x // breadth % 2])
    return row * height


def make_images(folder, name, count, classes, source):
    """`count` images of a few classes, in FOLDER/NAME, and the list that convert_imageset reads, FOLDER/NAME.txt."""
    (folder / name).mkdir(parents=True)
    labels = [(i % 5) * (classes - 1) // 4 for i in range(count)]  # the first class and the last among them
    lines = []
    for i, label in enumerate(labels):
        width, height = source.choice(((320, 240), (256, 384), (300, 300)))
        (folder / name / f"{i:05}.png").write_bytes(png(image(label, source, width, height), width, height))
        lines.append(f"{i:05}.png {label}\n")
    (folder / f"{name}.txt").write_text("".join(lines))


def smaller(text, divide, classes):
    """The net with so much fewer maps and features, but for its classes. Deviations of fillers are for whole layers: xavier's follow
    from the size."""
    if divide > 1:
        text = re.sub(r'type: "gaussian" std: [\d.]+', 'type: "xavier"', text)
    return re.sub(r"num_output: (\d+)", lambda found: found[0] if int(found[1]) == classes else
                  f"num_output: {max(2, int(found[1]) // divide)}", text)


class Recipe:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder.resolve()
        self.classes = CLASSES[options.net]

    def poseidon(self, *arguments):
        """Runs a command in the folder; returns what it printed."""
        print("$ poseidon " + shlex.join(map(str, arguments)), flush=True)
        done = subprocess.run([self.options.poseidon.resolve(), *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        sys.stdout.write(done.stdout)
        if done.returncode != 0:
            sys.exit(f"run.py: poseidon {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def images(self):
        source = random.Random(1)
        make_images(self.folder, "train", self.options.images, self.classes, source)
        make_images(self.folder, "val", self.options.images // 4, self.classes, source)
        (self.folder / "classes.txt").write_text("".join(f"class {i}\n" for i in range(self.classes)))

    def databases(self):
        """All images of one size, in random order, and the mean of those that are trained on."""
        size = (f"--resize_height={SIDE}", f"--resize_width={SIDE}")
        self.poseidon("convert_imageset", *size, "--shuffle", "train/", "train.txt", "train_lmdb")
        self.poseidon("convert_imageset", *size, "val/", "val.txt", "val_lmdb")
        self.poseidon("compute_image_mean", "train_lmdb", "mean.binaryproto")
        # For machines that hold a part of the images each. A job in which all see the same folder splits a database by itself.
        self.poseidon("partition_data", "--num_partitions", 2, "train_lmdb")

    def nets(self):
        """Net and solver of models/ with their paths in this folder, fewer maps, a small batch and few iterations."""
        model = ROOT / "models" / self.options.net
        net = (model / "train_val.prototxt").read_text()
        net = re.sub(r'source: "[^"]*/', 'source: "', net)
        net = re.sub(r'mean_file: "[^"]*/', 'mean_file: "', net)
        net = re.sub(r"batch_size: \d+", f"batch_size: {self.options.batch}", net)
        (self.folder / "train_val.prototxt").write_text(smaller(net, self.options.divide, self.classes))
        deploy = (model / "deploy.prototxt").read_text()
        (self.folder / "deploy.prototxt").write_text(smaller(deploy, self.options.divide, self.classes))
        solver = (model / "solver.prototxt").read_text()
        half = self.options.iterations // 2
        for field, value in (("net", '"train_val.prototxt"'), ("test_iter", 2), ("test_interval", half), ("snapshot", half), ("display", 1),
                             ("max_iter", self.options.iterations), ("base_lr", self.options.rate)):
            solver = re.sub(rf"(?m)^{field}: .*$", f"{field}: {value}", solver)
        (self.folder / "solver.prototxt").write_text(solver)

    def train(self):
        """On two workers, a snapshot in the middle; then the second half again, on three."""
        name, half = self.options.net, self.options.iterations // 2
        self.poseidon("train", "--solver", "solver.prototxt", "--workers", 2, "--threads", 1)
        self.poseidon("train", "--solver", "solver.prototxt", "--workers", 3, "--threads", 1,
                      "--snapshot", f"{name}_iter_{half}.solverstate")
        return f"{name}_iter_{self.options.iterations}.caffemodel"

    def use(self, weights):
        """Features of the validation images, and what an image is taken for."""
        self.poseidon("extract_features", weights, "train_val.prototxt", "fc7", "features_lmdb", 2, "lmdb")
        self.poseidon("classify", "--model", "deploy.prototxt", "--weights", weights, "--mean", "mean.binaryproto",
                      "--labels", "classes.txt", "val/00000.png", "val/00001.png")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=sorted(CLASSES), default="caffenet")
    parser.add_argument("--folder", type=pathlib.Path, help="a new one, default demo/imagenet-NET of the checkout")
    parser.add_argument("--poseidon", type=pathlib.Path, default=ROOT / "build/release/bin/poseidon")
    parser.add_argument("--images", type=int, default=60, metavar="N", help="for training; a quarter as many for validation")
    parser.add_argument("--batch", type=int, default=4, metavar="N", help="of each worker")
    parser.add_argument("--iterations", type=int, default=60, metavar="N")
    parser.add_argument("--rate", type=float, default=0.001, metavar="X", help="base_lr: the published ones are for larger batches")
    parser.add_argument("--divide", type=int, default=8, metavar="N", help="maps and features by this; 1 is the whole net")
    options = parser.parse_args()
    options.folder = options.folder or ROOT / "demo" / f"imagenet-{options.net}"
    if options.folder.exists():
        sys.exit(f"run.py: {options.folder} is there already, expected a new folder (--folder)")
    return options


def main():
    recipe = Recipe(parse())
    recipe.images()
    recipe.databases()
    recipe.nets()
    recipe.use(recipe.train())


if __name__ == "__main__":
    main()
