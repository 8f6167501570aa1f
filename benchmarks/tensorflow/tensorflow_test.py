# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of results, and processes that take turns; without root, network and TensorFlow."""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from benchmarks import cells
from benchmarks.tensorflow import conduct, grid, lanes, tables

CELLS = {cell.name: cell for cell in grid.cells()}


def turns(seconds, busy=0.5, own=0.48):
    return [[{"seconds": one, "cpu_seconds": 0.1, "sent_bytes": 5_000_000, "own_share": own, "machine_busy": busy,
              "machine_stolen": 0.0} for one in start] for start in seconds]


def result(name, **seconds):
    """A small result as it is stored; `seconds` of a system's turns, by start."""
    systems = {system: {"turns": turns(of_system), "weights": "same", "plan": {"a": "kv", "b": "sfb"}}
               for system, of_system in seconds.items()}
    return {"name": name, "cell": CELLS[name].described(), "systems": systems, "date": "2000-01-01",
            "machine": {"cpu": "some", "cores": 2}, "versions": {"poseidon": "0" * 12, "tensorflow": "2", "keras": "3"}}


class Figures(unittest.TestCase):
    def test_a_ratio_is_of_rounds(self):
        found = result("tensorflow-train-mlp-p2-1G", poseidon=[[1.0, 2.0, 3.0]], stock=[[4.0, 8.0, 12.0]], local=[[1.0] * 3])
        self.assertEqual(tables.ratio(found, "poseidon", "stock"), (4, 4, 4))
        self.assertEqual(tables.ratios(found, "poseidon", "stock"), [4, 4, 4])

    def test_starts_are_pooled(self):
        found = result("tensorflow-overhead-lenet-p1-unshaped", poseidon=[[1.01] * 3, [1.03] * 3], local=[[1.0] * 3] * 2)
        value, low, high = tables.ratio(found, "local", "poseidon")
        self.assertAlmostEqual(value, 1.02)
        self.assertLessEqual(low, value)
        self.assertLessEqual(value, high)
        self.assertIn("+1.0 %, +3.0 %", tables.overhead_table([found]))

    def test_a_speed_up_is_of_the_workers_that_only_compute(self):
        found = result("tensorflow-servers-vgg19-22k-p4-10G", poseidon=[[2.0]], stock=[[5.0]], split=[[3.0]], local=[[1.0]])
        self.assertEqual(tables.speed_ups(found, "poseidon"), [2])
        self.assertIn("variables whole: speed-up 0.80 with 4 workers, slower than one worker", tables.scaling([found]))

    def test_a_system_is_told_of_where_it_ran(self):
        few = result("tensorflow-servers-vgg19-22k-p4-10G", poseidon=[[2.0]], stock=[[4.0]], mirrored=[[2.5]], local=[[1.0]])
        many = result("tensorflow-servers-vgg19-22k-p8-10G", poseidon=[[2.0]], stock=[[4.0]], local=[[1.0]])
        said = tables.scaling([few, many])
        self.assertIn("variables whole: speed-up 1.00 2.00 with 4 8 workers", said)
        self.assertIn("MultiWorkerMirroredStrategy: speed-up 1.60 with 4 workers", said)
        self.assertNotIn("2.16.2", said)
        self.assertIn("| - | - | 2500 | 2000 |", tables.servers_table([few, many]))


class Goals(unittest.TestCase):
    def test_a_bound_and_a_median(self):
        met = result("tensorflow-train-mlp-p2-1G", poseidon=[[1.0]], stock=[[4.1]], local=[[1.0]])
        missed = result("tensorflow-train-lenet-p2-1G", poseidon=[[1.0]], stock=[[0.9]], local=[[1.0]])
        words = tables.goals([met, missed])
        self.assertIn("1 of 2 goals are reached", words)
        self.assertIn("missed: LeNet, P=2, 1 Gbit/s: stock / Poseidon 0.9, asked 0.97 (lower bound)", words)

    def test_strangers_are_named(self):
        found = result("tensorflow-overhead-mlp-p1-unshaped", poseidon=[[1.0]], local=[[1.0]])
        found["systems"]["local"]["turns"] = turns([[1.0]], busy=0.9, own=0.5)
        self.assertIn("to be measured again: overhead, MLP 784-4096-4096-10, P=1: strangers had 40%", tables.goals([found]))

    def test_every_table_is_written(self):
        found = [result("tensorflow-train-mlp-p2-1G", poseidon=[[1.0]], stock=[[4.1]], local=[[1.0]]),
                 result("tensorflow-overhead-mlp-p1-unshaped", poseidon=[[1.0]], local=[[1.0]]),
                 result("tensorflow-servers-vgg19-22k-p2-10G", poseidon=[[2.0]], stock=[[5.0]], split=[[3.0]], local=[[1.0]])]
        with tempfile.TemporaryDirectory() as folder:
            from benchmarks.cells import text_of
            for one in found:
                (pathlib.Path(folder) / f"{one['name']}.json").write_text(text_of(one))
            text = tables.section(pathlib.Path(folder))
        for head in ("Beside MultiWorkerMirroredStrategy", "One worker", "Synchronous parameter servers"):
            self.assertIn(f"## {head}", text)
        self.assertIn("| b | yes |", text)


