# SPDX-License-Identifier: Apache-2.0
"""A profile has the layers of a job, and its plan is the job's; where there is none, a sentence says why."""
import json
import multiprocessing
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from conftest import FORKS, HERE, PATIENCE, PREPARED  # noqa: E402

import accelerator  # noqa: E402
import poseidon.torch  # noqa: E402
import profiled  # noqa: E402
import profiles  # noqa: E402
import programs  # noqa: E402
from poseidon import load, profiling  # noqa: E402

SCRIPT = HERE / "profiled.py"
needs_program = pytest.mark.skipif(not profiles.PROGRAM, reason="POSEIDON_PROGRAM is not set: it is not built")


# ---- the call

def test_a_profile_describes_every_layer_of_the_model(alone, tmp_path, capsys):
    model = profiled.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = [set(vars(module)) for module in model.modules()]
    with poseidon.torch.profile(model, tmp_path / "net.json", optimizer, steps=4):
        profiled.train(model, optimizer, 10)
    profiled.train(model, optimizer, 1)
    assert [set(vars(module)) for module in model.modules()] == before and not model._forward_pre_hooks
    document = json.loads((tmp_path / "net.json").read_text())
    assert (document["format"], document["name"], document["batch"]) == (1, "Net", profiled.BATCH)
    assert document["source"].startswith("measured over 4 steps on ") and document["product_flops"] > 0
    layers = {layer["name"]: layer for layer in document["layers"]}
    assert list(layers) == ["words", "tokens", "wide", "norm", "head"]
    assert {name: (layer["shape"], layer["elements"], layer.get("factors"), layer.get("rows")) for name, layer in layers.items()} == {
        "words": ("3000x64", 192000, {"outputs": 3000, "inputs": 64, "bias": False, "table": True}, 128),
        "tokens": ("256x64+256", 16640, {"outputs": 256, "inputs": 64, "bias": True}, 128),
        "wide": ("512x2048+512", 1049088, {"outputs": 512, "inputs": 2048, "bias": True}, 16),
        "norm": ("512+512+4x512+4", 3076, None, None),
        "head": ("10x512+10", 5130, {"outputs": 10, "inputs": 512, "bias": True}, 16)}
    assert layers["norm"]["tensors"] == [{"name": "norm.weight", "shape": [512]}, {"name": "norm.bias", "shape": [512]},
                                         {"name": "gate.weight", "shape": [4, 512]}, {"name": "gate.bias", "shape": [4]}]
    for layer in layers.values():
        assert layer["forward_seconds"] > 0 and layer["backward_seconds"] > 0, layer
    said = capsys.readouterr().out
    assert "Net: 1265934 parameters in 5 layers, batch 16" in said and f"poseidon plan {tmp_path / 'net.json'} --workers" in said


def test_precisions_and_what_is_no_product(alone, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(200, 300).double(), torch.nn.Linear(300, 200).double())
    with poseidon.torch.profile(model, tmp_path / "net.json", factors=False):
        for _ in range(9):
            model(torch.ones(2, 200).double()).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.01).step()
    layers = json.loads((tmp_path / "net.json").read_text())["layers"]
    assert [layer["dtype"] for layer in layers] == ["f64", "f64"] and not any("factors" in layer for layer in layers)


def test_micro_batches_are_one_step(alone, tmp_path):
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with poseidon.torch.profile(model, tmp_path / "net.json", optimizer) as profile:
        for _ in range(9):
            with poseidon.torch.no_sync(model):
                model(torch.ones(8, 40)).sum().backward()
            model(torch.ones(8, 40)).sum().backward()
            optimizer.step()
        assert profile.measurement.steps() == 9


@pytest.mark.skipif(bool(accelerator.why_not()), reason=str(accelerator.why_not()))
def test_factors_of_a_device_are_multiplied_there(tmp_path):
    """Which the plan has to know: no other worker would multiply them."""
    worker = FORKS.Process(target=profiled.on_a_device, args=(tmp_path / "net.json",))
    worker.start()
    worker.join(PATIENCE)
    assert worker.exitcode == 0
    document = json.loads((tmp_path / "net.json").read_text())
    assert document["product_flops"] > 0 and document["layers"][0]["forward_seconds"] > 0 and document["layers"][0]["backward_seconds"] > 0
    assert document["layers"][0]["factors"] == {"outputs": 400, "inputs": 300, "bias": True, "by_device": True}


def test_layers_that_are_thawed_are_measured_anew(alone, tmp_path):
    """They are another model of the session, whose layers have numbers of their own."""
    model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.Linear(300, 200))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with poseidon.torch.profile(model, tmp_path / "net.json", optimizer):
        for step in range(22):
            if step == 12:
                model[0].requires_grad_(True)
            model(torch.ones(8, 200)).sum().backward()
            optimizer.step()
    document = json.loads((tmp_path / "net.json").read_text())
    assert document["source"].startswith("measured over 5 steps on ")  # of ten, of which five warm up
    assert [layer["name"] for layer in document["layers"]] == ["0", "1"]


