# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys
import sysconfig

import pytest

from orders import clean

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "shared"))

from some_cases import pytest_collection_modifyitems, pytest_configure  # noqa: E402, F401  # make test runs some


def pytest_addoption(parser):
    parser.addoption("--wheel", help="the core's wheel under test; without it one is built")
    parser.addoption("--trainer-wheel", help="the trainer's; without it one is built")


def given_or_built(given, folder, *flags):
    if given:
        return pathlib.Path(given).resolve()
    subprocess.run([ROOT / "scripts" / "wheel.sh", *flags, folder], check=True)
    [file] = folder.iterdir()
    return file


@pytest.fixture(scope="session")
def wheel(request, tmp_path_factory):
    return given_or_built(request.config.getoption("--wheel"), tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def trainer_wheel(request, tmp_path_factory):
    return given_or_built(request.config.getoption("--trainer-wheel"), tmp_path_factory.mktemp("dist"), "--trainer")


def packages(python):
    """Where an environment's packages are."""
    [found] = python.parents[1].glob("lib/python*/site-packages")
    return found


def lend_libraries(python, folder=sysconfig.get_path("purelib")):
    """The packages that the tests have, torch among them, or those of `folder` are an environment's too, in another folder
    than its own."""
    (packages(python) / "lent.pth").write_text(f"{folder}\n")


def install(python, *wheels):
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check",
                    *wheels], check=True, cwd=python.parent, env=clean())


OWN = pathlib.Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def environment(folder, wheel, base=OWN):
    """The Python of a new virtual environment in which there is the wheel alone."""
    subprocess.run([base, "-m", "venv", folder], check=True, env=clean())
    python = folder / "bin" / "python3"
    install(python, wheel)
    return python


@pytest.fixture(scope="session")
def alone(wheel, tmp_path_factory):
    return environment(tmp_path_factory.mktemp("alone"), wheel)


def command(python, *arguments, folder):
    """`poseidon ...` as the environment has it on its PATH."""
    return subprocess.run([python.parent / "poseidon", *arguments], cwd=folder, env=clean(), capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
