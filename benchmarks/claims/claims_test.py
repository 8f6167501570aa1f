# SPDX-License-Identifier: Apache-2.0
"""The page of claims says what was found, and nothing else.

  python3 -m unittest benchmarks.claims.claims_test
"""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from benchmarks.claims import __main__ as program
from benchmarks.claims import compare, ours, page, rows
from benchmarks.performance.standalone import Failed


class Rows(unittest.TestCase):
    def test_each_is_found_or_says_why_not(self):
        self.assertEqual(len({row.name for row in rows.ROWS}), len(rows.ROWS))
        for row in rows.ROWS:
            with self.subTest(row.name):
                self.assertIn(row.kind, rows.KINDS)
                self.assertEqual(row.find is None, row.kind == rows.NOT_SHOWN)
                self.assertEqual(bool(row.instead), row.find is None)
                self.assertTrue(row.claim and row.source and row.published and row.differs)


class Page(unittest.TestCase):
    def test_it_is_the_one_of_what_was_found(self):
        found = json.loads(program.FOUND.read_text())
        self.assertEqual(program.PAGE.read_text(), page.text_of(found), "python3 -m benchmarks.claims --render writes it")
        self.assertLessEqual(set(found), {row.name for row in rows.ROWS})

    def test_a_row_without_a_figure_says_how_to_find_it(self):
        text = page.text_of({})
        for row in rows.ROWS:
            self.assertIn(f"--only {row.name}" if row.find else f"not shown: {row.instead}", text)


class Ours(unittest.TestCase):
    def test_what_tensorflow_measured_is_read(self):
        for setting in (("inception-v3", "40Gbit"), ("vgg19-22k", "40Gbit"), ("vgg19-22k", "10Gbit")):
            lines = ours.stock_tensorflow()[setting]
            self.assertLessEqual({"whole", "poseidon"}, set(lines))
            for line in lines.values():
                self.assertEqual(list(line), [2, 4, 8])
        with self.assertRaisesRegex(Failed, "has nothing of vgg16 at 1Gbit"):
            ours.beside_stock_tensorflow((("vgg16", "1Gbit"),))

    def test_variables_go_to_servers_in_turn(self):
        weights_and_biases = [100, 1, 50, 1, 30, 1]
        self.assertEqual([ours.busiest_server(weights_and_biases, servers) for servers in (1, 2, 4)], [183, 180, 130])

    def test_a_fit_gives_back_what_it_is_fitted_to(self):
        fast, slow = (5e9, 1.1), (1e9, 2.2)
        model = ours.WholeVariables("vgg19-22k", fast, slow)
        for rate, step in (fast, slow):
            self.assertAlmostEqual(model.step(2, rate), step)
        self.assertEqual(model.step(1, 1e9), 1)

    def test_what_was_recorded_is_read(self):
        found = ours.emulated("alexnet-p8-10G", "ddp-4")
        self.assertGreater(found["numbers"]["poseidon"], found["numbers"]["ddp-4"])
        with self.assertRaisesRegex(Failed, "has no setting alexnet-p9-10G"):
            ours.emulated("alexnet-p9-10G")


class Program(unittest.TestCase):
    def run_with(self, find, *arguments):
        row = rows.Row("one", "a claim", "a source", "9x", rows.SIMULATED, "-", find)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            found, written = pathlib.Path(folder, "found.json"), pathlib.Path(folder, "page.md")
            for module in (program, page):
                stack.enter_context(mock.patch.object(module, "ROWS", (row,)))
            stack.enter_context(mock.patch.object(program, "FOUND", found))
            stack.enter_context(mock.patch.object(program, "PAGE", written))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            errors = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            status = program.main(list(arguments))
            return status, json.loads(found.read_text()) if found.exists() else None, written.read_text(), errors.getvalue()

    def test_what_is_found_is_kept_and_written(self):
        status, found, text, _ = self.run_with(lambda: {"figure": "8x", "numbers": {"speedup": 8}, "command": "do this"})
        self.assertEqual((status, found["one"]["numbers"]), (0, {"speedup": 8}))
        self.assertIn("**8x** (" + found["one"]["date"], text)
        self.assertIn("by hand: `do this`", text)

    def test_a_row_that_got_worse_is_named(self):
        recorded = {"speedup": 8.0, "step_seconds": 1.0, "days": 2.0, "inception-v3, 8 workers": 0.0001, "t_star": 0.9, "ddp-4": 4.0}
        same = recorded | {"speedup": 7.9, "step_seconds": 1.01, "inception-v3, 8 workers": 0.001, "t_star": 2.0, "ddp-4": 1.0}
        self.assertEqual(list(compare.worse(recorded, same)), [])
        self.assertEqual(list(compare.worse(recorded, recorded | {"speedup": 9.0, "days": 1.0})), [])
        worse = recorded | {"speedup": 7.0, "days": 2.1, "inception-v3, 8 workers": 0.01}
        self.assertEqual(list(compare.worse(recorded, worse)),
                         ["speedup is 7, recorded 8", "days is 2.1, recorded 2", "inception-v3, 8 workers is 0.01, recorded 0.0001"])

    def test_every_row_that_is_found_has_a_number_that_counts(self):
        for name, found in json.loads(program.FOUND.read_text()).items():
            if not isinstance(next(iter(found["numbers"].values())), dict):
                self.assertTrue(any(compare.wants_less(number) is not None for number in found["numbers"]), name)

    def test_comparing_writes_nothing(self):
        row = rows.Row("one", "a claim", "a source", "9x", rows.SIMULATED, "-", lambda: {"figure": "7x", "numbers": {"speedup": 7}, "command": "-"})
        out = io.StringIO()
        with mock.patch.object(program, "ROWS", (row,)), contextlib.redirect_stdout(out):
            status = program.compared(["one"], {"one": {"numbers": {"speedup": 8}}})
        self.assertEqual((status, out.getvalue()), (1, "one: WORSE: speedup is 7, recorded 8\n"))

    def test_what_fails_is_said(self):
        def find():
            raise Failed("there is no network")
        status, found, text, errors = self.run_with(find)
        self.assertEqual((status, found), (1, None))
        self.assertIn("claims: one: there is no network", errors)
        self.assertIn("not found yet", text)

    def test_a_row_that_is_not_there_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            self.run_with(None, "--only", "two")
        self.assertEqual(refused.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
