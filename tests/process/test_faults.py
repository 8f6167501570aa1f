# SPDX-License-Identifier: Apache-2.0
"""Drills: a random member of a job is killed or frozen at a random moment of its training. All
others must end in time and blame the same one, and nothing may stay behind.

POSEIDON_DRILLS is the number of drills (default 10), POSEIDON_SEED their seed."""

import json
import os
import random
import re
import signal
import statistics
import time

import pytest

import job as jobs

pytestmark = pytest.mark.counted

DRILLS = int(os.environ.get("POSEIDON_DRILLS", "10"))
SEED = int(os.environ.get("POSEIDON_SEED", str(random.SystemRandom().randrange(10**6))))
DEAD_AFTER = 5
ENDLESS = 10_000_000
# From the fault to the end of every other member. A frozen member is found by its silence, and
# DEAD_AFTER is the promise for naming it; then there is ending to do, on a machine that may be busy.
WITHIN = {"kill": 1.0, "freeze": DEAD_AFTER + 0.5}

KINDS = [(role, fault) for role in ("rank 0", "worker", "server") for fault in ("kill", "freeze")]
measured = {"kill": [], "freeze": []}


@pytest.fixture(scope="module", autouse=True)
def report():
    yield
    for fault, times in measured.items():
        if times:
            print(f"\n{fault}: {len(times)} drills, every other member had ended after "
                  f"{statistics.median(times):.3f} s (median), {max(times):.3f} s (most)")


def solver_of(bench):
    return bench.solver(max_iter=ENDLESS, test_interval=ENDLESS, display=20, snapshot=25,
                        snapshot_prefix=bench.folder / "snap")


def check_last_snapshot(bench, workers):
    """The newest complete snapshot loads and trains on."""
    numbers = {int(path.stem.rpartition("_")[2]) for path in bench.folder.glob("snap_iter_*.solverstate")}
    if not numbers:
        return
    last = max(numbers)
    solver = bench.solver("again.prototxt", net=bench.folder / "net.prototxt", max_iter=last + 2,
                          test_interval=None, test_iter=None)
    done = bench.train(solver, "--workers", workers, "--snapshot",
                       bench.folder / f"snap_iter_{last}.solverstate", run_dir="again")
    assert done.summary["iterations"] == last + 2


def port_is_free(address, port):
    import socket
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((address, port)) != 0


@pytest.mark.parametrize("number", range(DRILLS))
def test_a_lost_member_is_named_by_all(bench, number):
    # Every kind of member meets every fault before any meets it again.
    role, fault = random.Random(SEED).sample(KINDS, len(KINDS))[number % len(KINDS)]
    source = random.Random(f"{SEED}:{number}")
    workers, servers = source.choice(((2, 1), (2, 2)) if role == "server" else
                                     ((2, 0), (3, 0), (4, 0), (2, 1), (2, 2)))
    victim = {"rank 0": 0, "worker": source.randrange(1, workers),
              "server": workers + source.randrange(max(servers, 1))}[role]
    moment = source.uniform(0, 1.5)
    levels = source.choice(("flat", "host"))
    shared = set(os.listdir("/dev/shm"))
    names = [f"worker {i}" for i in range(workers)] + [f"server {i}" for i in range(servers)]
    print(f"drill {number} of seed {SEED}: {fault} {names[victim]} of {workers} workers and "
          f"{servers} servers, {levels}, {moment:.3f} s into training")

    with bench.start(solver_of(bench), "--workers", workers, "--servers", servers, "--scheme",
                     "ip1=sfb", "--levels", levels, "--machines", ",".join("aabb"[:workers]),
                     "--dead-after", DEAD_AFTER) as job:
        pids = job.members(workers + servers)
        sockets = jobs.listening_sockets(pids)
        assert len(sockets) == len(pids)
        endings = [jobs.Ending(pid) for pid in pids]
        launcher = jobs.Ending(job.pid)
        time.sleep(moment)  # the random moment is the drill
        began = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        others = [ending for i, ending in enumerate(endings) if i != victim]
        left = jobs.wait_for_ends(others, began + 60)
        took = max(ending.at or time.monotonic() for ending in others) - began
        jobs.wait_for_ends([launcher], began + 60)
        code = job.finish()
        all_took = time.monotonic() - began
        print(f"ended after {took:.3f} s, the command after {all_took:.3f} s: {job.err.lines[-1]}")
        assert not left, "members hang"
        measured[fault].append(took)

        # Everybody's verdict is the same, and it is right.
        ends = [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]
        assert [end["pid"] for end in ends] == pids
        assert [end["member"].split(" on ")[0] for end in ends] == names
        verdicts = [(end["failure"]["culprit"], end["end"]) for i, end in enumerate(ends)
                    if i != victim and end["failure"]]
        assert verdicts == [(victim, "exited with code 3")] * len(others), ends
        for i, end in enumerate(ends):
            if i != victim:
                assert re.search(rf"\b{names[victim]} on host ", end["failure"]["message"]), end
        assert ends[victim]["end"] == "was killed by signal 9 (Killed)"

        # The user reads one sentence that names it.
        assert code == 3
        sentences = [line for line in job.err.lines if line.startswith("poseidon: ")]
        assert len(sentences) == 1 and sentences[0] == job.err.lines[-1]
        assert names[victim] in sentences[0]
        accused = set(re.findall(r"(?:worker|server) \d+", sentences[0].split(" (ended by")[0]))
        assert names[victim] in accused

        # Nothing stays behind.
        assert not [pid for pid in pids if jobs.stat_of(pid)]
        assert all(port_is_free(*socket) for socket in sockets)
        assert not set(os.listdir("/dev/shm")) - shared
        assert took <= WITHIN[fault], f"{took:.3f} s, expected {WITHIN[fault]} s"
        # Who was frozen as it saved is first asked whether it lives.
        assert all_took <= WITHIN[fault] + 2 + (3 if fault == "freeze" else 0)
    check_last_snapshot(bench, workers)


