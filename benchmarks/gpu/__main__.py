# SPDX-License-Identifier: Apache-2.0
"""What one GPU can show, in eight minutes, and docs/performance/gpu.md from it.

  python3 -m benchmarks.gpu                             # make gpu
  python3 -m benchmarks.gpu --only golden,exact
  python3 -m benchmarks.gpu --out FOLDER                # page, record and what programs said also into FOLDER
  python3 -m benchmarks.gpu --device LIBRARY --only golden,exact,levels     # on a device that LIBRARY makes known, as tests do
  python3 -m benchmarks.gpu --render                    # the page anew from what is recorded

Parts: `conformance` the tests of the trainer's device; `golden` the reference cases of BVLC Caffe; `exact` the Caffe trainer's LeNet on 1, 2
and 4 workers of one global batch that share the GPU, and on all GPUs where there are several; `levels` the same of 4 workers that act as
two machines of two; `torch` PyTorch's device tests; `ddp` PyTorch's DDP over gloo beside Poseidon (root, for shaped links); `steps` forward
and backward of the trainer beside eager PyTorch; `tensorflow` jobs of Keras on TensorFlow, where there is a CUDA build of it
(POSEIDON_TENSORFLOW_PYTHON names its interpreter). A part that cannot run says why, and the page has it. What a part has found stays where it fails
later, or where the eight minutes end. It needs no network, and nothing is built where
build/cuda/bundle.tar.xz is there, which scripts/cuda.sh makes for the torch of that machine.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import typing
from collections.abc import Callable, Iterator

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
PATIENCE = 10  # seconds that a program has to end in, once its time is over
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
    if archive.exists() and not (BUNDLE.exists() and BUNDLE.stat().st_mtime >= archive.stat().st_mtime):
        shutil.rmtree(BUNDLE, ignore_errors=True)
        unpack(archive, BUNDLE.parent)
        os.utime(BUNDLE)  # the archive has the time at which it was made
    return BUNDLE / "bin" if BUNDLE.exists() else here


class Stopped(Exception):
    """A part goes no further; the message says why. What it has found by then counts."""
    words: typing.ClassVar[str]


class Skipped(Stopped):
    """It cannot run here; the message says what is needed."""
    words = "Did not run"


class Cut(Stopped):
    """The time of the whole command is over."""
    words = "Cut"


class Failed(Stopped):
    """What it runs fails, or takes too long."""
    words = "FAILED"


class Ended(typing.NamedTuple):
    """How a program ended, and what it had said by then."""
    name: str
    code: int | None  # None where nothing could end it
    out: str
    errors: str
    late: Stopped | None  # why it was ended

    def last_words(self) -> str:
        return "".join((self.errors.strip() or self.out.strip()).splitlines()[-1:])

    def check(self, expected: int = 0) -> None:
        """Raises Stopped where it was ended, or ended with another code."""
        if self.late:
            raise self.late
        if self.code != expected:
            raise Failed(f"{self.name} ended with {self.code}: {self.last_words()}")


def end(program: subprocess.Popen[bytes]) -> None:
    """Ends a program that still runs, which is asked first, as gpu_bench.py ends its own; and what of its children is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if program.poll() is None or number == signal.SIGKILL:
                os.killpg(program.pid, number)
            program.wait(PATIENCE)


