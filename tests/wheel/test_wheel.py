# SPDX-License-Identifier: Apache-2.0
"""The wheel in environments that cannot see the checkout."""
import itertools
import os
import pathlib
import re
import socket
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 120 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))
INSIDE = re.compile(r"poseidon/((\w+/)?\w+\.py|py\.typed|bin/poseidon|libposeidon\.so|include/poseidon/c/\w+\.(h|hpp)|licenses/.+\.txt)"
                    r"|poseidon_train\.libs/libisal-\w+\.so[.\d]*|poseidon_train-[\d.]+\.dist-info/.+")


def clean():
    """This environment without what shows the checkout."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "POSEIDON_", "LD_", "VIRTUAL_ENV"))}


@pytest.fixture(scope="module")
def wheel(request, tmp_path_factory):
    if given := request.config.getoption("--wheel"):
        return pathlib.Path(given).resolve()
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts" / "wheel.sh", folder], check=True)
    [file] = folder.iterdir()
    return file


def environment(folder, wheel):
    """The Python of a new virtual environment in which there is the wheel alone."""
    base = pathlib.Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    subprocess.run([base, "-m", "venv", folder], check=True, env=clean())
    python = folder / "bin" / "python3"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel],
                   check=True, cwd=folder, env=clean())
    return python


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory):
    return environment(tmp_path_factory.mktemp("alone"), wheel)


@pytest.fixture(scope="module")
def with_torch(wheel, tmp_path_factory):
    """As `alone`, with the torch that the tests have."""
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    python = environment(tmp_path_factory.mktemp("torch"), wheel)
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_it_is_for_every_python_and_old_systems(wheel):
    assert re.fullmatch(r"poseidon_train-\d+\.\d+\.\d+-py3-none-manylinux_2_34_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < 5e6
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if not name.endswith("/") and not INSIDE.fullmatch(name)] == []
    assert {f"poseidon/licenses/{library}.txt" for library in ("openssl", "libstdc++", "asio", "isa-l")} <= set(names)


def test_it_names_no_folder_of_the_machine_that_built_it(wheel):
    with zipfile.ZipFile(wheel) as files:
        assert str(ROOT).encode() not in files.read("poseidon/libposeidon.so")


def test_it_needs_the_c_library_alone(alone):
    [library] = alone.parents[1].glob("lib/python*/site-packages/poseidon/libposeidon.so")
    needed = re.findall(r"Shared library: \[(.*?)\]",
                        subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout)
    assert {re.sub(r"^libisal-.*", "libisal", name) for name in needed} == {
        "libisal", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


JOB = """
import array, importlib, sys
for name in sys.argv[4:]:
    importlib.import_module(name)
import ssl
import poseidon
rank, port, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
session = poseidon.join(rank=rank, workers=2, coordinator="127.0.0.1", port=port, token_file=token, wire="tls")
numbers = array.array("d", [1 + rank])
session.sum(numbers)
session.leave()
ssl.create_default_context()
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
try:
    ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="a").do_handshake()
except ssl.SSLWantReadError:
    print(numbers[0], outgoing.pending > 100, poseidon.__file__)
"""


def train(python, folder, *imports):
    """A job of two encrypted workers; what they print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = folder / "job.token"
    subprocess.run([python, "-I", "-c", "import poseidon, sys; poseidon.make_token_file(sys.argv[1])", token],
                   check=True, env=clean(), cwd=folder)
    workers = [subprocess.Popen([python, "-I", "-c", JOB, str(rank), str(port), token, *imports], cwd=folder, env=clean(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for worker in workers:
            output, errors = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 0, errors
            total, shook_hands, where = output.split()
            assert (total, shook_hands) == ("3.0", "True")
            assert not pathlib.Path(where).is_relative_to(ROOT)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def test_two_workers_meet_in_an_empty_environment(alone, tmp_path):
    train(alone, tmp_path)


@pytest.mark.parametrize("imports", itertools.permutations(["ssl", "torch", "poseidon"]), ids="-".join)
def test_libraries_that_bring_their_own_openssl_are_no_matter(with_torch, tmp_path, imports):
    train(with_torch, tmp_path, *imports)
