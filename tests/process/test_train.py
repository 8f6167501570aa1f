# SPDX-License-Identifier: Apache-2.0
"""Whole runs of `poseidon train`: who synchronises how, and what a run leaves behind."""

import collections
import html.parser
import itertools
import json
import math
import pathlib
import re
import sys

import pytest

import caffe_files
import job as jobs

KEYS = {"workers": int, "iterations": int, "seconds": float, "images_per_s": float, "test": dict,
        "plan": list, "step_seconds": dict, "hidden_share": float, "replicas_equal": bool,
        "weights_hash": str}
PLAN_KEYS = {"layer": str, "scheme": str, "rows": list, "predicted_bytes": dict,
             "counted_bytes": dict, "whole_bytes": dict, "predicted_seconds": float, "measured_seconds": float}
LAYERS = {"conv1", "ip1", "ip2"}


def check_results(done, workers, iterations=30):
    """Checks what every finished run has: a complete summary that agrees with itself."""
    summary = done.summary
    for name, kind in KEYS.items():
        assert isinstance(summary[name], kind), name
    assert summary["workers"] == workers
    assert summary["iterations"] == iterations
    assert summary["seconds"] > 0 and summary["images_per_s"] > 0
    assert set(summary["test"]) == {"accuracy", "loss"}
    assert 0 <= summary["hidden_share"] <= 1
    assert summary["replicas_equal"] is True
    assert len(bytes.fromhex(summary["weights_hash"])) == 32
    assert summary["step_seconds"]["measured"] > 0
    assert summary["step_seconds"]["predicted"] >= 0
    metrics = [json.loads(line) for line in (done.run_dir / "metrics.jsonl").open()]
    shown = [m for m in metrics if m["kind"] == "train"]
    assert [m["iteration"] for m in shown] == [0, 10, 20, 30]
    assert ["rate" in m for m in shown] == [True, True, True, False]  # the closing pass learns nothing
    assert all(set(m["outputs"]) == {"loss"} for m in shown)
    tests = [m for m in metrics if m["kind"] == "test"]
    assert [m["iteration"] for m in tests] == [0, 15, 30]
    assert tests[-1]["outputs"] == summary["test"]
    losses = [m["loss"] for m in metrics if m["kind"] == "train"]
    assert losses[-1] < losses[0] / 2, losses
    assert all(math.isfinite(loss) for loss in losses)


def check_plan(done, workers, schemes=None):
    """Every layer has its line, or goes with another (ip2 is small); counted bytes, with the zeros that factors left without, are
    what was predicted, exactly. The lines, by all layers of each."""
    plan = {name: entry for entry in done.summary["plan"] for name in entry.get("joined", [entry["layer"]])}
    assert set(plan) == LAYERS
    for name, entry in plan.items():
        for key, kind in PLAN_KEYS.items():
            assert isinstance(entry[key], kind), (name, key, entry[key])
        assert entry["scheme"] in ("kv", "sfb", "fsc")
        for direction in ("sent", "received"):
            assert 0 <= entry["counted_bytes"][direction] <= entry["whole_bytes"][direction]
        assert entry["whole_bytes"] == entry["predicted_bytes"], name
    for name, scheme in (schemes or {}).items():
        assert plan[name]["scheme"] == scheme, plan[name]
    if plan["ip1"]["scheme"] == "sfb":
        assert plan["ip1"]["rows"] == [12] * workers
    text = done.out.text
    assert all(entry["layer"] in text for entry in plan.values()) and "predicted step" in text
    return plan


def test_one_worker_alone(bench):
    done = bench.train(bench.solver())
    check_results(done, 1)
    assert done.summary["plan"] == []
    assert done.summary["hidden_share"] == 1
    assert done.summary["test"]["accuracy"] > 0.8


def test_one_worker_with_all_of_the_synchronisation_changes_no_bit(bench):
    solver = bench.solver()
    synced = bench.train(solver, "--sync", run_dir="synced")
    check_results(synced, 1)
    plan = check_plan(synced, 1)
    assert all(entry["counted_bytes"] == {"sent": 0, "received": 0} for entry in plan.values())
    alone = bench.train(solver, run_dir="alone")
    assert synced.summary["weights_hash"] == alone.summary["weights_hash"]


