#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the guides say of the build and of the layers is so."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPTIONS = {"tests": "POSEIDON_TESTS", "benchmarks": "POSEIDON_BENCHMARKS"}  # by the folder that declares a target


def optional_targets(root=ROOT):
    """The option that each program needs."""
    return {name: option for folder, option in OPTIONS.items() for file in (root / folder).rglob("CMakeLists.txt")
            for name in re.findall(r"add_executable\((\w+)", file.read_text())}


def lacking(text, needs):
    """Targets that a command in `text` builds without their option."""
    commands = re.findall(r"scripts/build\.sh [^`&;\n]*", text)
    return [target for command in commands for target in command.split()
            if target in needs and f"-D{needs[target]}=ON" not in command]


class BuildCommandsTest(unittest.TestCase):
    """Every command that builds a test or a benchmark turns on the option without which the target does not exist: `make demo`
    leaves a build that has neither."""

    def test_a_missing_option_is_found(self):
        needs = {"poseidon_golden": "POSEIDON_TESTS"}
        self.assertEqual(lacking("\t@scripts/build.sh release poseidon_golden\n", needs), ["poseidon_golden"])
        self.assertEqual(lacking("\t@scripts/build.sh release -DPOSEIDON_TESTS=ON poseidon_golden\n", needs), [])

    def test_commands(self):
        needs = optional_targets()
        self.assertLessEqual({"poseidon_golden", "subnormals_bench", "poseidon_replay"}, set(needs))
        for file in (ROOT / "Makefile", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("scripts/*.sh")):
            self.assertEqual(lacking(file.read_text(), needs), [], file)


class LayersTest(unittest.TestCase):
    def test_the_guide_lists_the_layers_there_are(self):
        declared = re.findall(r'POSEIDON_LAYER\("(\w+)"', (ROOT / "frontends/caffe/layers/layers.inc").read_text())
        listed = re.search(r"^Layers there are: ([^.]*)\.", (ROOT / "docs/caffe/left-out.md").read_text(), re.MULTILINE).group(1)
        self.assertEqual(listed.replace("\n", " ").split(", "), sorted(declared, key=str.lower))


    def test_the_guide_lists_the_layers_that_are_exported(self):
        declared = re.findall(r'POSEIDON_ONNX\("(\w+)"', (ROOT / "frontends/caffe/export/onnx_converters.inc").read_text())
        listed = re.search(r"^Layers that are exported: ([^.]*)\.", (ROOT / "docs/caffe/export.md").read_text(), re.MULTILINE).group(1)
        self.assertEqual(listed.replace("\n", " ").split(", "), sorted([*declared, "Input"], key=str.lower))


class ChineseTest(unittest.TestCase):
    def test_its_commands_are_the_english_ones(self):
        english, chinese = (re.findall(r"^```.*?^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL) for name in ("README.md", "README.zh.md"))
        self.assertEqual(english, chinese)


class VersionTest(unittest.TestCase):
    """CMakeLists.txt has the version, and who else names one names that; tests/wheel looks into the wheels that were built."""

    def test_all_name_the_same(self):
        def read(name):
            return (ROOT / name).read_text()
        built = re.search(r"^project\(poseidon VERSION (\S+)", read("CMakeLists.txt"), re.MULTILINE)[1]
        citation = read("CITATION.cff")
        self.assertIn(f"\nversion: {built}\n", citation)
        released = re.search(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.MULTILINE)[1]
        headings = re.findall(r"^## (.*)$", read("CHANGELOG.md"), re.MULTILINE)
        self.assertEqual(headings[:2], ["Unreleased", f"{built}, {released}"])
        for project in "pyproject.toml", "frontends/caffe/wheel/pyproject.toml":
            self.assertRegex(read(project), r'(?m)^dynamic = \[.*"version"')
        for page in "README.md", "README.zh.md", "docs/torch.md", "docs/docker.md", "docs/caffe.md", "docs/keras.md", "CONTRIBUTING.md":
            named = re.findall(r"poseidon_train(?:_caffe)?-(\d[\d.]*\d)", read(page))
            self.assertEqual(set(named) - {built}, set(), page)
        self.assertIn(f"poseidon_train-{built}-", read("README.md"))
        self.assertIn(f'org.opencontainers.image.version="{built}"', read("Dockerfile"))


class LinksTest(unittest.TestCase):
    """Every relative link of a page leads to a file, and to a heading of it."""

    def test_links(self):
        def anchors(page):
            return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)}
        pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        self.assertGreater(len(pages), 40)
        for page in pages:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if ":" in target:
                    continue
                path, _, anchor = target.partition("#")
                there = (page.parent / path).resolve() if path else page
                self.assertTrue(there.exists(), (page, target))
                if anchor and there.suffix == ".md":
                    self.assertIn(anchor, anchors(there), (page, target))


class FirstPagesTest(unittest.TestCase):
    """A first page of each front end quotes a whole script or session, which tests run, and leads to short pages."""

    def quotes(self, page, language, file, begins=""):
        text = (ROOT / file).read_text()
        self.assertIn(f"```{language}\n{text[text.index(begins):]}```\n", (ROOT / page).read_text(), (page, file))

    def test_they_quote_whole_files(self):
        self.quotes("docs/torch.md", "python", "examples/torch/quickstart.py", "import os")
        self.quotes("docs/keras.md", "python", "examples/tensorflow/quickstart.py", "import sys")
        self.quotes("docs/caffe.md", "", "examples/caffe/net.prototxt")
        self.quotes("docs/caffe.md", "", "examples/caffe/solver.prototxt")

    def test_guides_are_short_pages_that_the_first_one_lists(self):
        for name in "torch", "keras", "caffe":
            first, pages = ROOT / f"docs/{name}.md", [*ROOT.glob(f"docs/{name}/*.md")]
            self.assertGreater(len(pages), 2)
            for page in first, *pages:
                self.assertLessEqual(page.stat().st_size, 10240, page)
            for page in pages:
                self.assertIn(f"({name}/{page.name})", first.read_text(), page)


if __name__ == "__main__":
    unittest.main()
