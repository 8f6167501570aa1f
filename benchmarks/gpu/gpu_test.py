# SPDX-License-Identifier: Apache-2.0
"""The command for a machine with a GPU, on a device of the tests; and its page."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from benchmarks.gpu import __main__ as command
from benchmarks.torch import measure

LATE = pathlib.Path(os.environ.get("POSEIDON_LATE_DEVICE") or command.programs().parent / "tests" / "shared" / "liblate_device.so")


class Late(subprocess.Popen):
    """A program whose time is over when it has made the file "said" in its folder."""

    def __init__(self, words, **options):
        self.folder = options.get("cwd")
        super().__init__(words, **options)

    def wait(self, timeout=None):
        if timeout is None or timeout == command.PATIENCE:
            return super().wait(timeout)
        while not (self.folder / "said").exists():
            time.sleep(0.01)
        raise subprocess.TimeoutExpired(self.args, timeout)


class Here:
    """A cluster of one node, which is this machine."""
    addresses = ["127.0.0.1"]

    def run(self, index, argv, **options):
        return subprocess.Popen([str(word) for word in argv], **options)

    def end(self, *processes):
        for process in processes:
            process.wait()


class Gpu(unittest.TestCase):
    def said(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = command.main(list(words))
        return status, output.getvalue()

    def program(self, name, *lines):
        """The folder of a program that is a shell's."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / name
        program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        program.chmod(0o755)
        return folder.name

    def said_by(self, name, part, *lines, more=()):
        """What the command says of a part whose program is a shell's, for which no cases are unpacked."""
        with mock.patch.object(command, "unpack"):
            return self.said("--device", str(LATE), "--only", part, "--bin", self.program(name, *lines), *more)

    def test_parts_run_on_any_device(self):
        status, said = self.said("--device", str(LATE), "--only", "levels,steps")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"\| 4 as 2 machines of 2 \| equal \| \d\.\d{6} \| [-+](0\.0e\+00|\d\.\de-(0[4-9]|[1-9]\d)) \| (\d+%, ){3}\d+% \| \d+% \| \d+% \|")
        self.assertIn("Did not run: a device of tests is no faster than anything", said)

    def test_a_program_that_is_not_there_is_said(self):
        status, said = self.said("--device", str(LATE), "--only", "golden", "--bin", "/nowhere")
        self.assertEqual(status, 0)
        self.assertIn("/nowhere/poseidon_golden is not there", said)

    def test_a_program_that_fails_is_a_failure(self):
        status, said = self.said_by("poseidon_golden", "golden", "echo the device is lost >&2", "exit 3")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: poseidon_golden ended with 3: the device is lost.", said)

    def test_a_banner_is_no_result(self):
        status, said = self.said_by("caffe_device_test", "conformance", "echo Running main from gtest_main.cc", "kill -ABRT $$")
        self.assertEqual(status, 1, said)
        self.assertIn("FAILED: caffe_device_test ended with -6", said)

    def test_a_program_that_ends_early_keeps_its_cases_and_fails(self):
        status, said = self.said_by("poseidon_golden", "golden", "echo 'conv_1 pass'", "echo 'conv_2 fail a|b'", "kill -SEGV $$")
        self.assertEqual(status, 1, said)
        self.assertIn("| all | 1 passed, 1 failed, 0 skipped, and not the rest |\n| conv_2 | FAIL a\\|b |", said)
        self.assertIn("FAILED: poseidon_golden ended with -11", said)

    def test_a_program_says_its_closing_line_and_its_code_agrees(self):
        for lines, expected in (
                (["echo 'conv_1 pass'"], "FAILED: poseidon_golden has not come to its end: conv_1 pass."),
                (["echo 'conv_1 pass'", "echo '1 passed, 0 failed, 0 skipped, on cuda:0'", "exit 1"], "FAILED: poseidon_golden ended with 1"),
                (["echo '0 passed, 0 failed, 0 skipped, on cuda:0'"], "FAILED: poseidon_golden ran no case"),
                (["echo 'conv_1 unsupported Conv'", "echo 'conv_2 pass'", "echo '1 passed, 0 failed, 1 skipped, on cuda:0'"], "| conv_1 | UNSUPPORTED Conv |")):
            status, said = self.said_by("poseidon_golden", "golden", *lines)
            self.assertEqual(status, 1, said)
            self.assertIn(expected, said)
        lines = ["echo '[       OK ] A.B (1 ms)'", "echo '[  FAILED  ] A.C/0, where GetParam() = 3 (2 ms)'", "echo '[  PASSED  ] 1 test.'",
                 "echo '[  FAILED  ] 1 test, listed below:'", "echo '[  FAILED  ] A.C/0, where GetParam() = 3'", "exit 1"]
        status, said = self.said_by("caffe_device_test", "conformance", *lines)
        self.assertEqual(status, 1)
        self.assertIn("| all | 1 passed, 1 failed, 0 skipped |\n| A.C/0 | FAILED where GetParam() = 3 |", said)
        self.assertNotIn("FAILED: ", said)
        status, said = self.said_by("caffe_device_test", "conformance", lines[0], "echo '[  SKIPPED ] A.D (0 ms)'", lines[2])
        self.assertEqual((status, "| all | 1 passed, 0 failed, 1 skipped |" in said), (0, True), said)

    @unittest.skipUnless(importlib.util.find_spec("pytest"), "needs pytest")
    def test_cases_of_pytest(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "test_some.py"
            file.write_text("import pytest\n\n\n@pytest.mark.parametrize('one', ['a b', 'c'])\ndef test_of(one):\n    assert one == 'c', 'is|other'\n")
            run = command.Run(command.parse(["--device", str(LATE)]), pathlib.Path(folder))
            with mock.patch.dict(command.PARTS, golden=lambda run: command.pytest_of(run, str(file), seconds=60)):
                rows, stopped = command.attempt("golden", run)
                self.assertIsNone(stopped)
                self.assertRegex(rows[1][1], r"^1 passed, 1 failed, 0 skipped in [\d.]+s$")
                self.assertEqual(rows[2], ["test_some.py::test_of[a b]", "FAILED AssertionError: is\\|other"])
                file.write_text("import pytest\n\n\n@pytest.mark.skip\ndef test_of():\n    pass\n")
                rows, stopped = command.attempt("golden", run)
                self.assertRegex(str(stopped), r"^test_some.py has not come to its end: =+ 1 skipped in")

    def test_whatever_goes_wrong_in_a_part_the_others_run_and_what_it_had_is_kept(self):
        def broken(run):
            yield ["cases", "result"]
            yield ["first", "equal"]
            yield [{}["loss"]]
        def looks(run):
            yield ["written by now"]
            yield [", ".join(json.loads((out / "gpu.json").read_text())["exact"]["rows"][1])]
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(command.PARTS, exact=broken, levels=looks), \
                mock.patch.dict(os.environ, PATH="/nowhere"), contextlib.redirect_stderr(io.StringIO()) as errors:
            out = pathlib.Path(folder) / "out"
            status, said = self.said("--device", str(LATE), "--only", "exact,levels", "--out", str(out))
            page = (out / "gpu.md").read_text()
        self.assertEqual(status, 1)
        self.assertRegex(said, r"FAILED: KeyError in gpu_test.py:\d+: 'loss'\.\n\n\| cases \| result \|\n\|---\|---:\|\n\| first \| equal \|\n")
        self.assertIn("| written by now |\n|---|\n| first, equal |", said)
        self.assertIn("commit `unknown`", page)  # there is no git
        self.assertIn("FAILED: KeyError", page)
        self.assertIn("Traceback", errors.getvalue())

    def test_a_program_that_takes_too_long_keeps_what_it_has_said(self):
        lines = ["echo 'conv_1 pass'", "touch said", "sleep 600"]
        with mock.patch.object(subprocess, "Popen", Late), tempfile.TemporaryDirectory() as folder:
            status, said = self.said_by("poseidon_golden", "golden", *lines, more=["--out", folder])
            self.assertIn("conv_1 pass\n# ended with -15, as poseidon_golden took more than 180 s\n", (pathlib.Path(folder) / "said.txt").read_text())
        self.assertEqual(status, 1)
        self.assertIn("FAILED: poseidon_golden took more than 180 s.", said)
        self.assertIn("| all | 1 passed, 0 failed, 0 skipped, and not the rest |", said)

    def test_what_the_minutes_cut_is_said_by_name(self):
        with mock.patch.object(subprocess, "Popen", Late), mock.patch.object(command, "MINUTES", 2.5):
            status, said = self.said_by("poseidon_golden", "golden", "echo 'conv_1 pass'", "touch said", "sleep 600")
        self.assertEqual(status, 0, said)
        self.assertIn("Cut: 2.5 minutes were over while poseidon_golden ran.\n\n| cases | result |", said)
        self.assertIn("2.5 minutes were not enough for golden: --only golden", said)
        with mock.patch.object(command, "MINUTES", 0):
            status, said = self.said_by("poseidon_golden", "golden")
        self.assertIn("Cut: 0 minutes were over before it began", said)

    def test_what_did_not_run_takes_no_measured_row_away(self):
        before = {"device": "a GPU", "date": "2026-01-02", "commit": "abc", "seconds": 3, "skipped": "", "rows": [["cases", "result"], ["all", "183 passed"]]}
        for minutes, ran in ((0, False), (8, True)):
            with tempfile.TemporaryDirectory() as out, mock.patch.object(command, "MINUTES", minutes), mock.patch.object(command, "read", lambda: {"golden": before}):
                self.said_by("poseidon_golden", "golden", "echo 'conv_1 pass'", "echo '1 passed, 0 failed, 0 skipped, on x'", more=["--out", out])
                kept = json.loads((pathlib.Path(out) / "gpu.json").read_text())["golden"]
            self.assertEqual(kept != before, ran)

    def test_no_child_of_a_program_lives_on(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = command.Run(command.parse([]), pathlib.Path(folder)).ended("sh", "-c", "sleep 600 & echo $!; exit 3")
        self.assertEqual(ended.code, 3)
        for _ in range(1000):  # until init has taken it
            state = pathlib.Path(f"/proc/{ended.out.strip()}/stat")
            if not state.exists() or state.read_text().split(") ")[1][0] == "Z":
                return
            time.sleep(0.01)
        self.fail("it lives")

    def test_a_torch_that_finds_no_gpu_ends_the_command(self):
        python = pathlib.Path(self.program("python3", "echo RuntimeError: the driver is too old >&2", "exit 1")) / "python3"
        with mock.patch.object(sys, "executable", str(python)), self.assertRaises(SystemExit) as ends:
            command.main(["--only", "golden"])
        self.assertRegex(str(ends.exception), r"^gpu: torch cannot compute on a GPU here.* \(RuntimeError: the driver is too old\), expected a GPU")

    def test_a_bundle_says_its_commit_and_is_unpacked_anew_where_its_archive_is_newer(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle = pathlib.Path(folder) / "bundle"
            def pack(commit):
                for name in ("bin", "python"):
                    (bundle / name).mkdir(parents=True, exist_ok=True)
                (bundle / "commit").write_text(commit + "\n")
                subprocess.run(["tar", "-C", folder, "-cJf", f"{bundle}.tar.xz", "bundle"], check=True)
            with mock.patch.object(command, "BUNDLE", bundle), mock.patch.dict(os.environ, POSEIDON_BIN="/nowhere"):
                pack("new+")
                (bundle / "commit").write_text("old\n")
                os.utime(bundle, (1, 1))
                self.assertEqual(command.commits(command.programs())[1], "new+")
                (bundle / "commit").write_text("kept\n")
                self.assertEqual(command.commits(command.programs())[1], "kept")
        self.assertEqual(command.at("abc", "abc"), "commit `abc`")
        self.assertEqual(command.at("abc", "abc+"), "commit `abc` with programs of `abc+`")

    def test_a_bundle_finds_torch_and_what_was_found_before(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, LD_LIBRARY_PATH="/driver"):
            own = pathlib.Path(folder) / "python" / "libposeidon.so"
            own.parent.mkdir()
            own.touch()
            run = command.Run(command.parse(["--bin", f"{folder}/bin"]), pathlib.Path(folder))
        self.assertRegex(run.environment["LD_LIBRARY_PATH"], r"^/.*/torch/lib:/driver$" if importlib.util.find_spec("torch") else "^/driver$")
        self.assertEqual(run.environment["POSEIDON_LIBRARY"], str(own.resolve()))

    def test_workers_beside_ddp_load_the_library_of_the_bundle(self):
        words = ["sh", "-c", "echo $POSEIDON_LIBRARY"]
        for named, expected in ({"POSEIDON_LIBRARY": "/bundle/libposeidon.so"}, "/bundle/libposeidon.so"), ({}, str(measure.LIBRARY)):
            with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, named):
                if not named:
                    os.environ.pop("POSEIDON_LIBRARY", None)
                self.assertEqual(measure.run(Here(), words, pathlib.Path(folder), 60, lambda rank: []), [expected + "\n"])

    def test_the_page_says_what_has_not_run(self):
        text = command.page({"golden": {"device": "a GPU, driver 1", "date": "2026-01-02", "commit": "abc", "seconds": 3.2, "skipped": "",
                                        "rows": [["cases", "result"], ["all", "183 passed"]]},
                             "ddp": {"device": "a GPU, driver 1", "date": "2026-01-02", "commit": "abc", "seconds": 0, "skipped": "Did not run: no root.", "rows": []}})
        self.assertIn("a GPU, driver 1, 2026-01-02, commit `abc`, 3 s.\n\n| cases | result |", text)
        self.assertIn("Did not run: no root.", text)
        self.assertEqual(len(re.findall("Not yet run on a GPU", text)), len(command.PARTS) - 2)

    def test_the_page_in_the_tree_is_that_of_the_record(self):
        self.assertEqual(command.PAGE.read_text(), command.page(command.read()))

    def test_unknown_parts_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            command.parse(["--only", "golden,none"])
        self.assertIn("there is no part none", said.getvalue())


if __name__ == "__main__":
    unittest.main()
