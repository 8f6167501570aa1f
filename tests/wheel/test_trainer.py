# SPDX-License-Identifier: Apache-2.0
"""The trainer's wheel beside the core's, where nothing of the checkout is seen."""
import pathlib
import re
import struct
import subprocess
import sysconfig
import zipfile

import pytest

import orders
from conftest import ROOT, command, environment, install, lend_libraries, packages

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

INSIDE = re.compile(r"poseidon_caffe/(__init__\.py|bin/poseidon|libposeidon_caffe\.so|licenses/.+\.txt)"
                    r"|poseidon_train_caffe\.libs/lib(isal|protobuf)-\w+\.so[.\d]*|poseidon_train_caffe-[\d.]+\.dist-info/.+")
MINOR = ".".join(torch.__version__.split(".")[:2])

NET = """
name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "digits" batch_size: 4 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 8 random_seed: 3
snapshot_prefix: "small" snapshot_format: HDF5
"""


def both(folder, wheel, trainer_wheel):
    python = environment(folder, wheel)
    install(python, trainer_wheel)
    return python, packages(python)


@pytest.fixture(scope="module")
def trainer(wheel, trainer_wheel, tmp_path_factory):
    """A Python with both wheels, whose torch is in another folder than they are."""
    python, _ = both(tmp_path_factory.mktemp("trainer"), wheel, trainer_wheel)
    lend_libraries(python)
    return python


