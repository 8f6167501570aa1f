# SPDX-License-Identifier: Apache-2.0
"""The wheel in environments that cannot see the checkout."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import orders
from conftest import ROOT, command, environment, lend_libraries, packages

INSIDE = re.compile(r"poseidon/((\w+/)*\w+\.py|py\.typed|bin/poseidon|libposeidon(_tensorflow)?\.so|include/poseidon/c/\w+\.(h|hpp)|licenses/.+\.txt|pkgconfig/poseidon\.pc|cmake/\w+\.cmake)"
                    r"|poseidon_train\.libs/libisal-\w+\.so[.\d]*|poseidon_train-[\d.]+\.dist-info/.+")


@pytest.fixture(scope="module")
def with_torch(wheel, tmp_path_factory):
    """As `alone`, with the torch and the cryptography that the tests have."""
    for library in "torch", "cryptography":
        pytest.importorskip(library, reason=f"{library} is not installed for this interpreter")
    python = environment(tmp_path_factory.mktemp("torch"), wheel)
    lend_libraries(python)
    return python


def test_it_is_for_every_python_and_old_systems(wheel):
    assert re.fullmatch(r"poseidon_train-\d+\.\d+\.\d+-py3-none-manylinux_2_34_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < 7e6
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if not name.endswith("/") and not INSIDE.fullmatch(name)] == []
    assert {f"poseidon/licenses/{library}.txt" for library in ("openssl", "intel-ipsec-mb", "libstdc++", "asio", "isa-l", "cli11",
                                                                "nlohmann-json")} <= set(names)


def test_it_names_no_folder_of_the_machine_that_built_it(wheel):
    with zipfile.ZipFile(wheel) as files:
        assert str(ROOT).encode() not in files.read("poseidon/libposeidon.so")


def test_it_needs_the_c_library_alone(alone):
    library = packages(alone) / "poseidon" / "libposeidon.so"
    needed = re.findall(r"Shared library: \[(.*?)\]",
                        subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout)
    assert {re.sub(r"^libisal-.*", "libisal", name) for name in needed} == {
        "libisal", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


def test_two_workers_meet_in_an_empty_environment(alone, tmp_path):
    for file in orders.train(alone, tmp_path, ["ssl", "poseidon"], ["poseidon", "ssl"]):
        assert not file.is_relative_to(ROOT)


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_runs_it(wheel, tmp_path, version):
    base = shutil.which(f"python{version}")
    if base is None or subprocess.run([base, "-c", "import ensurepip"], capture_output=True, env=orders.clean()).returncode:
        pytest.skip(f"Python {version} with venv is not installed")
    python = environment(tmp_path / "own", wheel, base)
    orders.train(python, tmp_path, ["ssl", "poseidon"], ["poseidon", "ssl"])
    subprocess.run([python, "-W", "error", "-m", "compileall", "-q", "-f", python.parents[1] / "lib" / f"python{version}" /
                    "site-packages" / "poseidon"], check=True)


def test_a_type_checker_reads_its_annotations(alone, tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed for this interpreter")
    script = tmp_path / "script.py"
    script.write_text("import poseidon\n\nposeidon.join(rank='0')\n")
    said = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-executable", alone, script], cwd=tmp_path,
                          env=orders.clean(), capture_output=True, text=True).stdout
    assert re.findall(r"script\.py:(\d+): error: .*\[(.*)\]", said) == [("3", "arg-type")], said


BESIDE = ["ssl", "torch", "cryptography", "poseidon"]
ORDERS = orders.covering(BESIDE)


@pytest.mark.parametrize("pair", list(zip(ORDERS[::2], ORDERS[1::2])), ids=lambda pair: "+".join(map("-".join, pair)))
def test_libraries_that_bring_their_own_openssl_are_no_matter(with_torch, tmp_path, pair):
    orders.train(with_torch, tmp_path, *pair)


def test_tensorflow_is_no_matter_either(with_torch, tmp_path):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed for this interpreter; tests/wheel/orders.py "
                                             "says how to test beside it")
    beside = orders.covering([*BESIDE, "tensorflow"])
    for pair in zip(beside[::2], beside[1::2]):
        orders.train(with_torch, tmp_path, *pair)


def test_the_doctor_needs_nothing_else(alone, tmp_path):
    """Two names of this machine; each agent is a process of the same environment."""
    done = subprocess.run([alone, "-m", "poseidon.doctor", "--hosts", "localhost,127.0.0.1", "--json", "report"],
                          cwd=tmp_path, env=orders.clean(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) in ((0, ""), (1, "")), done.stderr
    report = json.loads((tmp_path / "report").read_text())
    assert [pair["trouble"] for pair in report["pairs"]] == ["", ""]
    assert {finding["kind"] for finding in report["findings"]} <= {"disk", "memory", "descriptors"}  # of this machine
    assert not any(pathlib.Path(host["facts"]["package"]).is_relative_to(ROOT) for host in report["hosts"])


def test_the_command_needs_no_trainer(alone, tmp_path):
    assert re.fullmatch(r"poseidon \d+\.\d+\.\d+\n", command(alone, "--version", folder=tmp_path).stdout)
    ranks = command(alone, "run", "-n", "2", "sh", "-c", "echo $RANK", folder=tmp_path)
    assert (ranks.returncode, sorted(ranks.stdout.split("\n"))) == (0, ["", "[0] 0", "[1] 1"]), ranks.stderr
    (tmp_path / "net.prototxt").touch()
    (tmp_path / "script.py").touch()
    planned = command(alone, "plan", "mlp", "--workers", "4", "--rate", "1Gbit", "--json", "out.json", folder=tmp_path)
    assert planned.returncode == 0 and "computing alone, rebuilding included" in planned.stdout, planned.stderr
    assert len(json.loads((tmp_path / "out.json").read_text())["prediction"]["plan"]["layers"]) == 3
    for arguments, sentence in ((("train", "--solver", "x"), "poseidon: 'train' needs the trainer: "),
                                (("plan", "net.prototxt", "--workers", "2", "--rate", "1Gbit"),
                                 "poseidon: measuring net.prototxt needs the trainer: "),
                                (("profile", "net.prototxt"), "poseidon: 'profile' needs the trainer: "),
                                (("profile", "script.py"), "poseidon: script.py ended without a model to measure, "),
                                (("demo",), "poseidon: the demonstration trains with PyTorch, which is not installed: "),
                                (("demo", "--x"), "poseidon: unknown flag --x (see "),
                                (("nonsense",), "poseidon: unknown command 'nonsense', ")):
        done = command(alone, *arguments, folder=tmp_path)
        assert done.returncode == (2 if "unknown" in sentence else 1) and not done.stdout
        assert done.stderr.startswith(sentence) and done.stderr.count("\n") == 1


@pytest.mark.long
def test_the_demonstration_shows_what_it_says(with_torch, tmp_path):
    done = command(with_torch, "demo", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    hashes = re.findall(r"\[([01])\] accuracy 0\.9\d+, hash of the weights ([0-9a-f]{16})\n", done.stdout)
    assert len(hashes) == 2 and len({rank for rank, _ in hashes}) == 2 and len({one for _, one in hashes}) == 1
    assert re.search(r"^\[0\] PoseidonError: worker 1 on host \S+ was lost: ", done.stderr, re.MULTILINE)
    assert done.stderr.endswith("poseidon: rank 1 was killed by signal 9 (Killed)\n")
