# SPDX-License-Identifier: Apache-2.0
"""`poseidon` on a device of the engine that is no GPU: one whose work ends late (tests/shared/late_device). And what is said where there
is none, and of a CUDA driver that this test brings."""

import json
import os
import pathlib
import re
import subprocess

import pytest

import job as jobs

BUILT = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "tests" / "shared" / "liblate_device.so"
LATE = pathlib.Path(os.environ.get("POSEIDON_LATE_DEVICE") or BUILT)

# Two GPUs, as the driver's interface shows them; or a failure.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("DRIVER_FAILS") ? atoi(getenv("DRIVER_FAILS")) : 0; }
int cuDeviceGetCount(int* count) { *count = getenv("DRIVER_COUNTS") ? atoi(getenv("DRIVER_COUNTS")) : 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char* name, int length, int device) { strncpy(name, device ? "Second" : "First", length); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = 12079136768u; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { *value = attribute == 15; if (attribute == 75) *value = 9; return 0; }
int cuGetErrorString(int code, const char** words) { *words = "driver version is insufficient"; return 0; }
"""


@pytest.fixture
def late():
    """The environment of a program that finds two devices which compute late."""
    assert LATE.exists(), f"{LATE} is not built"
    return {"LD_PRELOAD": str(LATE)}


def made_driver(folder, source):
    """The environment of a program that finds it."""
    (folder / "driver.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def driver(tmp_path):
    return made_driver(tmp_path, DRIVER)


def test_a_job_trains_on_devices_as_on_the_cpu(bench, late):
    """A worker for each that --gpu names. Means, tests and the hash of the weights are those of the job."""
    solver = bench.solver(net=bench.lenet(dropout=True), snapshot=20, snapshot_prefix="snap", display=5)
    here = bench.train(solver, "--workers", 2, run_dir="here")
    there = bench.train(solver, "--gpu", "0,1", run_dir="there", environment=late)
    assert there.summary["workers"] == 2 and there.summary["replicas_equal"]
    assert there.out.count("^computes on late:0$") == 1, there.out.text
    assert there.summary["test"]["loss"] == pytest.approx(here.summary["test"]["loss"], rel=1e-3)
    assert there.summary["test"]["accuracy"] == pytest.approx(here.summary["test"]["accuracy"], abs=0.021)
    shares = there.summary["gpu_utilization"]
    assert len(shares) == 2 and all(0 < share <= 1 for share in shares) and "gpu_utilization" not in here.summary
    assert "GPUs busy" in there.out.text
    lines = [json.loads(line) for line in (there.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["gpu_utilization"] for line in lines if "gpu_utilization" in line][-1] == pytest.approx(shares, abs=0.3)
    spans = [event for event in json.loads((there.run_dir / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    computed = [event for event in spans if event["cat"] == "compute" and event["pid"] == 0]
    assert {event["name"].split()[0] for event in computed} == {"forward", "backward", "update"}
    assert all(event["dur"] > 0 for event in computed)
    copied = [event for event in spans if event["cat"] in ("to host", "to device") and event["pid"] == 0]
    assert {event["name"] for event in copied} == {f"{way} {layer}" for way in ("to host", "to device") for layer in ("conv1", "ip1")}  # ip2 goes with conv1
    assert all(event["dur"] > 0 for event in copied)
    # The same again from the snapshot, by one worker that the solver sends to the device.
    on = bench.solver(net=bench.lenet(dropout=True), name="on.prototxt", solver_mode=1, device_id=1)
    resumed = bench.train(on, "--snapshot", bench.folder / "snap_iter_20.solverstate", run_dir="resumed", environment=late)
    assert resumed.out.count("^computes on late:1$") == 1, resumed.out.text


def test_what_takes_long_is_waited_for(bench, late):
    """Copies of batches, gradients and means that end long after computing begins, and computing that does after copies: the same bits."""
    solver = bench.solver(max_iter=6, test_interval=6)
    hashes = {bench.train(solver, "--gpu", "0,1", run_dir=f"waits-{computes}",
                          environment=late | {"LATE_DEVICE_COMPUTES": computes, "LATE_DEVICE_COPIES": copies}).summary["weights_hash"]
              for computes, copies in (("0", "5000"), ("2000", "0"))}
    assert len(hashes) == 1, hashes


def test_devices_copy_into_the_memory_of_their_host(bench, late):
    """Or through memory of their own, where its library refuses it: the same bits, which processors copy then."""
    solver = bench.solver(max_iter=6, test_interval=6)
    takes, refuses = (bench.train(solver, "--gpu", "0,1", "--levels", "host", "--scheme", "ip1=kv", run_dir=f"registers-{registers}",
                                  environment=late | {"LATE_DEVICE_REGISTERS": registers}).summary for registers in "10")
    assert takes["weights_hash"] == refuses["weights_hash"]
    # A worker reads the other's share of what it leads, and copies nothing: neither shares nor means, which are as much again each.
    assert 0 < takes["traffic"]["shared_memory_bytes"] * 2 <= refuses["traffic"]["shared_memory_bytes"]


def test_factors_are_multiplied_on_the_devices(bench, late):
    solver = bench.solver()
    done = bench.train(solver, "--workers", 2, "--gpu", "all", "--scheme", "ip1=sfb", environment=late)
    assert done.summary["replicas_equal"]
    [entry] = [entry for entry in done.summary["plan"] if entry["layer"] == "ip1"]
    assert entry["scheme"] == "sfb" and entry["counted_bytes"]["sent"] > 0
    # On two machines of two: gathered there, and multiplied by each worker's device all the same.
    four = bench.train(solver, "--workers", 4, "--gpu", "0", "--machines", "a,a,b,b", "--scheme", "ip1=sfb", run_dir="levels", environment=late)
    assert four.summary["replicas_equal"]
    assert json.loads((four.run_dir / "plan.json").read_text())["host_of_rank"] == [0, 0, 1, 1]
    flat = bench.train(solver, "--workers", 4, "--gpu", "0", "--levels", "flat", "--scheme", "ip1=sfb", run_dir="flat", environment=late)
    assert four.summary["test"]["loss"] == pytest.approx(flat.summary["test"]["loss"], rel=1e-3)


def test_commands_compute_on_a_device(bench, late):
    bench.train(bench.solver(snapshot=30, snapshot_prefix="snap"))
    net = bench.folder / "net.prototxt"
    said = [jobs.run(bench.poseidon, "test", "--model", net, "--weights", bench.folder / "snap_iter_30.caffemodel", "--iterations", 5, *gpu,
                     cwd=bench.folder, environment=late) for gpu in ((), ("--gpu", "1"))]
    assert [one.code for one in said] == [0, 0], said[1].err.text
    assert "Use GPU with device ID 1." in said[1].out.text
    [loss, loss_there] = [float(one.out.find(r"^Loss: (\S+)")[1]) for one in said]
    assert loss_there == pytest.approx(loss, rel=1e-4)
    timed = jobs.run(bench.poseidon, "time", "--model", net, "--iterations", 3, "--gpu", 0, cwd=bench.folder, environment=late)
    assert timed.code == 0, timed.err.text
    # An operator takes 0.6 ms there, which the host does not wait for.
    [forward] = [float(line.split()[1]) for line in timed.out.lines if line.startswith("conv1")]
    assert forward >= 0.6, timed.out.text


def test_a_device_that_is_not_there_is_refused(bench, late):
    for words, expected in ((("--gpu", "2"), "GPU 2 is not here, expected one of the 2"), (("--gpu", "one"), "expected numbers from 0")):
        done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), words, "run"), cwd=bench.folder, environment=late)
        assert done.code in (1, 2) and expected in done.err.text, done.err.text


def test_devices_of_two_kinds_are_refused(bench, late, driver):
    """The driver of the tests calls one First and the other one Second."""
    done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), ("--gpu", "0,1"), "kinds"), cwd=bench.folder, environment=late | driver)
    assert done.code not in (0, 2) and "First" in done.err.text and "Second" in done.err.text, done.err.text


def test_workers_take_the_devices_from_the_solvers_on(bench, late):
    done = bench.train(bench.solver(max_iter=1, solver_mode=1, device_id=1), "--workers", 2, environment=late)
    assert done.out.count("^computes on late:1$") == 1 and "device_id" not in done.err.text, done.err.text
    silent = bench.train(bench.solver(max_iter=1, name="silent.prototxt"), run_dir="silent", environment=late)
    assert silent.out.count("^computes on late:0$") == 1, "Caffe's own mode is GPU"


def test_a_device_that_is_lost_ends_the_job_with_its_words(bench, late):
    """Of a worker that has it, on every worker's exit: in one sentence, whether a layer, a copy or the training itself meets it."""
    for gpus, asked in (("0", 0), ("0", 20), ("0,1", 400)):
        done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(), ("--gpu", gpus), f"lost{asked}"), cwd=bench.folder,
                        environment=late | {"LATE_DEVICE_LOST_AFTER": str(asked)})
        assert done.code not in (0, 2) and done.err.text.endswith("the device fails: late error: unspecified launch failure"), done.err.text
        assert len(done.err.lines) == 1, done.err.text


