# SPDX-License-Identifier: Apache-2.0
"""A link that drops everything for four fifths of --dead-after ends nothing. Needs root and iproute2."""
import os
import pathlib
import platform
import signal
import sys
import time

import pytest

import job as jobs

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "cluster"
sys.path.insert(0, str(FOLDER))

import emulation  # noqa: E402

ENDLESS = 10_000_000
DEAD_AFTER = 10
# From Linux 6.15 a connection has an option to try again at a steady pace.
TOLD = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2]) >= (6, 15)
pytestmark = [pytest.mark.skipif(emulation.missing() is not None, reason=str(emulation.missing())),
              pytest.mark.skipif(not TOLD, reason="this kernel backs off as it likes")]


def test_an_outage_of_four_fifths_of_dead_after_ends_nothing(bench):
    token = bench.write("token", "5a" * 32 + "\n")
    os.chmod(token, 0o600)
    solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=20)
    with emulation.Cluster(2, emulation.Link(rate=None)) as cluster:
        def start(rank):
            place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                     "MASTER_ADDR": cluster.addresses[0], "MASTER_PORT": 29500}
            return jobs.Job(bench.poseidon,
                            *bench.arguments(solver, ["--token-file", token, "--dead-after", DEAD_AFTER], f"run{rank}"),
                            cwd=bench.folder, environment={name: str(value) for name, value in place.items()},
                            wrapper=emulation.inside(cluster.name(rank)))

        def port(*words):
            emulation.command(*emulation.inside(cluster.hub), "ip", "link", "set", "port1", *words)

        with start(0) as first, start(1) as second:
            assert first.out.wait(r"^iteration [1-9]"), first.err.text
            port("nomaster")  # the bridge drops what comes and what goes
            time.sleep(0.8 * DEAD_AFTER)  # the outage is the drill
            before = len(first.out.lines)
            port("master", "bridge")
            with first.out.changed:
                assert first.out.changed.wait_for(lambda: len(first.out.lines) > before + 2 or not first.out.open,
                                                  jobs.PATIENCE)
            assert first.out.open, first.err.text
            assert "silent" in first.err.text or "silent" in second.err.text  # it was an outage
            for member in (first, second):
                for pid in jobs.children_of(member.pid) or [member.pid]:
                    os.kill(pid, signal.SIGTERM)
            assert first.finish() == 0, first.err.text
            assert second.finish() == 0, second.err.text  # and the weights are equal, which the end compares