@pytest.mark.parametrize("workers", (2, 3, 4))
def test_workers(bench, workers):
    done = bench.train(bench.solver(), "--workers", workers)
    check_results(done, workers)
    check_plan(done, workers)


@pytest.mark.parametrize("servers", (1, 2))
def test_dedicated_servers(bench, servers):
    done = bench.train(bench.solver(), "--workers", 2, "--servers", servers)
    check_results(done, 2)
    check_plan(done, 2)
    assert done.summary["servers"] == servers
    ends = [json.loads(line) for line in (done.run_dir / "members.jsonl").open()]
    assert [end["end"] for end in ends] == ["exited with code 0"] * (2 + servers)


@pytest.mark.parametrize("machines", ("a,a,b,b", "a,a,a,b", "a,a"), ids=("two_hosts", "unequal_hosts", "one_host"))
def test_two_levels(bench, machines):
    """Workers of one machine combine first: what the leaders count is what hosts exchange. On one machine factors are not combined."""
    solver = bench.solver()
    workers = len(machines.split(","))
    options = ("--workers", workers, "--scheme", "ip1=sfb")
    done = bench.train(solver, *options, "--levels", "host", "--machines", machines, run_dir="levels")
    check_results(done, workers)
    plan = check_plan(done, workers, {"ip1": "sfb"})
    hosts, local = len(set(machines.split(","))), machines.count("a")
    rows_sent = (hosts - 1) * local if hosts > 1 else workers - 1
    assert plan["ip1"]["whole_bytes"]["sent"] == rows_sent * 12 * (48 + 252) * 4
    assert done.summary["traffic"]["shared_memory_bytes"] > 0
    again = bench.train(solver, *options, "--levels", "host", "--machines", machines, run_dir="again")
    assert again.summary["weights_hash"] == done.summary["weights_hash"]
    flat = bench.train(solver, *options, "--levels", "flat", "--machines", machines, run_dir="flat")
    assert flat.summary["traffic"]["shared_memory_bytes"] == 0
    assert flat.summary["test"]["loss"] == pytest.approx(done.summary["test"]["loss"], rel=1e-3)


def test_fewest_bytes(bench):
    """The published rule: factors exactly where K P <= 2 M N / (M + N)."""
    net = bench.lenet(hidden=500)  # else ip2 goes with conv1
    done = bench.train(bench.solver(net=net), "--workers", 2, "--policy", "bytes")
    check_results(done, 2)
    # ip1: 24 <= 2*500*252/752 = 335; ip2: 24 > 2*10*500/510 = 19.6
    plan = check_plan(done, 2, {"conv1": "kv", "ip1": "sfb", "ip2": "kv"})
    assert len(done.summary["plan"]) == len(plan)
    assert plan["ip1"]["whole_bytes"]["sent"] == 12 * (500 + 252) * 4


def test_forced_schemes(bench):
    solver = bench.solver()
    done = bench.train(solver, "--workers", 2, "--scheme", "ip1=kv", "--scheme", "ip2=sfb")
    check_results(done, 2)
    plan = check_plan(done, 2, {"ip1": "kv", "ip2": "sfb"})
    assert plan["ip2"]["whole_bytes"]["sent"] == 12 * (10 + 48) * 4
    # Half of the layer leaves as contributions to the other's shard, half as this shard's results.
    assert plan["ip1"]["whole_bytes"]["sent"] == 48 * (252 + 1) * 4


def test_factors_leave_without_their_zeros(bench):
    """The same weights from fewer bytes: the inputs of ip2 are behind a ReLU and a dropout, the errors of ip1 before them."""
    solver = bench.solver(net=bench.lenet(hidden=500, dropout=True))
    options = ("--workers", 2, "--scheme", "ip1=sfb", "--scheme", "ip2=fsc")
    off = bench.train(solver, *options, "--zero-compression", "off", run_dir="off")
    without = bench.train(solver, *options, "--zero-compression", "always", run_dir="always")
    assert without.summary["weights_hash"] == off.summary["weights_hash"]
    plan = check_plan(off, 2, {"ip1": "sfb", "ip2": "fsc"})
    assert all(entry["counted_bytes"] == entry["whole_bytes"] for entry in plan.values())
    plan = check_plan(without, 2, {"ip1": "sfb", "ip2": "fsc"})
    for name, share in ("ip1", 0.7), ("ip2", 0.6):
        for direction in ("sent", "received"):
            assert plan[name]["counted_bytes"][direction] < share * plan[name]["whole_bytes"][direction]
    assert without.out.find(r"factors left without their zeros: sent ")
    assert not off.out.find(r"without their zeros")


