# SPDX-License-Identifier: Apache-2.0
"""A member that is alive, with heartbeats, and keeps all others waiting."""
import json
import os
import re

import pytest

import job as jobs

ENDLESS = 10_000_000


@pytest.mark.parametrize("workers, servers, levels", [(3, 0, "flat"), (2, 1, "flat"), (4, 0, "host")])
@pytest.mark.skipif(bool(os.environ.get("POSEIDON_SANITIZE")), reason="a sanitizer wants to be the first library")
def test_a_disk_that_hangs_in_a_snapshot_is_named(bench, slow_disk, workers, servers, levels):
    environment, _, slow = slow_disk
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=1, snapshot=20,
                          snapshot_prefix=bench.folder / "snap")
    with bench.start(solver, "--workers", workers, "--servers", servers, "--levels", levels, "--machines",
                     ",".join("aabb"[:workers]), "--stuck-after", 4, environment=environment) as job:
        assert job.out.wait(r"^iteration [1-9]"), job.err.text
        slow.touch()
        remark = job.err.wait(r"worker 0 on host \S+ has not brought (.*), for which (.*) waited 2\.\d s so far; it is "
                              r"alive but has used no processor")
        assert remark, job.err.text
        assert job.finish() == 3
        end = job.err.find(r"worker 0 on host \S+: has not brought (.*), for which (.*) waited 4\.\d s")
        assert end, job.err.text
        assert re.search(r"of layer '\w+' in step \d+|at the beginning of step \d+", end[1]), end[1]
        assert f"worker 1 on host" in end[2]
        ends = [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]
        assert [end["failure"]["culprit"] for end in ends if end["failure"]] == [0] * (len(ends) - 1)
