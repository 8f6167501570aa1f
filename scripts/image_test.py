#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dockerfile and compose.yaml keep the rules of hadolint, of compose's schema, and those below. scripts/try_image.sh builds and runs them."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = pathlib.Path(sys.executable).parent
try:
    import yaml
except ImportError:
    yaml = None


def finds(program, *arguments):
    """What a linter says against a file; nothing where it is content."""
    if not (PROGRAMS / program).exists():
        raise unittest.SkipTest(f"{program} is not installed (scripts/dependencies.txt)")
    done = subprocess.run([PROGRAMS / program, *arguments], cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def stages(text):
    """A Dockerfile's stages, each a list of instructions: name and words."""
    found = []
    for line in re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines():
        name, _, words = line.partition(" ")
        if name == "FROM":
            found.append([])
        if name and found:
            found[-1].append((name, " ".join(words.split())))
    return found


class DockerfileTest(unittest.TestCase):
    def setUp(self):
        self.stages = stages((ROOT / "Dockerfile").read_text())

    def of_image(self, name):
        return [words for instruction, words in self.stages[-1] if instruction == name]

    def test_hadolint_finds_nothing(self):
        self.assertEqual(finds("hadolint", "Dockerfile"), "")
        with tempfile.NamedTemporaryFile("w") as bad:
            bad.write("FROM debian\nRUN apt-get install make\n")
            bad.flush()
            self.assertIn("DL3006", finds("hadolint", bad.name))

    def test_the_image_has_no_compiler_and_its_user_is_not_root(self):
        for words in self.of_image("RUN"):
            self.assertNotRegex(words, r"setup\.sh|build-essential|-dev\b|g\+\+|gcc|cmake|ninja")
        self.assertEqual(self.of_image("COPY") + self.of_image("ADD"), ["--from=wheels /installed/opt/poseidon /opt/poseidon"])
        self.assertEqual(self.of_image("USER"), ["1000:1000"])
        self.assertEqual(self.of_image("ENTRYPOINT"), ['["poseidon"]'])

    def test_both_builds_of_torch_have_the_version_of_the_dependencies(self):
        [install] = [words for words in self.of_image("RUN") if "numpy" in words]
        self.assertIn("source=scripts/dependencies.txt", install)
        self.assertNotRegex(install, r"torch==\d")
        self.assertRegex(install, r"cpu\) .* cuda\) ")

    def test_the_context_has_what_wheels_are_made_of_and_nothing_else(self):
        first, *others = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(first, "*")
        let_in = {line[1:] for line in others if line.startswith("!")}
        for path in let_in:
            self.assertTrue((ROOT / path).exists(), path)
        include = re.search(r"sdist\.include = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)[1]
        for path in re.findall(r'"/([^"]+)"', include):
            self.assertTrue(any(path == one or path.startswith(one + "/") for one in let_in), path)
        self.assertFalse(let_in & {".git", ".venv", "build", "data", "demo", "runs"})


@unittest.skipIf(yaml is None, "PyYAML is not installed for this interpreter")
class ComposeTest(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "compose.yaml").read_text()
        self.job = yaml.safe_load(self.text)

    def test_it_keeps_the_schema(self):
        schema = "check-jsonschema", "--builtin-schema", "vendor.compose-spec"
        self.assertEqual(finds(*schema, "compose.yaml"), "")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as bad:
            bad.write(self.text.replace("    entrypoint:", "    entry:").replace("  entrypoint:", "  entry:"))
            bad.flush()
            self.assertIn("'entry' was unexpected", finds(*schema, bad.name))

    def test_its_services_are_the_ranks_of_one_job(self):
        services = self.job["services"]
        environments = [service["environment"] for service in services.values()]
        self.assertEqual([one["RANK"] for one in environments], [str(rank) for rank in range(len(services))])
        self.assertEqual({one["WORLD_SIZE"] for one in environments}, {str(len(services))})
        self.assertEqual([service["hostname"] for service in services.values()], list(services))  # errors name it
        first = next(iter(services))
        self.assertEqual({one["MASTER_ADDR"] for one in environments}, {first})  # whose rank is 0
        self.assertEqual([service.get("depends_on") for service in services.values()], [None] + [[first]] * (len(services) - 1))
        self.assertEqual(len({one["POSEIDON_PORT"] for one in environments}), 1)

    def test_the_token_is_a_secret_and_nothing_is_published(self):
        [(name, secret)] = self.job["secrets"].items()
        self.assertEqual(list(secret), ["file"])
        self.assertNotRegex(self.text, "[0-9a-f]{64}")
        for service in self.job["services"].values():
            self.assertEqual(service["secrets"], [name])
            self.assertEqual(service["environment"]["POSEIDON_TOKEN_FILE"], f"/run/secrets/{name}")
            self.assertNotIn("ports", service)
            self.assertRegex(service["user"], r"^\$\{JOB_USER:-[1-9]")

    def test_the_script_is_in_the_checkout(self):
        for service in self.job["services"].values():
            self.assertTrue((ROOT / "examples/torch" / pathlib.PurePath(service["entrypoint"][-1]).name).is_file())
            self.assertIn("./examples/torch:/examples:ro", service["volumes"])


if __name__ == "__main__":
    unittest.main()