class Run:
    """One run of the command: where programs are, and the device that they find."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path, ends: float = float("inf")) -> None:
        """`ends`: when its time is over, by time.monotonic()."""
        self.options, self.folder, self.ends = options, folder, ends
        # What a Python program has said is there where it is ended, and pytest's lines are whole.
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "300"}
        self.preload = {"LD_PRELOAD": str(options.device.resolve())} if options.device else {}
        own = options.bin.parent / "python" / "libposeidon.so"
        if own.exists():  # a bundle, whose programs have no path of torch
            found = importlib.util.find_spec("torch")
            if found and found.submodule_search_locations:
                libraries, before = pathlib.Path(found.submodule_search_locations[0]) / "lib", os.environ.get("LD_LIBRARY_PATH")
                self.environment["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else str(libraries)  # the driver's may be found by it
            self.environment["POSEIDON_LIBRARY"] = str(own)
            self.environment["POSEIDON_TENSORFLOW_LIBRARY"] = str(own.with_name("libposeidon_tensorflow.so"))

    def program(self, name: str) -> pathlib.Path:
        path = self.options.bin / name
        if name.endswith("_test") and not path.exists():  # in a build tree a test is in its sources' folder
            path = next(self.options.bin.parent.glob(f"frontends/caffe/*/{name}"), path)
        if not path.exists():
            raise Skipped(f"{path} is not there, expected scripts/build.sh release -DPOSEIDON_TESTS=ON {PROGRAMS}, or scripts/cuda.sh")
        return path

    def ended(self, *words: object, seconds: float = 120, **environment: str) -> Ended:
        """Runs a program, for so long at most. Raises Cut where the minutes are over already."""
        left = self.ends - time.monotonic()
        if left < 5:
            raise Cut(f"{MINUTES} minutes were over before it began, expected --only with this part")
        told = [str(word) for word in words]
        name = pathlib.Path(next((word for word in told if word.endswith(".py")), told[0])).name
        late: Stopped | None = None
        # Into files: a child of the program that lives on would hold a pipe open.
        with (self.folder / "out").open("w+", errors="replace") as out, (self.folder / "errors").open("w+", errors="replace") as errors:
            program = subprocess.Popen(told, cwd=self.folder, env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                       start_new_session=True)
            try:
                program.wait(min(seconds, left))
            except subprocess.TimeoutExpired:
                late = Failed(f"{name} took more than {seconds:.0f} s") if seconds < left else Cut(f"{MINUTES} minutes were over while {name} ran")
            finally:
                end(program)
            out.seek(0)
            errors.seek(0)
            ended = Ended(name, program.returncode, out.read(), errors.read(), late)
        if self.options.out:
            with (self.options.out / "said.txt").open("a") as said:
                said.write(f"$ {' '.join(told)}\n{ended.out}{ended.errors}# ended with {ended.code}{f', as {late}' if late else ''}\n\n")
        return ended

    def run(self, *words: object, seconds: float = 120, **environment: str) -> str:
        """What a program says that has to succeed. Raises Stopped."""
        ended = self.ended(*words, seconds=seconds, **environment)
        ended.check()
        return ended.out

    def train(self, name: str, *words: object) -> dict[str, typing.Any]:
        """The summary of a run of the trainer. Raises Stopped."""
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


# ---- the parts: each yields the rows of its table, the heads first, and raises Stopped where it goes no further

Rows = Iterator[list[str]]


class Suite(typing.NamedTuple):
    """How a program of tests says what its cases gave, in regular expressions."""
    case: str     # a line of one: its name, its verdict, and why where the line says it
    closing: str  # the line without which it has not come to its end; the group goes into the table
    why: str = ""  # where another line has the reason of a case that fails: both


VERDICTS = {"OK": "passed", "pass": "passed", "PASSED": "passed", "XFAIL": "passed", "FAILED": "failed", "fail": "failed", "ERROR": "failed"}  # others: skipped
GTEST = Suite(r"(?m)\[ +(?P<verdict>OK|FAILED|SKIPPED) +\] (?P<name>[^\s,]+)(?P<why>.*)\(\d+ ms\)$", r"\[  PASSED  \] \d+ tests?()\.")
GOLDEN = Suite(r"(?m)^(?P<name>\S+) +(?P<verdict>pass|fail|unsupported)\b *(?P<why>.*)$", r"(?m)^\d+ passed, \d+ failed, \d+ skipped(, on .*)$")
PYTEST = Suite(r"(?m)^\S*?(?P<name>[^/\s]+::.+?) (?P<verdict>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b(?P<why>)", r"\d+ (?:passed|failed)\b.*( in [\d.]+s)",
               why=r"(?m)^(?:FAILED|ERROR) \S*?([^/\s]+::.+?) - (.*)$")


def tested(ended: Ended, suite: Suite, what: str) -> Rows:
    """How many cases passed and failed, and which did not pass. It fails where the program has not come to its end, or nothing has passed or
    failed: a banner and an exit code are no result."""
    cases = [one.groupdict() for one in re.finditer(suite.case, ended.out)]
    of = {verdict: [case for case in cases if VERDICTS.get(case["verdict"], "skipped") == verdict] for verdict in ("passed", "failed", "skipped")}
    why = dict(re.findall(suite.why, ended.out)) if suite.why else {}
    closed = re.search(suite.closing, ended.out)
    yield [what, "result"]
    yield ["all", ", ".join(f"{len(some)} {verdict}" for verdict, some in of.items()) + (closed[1] if closed else ", and not the rest")]
    for case in of["failed"] + [case for case in of["skipped"] if case["verdict"] == "unsupported"]:
        reason = (case["why"] or why.get(case["name"], "")).strip(" ,")
        yield [case["name"], f"{case['verdict'].upper()} {reason}".strip().replace("|", "\\|")[:200]]
    ended.check(1 if of["failed"] else 0)
    if not closed:
        raise Failed(f"{ended.name} has not come to its end: {ended.last_words()}")
    if not of["passed"] + of["failed"]:
        raise Failed(f"{ended.name} ran no case: {ended.last_words()}")


def conformance(run: Run) -> Rows:
    where = {} if run.options.device else {"POSEIDON_TEST_DEVICE": "cuda"}
    return tested(run.ended(run.program("caffe_device_test"), seconds=120, **where), GTEST, "tests")


def golden(run: Run) -> Rows:
    cases = run.folder / "cases"
    cases.mkdir()
    program = run.program("poseidon_golden")
    for archive in sorted((ROOT / "tests" / "golden").glob("*.tar.xz")):
        unpack(archive, cases)
    where = ["--device", run.options.device.resolve()] if run.options.device else ["--gpu"]
    return tested(run.ended(program, *where, cases / "golden", seconds=180), GOLDEN, "cases")


def hidden(run: Run, name: str, *lanes: str) -> str:
    """Which part of the time that worker 0 spent in these lanes of its trace it also computed."""
    events = json.loads((run.folder / name / "trace.json").read_text())["traceEvents"]
    of_lane: dict[str, list[tuple[float, float]]] = {}
    for one in events:
        if one.get("ph") == "X" and one["pid"] == 0:
            of_lane.setdefault(one["cat"], []).append((one["ts"], one["ts"] + one["dur"]))
    spans = [span for lane in lanes for span in of_lane.get(lane, [])]
    took = sum(end - begin for begin, end in spans)
    both = sum(max(0.0, min(end, other_end) - max(begin, other_begin)) for begin, end in spans for other_begin, other_end in of_lane.get("compute", []))
    return f"{both / took:.0%}" if took else "-"


def trained(run: Run, named: dict[str, list[object]]) -> Rows:
    yield ["workers", "replicas", "loss of the test", "from one worker's", "GPU busy", "sends that computing overlaps", "copies that computing overlaps"]
    first: float | None = None
    for words, flags in named.items():
        name = words.replace(" ", "-")
        summary = run.train(name, *flags)
        loss = summary["test"]["loss"]
        first = loss if first is None else first
        apart = f"{loss - first:+.1e}" + (f", MORE THAN {APART}" if not abs(loss - first) <= APART else "")  # also where it is no number
        yield [words, "equal" if summary["replicas_equal"] else "NOT EQUAL", f"{loss:.6f}", apart,
               ", ".join(f"{share:.0%}" for share in summary.get("gpu_utilization", [])), hidden(run, name, "send"), hidden(run, name, "to host", "to device")]


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


def pytest_of(run: Run, tests: str, *words: str, seconds: float, **environment: str) -> Rows:
    """Runs the cases of `tests`, a file below ROOT, on the GPU. `words`: more of pytest's arguments."""
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed, expected it")
    ended = run.ended(sys.executable, "-B", "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", ROOT / tests, *words, seconds=seconds,
                      POSEIDON_TEST_DEVICE="cuda", POSEIDON_CASES="all", **environment)
    return tested(ended, PYTEST, tests)


