# SPDX-License-Identifier: Apache-2.0
"""What one GPU can show, in eight minutes, and docs/performance/gpu.md from it.

  python3 -m benchmarks.gpu                             # make gpu
  python3 -m benchmarks.gpu --only golden,exact
  python3 -m benchmarks.gpu --device LIBRARY --only golden,exact,levels     # on a device that LIBRARY makes known, as tests do
  python3 -m benchmarks.gpu --render                    # the page anew from what is recorded

Parts: `conformance` the tests of the trainer's device; `golden` the reference cases of BVLC Caffe; `exact` the Caffe trainer's LeNet on 1, 2
and 4 workers of one global batch that share the GPU, and on all GPUs where there are several; `levels` the same of 4 workers that act as
two machines of two; `steps` forward and backward of the trainer beside eager PyTorch; `torch` PyTorch's device tests; `tensorflow` jobs of Keras on TensorFlow, where there
is a CUDA build of it (POSEIDON_TENSORFLOW_PYTHON names its interpreter); `ddp` PyTorch's DDP over gloo beside Poseidon (root, for
shaped links). A part that cannot run says why, and the page has it. It needs no network, and nothing is built where
build/cuda/bundle.tar.xz is there, which scripts/cuda.sh makes for the torch of that machine.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import typing
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "process")]

from benchmarks.performance import machine  # noqa: E402
from benchmarks.tables import table  # noqa: E402

RECORD = ROOT / "docs" / "performance" / "gpu.json"
PAGE = RECORD.with_suffix(".md")
BUNDLE = ROOT / "build" / "cuda" / "bundle"
PROGRAMS = "poseidon poseidon_golden caffe_device_test"
IMAGES, ITERATIONS, GLOBAL_BATCH = 960, 40, 48
MINUTES = 8
APART = 1e-3  # that a loss of the test may be from one worker's: sums have another order, 40 steps long


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.2, which is Debian's, has none
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **safely)  # type: ignore[arg-type]  # a filter's name


def programs() -> pathlib.Path:
    """Their folder: of the build that is here, else of the bundle that scripts/cuda.sh has made."""
    here = pathlib.Path(os.environ.get("POSEIDON_BIN") or ROOT / "build" / "release" / "bin")
    if (here / "poseidon_golden").exists():
        return here
    archive = BUNDLE.with_name("bundle.tar.xz")
    if archive.exists() and not BUNDLE.exists():
        unpack(archive, BUNDLE.parent)
    return BUNDLE / "bin" if BUNDLE.exists() else here


class Skipped(Exception):
    """A part cannot run here; the message says why, and what is needed."""


class Failed(Exception):
    """What a part runs fails, or takes too long; the message says what."""


class Run:
    """One run of the command: where programs are, and the device that they find."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path, ends: float = float("inf")) -> None:
        """`ends`: when its time is over, by time.monotonic()."""
        self.options, self.folder, self.ends = options, folder, ends
        self.environment = dict(os.environ)
        self.preload = {"LD_PRELOAD": str(options.device.resolve())} if options.device else {}
        own = options.bin.parent / "python" / "libposeidon.so"
        if own.exists():  # a bundle, whose programs have no path of torch
            found = importlib.util.find_spec("torch")
            if found and found.submodule_search_locations:
                self.environment["LD_LIBRARY_PATH"] = str(pathlib.Path(found.submodule_search_locations[0]) / "lib")
            self.environment["POSEIDON_LIBRARY"] = str(own)
            self.environment["POSEIDON_TENSORFLOW_LIBRARY"] = str(own.with_name("libposeidon_tensorflow.so"))

    def program(self, name: str) -> pathlib.Path:
        path = self.options.bin / name
        if name.endswith("_test") and not path.exists():  # in a build tree a test is in its sources' folder
            path = next(self.options.bin.parent.glob(f"frontends/caffe/*/{name}"), path)
        if not path.exists():
            raise Skipped(f"{path} is not there, expected scripts/build.sh release -DPOSEIDON_TESTS=ON {PROGRAMS}, or scripts/cuda.sh")
        return path

    def run(self, *words: object, seconds: float = 120, fails: bool = False, **environment: str) -> str:
        """What a program says. Raises Failed with its last line where it takes longer or, unless it may fail, where it does."""
        left = self.ends - time.monotonic()
        if left < 5:
            raise Skipped(f"{MINUTES} minutes were over, expected --only with this part")
        seconds = min(seconds, left)
        try:
            done = subprocess.run([str(word) for word in words], cwd=self.folder, env=self.environment | environment, capture_output=True, text=True,
                                  timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"{pathlib.Path(str(words[0])).name} took more than {seconds:.0f} s") from None
        if done.returncode and not (fails and done.stdout.strip()):
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Failed(f"{pathlib.Path(str(words[0])).name} ended with {done.returncode}: {''.join(said[-1:])}")
        return done.stdout

    def train(self, name: str, *words: object) -> dict[str, typing.Any]:
        """The summary of a run of the trainer."""
        self.run(self.program("poseidon"), "train", "--solver", self.solver(), "--global-batch", "--run-dir", name, *words, **self.preload)
        return json.loads((self.folder / name / "summary.json").read_text())

    def solver(self) -> pathlib.Path:
        """A small LeNet on images that are drawn, whose classes can be told apart."""
        path = self.folder / "solver.prototxt"
        if path.exists():
            return path
        import caffe_files
        images, labels = caffe_files.write_idx(self.folder, "train", IMAGES, seed=1)
        self.run(self.program("poseidon"), "convert-mnist", images, labels, "lmdb")
        (self.folder / "net.prototxt").write_text(caffe_files.small_lenet("lmdb", "lmdb", batch=GLOBAL_BATCH))
        path.write_text(caffe_files.solver("net.prototxt", max_iter=ITERATIONS, display=10, test_interval=ITERATIONS))
        return path