@pytest.mark.parametrize("victims", ((2, 3), (0, 2), (1, 2)))
def test_two_frozen_at_once_are_both_named(bench, victims):
    """All members say so, in time, and blame one of the two."""
    with bench.start(solver_of(bench), "--workers", 4, "--levels", "host", "--machines", "a,a,b,b",
                     "--dead-after", DEAD_AFTER) as job:
        pids = job.members(4)
        others = [jobs.Ending(pid) for i, pid in enumerate(pids) if i not in victims]
        began = time.monotonic()
        for victim in victims:
            os.kill(pids[victim], signal.SIGSTOP)
        assert not jobs.wait_for_ends(others, began + 60), "members hang"
        took = max(ending.at for ending in others) - began
        assert job.finish() == 3
        all_took = time.monotonic() - began
        ends = [json.loads(line) for line in (bench.folder / "run/members.jsonl").open()]
        for i, end in enumerate(ends):
            if i in victims:
                continue
            assert end["failure"]["culprit"] == victims[0], end
            assert all(f"worker {victim} on host" in end["failure"]["message"] for victim in victims), end
        assert took <= DEAD_AFTER + 0.7, f"{took:.3f} s"
        assert all_took <= DEAD_AFTER + 0.7 + 2, f"the command: {all_took:.3f} s"


def test_a_short_freeze_ends_nothing(bench):
    """A member that is silent for less than --dead-after is waited for."""
    with bench.start(solver_of(bench), "--workers", 2, "--dead-after", 60) as job:
        pids = job.members(2)
        os.kill(pids[1], signal.SIGSTOP)
        assert job.err.wait(r"worker 1 on host \S+ has been silent for"), job.err.text
        os.kill(pids[1], signal.SIGCONT)
        assert job.err.wait(r"worker 1 on host \S+ is heard again"), job.err.text
        count = len(job.out.lines)
        with job.out.changed:
            assert job.out.changed.wait_for(lambda: len(job.out.lines) > count + 1, jobs.PATIENCE)
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 0, job.err.text


def test_members_end_with_the_launcher(bench):
    with bench.start(solver_of(bench), "--workers", 2, "--servers", 1) as job:
        pids = job.members(3)
        endings = [jobs.Ending(pid) for pid in pids]
        began = time.monotonic()
        os.kill(job.pid, signal.SIGKILL)
        left = jobs.wait_for_ends(endings, began + 30)
        assert not left
        took = max(ending.at for ending in endings) - began
        print(f"all members had ended {took:.3f} s after their launcher")
        assert took <= 1.0
    check_last_snapshot(bench, 2)


def test_two_signals_end_the_job_at_once(bench):
    with bench.start(solver_of(bench), "--workers", 2) as job:
        pids = job.members(2)
        os.kill(pids[1], signal.SIGSTOP)  # so that the first request cannot be met
        endings = [jobs.Ending(pid) for pid in pids]
        os.kill(job.pid, signal.SIGINT)
        os.kill(job.pid, signal.SIGTERM)
        assert job.finish() == 1
        assert not jobs.wait_for_ends(endings, time.monotonic() + 10)
