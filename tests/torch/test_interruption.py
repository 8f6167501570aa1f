# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a blocked call within a second, and unequal work ends in a sentence instead of a hang."""
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import poseidon
import pytest
from conftest import FRONT_END, HERE, PATIENCE, PREPARED, TIMEOUT_FACTOR, free_port
from poseidon import interruption

MODEL = """
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
exchange = poseidon.torch.wrap(model, optimizer, overlap=overlap)
def step():
    optimizer.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
"""
SCRIPT = """
import os, pathlib, signal, sys, time
blocks_in, rank, port, token, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], pathlib.Path(sys.argv[5])
place = {"rank": rank, "workers": 2, "port": port, "token_file": token, "coordinator": "127.0.0.1"}
if blocks_in in ("backward", "forward", "device"):
    import torch
    if blocks_in == "device":
        sys.path.append(sys.argv[6])
        import late
        late.load()
        torch.set_default_device("late")
    import poseidon.torch
    overlap = blocks_in == "forward"
    poseidon.torch.init(**place)
    session = poseidon.torch.joined()
""" + "".join("    " + line + "\n" for line in MODEL.strip().splitlines()) + """
    step()
    exchange.synchronize()
else:
    import array
    import poseidon
    def handler(*_):
        raise KeyboardInterrupt("by a handler")
    signal.signal(signal.SIGINT, handler)
    def step():
        session.sum(array.array("f", [1]))
    (folder / f"joins-{rank}").touch()
    try:
        session = poseidon.join(**place)
    except KeyboardInterrupt:
        print("KeyboardInterrupt in join", time.monotonic(), flush=True)
        sys.exit(9)
(folder / f"ready-{rank}.new").write_text(str(os.getpid()))
(folder / f"ready-{rank}.new").rename(folder / f"ready-{rank}")
while rank == 1:  # until it is stopped or killed
    time.sleep(0.1)
while not (folder / "go").exists():
    time.sleep(0.01)
(folder / "blocks").touch()
try:
    try:
        while True:
            step()
    finally:
        poseidon.torch.shutdown() if blocks_in != "sum" else session.abort("interrupted")
except KeyboardInterrupt:
    print("KeyboardInterrupt", time.monotonic(), flush=True)
    sys.exit(9)
"""