# ---- the parts: each returns the rows of its table, after the heads

Rows = list[list[str]]


def conformance(run: Run) -> Rows:
    out = run.run(run.program("caffe_device_test"), "--gtest_brief=1", fails=True, seconds=60, **({} if run.options.device else {"POSEIDON_TEST_DEVICE": "cuda"}))
    named = re.findall(r"\[  FAILED  \] (\S+) \(", out)
    passed = re.search(r"\[  PASSED  \] (\d+) test", out)
    return [["tests", "result"], ["all", f"{passed[1] if passed else 0} passed, {len(named)} failed"], *([name, "1 failed"] for name in named)]


def golden(run: Run) -> Rows:
    cases = run.folder / "cases"
    cases.mkdir()
    for archive in sorted((ROOT / "tests" / "golden").glob("*.tar.xz")):
        unpack(archive, cases)
    where = ["--device", run.options.device.resolve()] if run.options.device else ["--gpu"]
    *lines, closing = run.run(run.program("poseidon_golden"), *where, cases / "golden", seconds=180, fails=True).strip().splitlines()
    failed = [line.split(maxsplit=1) for line in lines if line.split()[1] != "pass"]
    return [["cases", "result"], ["all", closing], *failed]


def hidden(run: Run, name: str, *lanes: str) -> str:
    """Which part of the time that worker 0 spent in these lanes of its trace it also computed."""
    events = json.loads((run.folder / name / "trace.json").read_text())["traceEvents"]
    of_lane: dict[str, list[tuple[float, float]]] = {}
    for one in events:
        if one.get("ph") == "X" and one["pid"] == 0:
            of_lane.setdefault(one["cat"], []).append((one["ts"], one["ts"] + one["dur"]))
    spans = [span for lane in lanes for span in of_lane.get(lane, [])]
    took = sum(end - begin for begin, end in spans)
    both = sum(max(0.0, min(end, other_end) - max(begin, other_begin)) for begin, end in spans for other_begin, other_end in of_lane["compute"])
    return f"{both / took:.0%}" if took else "-"


