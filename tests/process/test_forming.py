# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for ever while a job forms."""
import json
import os
import re
import signal
import time

import job as jobs

ENDLESS = 10_000_000
JOIN = 8


def two_of(job):
    """The first two members of a job, as soon as they are there."""
    deadline = time.monotonic() + jobs.PATIENCE
    while len(members := jobs.children_of(job.pid)) < 2 and job.process.poll() is None:
        assert time.monotonic() < deadline
    assert len(members) >= 2, job.err.text
    return members


def members_of(bench):
    return [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]


def test_a_rank_zero_that_hangs_before_it_listens_ends_the_command(bench):
    """It opens weights that never come: a pipe into which nobody writes, in place of a disk that hangs."""
    solver = bench.solver(max_iter=ENDLESS)
    weights = bench.folder / "weights.caffemodel"
    os.mkfifo(weights)
    began = time.monotonic()
    done = jobs.run(bench.poseidon, *bench.arguments(
        solver, ["--workers", 3, "--weights", weights, "--join-timeout", JOIN], "run"), cwd=bench.folder)
    assert time.monotonic() - began < JOIN + 10
    assert done.code == 3
    [end] = members_of(bench)
    assert end["failure"]["culprit"] == 0
    assert re.search(rf"^poseidon: worker 0 on host \S+ did not listen within {JOIN} s", done.err.lines[-1])


def test_a_worker_that_is_frozen_before_it_joins_ends_the_command(bench):
    solver = bench.solver(max_iter=ENDLESS)
    with bench.start(solver, "--workers", 2, "--join-timeout", JOIN) as job:
        members = two_of(job)
        assert len(members) == 2, job.err.text
        os.kill(members[1], signal.SIGSTOP)
        began = time.monotonic()
        assert job.finish() == 3
        assert time.monotonic() - began < JOIN + 15
        assert re.search(r"^poseidon: .*(missing: rank 1|worker 1)", job.err.lines[-1]), job.err.text
        assert 1 in [end["failure"]["culprit"] for end in members_of(bench) if end["failure"]]


def test_a_rank_zero_that_is_frozen_while_others_join_is_the_culprit(bench):
    """They wait for it in the handshake, and the launcher asks who lives."""
    solver = bench.solver(max_iter=ENDLESS)
    with bench.start(solver, "--workers", 3, "--join-timeout", JOIN) as job:
        os.kill(two_of(job)[0], signal.SIGSTOP)
        assert job.finish() == 3
        assert re.search(r"^poseidon: (worker|rank) 0 ", job.err.lines[-1]), job.err.text
        assert "worker 1" not in job.err.lines[-1].split(" (ended by")[0]
        # Who is still in the handshake with it cannot tell why no answer comes.
        culprits = {end["failure"]["culprit"] for end in members_of(bench) if end["failure"]}
        assert 0 in culprits and culprits <= {0, -1}