def check_waits_for_all(trace):
    for spans in spans_of(trace).values():
        for step in range(29):
            landed = max(span["end"] for span in spans if span["step"] == step and span["lane"] == "receive")
            begun = [span["begin"] for span in spans
                     if span["step"] == step + 1 and span["label"] == "forward" and span["layer"] in LAYERS]
            assert len(begun) == 3 and min(begun) >= landed, step


def test_strategies_train_the_same(bench):
    """With the same schemes, encrypted: ip1 is two pairs of ps-2017. A plan predicts the bytes of its own placement."""
    solver = bench.solver(net=bench.lenet(hidden=5000))
    hashes = set()
    for strategy in ("poseidon", "wfbp", "ps-2017", "dense"):
        done = bench.train(solver, "--workers", 3, "--strategy", strategy, "--scheme", "ip1=kv", "--scheme", "ip2=sfb", "--wire", "tls",
                           run_dir=strategy)
        check_results(done, 3)
        check_plan(done, 3, {"conv1": "kv", "ip1": "kv", "ip2": "sfb"})
        hashes.add(done.summary["weights_hash"])
        assert done.summary["strategy"] == strategy
        assert (f"strategy {strategy}" in done.out.text) == (strategy != "poseidon")
        if strategy in ("wfbp", "ps-2017"):
            check_waits_for_all(json.loads((done.run_dir / "trace.json").read_text()))
    assert len(hashes) == 1


def test_strategies_are_compared(bench):
    done = jobs.run(bench.poseidon, "compare", "--strategies", "poseidon,wfbp", "--iterations", 14, "--rounds", 2, "--solver", bench.solver(),
                    "--workers", 2, "--scheme", "ip1=kv", cwd=bench.folder)
    assert done.code == 0, done.err.text
    head, ours, other = (re.split("  +", line) for line in done.out.lines[:3])
    assert head == ["strategy", "step", "over the rounds", "predicted", "ratio", "sent", "hidden", "weights"]
    assert [ours[0], other[0]] == ["poseidon", "wfbp"] and ours[7] == other[7] == "same" and ours[5] == other[5]
    assert all(" ms" in row[1] and " ms to " in row[2] and " ms" in row[3] for row in (ours, other))
    assert done.err.lines == [f"poseidon: round {number} of 2, strategy {name}" for number in (1, 2) for name in ("poseidon", "wfbp")]
    wrong = jobs.run(bench.poseidon, "compare", "--solver", bench.solver(), "--rounds", 0, cwd=bench.folder)
    assert (wrong.code, wrong.err.lines) == (2, ["poseidon: --rounds: expected a whole number from 1 to 1000000, not '0' (see poseidon compare --help)"])
    assert not list(bench.folder.glob("*iter*"))  # no snapshot


SCRIPT = """
import argparse
import torch
import poseidon.torch
parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, required=True)
parser.add_argument("--solver")
rounds = parser.parse_args().rounds
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
poseidon.torch.distribute(model, optimizer)
for _ in range(rounds):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
"""


