# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for ever while a job forms."""
import os
import re
import signal
import time

import job as jobs

ENDLESS = 10_000_000
JOIN = 3


def test_a_rank_zero_that_hangs_before_it_listens_ends_the_command(bench):
    """It opens weights that never come: a pipe into which nobody writes, in place of a disk that hangs."""
    solver = bench.solver(max_iter=ENDLESS)
    weights = bench.folder / "weights.caffemodel"
    os.mkfifo(weights)
    began = time.monotonic()
    done = jobs.run(bench.poseidon, *bench.arguments(
        solver, ["--workers", 3, "--weights", weights, "--join-timeout", JOIN], "run"), cwd=bench.folder)
    assert time.monotonic() - began < JOIN + 10
    assert done.code == 1
    assert re.search(rf"^poseidon: worker 0 on host \S+ did not listen within {JOIN} s", done.err.lines[-1])


def test_a_worker_that_is_frozen_before_it_joins_ends_the_command(bench):
    solver = bench.solver(max_iter=ENDLESS)
    with bench.start(solver, "--workers", 2, "--join-timeout", JOIN) as job:
        deadline = time.monotonic() + jobs.PATIENCE
        while len(members := jobs.children_of(job.pid)) < 2 and job.process.poll() is None:
            assert time.monotonic() < deadline
        assert len(members) == 2, job.err.text
        os.kill(members[1], signal.SIGSTOP)
        began = time.monotonic()
        assert job.finish() != 0
        assert time.monotonic() - began < JOIN + 15
        assert re.search(r"^poseidon: .*(missing: rank 1|worker 1)", job.err.lines[-1]), job.err.text
