# SPDX-License-Identifier: Apache-2.0
"""Who is blamed when a host is cut off or members freeze: real processes in network namespaces that a
bridge joins. Whoever has more hosts on its side names those on the other; who has not says that it
cannot be told. Needs root and iproute2."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import time

import pytest

import job as jobs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "cluster"))

import emulation  # noqa: E402

pytestmark = pytest.mark.skipif(emulation.missing() is not None, reason=str(emulation.missing()))

ENDLESS = 10_000_000
DEAD_AFTER = 5
LOST = 3  # exit code


class Spread:
    """A job whose ranks run on the nodes that `places` names, started as torchrun starts them."""

    def __init__(self, bench, stack, places):
        self.cluster = stack.enter_context(
            emulation.Cluster(max(places) + 1, emulation.Link(rate=None)))
        token = bench.folder / "token"
        token.write_text(os.urandom(32).hex())
        token.chmod(0o600)
        solver = bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=20)
        self.jobs = []
        for rank, node in enumerate(places):
            environment = {"RANK": rank, "WORLD_SIZE": len(places),
                           "LOCAL_WORLD_SIZE": places.count(node),
                           "MASTER_ADDR": self.cluster.addresses[0], "MASTER_PORT": 29500,
                           "TORCHELASTIC_RUN_ID": "verdict"}
            self.jobs.append(stack.enter_context(bench.start(
                solver, "--token-file", token, "--dead-after", DEAD_AFTER, run_dir=f"run{rank}",
                environment={name: str(value) for name, value in environment.items()},
                wrapper=(*emulation.inside(self.cluster.name(node)), "unshare", "--uts", "sh", "-c",
                         'hostname "$0" && exec "$@"', f"node{node}"))))
        assert self.jobs[0].out.wait(r"^iteration \d+"), self.jobs[0].err.text

    def cut_off(self, node):
        """No connection reports an error: the bridge forwards nothing of the node's port any more."""
        emulation.command(*emulation.inside(self.cluster.hub), "bridge", "link", "set", "dev",
                          f"port{node}", "state", "0")

    def freeze(self, *ranks):
        for rank in ranks:
            os.kill(self.jobs[rank].pid, signal.SIGSTOP)

    def ends(self, ranks):
        """The last sentence of each, all of which have ended in time and with the code for a lost member."""
        began = time.monotonic()
        codes = [self.jobs[rank].finish() for rank in ranks]
        took = time.monotonic() - began
        print(f"ended after {took:.2f} s")
        sentences = [self.jobs[rank].err.lines[-1] for rank in ranks]
        assert codes == [LOST] * len(ranks), sentences
        # One heartbeat, 0.2 s, and a machine that may be busy.
        assert took <= DEAD_AFTER + 1.5
        return sentences


def expect_blame(sentences, first, *others):
    for sentence in sentences:
        assert re.match(rf"poseidon: worker {first} on host node\d\b.* been silent for ", sentence), sentence
        assert all(f"worker {other} on host" in sentence for other in others), sentence
        assert "cannot be told" not in sentence


def expect_doubt(sentences, *silent):
    for sentence in sentences:
        assert "cannot be told" in sentence, sentence
        assert all(f"worker {rank} on host" in sentence for rank in silent), sentence


def test_the_coordinators_host_is_cut_off(bench):
    with contextlib.ExitStack() as stack:
        job = Spread(bench, stack, (0, 1, 2))
        job.cut_off(0)
        alone, *others = job.ends((0, 1, 2))
        expect_blame(others, 0)
        expect_doubt([alone], 1, 2)
        assert "worker 0 on host node0 has heard nobody" in alone


def test_a_host_with_two_workers_is_cut_off(bench):
    with contextlib.ExitStack() as stack:
        job = Spread(bench, stack, (0, 1, 1, 2))
        job.cut_off(1)
        sentences = job.ends((0, 1, 2, 3))
        expect_blame([sentences[0], sentences[3]], 1, 2)
        expect_doubt(sentences[1:3], 0, 3)


def test_two_hosts_are_cut_off_from_each_other(bench):
    with contextlib.ExitStack() as stack:
        job = Spread(bench, stack, (0, 0, 1, 1))
        job.cut_off(1)
        sentences = job.ends((0, 1, 2, 3))
        expect_doubt(sentences[:2], 2, 3)
        expect_doubt(sentences[2:], 0, 1)


def test_two_freeze_at_once(bench):
    with contextlib.ExitStack() as stack:
        job = Spread(bench, stack, (0, 1, 1, 2))
        job.freeze(1, 2)
        expect_blame(job.ends((0, 3)), 1, 2)
