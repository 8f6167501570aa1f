# SPDX-License-Identifier: Apache-2.0
"""distribute and loader in scripts that nobody starts or ends by hand (script.py): P workers train what one does."""
import json
import re
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from conftest import HERE, PATIENCE, PREPARED  # noqa: E402

sys.path.append(str(HERE.parent / "shared"))
import programs  # noqa: E402


def start(folder, workers, case, **variables):
    """A process for each rank."""
    plain = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")) if workers == 1 else {}  # as nobody has launched it
    return programs.start(PREPARED, folder, workers, HERE / "script.py", case, folder / f"{case}-of{workers}-",
                          **{**plain, **variables})


def run(folder, workers, case):
    """How each rank ended: its code and what it said on standard error."""
    processes = start(folder, workers, case)
    said = programs.ended(processes, PATIENCE)
    return [(process.returncode, errors) for process, errors in zip(processes, said)]


def trained(folder, workers, case):
    """The parameters, of which all ranks have the same bits."""
    for code, errors in run(folder, workers, case):
        assert code == 0, errors[-3000:]
    return saved(folder, workers, case)


def saved(folder, workers, case):
    """The same of a job that has ended."""
    first, *others = (torch.load(folder / f"{case}-of{workers}-{rank}") for rank in range(workers))
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))
    return first


def apart(alone, together):
    """The largest difference of parameters over the largest of them."""
    largest = max(parameter.abs().max() for parameter in alone)
    result = max((one - other).abs().max() for one, other in zip(alone, together, strict=True)) / largest
    print(f"{result:.1e}")
    return result


@pytest.mark.parametrize("workers, case", [
    (2, "plain"), (4, "plain"), (2, "uneven"), (3, "uneven"), (2, "rest"), (3, "rest"), (2, "shared_by_speed"), (3, "shared_by_speed"), (2, "synchronized"), (3, "synchronized"), (2, "forward"),
    (2, "shuffled"), (2, "normalized"), (3, "normalized"), (2, "accumulated"), (3, "sampled"), (2, "validated"), (2, "two_models"), (2, "actor_and_critic"), (2, "averaged"),
    (2, "sequences_first"), (2, "objects"), (3, "side_by_side"), (2, "drawn_behind_a_loader"), (2, "as_ddp"),
    (3, "as_ddp"), (2, "as_ddp_with_factors")])
def test_workers_train_what_one_does(tmp_path, workers, case):
    assert apart(trained(tmp_path, 1, case), trained(tmp_path, workers, case)) <= 3e-6


@pytest.mark.parametrize("how, after", [("", 1), ("_with_overlap", 3)])
def test_a_training_goes_on_with_other_workers(tmp_path, how, after):
    """Of two workers one saves; all of others load."""
    whole = trained(tmp_path, 1, "never_stopped")
    assert apart(whole, trained(tmp_path, 2, "stopped" + how)) > 1e-2
    assert apart(whole, trained(tmp_path, after, "goes_on" + how)) <= 3e-6


def test_a_shuffled_loader_has_one_order_for_all(tmp_path):
    """Though each worker's own seed is another. Of 70 samples 64 are whole steps of 16; 6 are divided."""
    for code, errors in run(tmp_path, 2, "order"):
        assert code == 0, errors[-3000:]
    ranks = [torch.load(tmp_path / f"order-of2-{rank}") for rank in range(2)]
    epochs = [torch.cat(both) for both in zip(*ranks)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(70))] * 2
    assert not torch.equal(*epochs)


def test_a_sampler_of_one_s_own_has_one_order_for_all(tmp_path):
    for code, errors in run(tmp_path, 2, "own_orders"):
        assert code == 0, errors[-3000:]
    for parts in zip(*(torch.load(tmp_path / f"own_orders-of2-{rank}") for rank in range(2))):
        epochs = [torch.cat(both) for both in zip(*(part.split(32) for part in parts))]
        assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(64))] * 2
        assert not torch.equal(*epochs)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_scripts_share_numbers_and_names(tmp_path, workers):
    """And nobody divides twice what is divided, draws what others draw, or finds old buffers."""
    for code, errors in run(tmp_path, workers, "small_stories" if workers > 1 else "shared"):
        assert code == 0, errors[-3000:]


@pytest.mark.parametrize("case", ["measured", "differing_shares"])
def test_shares_are_measured_alike(tmp_path, case):
    for code, errors in run(tmp_path, 2, case):
        assert code == 0 or case == "differing_shares", errors[-3000:]
        assert "the shares of the batches differ" in errors or case == "measured"


def bytes_in(words):
    return float(words.split()[0]) * {"B": 1, "kB": 1e3, "MB": 1e6}[words.split()[1]]


def test_a_training_is_reported(tmp_path):
    trained(tmp_path, 2, "observed")
    said = (tmp_path / "observed-of2-0.txt").read_text().splitlines()
    print("\n".join(said))
    assert said[0] == "Poseidon: rank 0 of 2 workers"
    assert said[1] == "Sequential: 11 steps, final plan since step 3, measured over steps 3 to 10"
    rows = {row[0]: row for row in (re.split(r"  +", line) for line in said[3:6])}
    assert [rows[name][1] for name in "024"] == ["dense", "factors", "dense"]
    for name, elements in (("0", 20 * 60 + 60), ("4", 60 * 10 + 10)):  # one slice each: its owner sends the mean, the other its part
        assert 4 * elements < bytes_in(rows[name][2]) < 4 * elements + 200
        assert bytes_in(rows[name][4]) == pytest.approx(4 * elements, rel=0.01)
    assert bytes_in(rows["2"][2]) == pytest.approx(4 * 12 * (60 + 60), rel=0.05)  # of 12 samples
    assert "by the user" in rows["2"][-1] or "forced" in rows["2"][-1], rows["2"]
    assert "all dense would be" in said[6]
    assert said[-1].startswith("from step 3 on 2 of 3 layers go as dense (7.48 kB a step), 1 of 3 layers go as factors (")
    events = json.loads((tmp_path / "observed-of2-0.json").read_text())["traceEvents"]
    named = {(event.get("cat"), event["name"]) for event in events}
    of_owner = {("receive", "push 0"), ("sum", "sum 0"), ("send", "result 0")}
    of_other = {("send", "push 4"), ("receive", "result 4")}
    assert of_owner | of_other | {("send", "factor 2"), ("rebuild", "rebuild 2")} <= named, named


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trace_needs_spans(tmp_path, workers):
    for code, errors in run(tmp_path, workers, "a_trace_without_spans"):
        if workers == 1:
            assert code == 0, errors[-3000:]
        else:
            assert code != 0
            assert "the job was joined without spans to trace, expected init(trace_spans=100_000) before" in errors


def test_a_worker_that_ends_early_is_named(tmp_path):
    (other, said), (_, _) = run(tmp_path, 2, "ends_early")
    assert other != 0
    assert "worker 1" in said, said[-3000:]


@pytest.mark.parametrize("case, sentence", [
    ("weights_that_part", "parameter '2.weight' is not the same on all workers, expected no update that depends on the worker"),
    ("read_ahead", "the last batch of a loader of poseidon.torch.loader or shard was read ahead of its use, and has fewer"),
    ("listed", "the last batch of a loader of poseidon.torch.loader or shard was read ahead of its use, and has fewer"),
    ("late_options", "poseidon.torch.init was given wire after this process has joined, expected it before distribute")])
def test_what_is_refused(tmp_path, case, sentence):
    for code, errors in run(tmp_path, 2, case):
        assert code != 0
        assert f"PoseidonError: {sentence}" in errors, errors[-3000:]
