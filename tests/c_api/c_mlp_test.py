#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/c_mlp as a user runs it: several processes over TCP that share a token file.

Whatever the schemes and the number of workers: all ranks print the same hash of their weights, the
loss falls, and the payload counted is what the layers' sizes say.

usage: c_mlp_test.py C_MLP [unittest arguments]
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

C_MLP = ""
BATCH = 16
STEPS = 60
LAYERS = {"fc1": (47, 33), "fc2": (29, 47), "fc3": (10, 29)}  # outputs, inputs


class Job:
    """The processes of one run, and what they printed."""

    def __init__(self, folder, workers, servers=0, schemes="", plan_step=None):
        token = os.path.join(folder, "job.token")
        subprocess.run([C_MLP, "--make-token", token], check=True)
        self.token_mode = os.stat(token).st_mode & 0o777
        self.common = ["--token", token, "--workers", str(workers), "--servers", str(servers),
                       "--steps", str(STEPS)]
        if schemes:
            self.common += ["--schemes", schemes]
        if plan_step is not None:
            self.common += ["--plan-step", str(plan_step)]
        self.processes = []
        try:
            outputs = self.run(workers, servers)
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
        self.exits = [process.returncode for process in self.processes]
        self.errors = "".join(error for _, error in outputs)
        self.text = "".join(output for output, _ in outputs)

    def run(self, workers, servers):
        self.start("0", "0")
        port = self.processes[0].stdout.readline().split()[2]
        for rank in range(1, workers):
            self.start(str(rank), port)
        for _ in range(servers):
            self.start("server", port)
        return [process.communicate(timeout=100) for process in self.processes]

    def start(self, rank, port):
        self.processes.append(subprocess.Popen(
            [C_MLP, *self.common, "--rank", rank, "--port", port], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def ranks(self):
        """By rank: (first loss, last loss, hash)."""
        found = re.findall(r"rank (\d+) loss ([\d.]+) -> ([\d.]+) weights ([0-9a-f]{16})", self.text)
        return {int(rank): (float(first), float(last), weights)
                for rank, first, last, weights in found}

    def moved(self, layer):
        """By rank: (scheme, bytes sent, bytes received) of one layer."""
        found = re.findall(rf"rank (\d+) layer {layer} (kv|sfb) sent (\d+) received (\d+) bytes "
                           rf"in {STEPS} steps", self.text)
        return {int(rank): (scheme, int(sent), int(received))
                for rank, scheme, sent, received in found}


class CMlpTest(unittest.TestCase):
    def run_job(self, workers, **options):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(folder, workers, **options)
        self.assertEqual(job.exits, [0] * len(job.exits), job.errors)
        self.assertEqual(job.token_mode, 0o600)
        ranks = job.ranks()
        self.assertEqual(sorted(ranks), list(range(workers)), job.text)
        self.assertEqual(len({weights for _, _, weights in ranks.values()}), 1, job.text)
        first, last, _ = ranks[0]
        self.assertGreater(first, 2.0)
        self.assertLess(last, 0.25)
        return job

    def check_key_value(self, job, layer, workers, servers=0):
        outputs, inputs = LAYERS[layer]
        size = 4 * outputs * (inputs + 1) * STEPS
        moved = job.moved(layer)
        self.assertEqual({scheme for scheme, _, _ in moved.values()}, {"kv"})
        sent = sum(sent for _, sent, _ in moved.values())
        received = sum(received for _, _, received in moved.values())
        if servers == 0:
            # Every worker sends all but its own slice, and its own slice's mean to all others.
            self.assertEqual((sent, received), (2 * (workers - 1) * size,) * 2)
        else:
            for _, sent, received in moved.values():
                self.assertEqual((sent, received), (size, size))

    def check_factors(self, job, layer, workers):
        outputs, inputs = LAYERS[layer]
        each = 4 * BATCH * (workers - 1) * (outputs + inputs) * STEPS
        self.assertEqual(job.moved(layer),
                         {rank: ("sfb", each, each) for rank in range(workers)})

    def test_dense(self):
        for workers in (2, 3):
            with self.subTest(workers=workers):
                job = self.run_job(workers, schemes="fc1=kv;fc2=kv")
                for layer in LAYERS:
                    self.check_key_value(job, layer, workers)

    def test_factors_and_dense(self):
        for workers in (2, 3):
            with self.subTest(workers=workers):
                job = self.run_job(workers, schemes="fc1=sfb;fc2=sfb")
                self.check_factors(job, "fc1", workers)
                self.check_factors(job, "fc2", workers)
                self.check_key_value(job, "fc3", workers)

    def test_dense_and_factors_learn_the_same(self):
        losses = [self.run_job(2, schemes=schemes).ranks()[0][1]
                  for schemes in ("fc1=kv;fc2=kv", "fc1=sfb;fc2=sfb")]
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-3)

    def test_twice_the_same_bits(self):
        hashes = {self.run_job(3, schemes="fc1=sfb").ranks()[0][2] for _ in range(2)}
        self.assertEqual(len(hashes), 1)

    def test_dedicated_servers(self):
        for servers in (1, 2):
            with self.subTest(servers=servers):
                job = self.run_job(2, servers=servers, schemes="fc1=sfb")
                self.check_factors(job, "fc1", 2)
                self.check_key_value(job, "fc2", 2, servers)
                self.check_key_value(job, "fc3", 2, servers)

    def test_measured_plan(self):
        job = self.run_job(2, plan_step=8)
        self.assertNotIn("until the first steps have been measured", job.text)

    def test_errors_are_one_sentence(self):
        for arguments, expected in (
                (["--workers", "2", "--rank", "0", "--port", "0"], "token"),
                (["--workers", "1", "--schemes", "fc1=fast"], "'fast', expected kv"),
                (["--workers", "1", "--schemes", "fc9=sfb"], "fc9"),
                (["--token", "/nonexistent/job.token"], "/nonexistent/job.token"),
                (["--colour", "blue"], "unknown option '--colour'")):
            with self.subTest(arguments=arguments):
                done = subprocess.run([C_MLP, *arguments], text=True, timeout=60,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                self.assertIn(done.returncode, (1, 2))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    C_MLP = sys.argv.pop(1)
    unittest.main()
