# SPDX-License-Identifier: Apache-2.0
"""Every file the command reads, damaged at random: bytes flipped, cut, numbers made huge, parts doubled and removed. The
command ends with a sentence, or trains; it does not hang and no signal ends it.

POSEIDON_MUTATIONS is how many damaged files to try (default 60), POSEIDON_SEED the first seed (1): a failure names the
seed that repeats it."""

import os
import random
import re
import resource
import struct
import subprocess

import numpy
import pytest

import caffe_files
import lmdb_files
import job as jobs
import messages
from tool_files import caffemodel, png

pytestmark = pytest.mark.counted

COUNT = int(os.environ.get("POSEIDON_MUTATIONS", "60"))
FIRST = int(os.environ.get("POSEIDON_SEED", "1"))
SANITIZED = os.environ.get("POSEIDON_SANITIZE", "") not in ("", "OFF")
ADDRESS_SPACE = 4 << 30
# A damaged count may ask for years of training. After so long the command is asked to stop.
SECONDS_OF_TRAINING = 5

HUGE = (b"0", b"-1", b"2147483647", b"-2147483648", b"4294967295", b"99999999999999999999", b"1e39", b"nan")
WORDS = (b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f", b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f",
         b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01")


def damaged(content, source, text):
    """`content` with one to four defects."""
    for _ in range(source.choice((1, 1, 2, 4))):
        if not content:
            return content
        at = source.randrange(len(content))
        end = min(len(content), at + source.choice((1, 4, 30, 300)))
        kind = source.randrange(7)
        if kind == 0:
            content = content[:at] + bytes([content[at] ^ 1 << source.randrange(8)]) + content[at + 1:]
        elif kind == 1:
            content = content[:at]
        elif kind == 2:
            content = content[:end] + content[at:end] + content[end:]
        elif kind == 3:
            content = content[:at] + content[end:]
        elif kind == 4 and text:
            numbers = list(re.finditer(rb"(?<=[ :=,\[])-?[0-9][0-9.e-]*", content))
            if numbers:
                number = source.choice(numbers)
                content = content[:number.start()] + source.choice(HUGE) + content[number.end():]
        elif kind == 5 and text:
            lines = content.split(b"\n")
            line = source.randrange(len(lines))
            lines[line:line + 1] = source.choice(([], [lines[line]] * 2, [b"}"], [b"{"]))
            content = b"\n".join(lines)
        else:
            word = source.choice(WORDS)
            content = content[:at] + word + content[at + len(word):]
    return content


def annotated_database(folder):
    """SSD's records: a PNG of 16x20 with a box and one with two."""
    image = png(numpy.arange(16 * 20 * 3, dtype=numpy.uint8).reshape(16, 20, 3))
    records = []
    for count in (1, 2):
        boxes = b"".join(
            messages.message(2, messages.number(1, i) + messages.message(2, b"".join(
                messages.varint(field << 3 | 5) + struct.pack("<f", side) for field, side in enumerate((0.1, 0.2 + 0.3 * i, 0.6, 0.5 + 0.4 * i), 1))))
            for i in range(count))
        records.append((b"%08d" % count, messages.message(1, messages.message(4, image) + messages.number(7, 1)) + messages.number(2, 0) +
                        messages.message(3, messages.number(1, 2) + boxes)))
    lmdb_files.write(folder, records)


class Originals:
    """A folder with one good file of every kind, and the command that reads it."""

    def __init__(self, poseidon, folder, databases):
        self.poseidon, self.folder = poseidon, folder
        mean = messages.mean_file(folder / "mean.binaryproto", (1, 28, 28), 0.5)
        net = caffe_files.small_lenet(folder / "train-lmdb", databases.test).replace(
            "scale: 0.00390625", f'scale: 0.00390625 mean_file: "{mean}"', 1)
        (folder / "net.prototxt").write_text(net)
        (folder / "train-lmdb").mkdir()
        (folder / "train-lmdb/data.mdb").write_bytes((databases.train / "data.mdb").read_bytes())
        solver = caffe_files.solver(folder / "net.prototxt", max_iter=4, test_interval=2, test_iter=2, snapshot=2,
                                    snapshot_prefix=folder / "snap", debug_info=False)
        (folder / "solver.prototxt").write_text(solver)
        caffe_files.write_idx(folder, "set", 12, seed=9)
        (folder / "windowed.png").write_bytes(png(numpy.arange(20 * 30 * 3, dtype=numpy.uint8).reshape(20, 30, 3)))
        (folder / "windows.txt").write_text("".join(f"# {i}\nwindowed.png\n3\n20\n30\n3\n1 0.9 2 3 14 15\n0 0.1 8 0 29 19\n2 0.3 0 0 9 9\n" for i in (0, 1)))
        (folder / "windowed.prototxt").write_text(f"""
layer {{
  name: "windows" type: "WindowData" top: "data" top: "label" transform_param {{ crop_size: 12 mirror: true }}
  window_data_param {{ source: "{folder}/windows.txt" root_folder: "{folder}/" batch_size: 8 context_pad: 2 }}
}}""" + caffe_files.inner_product("ip", "data", 3) + """
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }""")
        (folder / "windows.csv").write_text("filename,ymin,xmin,ymax,xmax\n" + f'"{folder}/windowed.png",2,3,15,16\n{folder}/windowed.png,0,8,20,30\n')
        (folder / "deploy.prototxt").write_text("""
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }""" + caffe_files.inner_product("ip", "data", 3))
        (folder / "deploy.caffemodel").write_bytes(caffemodel(b"ip", *(numpy.zeros(shape, numpy.float32) for shape in ((3, 108), (3,)))))
        annotated_database(folder / "annotated")
        (folder / "annotated.prototxt").write_text(f"""
layer {{
  name: "boxes" type: "AnnotatedData" top: "data" top: "label" data_param {{ source: "{folder}/annotated" batch_size: 4 backend: LMDB }}
  annotated_data_param {{ batch_sampler {{ sampler {{ min_scale: 0.4 max_aspect_ratio: 2 }} sample_constraint {{ min_jaccard_overlap: 0.1 }} max_trials: 9 }} }}
  transform_param {{
    mirror: true distort_param {{ hue_prob: 0.5 hue_delta: 9 }} expand_param {{ max_expand_ratio: 2 }} emit_constraint {{ }}
    resize_param {{ height: 12 width: 10 resize_mode: FIT_LARGE_SIZE_AND_PAD interp_mode: AREA interp_mode: CUBIC }} }}
}}
layer {{ name: "quiet" type: "Silence" bottom: "data" bottom: "label" }}""")
        (folder / "token").write_text("ab" * 32 + "\n")
        (folder / "token").chmod(0o600)
        (folder / "hosts").write_text("# machines\nlocalhost slots=2\n127.0.0.1 slots=3\n")
        self.train = ("train", "--solver", folder / "solver.prototxt", "--threads", 1)
        done = jobs.run(poseidon, *self.train, "--sync", "--final-plan-step", 3, "--run-dir", folder / "first", cwd=folder)
        assert done.code == 0, done.err.text
        done = jobs.run(poseidon, "profile", folder / "net.prototxt", "--iterations", 1, "--out", folder / "profile.json",
                        cwd=folder)
        assert done.code == 0, done.err.text
        (folder / "exported.prototxt").write_text(net)
        weights, tensors = folder / "snap_iter_2.caffemodel", folder / "weights.safetensors"
        done = jobs.run(poseidon, "export", folder / "exported.prototxt", weights, tensors, cwd=folder)
        assert done.code == 0, done.err.text
        self.kinds = {
            "solver.prototxt": (True, self.train),
            "net.prototxt": (True, self.train),
            "mean.binaryproto": (False, self.train),
            "train-lmdb/data.mdb": (False, self.train),
            "snap_iter_2.caffemodel": (False, (*self.train, "--weights", folder / "snap_iter_2.caffemodel")),
            "snap_iter_2.solverstate": (False, (*self.train, "--snapshot", folder / "snap_iter_2.solverstate")),
            "first/plan.json": (True, (*self.train, "--sync", "--plan", folder / "first/plan.json")),
            "token": (True, (*self.train, "--workers", 2, "--token-file", folder / "token")),
            # More workers than slots: no name is looked up.
            "hosts": (True, (*self.train, "--workers", 1000, "--hostfile", folder / "hosts")),
            "windows.txt": (True, ("time", "--model", folder / "windowed.prototxt", "--iterations", 1)),
            "annotated.prototxt": (True, ("time", "--model", folder / "annotated.prototxt", "--iterations", 1)),
            "annotated/data.mdb": (False, ("time", "--model", folder / "annotated.prototxt", "--iterations", 1)),
            "windows.csv": (True, ("detect", "--model", folder / "deploy.prototxt", "--weights", folder / "deploy.caffemodel", "--context_pad", 1,
                                   folder / "windows.csv")),
            "set-images": (False, ("convert-mnist", folder / "set-images", folder / "set-labels", folder / "made-lmdb")),
            "set-labels": (False, ("convert-mnist", folder / "set-images", folder / "set-labels", folder / "made-lmdb")),
            "exported.prototxt": (True, ("export", folder / "exported.prototxt", weights, folder / "made.onnx")),
            "weights.safetensors": (False, ("export", folder / "net.prototxt", tensors, folder / "made.caffemodel")),
            "profile.json": (True, ("plan", folder / "profile.json", "--workers", 4, "--rate", "1Gbit")),
        }
        self.contents = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def restore(self):
        subprocess.run(["rm", "-rf", self.folder / "made-lmdb", self.folder / "run"], check=True)
        for path, content in self.contents.items():
            (self.folder / path).write_bytes(content)


@pytest.fixture(scope="module")
def originals(poseidon, databases, tmp_path_factory):
    return Originals(poseidon, tmp_path_factory.mktemp("mutations"), databases)


def limit():
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def run(originals, arguments):
    """To its end; asked to stop where a damaged number makes it train on and on."""
    with jobs.Job(originals.poseidon, *arguments, cwd=originals.folder, before=limit) as job:
        try:
            job.process.wait(SECONDS_OF_TRAINING)
        except subprocess.TimeoutExpired:
            job.process.terminate()
        job.code = job.finish()
        return job


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_damaged_file(originals, seed):
    originals.restore()
    source = random.Random(seed)
    name = sorted(originals.kinds)[seed % len(originals.kinds)]
    text, arguments = originals.kinds[name]
    path = originals.folder / name
    path.write_bytes(damaged(path.read_bytes(), source, text))
    if arguments[0] == "train":
        arguments = (*arguments, "--run-dir", originals.folder / "run")
    done = run(originals, arguments)
    said = f"seed {seed}, {name}: exit code {done.code}\n{done.err.text}"
    assert 0 <= done.code < 128, said
    assert "terminate called" not in said and "Traceback" not in said and "DefaultCPUAllocator" not in said, said
    own = [line for line in done.err.lines if line.startswith("poseidon: ")]
    foreign = [line for line in done.err.lines if not line.startswith(("poseidon: ", "notice: ", "warning: ", "error: "))]
    assert foreign == [], said
    assert done.code == 0 or len(own) == 1, said
