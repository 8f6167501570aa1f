# SPDX-License-Identifier: Apache-2.0
"""The two wheels as a package index has them: pip resolves them together, and the page of each says what is so. There is no index
yet; pip finds them in a folder."""
import json
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from conftest import OWN, ROOT, lend_libraries, packages
from orders import clean

metadata = pytest.importorskip("packaging.metadata", reason="packaging 24 is not installed for this interpreter")
OTHER = "7.8.9"


def of(wheel):
    """The file METADATA of a wheel, and what it says."""
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return name, files.read(name).decode()


def of_another_version(wheel, folder, version):
    """A wheel that pip takes for that version of `wheel`; it is empty."""
    name, text = of(wheel)
    was = wheel.name.split("-")[1]
    inside = name.split("/")[0].replace(was, OTHER)
    with zipfile.ZipFile(folder / wheel.name.replace(f"-{was}-", f"-{version}-"), "w") as files:
        files.writestr(f"{inside}/METADATA", text.replace(f"Version: {was}", f"Version: {version}", 1))
        files.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")


def without_pip(folder):
    """A Python without a package: pip and setuptools of the tests' own environment serve it."""
    subprocess.run([OWN, "-m", "venv", "--without-pip", folder], check=True, env=clean())
    return folder / "bin" / "python3"


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A Python without packages."""
    return without_pip(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory):
    """A Python that has torch and what it needs, and neither of the wheels."""
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    python = without_pip(tmp_path_factory.mktemp("with_torch"))
    lend_libraries(python)
    return python


@pytest.fixture
def index(wheel, trainer_wheel, tmp_path):
    """A folder with both wheels."""
    folder = tmp_path / "index"
    folder.mkdir()
    for file in wheel, trainer_wheel:
        shutil.copy(file, folder)
    return folder


def resolved(python, index, *asked):
    """What pip would install, by name, or what it says instead."""
    report = index.parent / "report.json"
    own = {name: value for name, value in clean().items() if not name.startswith("PIP_")} | {"PIP_CONFIG_FILE": "/dev/null"}
    done = subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--dry-run", "--quiet", "--no-index",
                           "--disable-pip-version-check", "--find-links", index, "--report", report, *asked],
                          cwd=index, env=own, capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    return {one["metadata"]["name"]: one["metadata"]["version"] for one in json.loads(report.read_text())["install"]}


def both(wheel):
    version = wheel.name.split("-")[1]
    return {"poseidon-train": version, "poseidon-train-caffe": version}


@pytest.mark.parametrize("asked", (("poseidon-train", "poseidon-train-caffe"), ("poseidon-train[caffe]",),
                                   ("poseidon-train-caffe",)))
def test_pip_resolves_both_to_one_version(with_torch, index, wheel, asked):
    assert resolved(with_torch, index, *asked) == both(wheel)


def test_a_newer_core_waits_for_its_trainer(with_torch, index, wheel):
    of_another_version(wheel, index, OTHER)
    assert resolved(with_torch, index, "poseidon-train") == {"poseidon-train": OTHER}
    assert resolved(with_torch, index, "poseidon-train", "poseidon-train-caffe") == both(wheel)
    said = resolved(with_torch, index, f"poseidon-train=={OTHER}", "poseidon-train-caffe")
    assert re.search(rf"Cannot install .*poseidon-train=={OTHER} because these package versions have conflicting", said), said


def test_a_trainer_without_its_core_is_refused(with_torch, index, wheel):
    (index / wheel.name).unlink()
    of_another_version(wheel, index, OTHER)
    assert "No matching distribution found for poseidon-train==" in resolved(with_torch, index, "poseidon-train-caffe")


def test_the_core_asks_for_nothing_and_the_trainer_for_its_torch(empty, index, wheel):
    assert resolved(empty, index, "poseidon-train") == {"poseidon-train": both(wheel)["poseidon-train"]}
    assert "No matching distribution found for torch==" in resolved(empty, index, "poseidon-train", "poseidon-train-caffe")
    other = packages(empty) / "torch-2.12.1.dist-info"
    other.mkdir()
    try:
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1\n")
        assert "No matching distribution found for torch==" in resolved(empty, index, "poseidon-train-caffe")
    finally:
        shutil.rmtree(other)


@pytest.mark.parametrize("fixture", ("wheel", "trainer_wheel"))
def test_it_has_the_licence(request, fixture):
    file = request.getfixturevalue(fixture)
    name, text = of(file)
    assert metadata.parse_email(text)[0]["license_files"] == ["LICENSE"]
    with zipfile.ZipFile(file) as files:
        assert files.read(name.replace("METADATA", "licenses/LICENSE")) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("fixture", ("wheel", "trainer_wheel"))
def test_its_page_on_an_index_says_what_is_so(request, fixture):
    raw, unknown = metadata.parse_email(of(request.getfixturevalue(fixture))[1])
    assert unknown == {}
    read = metadata.Metadata.from_raw(raw)  # with all that the index checks of single fields
    assert read.description_content_type == "text/markdown" and read.license_expression == "Apache-2.0"
    assert {"deep learning", "data parallel"} <= set(read.keywords)
    python = {line.rpartition(" :: ")[2] for line in read.classifiers if line.startswith("Programming Language :: Python :: 3.")}
    assert python == {f"3.{minor}" for minor in range(10, 15)} and str(read.requires_python) == ">=3.10"
    assert not [line for line in read.classifiers if line.startswith("License ::")]  # the index refuses it beside an expression
    assert len(set(read.classifiers)) == len(read.classifiers)
    # Links of its page are absolute. As long as the project has no public address, none leads into it.
    assert [target for target in re.findall(r"\]\(([^)]*)\)", read.description) if not re.match(r"https?://", target)] == []
    assert "![" not in read.description
    assert not read.project_urls and "yet" in read.description and read.description.startswith("# ")


def test_the_readme_s_words_are_all_in_the_description(wheel):
    """Only links and the picture are not."""
    def words(text):
        text = re.sub(r"(?m)^!\[.*\)$", "", text)
        return re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "", text))
    there = iter(words(re.sub(r"\]\([^)]*\)", "", of(wheel)[1])))
    assert [word for word in words((ROOT / "README.md").read_text()) if word not in there] == []
