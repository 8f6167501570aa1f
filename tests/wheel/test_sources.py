# SPDX-License-Identifier: Apache-2.0
"""The source distribution: what is in it, and that a wheel comes out of it, the same bytes as from the checkout."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile

import pytest

from conftest import ROOT
from orders import clean

INSIDE = re.compile(r"poseidon_train-[\d.]+/(PKG-INFO|LICENSE|README\.md|CHANGELOG\.md|pyproject\.toml|CMakeLists\.txt"
                    r"|scripts/(wheel\.sh|description\.py)|benchmarks/profiles/\w+\.py|cmake/[\w.]+\.(cmake|cc|in)|frontends/CMakeLists\.txt"
                    r"|frontends/python/poseidon/.+\.(py|typed|md)"
                    r"|(poseidon|tools|frontends/plan_file|frontends/tensorflow)/.+\.(h|hpp|cc|map|cnf|txt|md))")
NAMES_ITSELF = "poseidon/tensor/sum.cc"  # in what it says where it fails


def source_distribution(folder, root=ROOT):
    """The file that pip's hook makes of a checkout."""
    name = subprocess.run([sys.executable, "-B", "-c", "import sys; from scikit_build_core.build import build_sdist; "
                           "print(build_sdist(sys.argv[1]))", folder], cwd=root, env=clean(), capture_output=True,
                          text=True, check=True).stdout.split()[-1]
    return folder / name


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return source_distribution(tmp_path_factory.mktemp("sdist"))


def tracked():
    """The files of the checkout by git; None where this is no checkout."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, text=True)
    return set(listing.stdout.split("\0")) if listing.returncode == 0 else None


def test_nothing_generated_is_in_them(sources):
    assert sources.stat().st_size < 1e6
    with tarfile.open(sources) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if not member.isfile()] == []
    assert [member.name for member in members if not INSIDE.fullmatch(member.name)] == []
    files = {member.name.partition("/")[2] for member in members}
    assert {"LICENSE", "README.md", "pyproject.toml", "frontends/python/poseidon/py.typed"} <= files
    if (known := tracked()) is not None:
        assert files - known == {"PKG-INFO"}


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def unpack(sources, folder):
    with tarfile.open(sources) as archive:
        archive.extractall(folder)
    [inside] = folder.iterdir()
    return inside


def test_packed_again_they_are_the_same_bytes(sources, tmp_path):
    with umask(0o077):
        inside = unpack(sources, tmp_path / "unpacked")
        (inside / "frontends/python/poseidon/__pycache__").mkdir()
        (inside / "frontends/python/poseidon/__pycache__/session.cpython-311.pyc").touch()
        assert source_distribution(tmp_path / "dist", inside).read_bytes() == sources.read_bytes()


def offline():
    """How to start a program without a network, as far as this machine lets us."""
    alone = ["unshare", "--net"]
    return alone if subprocess.run([*alone, "true"], capture_output=True).returncode == 0 else []


@pytest.fixture(scope="module")
def unpacked(sources, tmp_path_factory):
    """The source distribution's folder, in which a wheel was built; and that wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with umask(0o077):
        inside = unpack(sources, folder / "sources")
        # Another folder, time, time zone and umask than the checkout's, and no network.
        there = clean() | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "TZ": "Asia/Tokyo"}
        subprocess.run([*offline(), inside / "scripts" / "wheel.sh", folder / "dist"], check=True, env=there)
    [file] = (folder / "dist").iterdir()
    return inside, file


@pytest.mark.long
def test_a_wheel_from_them_is_the_same_bytes(wheel, unpacked):
    _, ours = unpacked
    assert ours.name == wheel.name
    assert ours.read_bytes() == wheel.read_bytes()


def test_the_compiler_makes_the_same_of_a_source_elsewhere(unpacked, tmp_path):
    """The two builds may have shared objects, through ccache; this one is compiled once more without it."""
    inside, _ = unpacked
    elsewhere = shutil.copytree(inside, tmp_path / "elsewhere")
    commands = json.loads((inside / "build" / "wheel" / "compile_commands.json").read_text())
    [command] = [entry["command"] for entry in commands if entry["file"].endswith(NAMES_ITSELF)]
    words = shlex.split(command.replace(str(inside), str(elsewhere)))
    made = elsewhere / "build" / "wheel" / words[words.index("-o") + 1]
    made.unlink()
    subprocess.run(words, check=True, cwd=elsewhere / "build" / "wheel", env=os.environ | {"CCACHE_DISABLE": "1"})
    assert made.read_bytes() == (inside / made.relative_to(elsewhere)).read_bytes()
    assert f"./{NAMES_ITSELF}".encode() in made.read_bytes()