def test_strategies_are_compared_on_a_script(bench):
    """Which would go on for hours, and has a flag of its own with the name of one of compare's."""
    script = bench.folder / "script.py"
    script.write_text(SCRIPT)
    words = ("compare", "--strategies", "poseidon,wfbp", "--iterations", 20, "--rounds", 1, "-n", 2, sys.executable, script, "--solver", "adam", "--rounds")
    done = jobs.run(bench.poseidon, *words, 10**9, cwd=bench.folder)
    assert done.code == 0, done.err.text
    head, ours, other = (re.split("  +", line) for line in done.out.lines[:3])
    assert head == ["strategy", "step", "over the rounds", "predicted", "ratio", "sent", "hidden"]
    assert [ours[0], other[0]] == ["poseidon", "wfbp"] and ours[4] == "1.000"
    sent = [float(row[5].removesuffix(" MB")) for row in (ours, other)]
    assert sent[0] == pytest.approx(sent[1], rel=0.15) and sent[0] > 0.01, sent  # a step more or less of 20 has left when they are counted
    assert int(re.search(r"means of at least (\d+) steps", done.out.text)[1]) >= 20
    too_short = jobs.run(bench.poseidon, *words, 3, cwd=bench.folder)
    assert too_short.code == 1 and "ended before a step was measured, expected" in too_short.err.lines[-1], too_short.err.text


def test_a_strategy_that_cannot_train_is_named(bench):
    done = jobs.run(bench.poseidon, "compare", "--strategies", "ps", "--solver", bench.solver(), "--workers", 2, cwd=bench.folder)
    assert done.code == 1 and "--strategy: expected poseidon, wfbp, " in done.err.text, done.err.text
    assert done.err.lines[-1] == "poseidon: the training under strategy ps ended with exit code 2, expected 0"