def test_memory_that_a_device_lacks_is_said_of_the_layer(bench, late):
    net = bench.write("wide.prototxt", bench.lenet().read_text() + 'layer { name: "wide" type: "Tile" bottom: "ip1" top: "wide" tile_param { tiles: 4000000 } }')
    done = jobs.run(bench.poseidon, *bench.arguments(bench.solver(net=net), ("--gpu", "0"), "large"), cwd=bench.folder, environment=late)
    assert done.code not in (0, 2), done.out.text
    assert "layer 'wide' (Tile): out of memory of the device: cannot allocate " in done.err.text, done.err.text
    assert "expected a smaller batch_size" in done.err.text


def test_a_machine_without_a_gpu_says_so(poseidon, tmp_path):
    done = jobs.run(poseidon, "device_query", cwd=tmp_path)
    assert done.code == 0 and done.out.find(r"^gpus: +none: no CUDA driver is installed here"), done.out.text
    asked = jobs.run(poseidon, "device_query", "--gpu", 0, cwd=tmp_path)
    assert asked.code == 1 and "no CUDA driver is installed here (libcuda.so.1)" in asked.err.text


def test_devices_are_shown_as_caffe_shows_them(poseidon, tmp_path, driver):
    done = jobs.run(poseidon, "device_query", cwd=tmp_path, environment=driver)
    assert done.out.find(r"^gpus: +First, Second$") or done.out.find(r"^gpus: +First and Second$"), done.out.text
    asked = jobs.run(poseidon, "device_query", "--gpu", "1", cwd=tmp_path, environment=driver)
    assert asked.code == 0, asked.err.text
    shown = dict(line.split(":", 1) for line in asked.out.lines[1:])
    assert {name: value.strip() for name, value in shown.items() if name in ("Device id", "Name", "Total global memory", "Major revision number")} == {
        "Device id": "1", "Name": "Second", "Total global memory": "12079136768", "Major revision number": "9"}
    assert shown["Concurrent copy and execution"].strip() == "Yes" and shown["Kernel execution timeout"].strip() == "No"
    other = jobs.run(poseidon, "device_query", "--gpu", "2", cwd=tmp_path, environment=driver)
    assert other.code == 1 and "GPU 2 is not here, expected one of the 2" in other.err.text