@pytest.fixture
def job(trainer, tmp_path):
    """A folder with a net, its solver and the data, which the trainer has made."""
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    (tmp_path / "images").write_bytes(struct.pack(">4i", 2051, 12, 6, 6) + bytes(i * 7 % 256 for i in range(12 * 36)))
    (tmp_path / "labels").write_bytes(struct.pack(">2i", 2049, 12) + bytes(i % 10 for i in range(12)))
    made = command(trainer, "convert-mnist", "images", "labels", "digits", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    return tmp_path


def refused(python, *arguments, folder):
    """The one sentence with which a command fails."""
    done = command(python, *arguments, folder=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    return done.stderr.strip()


def test_it_holds_the_program_and_licences(trainer_wheel):
    assert re.fullmatch(r"poseidon_train_caffe-\d+\.\d+\.\d+-py3-none-manylinux_2_35_x86_64\.whl", trainer_wheel.name)
    with zipfile.ZipFile(trainer_wheel) as files:
        names = [name for name in files.namelist() if not name.endswith("/")]
        assert [name for name in names if not INSIDE.fullmatch(name)] == []
        program = files.read("poseidon_caffe/bin/poseidon")
        [metadata] = [files.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert {f"poseidon_caffe/licenses/{one}.txt" for one in ("openssl", "protobuf", "hdf5", "snappy", "libjpeg-turbo", "libpng")} <= set(names)
    assert str(ROOT).encode() not in program and sysconfig.get_path("purelib").encode() not in program
    version = trainer_wheel.name.split("-")[1]
    assert re.findall(r"^Requires-Dist: (.*)", metadata, re.M) == [f"poseidon-train=={version}", f"torch=={MINOR}.*"]


def test_it_loads_torchs_libraries_and_no_others(trainer):
    program = packages(trainer) / "poseidon_caffe" / "bin" / "poseidon"
    said = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    assert {re.sub(r"^libisal-.*", "libisal", name) for name in re.findall(r"Shared library: \[(.*?)\]", said)} == {
        "libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libisal", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6",
        "libc.so.6", "ld-linux-x86-64.so.2"}
    # Nor a gap as long as the path that was there when it was built: it would be another file from every folder.
    sections = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout
    offset, size = (int(number, 16) for number in re.search(r"\.dynstr\s+STRTAB\s+\w+ (\w+) (\w+)", sections).groups())
    assert bytes(8) not in program.read_bytes()[offset:offset + size]
    [path] = re.findall(r"(?:run|r)path: \[(.*)\]", said)
    assert all(one.startswith("$ORIGIN/") for one in path.split(":"))


def test_two_workers_train_and_the_model_is_scored(trainer, job):
    trained = command(trainer, "train", "--solver", "solver.prototxt", "--workers", "2", folder=job)
    assert trained.returncode == 0, trained.stderr
    assert re.search(r"^weights [0-9a-f]{16}, equal on all workers$", trained.stdout, re.M)
    scored = command(trainer, "test", "--model", "net.prototxt", "--weights", "small_iter_8.caffemodel.h5",
                     "--iterations", "2", folder=job)
    assert scored.returncode == 0 and re.search(r"loss = \d", scored.stdout + scored.stderr), scored.stderr


def test_pycaffe_trains_as_the_command_does(trainer, job):
    pytest.importorskip("numpy", reason="numpy is not installed for this interpreter")
    script = ("import poseidon.caffe as caffe\nsolver = caffe.get_solver('solver.prototxt')\nsolver.solve()\n"
              "net = caffe.Net('net.prototxt', caffe.TEST, weights='small_iter_8.caffemodel.h5')\nimport torch\n"
              "print(solver.weights_hash[:16], float(net.forward()['loss']) > 0, torch.ones(2).sum().item())\n")
    done = subprocess.run([trainer, "-c", script], env=orders.clean(), cwd=job, capture_output=True, text=True)
    trained = command(trainer, "train", "--solver", "solver.prototxt", folder=job)
    [weights] = re.findall(r"^weights ([0-9a-f]{16})", trained.stdout, re.M)
    assert done.stdout == f"{weights} True 2.0\n", done.stderr


def test_a_net_is_measured_and_planned(trainer, job):
    planned = command(trainer, "plan", "net.prototxt", "--workers", "2", "--rate", "1Gbit", folder=job)
    assert planned.returncode == 0 and "computing alone, rebuilding included" in planned.stdout, planned.stderr


def test_without_torch_only_what_computes_is_refused(wheel, trainer_wheel, tmp_path):
    python, _ = both(tmp_path / "own", wheel, trainer_wheel)
    assert refused(python, "train", "--solver", "x", folder=tmp_path) == (
        f"poseidon: the trainer computes with PyTorch, which is not installed: pip install 'torch=={MINOR}.*'")
    ranks = command(python, "run", "-n", "1", "echo", "here", folder=tmp_path)
    assert (ranks.returncode, ranks.stdout) == (0, "[0] here\n"), ranks.stderr
    assert command(python, "--version", folder=tmp_path).stdout.startswith("poseidon ")


def test_another_version_of_torch_is_refused(wheel, trainer_wheel, tmp_path):
    """By the command, which asks pip."""
    python, folder = both(tmp_path / "own", wheel, trainer_wheel)
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").touch()
    (folder / "torch-2.12.1.dist-info").mkdir()
    (folder / "torch-2.12.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1\n")
    assert refused(python, "--logtostderr=1", "time", "--model", "x", folder=tmp_path) == (
        f"poseidon: the trainer is built for PyTorch {MINOR} and 2.12.1 is installed, expected {MINOR}: "
        f"pip install 'torch=={MINOR}.*'")


def test_the_program_compares_with_what_it_has_loaded(trainer, tmp_path):
    """Where ssh starts it nobody asks pip. What the library says of itself is put before torch's own."""
    (tmp_path / "other.cc").write_text(
        "#include <map>\n#include <string>\n"
        "namespace caffe2 { const std::map<std::string, std::string>& GetBuildOptions() {\n"
        '  static const std::map<std::string, std::string> options = {{"TORCH_VERSION", "2.12.1"}, {"X", "1"}};\n'
        "  return options;\n} }\n")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.cc"], check=True)
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    program = packages(trainer) / "poseidon_caffe" / "bin" / "poseidon"
    for arguments in ("device_query",), ("train", "--solver", "x"):
        done = subprocess.run([program, *arguments], env=orders.clean() | {"LD_LIBRARY_PATH": str(libraries), "LD_PRELOAD": str(tmp_path / "other.so")}, cwd=tmp_path,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (f"poseidon: the trainer is built for PyTorch {MINOR} and has loaded 2.12.1, "
                               f"expected torch=={MINOR}.*\n")


def test_a_trainer_of_another_version_is_refused(wheel, trainer_wheel, tmp_path):
    python, folder = both(tmp_path / "own", wheel, trainer_wheel)
    [metadata] = folder.glob("poseidon_train_caffe-*.dist-info/METADATA")
    version = trainer_wheel.name.split("-")[1]
    metadata.write_text(metadata.read_text().replace(f"Version: {version}", "Version: 7.8.9"))
    assert refused(python, "train", "--solver", "x", folder=tmp_path) == (
        f"poseidon: poseidon-train-caffe 7.8.9 is installed beside poseidon-train {version}, expected the same version of "
        f"both: pip install poseidon_train_caffe-{version}-*.whl")