class Page(html.parser.HTMLParser):
    """Its headings, its tags, and whether each of them is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.headings = [], collections.Counter(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_a_run_has_a_page(bench):
    done = bench.train(bench.solver(), "--workers", 2, "--scheme", "ip1=sfb")
    said = jobs.run(bench.poseidon, "report", done.run_dir, cwd=bench.folder)
    assert (said.code, said.out.lines) == (0, [f"the run's page is in {done.run_dir / 'report.html'}"]), said.err.text
    text = (done.run_dir / "report.html").read_text()
    page = Page(text)
    assert page.headings == ["A step, predicted and measured", "Loss and accuracy", "A step in time", "Waiting", "The plan"] and page.open == []
    assert page.tags["tr"] == 1 + 2 + 1 + len(done.summary["plan"])  # of the workers, and of the plan
    assert page.tags["rect"] > 30 and "<td>sfb</td>" in text and "worker 1" in text
    assert done.summary["what_would_help"].split()[0] in text
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"')  # nothing is fetched
    assert f"What rank 0 waited for, in {done.summary['waited_seconds']['steps']} steps." in text and done.summary["waited_seconds"]["steps"] > 0
    (done.run_dir / "trace.json").unlink()
    (done.run_dir / "summary.json").write_text("{}")
    other = jobs.run(bench.poseidon, "report", done.run_dir, cwd=bench.folder)
    assert (other.code, len(other.err.lines)) == (1, 1) and "it is of no run" in other.err.text
    (done.run_dir / "summary.json").write_text("{")
    damaged = jobs.run(bench.poseidon, "report", done.run_dir, cwd=bench.folder)
    assert (damaged.code, damaged.err.lines) == (1, [f"poseidon: {done.run_dir / 'summary.json'} cannot be read (it is not JSON), expected one that "
                                                     "a run wrote (train --run-dir, init(run_dir=...))"])


def test_a_run_that_ends_before_its_final_plan_has_a_page(bench):
    done = bench.train(bench.solver(), "--workers", 2, "--final-plan-step", 1000)
    assert jobs.run(bench.poseidon, "report", done.run_dir, cwd=bench.folder).code == 0
    assert '<td class=n>-</td>' in (done.run_dir / "report.html").read_text()


def test_one_worker_has_a_page_without_a_plan(bench):
    done = bench.train(bench.solver())
    assert jobs.run(bench.poseidon, "report", done.run_dir, "--out", bench.folder / "one.html", cwd=bench.folder).code == 0
    assert "Loss and accuracy" in Page((bench.folder / "one.html").read_text()).headings


def test_lanes_train_the_same(bench):
    """ip1, of 1.6 MB, goes through both lanes, encrypted; ip2 whole through one. Held to a bandwidth as well."""
    solver = bench.solver(net=bench.lenet(hidden=500))
    options = ("--workers", 2, "--scheme", "ip1=kv", "--scheme", "ip2=sfb", "--wire", "tls")
    one = bench.train(solver, *options, run_dir="one")
    two = bench.train(solver, *options, "--lanes", 2, "--bandwidth", "400Mbit", run_dir="two")
    assert two.summary["weights_hash"] == one.summary["weights_hash"]
    assert [json.loads((run.run_dir / "plan.json").read_text())["lanes"] for run in (one, two)] == [1, 2]
    assert [run.summary["link"]["bandwidth_bytes_per_second"] for run in (one, two)] == [0, 50e6]
    assert two.summary["link"]["bytes_per_second"] < 46e6
    assert ["held to 400 Mbit/s" in run.out.text for run in (one, two)] == [False, True]
    lines = [line for line in map(json.loads, (two.run_dir / "metrics.jsonl").read_text().splitlines()) if "wire_bytes_sent" in line]
    assert lines[-1]["wire_bytes_sent"] - lines[0]["wire_bytes_sent"] < 50e6 * (lines[-1]["elapsed"] - lines[0]["elapsed"])
    assert lines[-1]["wire_bytes_received"] > 1e6
    assert two.out.find(r"through 2 lanes")
    check_plan(two, 2, {"ip1": "kv", "ip2": "sfb"})


def test_a_plan_file_pins_every_layer(bench):
    solver = bench.solver()
    first = bench.train(solver, "--workers", 2, "--scheme", "ip1=sfb", "--scheme", "ip2=sfb",
                        run_dir="first")
    plan = json.loads((first.run_dir / "plan.json").read_text())
    assert {layer["layer"]: layer["scheme"] for layer in plan["layers"]} == {
        "conv1": "kv", "ip1": "sfb", "ip2": "sfb"}
    second = bench.train(solver, "--workers", 2, "--plan", first.run_dir / "plan.json",
                         run_dir="second")
    check_plan(second, 2, {"conv1": "kv", "ip1": "sfb", "ip2": "sfb"})
    assert first.summary["weights_hash"] == second.summary["weights_hash"]


SMALL = caffe_files.names_of_small_layers()


@pytest.mark.parametrize("options", (
    ("--sync",), ("--workers", 3), ("--workers", 2, "--servers", 1),
    ("--workers", 3, "--levels", "host", "--machines", "a,a,b")))
def test_small_layers_share_a_message(bench, options):
    """By the first one's name, and reported by their own; named for themselves they go alone, with the same result."""
    solver = bench.solver(net=bench.small_layers(), max_iter=15)
    done = bench.train(solver, *options, "--scheme", "ip=kv", run_dir="joined")
    plan = {entry["layer"]: entry for entry in done.summary["plan"]}
    assert list(plan) == ["conv", "ip"]
    assert plan["conv"]["joined"] == SMALL and "joined" not in plan["ip"]
    assert all(entry["whole_bytes"] == entry["predicted_bytes"] for entry in plan.values())
    written = json.loads((done.run_dir / "plan.json").read_text())["layers"]
    assert [layer.get("joined") for layer in written] == [SMALL, None]
    assert done.out.find(r"^conv +12 tensors ")
    # Spans of the net have the names of its layers, spans of the network the name of the message.
    spans = spans_of(json.loads((done.run_dir / "trace.json").read_text()))[0]
    for label in ("forward", "backward", "update"):
        assert {span["layer"] for span in spans if span["label"] == label} >= {*SMALL, "b1_norm", "ip"}
    assert {span["layer"] for span in spans if span["label"] in ("push", "sum", "result")} <= {"conv", "ip"}

    named = [word for name in SMALL for word in ("--scheme", f"{name}=kv")]
    alone = bench.train(solver, *options, "--scheme", "ip=kv", *named, run_dir="alone")
    assert [entry["layer"] for entry in alone.summary["plan"]] == [*SMALL, "ip"]
    assert alone.summary["weights_hash"] == done.summary["weights_hash"]
    assert alone.summary["test"] == done.summary["test"]