def test_a_profile_that_cannot_be_is_a_sentence(alone, tmp_path):
    model = torch.nn.Linear(3, 2)
    with pytest.raises(poseidon.PoseidonError, match="^Linear has made 1 training step of which layers are timed, expected 9 or more$"):
        with poseidon.torch.profile(model, tmp_path / "net.json"):
            model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ZeroDivisionError), poseidon.torch.profile(model, tmp_path / "net.json"):
        _ = 1 / 0
    for wrong, expected in ((lambda: poseidon.torch.profile(model, tmp_path / "no" / "net.json"), "whose folder is not there"),
                            (lambda: poseidon.torch.profile(model, "net.json", steps=2), "steps=2, expected a number from 3"),
                            (lambda: profiling.check_alone(2), "in a job of 2 workers, expected one worker")):
        with pytest.raises(poseidon.PoseidonError, match=expected):
            wrong()
    assert not model._forward_pre_hooks and not (tmp_path / "net.json").exists()
    poseidon.torch.wrap(model)  # as if nothing had been


# ---- a busy machine

def test_a_busy_machine_is_named():
    steps = [0.012, 0.014, 0.031]
    assert load.busy(steps, others=0.61, own=0.5, cores=2) == (
        "measured on a busy machine: steps took 12 to 31 ms, and other programs used 61 % of its 2 cores; times are too long, "
        "measure again when they rest")
    assert load.busy(steps, others=0.05, own=0.9, cores=2) is None, "what differs is the model's own"
    assert load.busy(steps, others=0.2, own=0.1, cores=64) is None, "there are cores for all"
    assert load.busy([0.01] * 5, others=None, own=1.0, cores=1) is None
    assert load.busy([0.01] * 8 + [0.03] * 2, others=None, own=1.0, cores=1) == "measured on a busy machine: steps took 10 to 30 ms"


def spin():
    while True:
        pass


def test_what_others_use_is_told_from_what_this_program_uses():
    """What a process of this one's uses is its own."""
    if load.used_by_all() is None:
        pytest.skip("this system does not say what all programs use")
    worker = multiprocessing.get_context("fork").Process(target=spin)
    before, own = load.used_by_all(), load.used_here() - time.process_time()
    worker.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while load.used_here() - time.process_time() - own < 0.3:
            assert time.monotonic() < deadline, "never counted"
            time.sleep(0.01)
        assert load.used_by_all() - before > 0.2
    finally:
        worker.kill()
        worker.join()
    assert load.used_here() - time.process_time() - own > 0.2, "it has ended, and what it used is still this program's"


# ---- the command

@needs_program
def test_the_plan_of_a_scripts_profile_is_that_of_the_job(tmp_path):
    done = profiles.profile(sys.executable, tmp_path, "--steps", 4, "--out", "net.json", SCRIPT, "1000", patience=PATIENCE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "cleaned up" and lines[-1] == "  poseidon plan net.json --workers 8 --rate 10G"
    assert any(line.endswith(" 128  words 3000x64") for line in lines), done.stdout
    ranks = programs.start(PREPARED, tmp_path, 2, SCRIPT)
    said = programs.said(ranks, PATIENCE)
    assert [rank.returncode for rank in ranks] == [0, 0], said
    of_job = json.loads(said[0][0].splitlines()[-1])
    assert profiles.planned(tmp_path, tmp_path / "net.json") == of_job
    assert {name: scheme for name, (scheme, _) in of_job.items()} == {"words": "sfb", "tokens": "kv", "wide": "sfb", "norm": "kv",
                                                                      "head": "kv"}


@needs_program
@pytest.mark.parametrize("words, code, said", (
    ((SCRIPT, "2"), 1, f"poseidon: {SCRIPT}: Net has made 2 training steps of which layers are timed, expected 9 or more"),
    ((SCRIPT, "0", "7"), 7, f"poseidon: {SCRIPT} exited with code 7, so there is no profile"),
    (("--", "python", "-c", "print(1)"), 1,
     "poseidon: python ended without a model to measure, expected distribute(model) of poseidon.torch or poseidon.keras in it"),
    (("--", "no-such-command"), 127, "poseidon: no-such-command cannot be run: No such file or directory")))
def test_a_script_without_a_profile_is_a_sentence(tmp_path, words, code, said):
    done = profiles.profile(sys.executable, tmp_path, "--out", tmp_path / "net.json", *words, patience=PATIENCE)
    assert (done.returncode, done.stderr.splitlines()) == (code, [said])
    assert not (tmp_path / "net.json").exists()