@pytest.mark.parametrize("code,expected", ((35, "the CUDA driver fails to begin: driver version is insufficient (35)"), (100, "the CUDA driver finds no GPU")))
def test_a_driver_that_fails_is_said(poseidon, tmp_path, driver, code, expected):
    done = jobs.run(poseidon, "device_query", "--gpu", "all", cwd=tmp_path, environment=driver | {"DRIVER_FAILS": str(code)})
    assert done.code == 1 and expected in done.err.text, done.err.text


def test_a_driver_without_gpus_and_one_that_is_too_old_are_said(poseidon, tmp_path, driver):
    none = jobs.run(poseidon, "device_query", "--gpu", "all", cwd=tmp_path, environment=driver | {"DRIVER_COUNTS": "0"})
    assert none.code == 1 and "the CUDA driver finds no GPU" in none.err.text, none.err.text
    old = jobs.run(poseidon, "device_query", "--gpu", "all", cwd=tmp_path, environment=made_driver(tmp_path, "int cuInit(unsigned flags) { return 0; }"))
    assert old.code == 1 and "libcuda.so.1 is older than CUDA 6, expected a newer driver" in old.err.text, old.err.text


def test_a_solver_that_asks_for_a_gpu_trains_on_the_cpu_where_there_is_none(bench):
    done = bench.train(bench.solver(max_iter=1, solver_mode=1))
    assert done.out.count("^solver_mode is GPU; the engine finds no GPU here, and so it trains on the CPU$") == 1