def test_a_small_layer_that_is_named_goes_alone(bench):
    solver = bench.solver(net=bench.small_layers(), max_iter=12)
    done = bench.train(solver, "--workers", 2, "--scheme", "conv=kv", "--scheme", "b1_scale=kv", "--scheme", "ip=sfb")
    plan = {entry["layer"]: entry for entry in done.summary["plan"]}
    assert list(plan) == ["conv", "conv_scale", "b1_scale", "ip"]
    assert plan["conv_scale"]["joined"] == [name for name in SMALL if name not in ("conv", "b1_scale")]
    assert plan["ip"]["scheme"] == "sfb"
    assert all(entry["whole_bytes"] == entry["predicted_bytes"] for entry in plan.values())


@pytest.mark.parametrize("options", (
    ("--workers", 2, "--scheme", "ip1=sfb", "--scheme", "ip2=kv"),
    ("--workers", 3, "--scheme", "ip1=kv", "--scheme", "ip2=sfb"),
    ("--workers", 2, "--servers", 2, "--scheme", "ip1=kv", "--scheme", "ip2=kv"),
))
def test_twice_the_same_bits(bench, options):
    solver = bench.solver(net=bench.lenet(dropout=True))
    hashes = {bench.train(solver, *options, run_dir=f"run{i}").summary["weights_hash"]
              for i in range(2)}
    assert len(hashes) == 1
    other_seed = bench.solver(net=bench.lenet(dropout=True), random_seed=8)
    assert bench.train(other_seed, *options).summary["weights_hash"] not in hashes


def test_a_global_batch_is_shared(bench):
    done = bench.train(bench.solver(net=bench.lenet(batch=24)), "--workers", 2, "--global-batch",
                       "--scheme", "ip1=sfb")
    check_results(done, 2)
    plan = check_plan(done, 2)
    assert plan["ip1"]["rows"] == [12, 12]


def test_a_global_batch_is_the_training_phases(bench):
    """The test phase's batch, 20 in the same net, is divided among nobody."""
    done = bench.train(bench.solver(), "--workers", 3, "--global-batch")
    check_results(done, 3)


def test_a_layer_that_leads_to_no_loss_is_not_sent_by_factors(bench):
    """By bytes it would be, from the final plan on; backward passes over it and leaves none."""
    net = pathlib.Path(bench.lenet()).read_text() + """
layer {
  name: "head" type: "InnerProduct" bottom: "ip1" top: "head" include { phase: TRAIN }
  inner_product_param { num_output: 60 weight_filler { type: "xavier" } }
}
layer { name: "quiet" type: "Silence" bottom: "head" include { phase: TRAIN } }
"""
    done = bench.train(bench.solver(net=bench.write("head.prototxt", net)), "--workers", 2, "--policy", "bytes")
    check_results(done, 2)
    schemes = {name: layer["scheme"] for layer in done.summary["plan"]
               for name in layer.get("joined", [layer["layer"]])}
    assert schemes["head"] == "kv" and schemes["ip1"] == "sfb"


def test_a_frozen_layers_gradient_clips_alike_on_all_workers(bench):
    net = pathlib.Path(bench.lenet()).read_text().replace(
        'name: "ip1" type: "InnerProduct"', 'name: "ip1" type: "InnerProduct" param { lr_mult: 0 } param { lr_mult: 0 }')
    solver = bench.solver(net=bench.write("frozen.prototxt", "force_backward: true\n" + net), clip_gradients=0.05)
    assert bench.train(solver, "--workers", 2).summary["replicas_equal"] is True


def test_without_a_prefix_the_model_lies_beside_the_solver(bench):
    done = bench.train(bench.solver(snapshot_after_train=True), "--workers", 2)
    check_results(done, 2)
    assert (bench.folder / "solver_iter_30.caffemodel").exists()


def test_the_folder_of_the_prefix_is_made(bench):
    bench.train(bench.solver(max_iter=2, snapshot=2, test_interval=None, test_iter=None, snapshot_prefix="new/deep/snap"))
    assert (bench.folder / "new/deep/snap_iter_2.solverstate").exists()


def test_encrypted_on_loopback(bench):
    done = bench.train(bench.solver(), "--workers", 2, "--wire", "tls")
    check_results(done, 2)
    check_plan(done, 2)
    assert done.summary["traffic"]["encryption_bytes_sent"] > 1000