def trained(run: Run, named: dict[str, list[object]]) -> Rows:
    rows = [["workers", "replicas", "loss of the test", "from one worker's", "GPU busy", "sends that computing overlaps", "copies that computing overlaps"]]
    first: float | None = None
    for words, flags in named.items():
        name = words.replace(" ", "-")
        summary = run.train(name, *flags)
        loss = summary["test"]["loss"]
        first = loss if first is None else first
        apart = f"{loss - first:+.1e}" + (f", MORE THAN {APART}" if abs(loss - first) > APART else "")
        rows.append([words, "equal" if summary["replicas_equal"] else "NOT EQUAL", f"{loss:.6f}", apart,
                     ", ".join(f"{share:.0%}" for share in summary.get("gpu_utilization", [])), hidden(run, name, "send"), hidden(run, name, "to host", "to device")])
    return rows


def gpus() -> list[str]:
    """The name of each that the driver shows, and the driver's version behind a comma."""
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return [] if done.returncode else done.stdout.splitlines()


def exact(run: Run) -> Rows:
    named: dict[str, list[object]] = {
        "1": ["--gpu", "0"], "2": ["--gpu", "0", "--workers", 2], "4": ["--gpu", "0", "--workers", 4],
        "2 with factors": ["--gpu", "0", "--workers", 2, "--scheme", "ip1=sfb"]}
    several = 0 if run.options.device else len(gpus())
    if several > 1 and GLOBAL_BATCH % several == 0:
        named |= {f"{several}, a GPU each": ["--gpu", "all"], f"{several}, a GPU each, in the host's memory": ["--gpu", "all", "--levels", "host"]}
    return trained(run, named)


def levels(run: Run) -> Rows:
    return trained(run, {"1": ["--gpu", "0"], "4 as 2 machines of 2": ["--gpu", "0", "--workers", 4, "--machines", "a,a,b,b", "--levels", "host"]})


