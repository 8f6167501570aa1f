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
        listed = re.search(r"^Layers there are: ([^.]*)\.", (ROOT / "docs/quick-start.md").read_text(), re.MULTILINE).group(1)
        self.assertEqual(listed.replace("\n", " ").split(", "), sorted(declared, key=str.lower))


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
    def test_the_quick_start_quotes_its_script(self):
        script = (ROOT / "examples/torch/quickstart.py").read_text()
        self.assertIn("```python\n" + script[script.index("import os"):] + "```", (ROOT / "docs/torch.md").read_text())

    def test_pages_of_the_torch_guide_are_short(self):
        for page in (ROOT / "docs/torch.md", *ROOT.glob("docs/torch/*.md")):
            self.assertLessEqual(page.stat().st_size, 10240, page)


if __name__ == "__main__":
    unittest.main()
