# SPDX-License-Identifier: Apache-2.0
"""The version is in CMakeLists.txt; all who name one name that, and a library of another is refused."""
import re
import subprocess
import zipfile

import pytest

from conftest import ROOT, environment, install, packages
from orders import clean


@pytest.fixture(scope="module")
def expected():
    return re.search(r"project\(poseidon VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]


def say(python, script, **variables):
    """Output and errors of a script that cannot see the checkout."""
    run = subprocess.run([python, "-c", script], cwd=python.parents[1], env=clean() | variables, capture_output=True,
                         text=True)
    return run.stdout.strip(), run.stderr.strip()


@pytest.fixture
def own(wheel, tmp_path):
    """The Python and the package's folder of an environment that a test may spoil."""
    python = environment(tmp_path / "own", wheel)
    return python, packages(python) / "poseidon"


def test_all_name_the_same(wheel, alone, expected):
    assert wheel.name.split("-")[1] == expected
    with zipfile.ZipFile(wheel) as files:
        header = files.read("poseidon/include/poseidon/c/job.h").decode()
        [metadata] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        assert f"\nVersion: {expected}\n" in files.read(metadata).decode()
    assert re.findall(r"POSEIDON_VERSION_(?:MAJOR|MINOR) (\d+)", header) == expected.split(".")[:2]
    assert say(alone, "import poseidon, poseidon.session\n"
                      "print(poseidon.__version__, poseidon.session.library().version_text().decode())") \
        == (f"{expected} {expected}", "")


def test_a_library_of_another_version_is_refused(own, expected):
    python, package = own
    [metadata] = package.parent.glob("poseidon_train-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace(f"Version: {expected}", "Version: 7.8.9"))
    load = "import poseidon.library as l\ntry: l.load()\nexcept ImportError as error: print(error)"
    assert say(python, load) == (f"{package}/libposeidon.so has version {expected} and the package poseidon 7.8.9, "
                                 "expected the same version of both", "")


def test_a_library_that_lacks_functions_is_refused(own):
    python, package = own
    said, errors = say(python, "import poseidon.library as l\ntry: l.load()\nexcept ImportError as error: print(error)",
                       POSEIDON_LIBRARY="libc.so.6")
    assert said.startswith("libc.so.6 is older than the package poseidon (") and "\n" not in said and errors == ""


def test_the_distribution_of_the_same_name_is_named(own, tmp_path):
    python, _ = own
    assert say(python, "import poseidon") == ("", "")
    other = tmp_path / "poseidon-1.2.3-py3-none-any.whl"
    folder = "poseidon-1.2.3.dist-info"
    with zipfile.ZipFile(other, "w") as files:
        files.writestr("poseidon/ssh.py", "")
        files.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: poseidon\nVersion: 1.2.3\n")
        files.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr(f"{folder}/RECORD", f"poseidon/ssh.py,,\n{folder}/METADATA,,\n{folder}/WHEEL,,\n{folder}/RECORD,,\n")
    install(python, other)
    said, errors = say(python, "import poseidon\nprint(poseidon.__version__)")
    assert re.fullmatch(r"[\d.]+", said)
    [line] = errors.splitlines()
    assert re.fullmatch(r"<string>:1: RuntimeWarning: an unrelated distribution 'poseidon' 1\.2\.3 is installed and .*", line)