class Pages(unittest.TestCase):
    def test_a_page_takes_its_place_only_with_all_cells(self):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as said:
            root = pathlib.Path(name)
            with unittest.mock.patch.multiple(cells, ROOT=root, FOLDER=root / "raw", PAGES=root / "docs"):
                (root / "raw").mkdir()
                for cell in grid.cells()[1:]:
                    (root / "raw" / f"{cell.name}.json").touch()
                self.assertEqual(cells.page_folder("tensorflow", grid.cells()), root / "raw")
                (root / "raw" / f"{grid.cells()[0].name}.json").touch()
                self.assertEqual(cells.page_folder("tensorflow", grid.cells()), root / "docs")
        self.assertEqual(said.getvalue().count("\n"), 1)
        self.assertIn(f"tensorflow: 1 of {len(grid.cells())} cells are not in raw, {grid.cells()[0].name} among them", said.getvalue())

    def test_a_summary_has_a_row_for_each_comparison(self):
        found = [result("tensorflow-train-mlp-p2-1G", poseidon=[[1.0]], stock=[[4.0]], local=[[1.0]]),
                 result("tensorflow-servers-vgg19-22k-p8-10G", poseidon=[[2.0]], stock=[[5.0]], split=[[3.0]], local=[[1.0]]),
                 result("tensorflow-servers-vgg19-22k-p2-10G", poseidon=[[2.0]], stock=[[5.0]], split=[[3.0]], local=[[1.0]])]
        rows = json.loads(cells.summary_of(tables.summary(found)))["rows"]
        self.assertEqual([(row["setting"], row["ratio"], row["date"], row["commit"]) for row in rows],
                         [("MLP 784-4096-4096-10, P=2, 1 Gbit/s", [4, 4, 4], "2000-01-01", "0" * 12),
                          ("VGG19-22K, P=8, 10 Gbit/s", [2.5, 2.5, 2.5], "2000-01-01", "0" * 12)])


class Nowhere:
    """A cluster without namespaces."""

    @staticmethod
    def run(_, words, env, **options):
        return subprocess.Popen(words, env=env, **options)


class Turns(unittest.TestCase):
    def members(self, folder, *programs):
        made = [conduct.Member(Nowhere, rank, [sys.executable, "-c", program], pathlib.Path(folder) / f"worker{rank}", None)
                for rank, program in enumerate(programs)]
        for member in made:
            self.addCleanup(member.process.wait)
            self.addCleanup(member.close)
        return made

    def test_answers_come_in_rank_order(self):
        program = "import time; input(); time.sleep({}); print('{{\"rank\": {}}}', flush=True); input()"
        with tempfile.TemporaryDirectory() as folder:
            system = conduct.System("some", None, self.members(folder, program.format(0.2, 0), program.format(0, 1)))
            self.assertEqual(system.ask(30), [{"rank": 0}, {"rank": 1}])

    def test_the_first_to_end_is_named_with_its_words(self):
        with tempfile.TemporaryDirectory() as folder:
            system = conduct.System("some", None, self.members(folder, "input(); input()",
                                                               "raise SystemExit('the disk is full')"))
            with self.assertRaisesRegex(conduct.Failed, "worker1 on node 1 ended: the disk is full"):
                system.ask(30)

    def test_a_silence_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            system = conduct.System("some", None, self.members(folder, "input(); input()"))
            with self.assertRaisesRegex(conduct.Failed, "did not answer in 0.2 s"):
                system.ask(0.2)


class Lanes(unittest.TestCase):
    """Four steps of 10 ms: a forward op, a backward op, sends of two layers beside it."""

    def trace(self, steps=4):
        def box(pid, tid, category, begin, duration, **arguments):
            return {"ph": "X", "pid": pid, "tid": tid, "cat": category, "name": category, "ts": begin, "dur": duration,
                    "args": arguments}
        events = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "tf_Compute"}}]
        for step in range(steps):
            at = 10_000 * step
            events += [box(0, 7, "forward", at, 3000), box(0, 7, "backward", at + 3000, 6000), box(0, 7, "other", at, 1),
                       *(box(1, 1, "send", at + 4000 + 1000 * (1 - layer), 900, layer=layer, step=step) for layer in (0, 1))]
        return {"traceEvents": events + [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "send"}}]}

    def test_a_picture_begins_with_a_forward_pass_and_ends_before_a_send(self):
        boxes, rows, layers = lanes.boxes_of(self.trace(), 1)
        self.assertEqual((rows, layers), (["tf_Compute", "send", "receive"], 2))
        self.assertEqual(boxes, [("tf_Compute", "forward", 0, 3), ("tf_Compute", "backward", 3, 9), ("send", 0, 5, 5.9),
                                 ("send", 1, 4, 4.9), ("tf_Compute", "forward", 10, 13), ("tf_Compute", "backward", 13, 14)])

    def test_a_short_trace_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "the trace has 3 steps, expected 4 or more to draw 2"):
            lanes.boxes_of(self.trace(steps=3), 2)

    def test_near_boxes_of_one_color_are_one(self):
        boxes = [("send", 0, 0, 1), ("send", 0, 1.1, 2), ("send", 1, 2, 3), ("send", 0, 4, 5)]
        self.assertEqual(lanes.joined(boxes, 0.2), [["send", 0, 0, 2], ["send", 1, 2, 3], ["send", 0, 4, 5]])


if __name__ == "__main__":
    unittest.main()
