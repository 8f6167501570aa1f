# SPDX-License-Identifier: Apache-2.0
"""The comparison with DDP: what it computes from steps and losses, and one training of it over loopback."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks.torch import grid, measure, tables  # noqa: E402
from conftest import PATIENCE, free_port  # noqa: E402


def system(turns, losses=(2.0, 1.0), cpu=1.0):
    return {"turns": turns, "losses": list(losses), "cpu_seconds_per_step": cpu, "schemes": {"1": "sfb"},
            "batch": 64}


def result(name, ours, theirs, **words):
    cell = next(cell for cell in grid.cells() if cell.name == name)
    return {"name": name, "cell": cell.described(), "date": "2000-01-01",
            "machine": {"cpu": "some", "cores": 2},
            "systems": {"overlap": system(ours, **words), "waiting": system(ours), "alone": system(ours), "ddp": system(theirs),
                        "ddp4": system([[2 * step for step in turn] for turn in theirs]), "local": system(ours)}}


def test_a_ratio_has_the_bounds_of_its_turns():
    found = result("torch-mlp-p2-1G", [[1.0, 1.1, 0.9], [1.0, 1.1, 0.9]], [[4.0, 4.4, 3.6], [4.0, 4.4, 3.6]])
    value, low, high = tables.ratio(found, "overlap", "ddp")
    assert value == pytest.approx(4) and 3 < low < 4 < high < 5
    restless = result("torch-mlp-p2-1G", [[1.0] * 3, [2.0] * 3], [[4.0] * 3, [4.0] * 3])
    assert tables.ratio(restless, "overlap", "ddp")[1:] == (2, 4)


def test_a_machine_that_is_slower_for_a_while_changes_no_ratio():
    found = result("torch-mlp-p2-1G", [[1.0] * 3, [2.0] * 3, [3.0] * 3], [[4.0] * 3, [8.0] * 3, [12.0] * 3])
    assert tables.ratio(found, "overlap", "ddp") == (4, 4, 4)


def test_ratios_are_to_the_quicker_ddp():
    found = result("torch-mlp-p2-1G", [[1.0]], [[4.0]])
    assert tables.best(found) == "ddp"
    found["systems"]["ddp4"]["turns"] = [[3.0]]
    assert tables.best(found) == "ddp4"
    assert "overlap: 3.00, asked 6" in tables.goals([found])


def test_one_worker_is_beside_plain_torch():
    found = result("torch-resnet-p1-unshaped", [[1.0]], [[1.0]])
    found["systems"]["alone"]["turns"] = [[1.02]]
    assert "missed: ResNet-20, P=1: +2.0 % [+2.0 %, +2.0 %] more than a plain step, asked 1.1 % at most" in tables.goals([found])


def test_one_worker_is_compared_by_turns_of_several_starts(monkeypatch):
    cell = next(cell for cell in grid.cells() if cell.workers == 1)
    began = []

    def trained(cell, cluster):
        began.append(cell.systems)
        slow = float(len(began))  # each start is slower than the one before
        return {name: system([[slow * (1.01 if name == "waiting" else 1.0)] * 2] * cell.turns) for name in cell.systems}
    monkeypatch.setattr(measure, "trained", trained)
    systems = measure.measure(cell, None)
    assert began == [["alone", "waiting", "local"]] * grid.STARTS
    assert [len(turn) for turn in systems["waiting"]["turns"]] == [2] * cell.turns * grid.STARTS
    found = {"name": cell.name, "cell": cell.described(), "systems": systems}
    assert tables.overhead(found, "alone") == "+0.0 % [+0.0 %, +0.0 %]"
    assert tables.overhead(found, "waiting") == "+1.0 % [+1.0 %, +1.0 %]" and tables.apart(found) == grid.STARTS - 1


def test_the_summary_is_of_the_overlap_and_of_one_worker():
    several, one = result("torch-mlp-p2-1G", [[1.0]], [[4.0]]), result("torch-resnet-p1-unshaped", [[1.0]], [[1.0]])
    one["systems"]["alone"]["turns"] = [[1.25]]
    rows = [(setting, ratio, goal) for _, setting, _, ratio, goal in tables.summary([several, one])]
    assert rows == [("MLP 784-4096-4096-10, P=2, 1 Gbit/s", (4, 4, 4), 1), ("ResNet-20, P=1", (0.8, 0.8, 0.8), 0.98)]


def test_strangers_on_the_cores_are_named():
    found = result("torch-mlp-p2-1G", [[1.0]], [[5.0]])
    assert tables.undisturbed(found) == 0.5 and "strangers used the cores, 50% were left" in tables.goals([found])


def test_losses_are_compared_where_both_have_come():
    found = result("torch-mlp-p2-1G", [[1.0]], [[1.0]], losses=(2.0, 1.1, 0.5))
    assert tables.losses(found, "overlap") == (2, 1.1, 1.0, pytest.approx(0.05))


def test_what_the_bytes_of_factors_allow_is_told():
    # 64 rows of 4096 + 784 floats to one other worker, at 95.6 % of 1 Gbit/s: 10.45 ms
    found = result("torch-mlp-p2-1G", [[0.05]], [[0.06]])
    assert tables.most_by_bytes(found, "overlap") == pytest.approx(5.739, abs=0.001)
    assert "without any computing, let it be 5.74 at most" in tables.goals([found])
    found["systems"]["overlap"]["schemes"] = {"1": "kv"}
    assert "without any computing" not in tables.goals([found])


def test_missed_goals_are_named():
    lines = tables.goals([result("torch-mlp-p2-1G", [[1.0]], [[3.0]], losses=(2.0, 1.5)),
                          result("torch-lenet-p2-1G", [[1.0]], [[1.0]])])
    assert "2 of 4 goals are reached" in lines
    assert "missed: MLP 784-4096-4096-10, P=2, 1 Gbit/s, overlap: 3.00, asked 6" in lines
    assert "overlap: its losses differ from DDP's by more than 2%" in lines


class Loopback:
    """A cluster without a network, whose nodes run these programs instead."""
    addresses = ["127.0.0.1"] * 2

    def __init__(self, *programs):
        self.programs = programs

    def run(self, index, words, **options):
        return subprocess.Popen(["sh", "-c", self.programs[index]], **options)

    def end(self, *processes):
        for process in processes:
            process.kill()
            process.wait()


FAILS = "echo $$ > pid; echo 'RuntimeError: the real cause' >&2; exit 3"
HANGS = "exec sleep 1000"
# When rank 1 has ended and its file is older than the clock: that goes in ticks of some milliseconds.
FAILS_LATER = """
until grep -q ') Z' /proc/$(cat pid)/stat && touch now && test now -nt error1; do :; done 2> /dev/null
echo 'RuntimeError: the connection to rank 1 is lost' >&2
exit 1
"""


@pytest.mark.parametrize("other", (HANGS, FAILS_LATER), ids=("hangs", "fails later"))
def test_the_rank_that_failed_first_is_named(other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster = Loopback(other, FAILS)
    with pytest.raises(measure.Failed, match="^rank 1 ended with 3: RuntimeError: the real cause$"):
        measure.run(cluster, [], tmp_path, PATIENCE, lambda rank: [])


def test_all_systems_of_a_training_learn_the_same(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    port = free_port()
    workers = [subprocess.Popen(
        [sys.executable, "-B", str(ROOT / "benchmarks" / "torch" / "train_bench.py"), "--net", "lenet",
         "--systems", "overlap,waiting,ddp", "--batch", "4", "--workers", "2", "--rank", str(rank), "--turns", "1",
         "--turn-seconds", "0", "--port", str(port), "--token-file", str(tmp_path / "token")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        for rank in range(2)]
    try:
        ended = [worker.communicate(timeout=PATIENCE) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    said = [[json.loads(line) for line in output.splitlines()] for output, _ in ended]
    summaries = [{line["system"]: line["summary"] for line in lines if "summary" in line} for lines in said]
    assert set(summaries[0]) == {"overlap", "waiting", "ddp"}, ended
    for name, summary in summaries[0].items():
        assert summary["weights"] == summaries[1][name]["weights"]
        both = list(zip(summary["losses"], summaries[0]["ddp"]["losses"]))
        assert len(both) == 4 and both == [(pytest.approx(b, abs=1e-4), b) for _, b in both]
