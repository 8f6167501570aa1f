# SPDX-License-Identifier: Apache-2.0
"""The command for a machine with a GPU, on a device of the tests; and its page."""
import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest

from benchmarks.gpu import __main__ as command

LATE = pathlib.Path(os.environ.get("POSEIDON_LATE_DEVICE") or command.programs().parent / "tests" / "shared" / "liblate_device.so")


class Gpu(unittest.TestCase):
    def said(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = command.main(list(words))
        return status, output.getvalue()

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
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "poseidon_golden"
            program.write_text("#!/bin/sh\necho the device is lost >&2\nexit 3\n")
            program.chmod(0o755)
            status, said = self.said("--device", str(LATE), "--only", "golden", "--bin", folder)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: poseidon_golden ended with 3", said)

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