def torch_tests(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("tests/torch runs these on the device of the tests")
    return pytest_of(run, "tests/torch/test_devices.py", f"{ROOT}/tests/torch/test_process_group.py::test_tensors_may_be_on_a_device", seconds=160)


def ddp(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("DDP has no device of tests")
    sys.path.append(str(ROOT / "benchmarks" / "cluster"))
    import emulation
    if reason := emulation.missing():
        raise Skipped(f"{reason}, expected shaped links")
    ended = run.ended(sys.executable, "-B", ROOT / "benchmarks" / "torch" / "gpu_bench.py", "--nets", "mlp,resnet", "--rates", "1G", "--turns", 3,
                      "--patience", 45, seconds=100)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in ended.out.splitlines() if line.startswith("|")]
    yield from (line for line in lines if not set(line[0]) <= {"-", ":"})
    ended.check(1 if any("FAILED" in cell for line in lines for cell in line) else 0)
    if len(lines) < 3:  # heads and the line below them
        raise Failed(f"{ended.name} said no row: {ended.last_words()}")


def steps(run: Run) -> Rows:
    if run.options.device:
        raise Skipped("a device of tests is no faster than anything, expected a GPU")
    ended = run.ended(sys.executable, "-B", ROOT / "benchmarks" / "trainer_bench.py", "--poseidon", run.program("poseidon"), "--only", "eager", "--gpu", "--nets",
                      "LeNet,AlexNet,GoogLeNet,ResNet-50,VGG19", "--repeats", 2, seconds=150)
    yield ["forward and backward of", "trainer, ms", "eager PyTorch, ms", "trainer / PyTorch"]
    found = re.findall(r"eager +(\S+): ours ([\d.]+) ms, eager PyTorch ([\d.]+) ms, ours/eager ([\d.]+ \[.*?\])", ended.out)
    yield from (list(cells) for cells in found)
    ended.check()
    if not found:
        raise Failed(f"{ended.name} said no step: {ended.last_words()}")


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


# The most telling first: where time is short, what comes last is cut.
PARTS: dict[str, Callable[[Run], Rows]] = {"conformance": conformance, "golden": golden, "exact": exact, "levels": levels, "torch": torch_tests, "ddp": ddp,
                                         "steps": steps, "tensorflow": tensorflow}
WORDS = {"conformance": "Tests of the trainer's device", "golden": "The reference cases of BVLC Caffe", "exact": "One global batch on 1, 2 and 4 workers",
         "levels": "Workers of a machine combine first", "torch": "PyTorch's device tests", "ddp": "Beside PyTorch's DDP",
         "steps": "Beside eager PyTorch", "tensorflow": "Keras on TensorFlow, two workers that share the GPU"}


# ---- what is recorded

def device_words(run: Run) -> str:
    """The device, whose libraries are warm by then. Ends the command where torch cannot compute on a GPU."""
    if run.options.device:
        return f"a device of the tests ({run.options.device.name})"
    seen = run.ended(sys.executable, "-B", pathlib.Path(__file__).with_name("see.py"), seconds=150)
    if seen.code != 0:
        there = ", though /dev/nvidia0 is there" if pathlib.Path("/dev/nvidia0").exists() else ""
        sys.exit(f"gpu: torch cannot compute on a GPU here{there} ({seen.late or seen.last_words()}), expected a GPU, a CUDA build of torch and a driver "
                 "that it accepts, or --device LIBRARY")
    cards = gpus()
    driver = cards[0].rpartition(", ")[2] if cards else "unknown"
    return f"{seen.out.strip()}, driver {driver}"


def commits(programs: pathlib.Path) -> tuple[str, str]:
    """That of the checkout, and that of a bundle of programs, which is empty where they are of a build tree."""
    brought = programs.parent / "commit"
    return machine.git("rev-parse", "--short=12", "HEAD") or "unknown", brought.read_text().strip() if brought.exists() else ""


def at(commit: str, programs: str) -> str:
    return f"commit `{commit}`" + (f" with programs of `{programs}`" if programs not in ("", commit) else "")


def page(record: dict[str, dict[str, typing.Any]]) -> str:
    lines = ["# The trainer on a GPU", "", "Written by `python3 -m benchmarks.gpu` (`make gpu`) from `gpu.json` beside this page; no measured number in it was typed by hand. "
             "[What is where](../caffe/gpu.md), [PyTorch on a GPU](torch-gpu.md).", ""]
    for part in PARTS:
        lines += [f"## {WORDS[part]}", ""]
        found = record.get(part)
        if not found:
            lines += ["Not yet run on a GPU; `make gpu` will.", ""]
            continue
        lines += [f"{found['device']}, {found['date']}, {at(found['commit'], found.get('programs', ''))}, {found['seconds']:.0f} s.", "", shown(found), ""]
    return "\n".join(lines)


def shown(found: dict[str, typing.Any]) -> str:
    """Why a part went no further, and the table of what it had found."""
    head, *rows = found["rows"] or [[]]
    return "\n\n".join(([found["skipped"]] if found["skipped"] else []) + ([table(head, rows)] if head else []))


def read() -> dict[str, dict[str, typing.Any]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def keep(record: dict[str, dict[str, typing.Any]], options: argparse.Namespace) -> None:
    """What is recorded so far and its page, after every part: a run that is cut leaves what it had."""
    for folder in ([] if options.device else [RECORD.parent]) + ([options.out] if options.out else []):
        (folder / RECORD.name).write_text(json.dumps(record, indent=1) + "\n")
        (folder / PAGE.name).write_text(page(record))


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=f"parts, with commas: {', '.join(PARTS)}")
    parser.add_argument("--device", type=pathlib.Path, metavar="LIBRARY", help="a library that makes a device known to the engine; nothing is recorded then but in --out")
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(), default=programs().resolve(), metavar="FOLDER", help="where poseidon and poseidon_golden are")
    parser.add_argument("--out", type=lambda text: pathlib.Path(text).resolve(), metavar="FOLDER", help="page, record and what programs said also go there")
    parser.add_argument("--render", action="store_true", help="write the page from what is recorded")
    options = parser.parse_args(words)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]}, expected some of {', '.join(PARTS)}")
    return options


