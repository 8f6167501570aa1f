# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys

import pytest

import caffe_files
import job as jobs

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import some_cases  # noqa: E402
from some_cases import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  # make test runs some

if not os.environ.get("POSEIDON_SANITIZE"):  # else a command takes seconds to start, and fewer run
    some_cases.PARTS = some_cases.PARTS_OF_LONG = some_cases.PARTS_OF_OTHERS = 2

SLOW_FSYNC = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
/* While the disk is slow: says that it was called, and does nothing. */
int fsync(int fd) {
  while (access(getenv("DISK_IS_SLOW"), F_OK) == 0) {
    close(open(getenv("FSYNC_BEGUN"), O_CREAT | O_WRONLY, 0600));
    usleep(100000);
  }
  return syscall(SYS_fsync, fd);
}
"""


def pytest_addoption(parser):
    parser.addoption("--poseidon", default=os.environ.get("POSEIDON_BINARY"),
                     help="the poseidon command under test")


@pytest.fixture(scope="session")
def poseidon(request):
    path = request.config.getoption("--poseidon")
    if not path:
        pytest.exit("no --poseidon: the path of the poseidon command is expected", 4)
    return os.path.abspath(path)


class Databases:
    def __init__(self, train, test):
        self.train = train
        self.test = test


@pytest.fixture(scope="session")
def databases(poseidon, tmp_path_factory):
    """LMDBs of training and test images, made by `poseidon convert-mnist`."""
    folder = tmp_path_factory.mktemp("databases")
    made = []
    for name, count in (("train", caffe_files.TRAIN_IMAGES), ("test", caffe_files.TEST_IMAGES)):
        images, labels = caffe_files.write_idx(folder, name, count, seed=len(made))
        done = jobs.run(poseidon, "convert-mnist", images, labels, folder / f"{name}-lmdb")
        assert done.code == 0, done.err.text
        assert f"{count} images" in done.out.text
        made.append(folder / f"{name}-lmdb")
    return Databases(*made)


class Bench:
    """A folder with a net and a solver, and runs of the trainer in it."""

    def __init__(self, poseidon, folder, databases):
        self.poseidon = poseidon
        self.folder = pathlib.Path(folder)
        self.databases = databases

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def lenet(self, name="net.prototxt", **options):
        net = caffe_files.small_lenet(self.databases.train, self.databases.test, **options)
        return self.write(name, net)

    def small_layers(self, name="small.prototxt"):
        return self.write(name, caffe_files.small_layers(self.databases.train, self.databases.test))

    def solver(self, name="solver.prototxt", net=None, **fields):
        return self.write(name, caffe_files.solver(net or self.lenet(), **fields))

    def arguments(self, solver, arguments, run_dir):
        # One thread each: every machine that runs the tests computes the same bits.
        return ["train", "--solver", solver, "--threads", 1, "--run-dir", self.folder / run_dir,
                *arguments]

    def start(self, solver, *arguments, run_dir="run", **options):
        return jobs.Job(self.poseidon, *self.arguments(solver, arguments, run_dir),
                        cwd=self.folder, **options)

    def train(self, solver, *arguments, run_dir="run", **options):
        """Trains to the end; the finished job, with what is in summary.json."""
        done = jobs.run(self.poseidon, *self.arguments(solver, arguments, run_dir),
                        cwd=self.folder, **options)
        assert done.code == 0, f"exit code {done.code}\n{done.out.text}\n{done.err.text}"
        done.run_dir = self.folder / run_dir
        done.summary = jobs.summary_of(done.run_dir)
        return done


@pytest.fixture
def bench(poseidon, databases, tmp_path):
    return Bench(poseidon, tmp_path, databases)


@pytest.fixture
def slow_disk(bench):
    """The environment of a job whose fsync blocks while the file `slow` is there."""
    source = bench.write("slow_fsync.c", SLOW_FSYNC)
    library = bench.folder / "slow_fsync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    begun, slow = bench.folder / "fsync_begun", bench.folder / "disk_is_slow"
    return {"LD_PRELOAD": str(library), "FSYNC_BEGUN": str(begun), "DISK_IS_SLOW": str(slow)}, begun, slow