def steps(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("a device of tests is no faster than anything, expected a GPU")
    out = run.run(sys.executable, ROOT / "benchmarks" / "trainer_bench.py", "--poseidon", run.program("poseidon"), "--only", "eager", "--gpu", "--nets",
                  "LeNet,AlexNet,GoogLeNet,ResNet-50,VGG19", "--repeats", 3, seconds=150)
    found = re.findall(r"eager +(\S+): ours ([\d.]+) ms, eager PyTorch ([\d.]+) ms, ours/eager ([\d.]+ \[.*?\])", out)
    return [["forward and backward of", "trainer, ms", "eager PyTorch, ms", "trainer / PyTorch"], *(list(one) for one in found)]


def pytest_of(run: Run, tests: str, *words: str, seconds: float, **environment: str) -> Rows:
    """Runs the cases of `tests`, a file below ROOT, on the GPU. `words`: more of pytest's arguments."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed, expected it")
    out = run.run(sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / tests, *words, seconds=seconds, fails=True,
                  POSEIDON_TEST_DEVICE="cuda", POSEIDON_CASES="all", **environment)
    return [[tests, "result"], ["all", out.strip().splitlines()[-1]]]


def torch_tests(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("tests/torch runs these on the device of the tests")
    return pytest_of(run, "tests/torch/test_devices.py", f"{ROOT}/tests/torch/test_process_group.py::test_tensors_may_be_on_a_device", seconds=160)


def tensorflow(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("TensorFlow knows no device of tests")
    python = pathlib.Path(os.environ.get("POSEIDON_TENSORFLOW_PYTHON") or ROOT / ".venv-tensorflow" / "bin" / "python3")
    if not python.exists():
        raise Skipped(f"{python} is not there, expected an interpreter with TensorFlow's CUDA build")
    if run.run(python, "-c", "import tensorflow; print(len(tensorflow.config.list_physical_devices('GPU')))").strip() in ("", "0"):
        raise Skipped("TensorFlow finds no GPU, expected its CUDA build (pip install tensorflow[and-cuda]) and a driver that it accepts")
    return pytest_of(run, "tests/tensorflow/test_fit.py", "-k", "same_bits or what_one_does or factors_train", seconds=120,
                     POSEIDON_TENSORFLOW_PYTHON=str(python))


def ddp(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("DDP has no device of tests")
    if os.geteuid() or not shutil.which("tc"):
        raise Skipped("links are shaped by root with tc, expected both")
    out = run.run(sys.executable, "-B", ROOT / "benchmarks" / "torch" / "gpu_bench.py", "--nets", "mlp,resnet", "--rates", "1G", "--turns", 3, seconds=100)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    return [line for line in lines if not set(line[0]) <= {"-", ":"}]


PARTS: dict[str, Callable[[Run], Rows]] = {"conformance": conformance, "golden": golden, "exact": exact, "levels": levels, "steps": steps, "torch": torch_tests,
                                         "tensorflow": tensorflow, "ddp": ddp}
WORDS = {"conformance": "Tests of the trainer's device", "golden": "The reference cases of BVLC Caffe", "exact": "One global batch on 1, 2 and 4 workers",
         "levels": "Workers of a machine combine first", "steps": "Beside eager PyTorch", "torch": "PyTorch's device tests",
         "tensorflow": "Keras on TensorFlow, two workers that share the GPU", "ddp": "Beside PyTorch's DDP"}


# ---- what is recorded

def device_words(options: argparse.Namespace) -> str:
    if options.device:
        return f"a device of the tests ({options.device.name})"
    if not shutil.which("nvidia-smi"):
        sys.exit("gpu: there is no nvidia-smi here, expected a machine with a GPU, or --device LIBRARY")
    if not (shown := gpus()):
        sys.exit("gpu: nvidia-smi finds no GPU, expected a machine with one, or --device LIBRARY")
    name, _, driver = shown[0].partition(", ")
    return f"{name}, driver {driver}"


def page(record: dict[str, dict[str, typing.Any]]) -> str:
    lines = ["# The trainer on a GPU", "", "Written by `python3 -m benchmarks.gpu` (`make gpu`) from `gpu.json` beside this page; no measured number in it was typed by hand. "
             "[What is where](../caffe/gpu.md), [PyTorch on a GPU](torch-gpu.md).", ""]
    for part in PARTS:
        lines += [f"## {WORDS[part]}", ""]
        found = record.get(part)
        if not found:
            lines += ["Not yet run on a GPU; `make gpu` will.", ""]
            continue
        head, *rows = found["rows"] or [[]]
        lines += [f"{found['device']}, {found['date']}, commit `{found['commit']}`, {found['seconds']:.0f} s.", "",
                  table(head, rows) if head else found["skipped"], ""]
    return "\n".join(lines)


def read() -> dict[str, dict[str, typing.Any]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=f"parts, with commas: {', '.join(PARTS)}")
    parser.add_argument("--device", type=pathlib.Path, metavar="LIBRARY", help="a library that makes a device known to the engine; nothing is recorded then")
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(), default=programs().resolve(), metavar="FOLDER", help="where poseidon and poseidon_golden are")
    parser.add_argument("--render", action="store_true", help="write the page from what is recorded")
    options = parser.parse_args(words)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]}, expected some of {', '.join(PARTS)}")
    return options


def main(words: list[str]) -> int:
    options = parse(words)
    if options.render:
        PAGE.write_text(page(read()))
        return 0
    record, device, failed = read(), device_words(options), False
    print(f"on {device}")
    ends = time.monotonic() + 60 * MINUTES
    for part in options.only:
        began = time.monotonic()
        found: dict[str, typing.Any] = {"device": device, "date": machine.today(), "commit": machine.git("rev-parse", "--short=12", "HEAD") or "unknown", "rows": [], "skipped": ""}
        with tempfile.TemporaryDirectory() as folder:
            try:
                found["rows"] = PARTS[part](Run(options, pathlib.Path(folder), ends))
            except Skipped as reason:
                found["skipped"] = f"Did not run: {reason}."
            except Failed as reason:
                found["skipped"] = f"FAILED: {reason}."
        found["seconds"] = round(time.monotonic() - began, 1)
        head, *rows = found["rows"] or [[]]
        print(f"\n{WORDS[part]} ({found['seconds']} s)\n" + (table(head, rows) if head else found["skipped"]), flush=True)
        failed |= found["skipped"].startswith("FAILED") or any("NOT EQUAL" in cell or "MORE THAN" in cell or re.search(r"[1-9]\d* failed", cell) is not None for row in rows for cell in row)
        record[part] = found
    if not options.device:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(page(record))
        print(f"\n{PAGE.relative_to(ROOT)} is written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