def wait_for(file, process):
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{file.name} did not come"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path):
    started = []
    token, port = tmp_path / "job.token", free_port()
    poseidon.make_token_file(token)

    def start_rank(script, *words, prepared=True):
        """A process that runs `script`. A prepared one is that of another, which waits for its end."""
        file = tmp_path / f"script-{len(started)}.py"  # another one may be reading its own
        file.write_text(script)
        python = PREPARED.command() if prepared else [sys.executable, "-B"]
        process = subprocess.Popen(
            [*python, file, *(str(word) for word in words), str(port), str(token), str(tmp_path), str(HERE)],
            env={**os.environ, "PYTHONPATH": str(FRONT_END), "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process
    yield start_rank
    for rank, process in enumerate(started):
        if process.poll() is None and (ready := tmp_path / f"ready-{rank}").exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(ready.read_text()), signal.SIGKILL)
        process.kill()
        process.communicate()


def interrupted_within_a_second(process, number):
    """`number`: of the process that runs the script."""
    time.sleep(0.5)  # well inside the call: earlier would be served by Python itself
    began = time.monotonic()
    os.kill(number, signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 9, errors
    what, _, when = output.strip().rpartition(" ")
    seconds = float(when) - began  # the clock is the machine's; taking torch apart at the end is not the call's time
    assert seconds < 1.0 * TIMEOUT_FACTOR, f"{seconds:.2f} s"
    assert "Exception ignored" not in errors
    return what


@pytest.mark.parametrize("blocks_in", ["backward", "forward", "device", "sum"])
def test_ctrl_c_ends_a_call_that_waits_for_a_stopped_worker(start, tmp_path, blocks_in):
    if blocks_in != "sum":
        pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    if blocks_in == "device":
        late = importlib.import_module("late")
        if not late.LIBRARY.exists():
            pytest.skip(f"{late.LIBRARY.name} is not built")
    ranks = [start(SCRIPT, blocks_in, rank, prepared=blocks_in != "sum") for rank in range(2)]
    for rank, process in enumerate(ranks):
        wait_for(tmp_path / f"ready-{rank}", process)
    running, stopped = (int((tmp_path / f"ready-{rank}").read_text()) for rank in range(2))
    os.kill(stopped, signal.SIGSTOP)
    (tmp_path / "go").touch()
    wait_for(tmp_path / "blocks", ranks[0])
    assert interrupted_within_a_second(ranks[0], running) == "KeyboardInterrupt"


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_joining(start, tmp_path, rank):
    process = start(SCRIPT, "sum", rank, prepared=False)
    wait_for(tmp_path / f"joins-{rank}", process)
    assert interrupted_within_a_second(process, process.pid) == "KeyboardInterrupt in join"


UNEQUAL = """
import sys
import threading
import time
import torch
import poseidon.torch
rank, steps, overlap = int(sys.argv[1]), int(sys.argv[2]), False
poseidon.torch.init(rank=rank, workers=2, port=int(sys.argv[3]), token_file=sys.argv[4], coordinator="127.0.0.1",
                    stuck_after=3)
""" + MODEL + """
def evaluate():
    with poseidon.torch.busy("evaluates"):
        with poseidon.torch.busy("draws"):
            pass
        time.sleep(5)  # without a processor, and longer than stuck_after
try:
    for number in range(steps):
        if (rank, number) == (0, 2):
            evaluate()
        step()
    poseidon.torch.shutdown()
except poseidon.PoseidonError as error:
    print(error)
    sys.exit(3)
"""


def test_a_busy_worker_is_waited_for_and_different_numbers_of_steps_end_in_a_sentence(start):
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    ranks = [start(UNEQUAL, rank, steps) for rank, steps in enumerate((4, 6))]
    for process in ranks:
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 3, errors
        assert "worker 0" in output, output
        assert "step 4" in output, output + errors
        assert process is not ranks[0] or "so far; it evaluates" in errors, errors


DIFFERENT = """
import sys
import torch
from torch import nn
import poseidon.torch
rank, what = int(sys.argv[1]), sys.argv[2]
differs = rank == 1
poseidon.torch.init(rank=rank, workers=2, port=int(sys.argv[3]), token_file=sys.argv[4], coordinator="127.0.0.1")
stages = {f"stage{number}": nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)) for number in range(6)}
if differs and what == "a name":
    stages["stage5'"] = stages.pop("stage5")
if differs and what == "a shape":
    stages["stage3"][0] = nn.Conv2d(4, 4, (1, 9))
if differs and what == "a type":
    stages["stage3"][1].double()
if differs and what == "a layer":
    del stages["stage4"]
model = nn.Sequential()
for name, stage in stages.items():
    model.add_module(name, stage)
if differs and what == "what is trained":
    model.stage2[1].weight.requires_grad_(False)
poseidon.torch.distribute(model)
"""


# In all of them the layers that the core knows of have other names or sizes at most: these modules join one.
@pytest.mark.parametrize("what, said", [
    ("a name", "rank 1 has stage5'.0.weight 4x4x3x3 float32 where rank 0 has stage5.0.weight 4x4x3x3 float32"),
    ("a shape", "rank 1 has stage3.0.weight 4x4x1x9 float32 where rank 0 has stage3.0.weight 4x4x3x3 float32"),
    ("a type", "rank 1 has stage3.1.weight 4 float64 where rank 0 has stage3.1.weight 4 float32"),
    ("a layer", "rank 1 has stage5.0.weight 4x4x3x3 float32 where rank 0 has stage4.0.weight 4x4x3x3 float32"),
    ("what is trained", "rank 1 has stage2.1.weight 4 float32, frozen where rank 0 has stage2.1.weight 4 float32")])
def test_workers_whose_models_differ_end_before_the_first_step(start, what, said):
    pytest.importorskip("torch", reason="torch is not installed for this interpreter")
    ranks = [start(DIFFERENT, rank, what) for rank in range(2)]
    for process in ranks:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, errors
        assert f"the models differ: {said}" in errors, errors


def test_what_a_handler_raised_ends_the_call_of_its_own_thread():
    """Of two that block at once, as a script and its collectives do."""
    interruption.put(KeyboardInterrupt())
    heard = []
    other = threading.Thread(target=lambda: heard.extend([interruption.asked(None), interruption.take()]))
    other.start()
    other.join()
    assert heard == [0, None]
    assert interruption.asked(None) == 1
    assert isinstance(interruption.take(), KeyboardInterrupt) and interruption.take() is None