def engine_beside(folder, poseidon, source, *flags):
    """The environment of a program whose engine has a CUDA library beside it, made of `source`."""
    beside = folder / "engine"
    beside.mkdir()
    linked = subprocess.run(["ldd", poseidon], capture_output=True, text=True, check=True).stdout
    engine = pathlib.Path(re.search(r"libtorch_cpu\.so => (\S+)", linked)[1]).parent
    for library in engine.iterdir():
        (beside / library.name).symlink_to(library)
    (folder / "cuda.c").write_text(source)
    (beside / "libtorch_cuda.so").unlink(missing_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", beside / "libtorch_cuda.so", folder / "cuda.c", "-Wl,--no-as-needed", *flags], check=True)
    return {"LD_LIBRARY_PATH": str(beside)}


def test_a_cuda_library_that_does_not_load_is_said(bench, tmp_path):
    """One that it needs is missing, as where the packages of CUDA are of another version."""
    (tmp_path / "empty.c").write_text("")
    subprocess.run(["cc", "-shared", "-o", tmp_path / "libcudart.so.99", tmp_path / "empty.c", "-Wl,-soname,libcudart.so.99"], check=True)
    broken = engine_beside(tmp_path, bench.poseidon, "", tmp_path / "libcudart.so.99")
    why = "the engine finds no GPU here (libcudart.so.99: cannot open shared object file: No such file or directory)"
    asked = jobs.run(bench.poseidon, *bench.arguments(bench.solver(max_iter=1), ("--gpu", "0"), "asked"), cwd=bench.folder, environment=broken)
    assert asked.code not in (0, 3) and why in asked.err.text, asked.err.text
    done = bench.train(bench.solver(max_iter=1, solver_mode=1), environment=broken)
    assert done.out.count("^" + re.escape(f"solver_mode is GPU; {why}, and so it trains on the CPU") + "$") == 1, done.out.text


def test_packages_of_cuda_beside_the_engine_are_loaded_with_it(bench, tmp_path):
    """What CUDA's libraries open by name alone. In place of one, a library that says that it has been loaded."""
    beside = engine_beside(tmp_path, bench.poseidon, "int nothing;")
    inside = tmp_path / "torch" / "lib"
    inside.parent.mkdir()
    pathlib.Path(beside["LD_LIBRARY_PATH"]).rename(inside)
    package = tmp_path / "nvidia" / "cu99" / "lib"
    package.mkdir(parents=True)
    (tmp_path / "said.c").write_text('#include <stdio.h>\n__attribute__((constructor)) void said(void) { fputs("loaded\\n", stderr); }')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", package / "libnvrtc.so.99", tmp_path / "said.c"], check=True)
    (package / "libnvrtc-builtins.so.99").write_text("no library")
    asked = jobs.run(bench.poseidon, *bench.arguments(bench.solver(max_iter=1), ("--gpu", "0"), "asked"), cwd=bench.folder,
                     environment={"LD_LIBRARY_PATH": str(inside)})
    assert asked.err.lines[0] == "loaded" and asked.err.text.count("loaded\n") == 1, asked.err.text


def test_a_cuda_library_that_brings_no_cuda_is_said(bench, tmp_path):
    """As where the engine has settled by then that it has none."""
    silent = engine_beside(tmp_path, bench.poseidon, "int nothing;")
    asked = jobs.run(bench.poseidon, *bench.arguments(bench.solver(max_iter=1), ("--gpu", "0"), "asked"), cwd=bench.folder, environment=silent)
    assert asked.code not in (0, 3) and "the engine finds no GPU here (the engine was asked for CUDA before its library was loaded)" in asked.err.text, asked.err.text