def attempt(part: str, run: Run) -> tuple[list[list[str]], Stopped | None]:
    """What a part has found, and why it went no further. Whatever goes wrong in it, the others are to run."""
    rows: list[list[str]] = []
    try:
        for row in PARTS[part](run):
            rows.append(row)
    except Stopped as reason:
        return rows, reason
    except Exception as error:
        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        return rows, Failed(f"{type(error).__name__} in {pathlib.Path(where.filename).name}:{where.lineno}: {''.join(str(error).splitlines()[:1])}")
    return rows, None


def is_bad(cell: str) -> bool:
    return re.search(r"NOT EQUAL|MORE THAN|FAILED|UNSUPPORTED|\b[1-9]\d* failed", cell) is not None


def main(words: list[str]) -> int:
    options = parse(words)
    if options.render:
        PAGE.write_text(page(read()))
        return 0
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * MINUTES
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        device = device_words(Run(options, pathlib.Path(folder), ends))
    record, (commit, programs_commit), failed, cut = read(), commits(options.bin), False, []
    print(f"on {device}, {at(commit, programs_commit)}", flush=True)
    for part in options.only:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            rows, stopped = attempt(part, Run(options, pathlib.Path(folder), ends))
        found = {"device": device, "date": machine.today(), "commit": commit, "programs": programs_commit, "rows": rows,
                 "skipped": f"{stopped.words}: {stopped}." if stopped else "", "seconds": round(time.monotonic() - began, 1)}
        print(f"\n{WORDS[part]} ({found['seconds']} s)\n{shown(found)}", flush=True)
        if rows or isinstance(stopped, Failed) or not record.get(part, {}).get("rows"):  # what did not run takes no measured row away
            record[part] = found
        failed |= isinstance(stopped, Failed) or any(is_bad(cell) for row in rows[1:] for cell in row)
        cut += [part] if isinstance(stopped, Cut) else []
        keep(record, options)
    if cut:
        print(f"\n{MINUTES} minutes were not enough for {', '.join(cut)}: --only {','.join(cut)}")
    if not options.device:
        print(f"\n{PAGE.relative_to(ROOT)} is written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
