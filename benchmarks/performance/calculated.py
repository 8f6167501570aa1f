# SPDX-License-Identifier: Apache-2.0
"""Parts of docs/performance/details.md that need no network: made by the planner and by the simulator."""
import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

from . import machine, record

# Beside what cells are measured with.
MADE_BY = ("benchmarks/simulate", "benchmarks/profiles", "benchmarks/performance/crossover.py",
           "benchmarks/performance/grid.py")
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Keys of results that no page and no plot shows.
NOT_KEPT = {"by_factors", "chunk_bytes", "send_buffer_bytes", "events", "took_seconds", "single_worker_seconds", "t_star", "t_wfbp",
            "wire_bytes_per_step", "max_to_mean_bytes", "peak_to_mean", "rate_bits"}


def without(value, names):
    """The same without the entries of these names, at any depth."""
    if isinstance(value, dict):
        return {key: without(item, names) for key, item in value.items() if key not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


@dataclasses.dataclass(frozen=True)
class Command:
    """A module that takes --json, what it is called with, and what its plot shows: with a caption it takes --plot
    and --from as well. Without, it reads the cells' results."""
    module: str
    arguments: tuple
    caption: str | None
    patience: str

    def key(self, sources, folder):
        """The hash of everything that its result depends on."""
        made_by = [sources, machine.sources(folders=MADE_BY), *map(str, self.arguments)]
        if not self.caption:
            recorded = folder / "recorded.json"
            made_by += [recorded.read_text()] if recorded.exists() else []
        return hashlib.sha256("\0".join(made_by).encode()).hexdigest()


COMMANDS = {
    "crossover": Command(
        "benchmarks.performance.crossover", ("vgg19-22k", "--layer", "fc6"),
        "Where the plan sends a layer by factors, by workers, gradient rows and rate; calculated.",
        "some seconds"),
    "simulated": Command(
        "benchmarks.simulate.curves", ("vgg19-22k", "resnet-50", "--scale", "10"),
        "Speed-up over one worker to 64 workers, simulated: the product's nodes on virtual time, sizes and rates "
        "divided by 10; wide lines are the bound.",
        "some minutes"),
    "unscaled": Command(
        "benchmarks.simulate.settings", (),
        "Step over T\\* of every profile at 0.5, 1 and 2 times its ridge and at 10 Gbit/s, at full size and rate; "
        "simulated.",
        "some minutes"),
    "agreement": Command("benchmarks.simulate.compare", (), None, "a second for each run of ours"),
}


def python(command, *arguments):
    """Runs the command's module: (exit status, what it wrote to stderr). It and the simulators that it starts, a
    process group, end when this is left by an exception."""
    words = [sys.executable, "-B", "-m", command.module, *map(str, arguments)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as child:
        try:
            _, errors = child.communicate()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return child.returncode, errors


def run(command, path, key):
    """Writes results with `key` to `path`; the reason if it could not."""
    status, errors = python(command, *command.arguments, "--json", path)
    if status:
        return (errors.strip().splitlines() or ["it failed"])[-1]
    path.write_text(record.listed({"key": key} | without(json.loads(path.read_text()), NOT_KEPT)))
    return None


def draw(folder):
    """(file name, caption) of every plot, without a caption where there is no result."""
    drawn = []
    for name, command in COMMANDS.items():
        if not command.caption:
            continue
        path, plot = folder / f"{name}.json", folder / f"{name}.svg"
        made = path.exists() and python(command, "--from", path, "--plot", plot)[0] == 0
        drawn.append((plot.name, command.caption if made else None))
    return drawn
