# SPDX-License-Identifier: Apache-2.0
"""`poseidon plan` on profiles of known models, against the bounds reckoned here a second time.

  plan_command_test.py POSEIDON
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.profiles.timing import profile, text_of  # noqa: E402

POSEIDON = sys.argv.pop(1)
GOODPUT = 0.956


def plan(*arguments, text=None):
    return subprocess.run([POSEIDON, "plan", *arguments], input=text, capture_output=True, text=True, timeout=120)


def dense_bounds(document, workers, rate, latency):
    """T* and T_wfbp with every layer's gradient cut into slices, from the formulas."""
    layers = document["layers"]
    compute = [layer["forward_seconds"] + layer["backward_seconds"] for layer in layers]
    transfer = [2 * layer["elements"] * 4 * (workers - 1) / workers / (rate / 8 * GOODPUT) for layer in layers]
    least = max([sum(compute)] + [sum(transfer[:j + 1]) + 2 * latency + sum(compute[j:]) for j in range(len(layers))])
    free = done = 0
    for layer, seconds in reversed(list(zip(layers, transfer))):
        done += layer["backward_seconds"]
        free = max(free, done) + seconds
    return least, sum(layer["forward_seconds"] for layer in layers) + free + 2 * latency


class PlanCommand(unittest.TestCase):
    def test_bounds_are_those_of_the_formulas(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "plan.json")
            for name, workers, rate in (("vgg19-22k", 8, 10), ("resnet-50", 4, 5), ("bert-base", 8, 25), ("mlp", 2, 1)):
                document = profile(name)
                done = plan("-", "--workers", str(workers), "--rate", f"{rate}Gbit", "--latency", "100us",
                            "--json", str(out), text=text_of(document))
                self.assertEqual(done.returncode, 0, done.stderr)
                got = json.loads(out.read_text())["prediction"]
                least, wait_free = dense_bounds(document, workers, rate * 1e9, 100e-6)
                with self.subTest(name):
                    self.assertAlmostEqual(got["dense_step_seconds"] / least, 1, delta=1e-3)
                    self.assertAlmostEqual(got["dense_wfbp_seconds"] / wait_free, 1, delta=1e-3)
                    self.assertLessEqual(got["step_seconds"], got["dense_step_seconds"] * 1.033)
                    self.assertLessEqual(got["speedup"], workers)
                    self.assertIn(got["what_bounds"], " ".join(done.stdout.split()))

    def test_a_budget_is_a_whole_training(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "plan.json")
            words = ("vgg19", "--workers", "32", "--rate", "10Gbit")
            done = plan(*words, "--budget", "--images", "1281167", "--epochs", "74", "--json", str(out))
            self.assertEqual(done.returncode, 0, done.stderr)
            got = json.loads(out.read_text())
            ways = got["budget"]["ways"]
            step, batch = got["prediction"]["step_seconds"], profile("vgg19")["batch"]
            steps = -(-1281167 * 74 // (32 * batch))
            self.assertEqual(ways["plan"]["steps"], steps)
            self.assertAlmostEqual(ways["plan"]["days"] / (steps * step / 86400), 1, delta=1e-9)
            days = [ways[name]["days"] for name in ("plan", "backward_only", "key_value_only", "whole_layers", "one_worker")]
            self.assertEqual(days, sorted(days))
            self.assertIn("budget of 74 epochs of 1281167 images", done.stdout)
            self.assertTrue(done.stdout.endswith("computing bounds the step: a faster network would gain less than 2 %\n"), done.stdout)
            for wrong, what in (((*words, "--budget", "--images", "5"), "--budget, --images N and --epochs N go together"),
                                ((*words, "--epochs", "5"), "--budget, --images N and --epochs N go together"),
                                (("vgg19", "--sweep", "--budget", "--images", "5", "--epochs", "1"), "--budget needs --workers N"),
                                ((*words, "--budget", "--images", "0", "--epochs", "1"), "--images")):
                done = plan(*wrong)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(what, done.stderr)

    def test_a_strategy_predicts_its_own_step(self):
        def predicted(strategy):
            out = pathlib.Path(folder, "plan.json")
            done = plan("vgg19", "--workers", "8", "--rate", "1Gbit", "--strategy", strategy, "--json", str(out))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("strategy " + strategy in " ".join(done.stdout.split()), strategy != "poseidon")
            return json.loads(out.read_text())["prediction"]
        with tempfile.TemporaryDirectory() as folder:
            ours, dense, backward = (predicted(name) for name in ("poseidon", "dense", "wfbp"))
            self.assertEqual(dense["step_seconds"], dense["dense_step_seconds"])
            self.assertEqual(backward["step_seconds"], backward["wfbp_seconds"])
            self.assertLess(ours["step_seconds"], backward["step_seconds"])
            self.assertLess(ours["step_seconds"], dense["step_seconds"])

    def test_combining_on_a_host_costs_its_copies(self):
        document = text_of(profile("vgg19-22k"))

        def step(*arguments):
            done = plan("-", "--workers", "8", "--rate", "1Gbit", "--json", str(out), *arguments, text=document)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(out.read_text())["prediction"]["step_seconds"], done.stdout
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "plan.json")
            free, text = step("--per-host", "8")
            self.assertLess(free, 1)
            self.assertIn("copies through a host's memory count as free", text)
            charged, text = step("--per-host", "8", "--copy-rate", "8Gbit", "--scheme", "fc6=kv")
            self.assertNotIn("count as free", text)
            # fc6, by eight leaders at once: seven eighths of a share go in, eight eighths are added, the mean comes out:
            # (7/8 + 1 + 1) x 411 MB at 1 GB/s. Behind it 80 MB of convolutions in the same way, and the factors of fc7 and fc8.
            self.assertIn("8 workers on one host", text)
            self.assertGreater(charged, 1.18 + 0.23 + 0.03)
            self.assertLess(charged, 1.5)

    def test_the_sweep_covers_the_grid(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "plan.json")
            done = plan("-", "--sweep", "--policy", "bytes", "--json", str(out), text=text_of(profile("alexnet")))
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(out.read_text())
            self.assertNotIn("prediction", document)
            sweep = document["sweep"]
            self.assertEqual({(p["workers"], p["rate_bits_per_second"]) for p in sweep["points"]},
                             {(p, r * 1e9) for p in (2, 4, 8, 16, 32, 64) for r in (1, 10, 25, 40, 100)})
            # The published rule: factors while 256 P <= 2 M N / (M + N), whatever the rate.
            changes = {(c["layer"], c["workers"]) for c in sweep["crossovers"]}
            self.assertEqual(changes, {("fc6", 23), ("fc7", 17), ("fc8", 7)})
            self.assertEqual(len(sweep["crossovers"]), 15)

    def test_a_published_model_is_known_by_its_name(self):
        for name in "alexnet", "mlp":  # all of them: published_test.cc
            with self.subTest(name):
                arguments = "--workers", "8", "--rate", "10G"
                by_name, by_profile = plan(name, *arguments), plan("-", *arguments, text=text_of(profile(name)))
                self.assertEqual((by_name.returncode, by_name.stdout), (0, by_profile.stdout), by_name.stderr)
        done = plan("vgg91", "--sweep")
        self.assertEqual((done.returncode, done.stderr), (2, "poseidon: there is no model vgg91; did you mean vgg19?\n"))

    def test_lines_fit_the_terminal(self):
        def widest(width, model, *arguments):
            done = subprocess.run([POSEIDON, "plan", model, "--workers", "8", "--rate", "10G", *arguments],
                                  env={**os.environ, "COLUMNS": str(width)}, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return max(map(len, done.stdout.splitlines()))
        self.assertLessEqual(widest(80, "alexnet", "--sweep"), 80)
        self.assertLessEqual(widest(80, "resnet-50"), 80)  # whose names and shapes have lines of their own
        self.assertGreater(widest(80, "alexnet", "--wide"), 200)

    def test_refuses_in_one_line(self):
        text = text_of(profile("mlp"))
        for arguments, words in ((("-", "--workers", "2"), "--rate"), (("-", "--rate", "1Gbit"), "--workers"),
                                 (("-", "--workers", "2", "--rate", "fast"), "10Gbit"),
                                 (("-", "--workers", "2", "--rate", "1Gbit", "--scheme", "fc9=kv"), "fc9"),
                                 (("-", "--workers", "2", "--rate", "1Gbit", "--scheme", "fc1"), "LAYER=kv"),
                                 (("--scheme", "fc1", "-", "--workers", "2", "--rate", "1Gbit"), "LAYER=kv"),
                                 (("-", "--workers", "2", "--rate", "1GBps"), "10Gbit"),
                                 (("-", "--sweep", "--threads", "2"), "--threads is for a net that is measured here"),
                                 (("train.py", "--sweep"), "poseidon profile train.py"),
                                 (("/nonexistent.json", "--sweep"), "cannot open /nonexistent.json"),
                                 (("/nonexistent.prototxt", "--sweep"), "/nonexistent.prototxt")):
            done = plan(*arguments, text=text)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("poseidon: "), done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "", arguments)


if __name__ == "__main__":
    unittest.main()