def test_the_compute_library_is_told_how_to_compute(bench):
    """Before it loads, in every process: by settings that a user may have made himself."""
    with bench.start(bench.solver(max_iter=3000), "--workers", 2,
                     environment={"OMP_WAIT_POLICY": "active"}) as job:
        for pid in [job.pid, *job.members(2)]:
            settings = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
            assert [s for s in settings if s.startswith("MKL_CBWR=")] == ["MKL_CBWR=AUTO,STRICT"]
            assert [s for s in settings if s.startswith("OMP_WAIT_POLICY=")] == ["OMP_WAIT_POLICY=active"]


def spans_of(trace):
    """Of each worker: its spans, with begin and end in microseconds."""
    workers = {}
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        label, _, layer = event["name"].partition(" ")
        assert event["dur"] >= 0 and event["ts"] >= 0
        workers.setdefault(event["pid"], []).append({
            "label": label, "layer": layer, "lane": event["cat"], "step": event["args"]["step"],
            "begin": event["ts"], "end": event["ts"] + event["dur"]})
    return workers


def check_waits(spans):
    """Each is traced once: those of one worker do not overlap."""
    waits = sorted((span["begin"], span["end"]) for span in spans if span["lane"] == "wait")
    # Times are written in thousandths of a microsecond.
    assert waits and all(next_begin >= end - 0.01 for (_, end), (next_begin, _) in itertools.pairwise(waits))


def test_a_long_runs_trace_holds_its_first_and_last_iterations_whole(bench):
    iterations = 1500
    done = bench.train(bench.solver(net=bench.lenet(batch=2), max_iter=iterations, test_interval=None, test_iter=None),
                       "--workers", 2, "--scheme", "ip1=sfb")
    for spans in spans_of(json.loads((done.run_dir / "trace.json").read_text())).values():
        assert len(spans) <= 30_000
        check_waits(spans)
        kept = collections.defaultdict(collections.Counter)
        for span in spans:
            if span["lane"] != "wait":  # what is waited for differs from step to step
                kept[span["step"]][span["label"], span["layer"]] += 1
        last = sorted(kept)[3:]
        assert sorted(kept)[:3] == [0, 1, 2]
        assert last == list(range(iterations - len(last), iterations)) and 100 < len(last) < iterations - 3
        # The plan is the same from iteration 10 on, and with it what a whole iteration consists of.
        assert all(kept[step] == kept[last[0]] for step in last)


def test_communication_overlaps_both_passes(bench):
    """Bytes of a layer leave before backward ends, and the next forward starts before the last
    result has landed. The upper layer's gradient has 2.5 MB, the layers below it work long."""
    solver = bench.solver(net=bench.lenet(batch=48, hidden=2500), test_interval=None,
                          test_iter=None)
    done = bench.train(solver, "--workers", 2, "--wire", "auth", "--scheme", "ip1=kv")
    trace = json.loads((done.run_dir / "trace.json").read_text())
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {"worker 0", "worker 1", "compute", "send", "receive", "sum", "wait"} <= names
    workers = spans_of(trace)
    assert sorted(workers) == [0, 1]
    leaves_early, starts_early = set(), set()
    for worker, spans in workers.items():
        assert {span["lane"] for span in spans} >= {"compute", "send", "receive", "sum"}
        assert {span["layer"] for span in spans} >= LAYERS
        for step in range(29):
            of = [span for span in spans if span["step"] == step]
            backward_ends = max(span["end"] for span in of if span["label"] == "backward")
            sends = [span for span in of
                     if span["lane"] == "send" and span["label"] in ("push", "factor")]
            if any(span["begin"] < backward_ends for span in sends):
                leaves_early.add((worker, step))
            last_landed = max(span["end"] for span in of if span["lane"] == "receive")
            forward_begins = min(span["begin"] for span in spans
                                 if span["step"] == step + 1 and span["label"] == "forward")
            if forward_begins < last_landed:
                starts_early.add((worker, step))
    print(f"of 58 steps, {len(leaves_early)} send during backward, "
          f"{len(starts_early)} begin the next forward with results under way")
    assert leaves_early and starts_early
