# SPDX-License-Identifier: Apache-2.0
"""Measures one worker's training step into a profile: the JSON file from which `poseidon plan` predicts a cluster that need not exist
(benchmarks/profiles/README.md has the format).

A front end gives the gradients of one model to a session that this process alone is in, so its layers are those of a job, and their
passes are timed as a job times them before its final plan. The profile has the median of each pass over the last steps; the first
ones, in which memory and compilers warm up, are left out.

`poseidon profile train.py` asks for it by two variables of the environment; the first model that is distributed is measured, and the
script ends then.
"""
from __future__ import annotations

import atexit
import collections
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import library as c
from . import session as _session
from .errors import PoseidonError
from .load import Load, busy, cores

if TYPE_CHECKING:
    from .session import Span

WARM = 5        # steps that are left out
STEPS = 20      # that are measured
LEAST = 3       # of them
SPANS = 400_000  # that the session keeps: the steps' passes, pushes and waits
LATE = 2 ** 62  # a step that never comes: layers are timed until it
TEST_ROWS = 128  # of the product that is timed, as of two workers in a job
FILE, COUNT = "POSEIDON_PROFILE", "POSEIDON_PROFILE_STEPS"


class Layer(NamedTuple):
    """A layer as the job declares it."""

    declared: c.Layer
    id: int
    tensors: Sequence[tuple[str, Sequence[int]]]  # names and shapes
    rows: int  # of its factors, or of its table, in the last step; 0: it has none


class Times(NamedTuple):
    """Seconds of one step."""

    forward: dict[int, float]  # by layer's number
    backward: dict[int, float]

    def whole(self) -> float:
        return sum(self.forward.values()) + sum(self.backward.values())


def times_of(spans: Iterable[Span], model: int, steps: int) -> list[Times]:
    """What the last steps of the session's `model` took, of those that are not left out, `steps` at most."""
    by_step: dict[int, Times] = {}
    for span in spans:
        if span.lane == "compute" and span.model == model and span.step >= WARM:
            times = by_step.setdefault(span.step, Times(collections.defaultdict(float), collections.defaultdict(float)))
            passes = times.forward if span.label == "forward" else times.backward
            passes[span.layer] += (span.end - span.begin) / 1e9
    return [by_step[step] for step in sorted(by_step)[-steps:]]


def entry_of(layer: Layer, times: Sequence[Times]) -> dict[str, Any]:
    """The profile's entry."""
    declared = layer.declared
    entry: dict[str, Any] = {
        "name": declared.name.decode(), "shape": declared.shape.decode(), "elements": declared.elements,
        "forward_seconds": statistics.median(one.forward.get(layer.id, 0.0) for one in times),
        "backward_seconds": statistics.median(one.backward.get(layer.id, 0.0) for one in times),
        "tensors": [{"name": name, "shape": list(shape) or [1]} for name, shape in layer.tensors]}
    if declared.dtype == c.F64:
        entry["dtype"] = "f64"
    if declared.outputs and layer.rows:
        entry["factors"] = {"outputs": declared.outputs, "inputs": declared.inputs, "bias": bool(declared.bias)}
        for name, value in ("table", declared.table), ("by_device", declared.product_rows):
            if value:
                entry["factors"][name] = True
        entry["rows"] = layer.rows
    return entry


def text_of(document: dict[str, Any]) -> str:
    """A layer a line."""
    head = {name: value for name, value in document.items() if name != "layers"}
    lines = [json.dumps(layer) for layer in document["layers"]]
    return json.dumps(head, indent=1)[:-2] + ',\n "layers": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def product_flops(layers: Sequence[Layer], timed: Callable[[c.Layer, int], float]) -> float:
    """At which this worker multiplies factors: those of the largest layer that has some; 0 where there is none. `timed`: what a
    product of so many rows takes, in seconds."""
    known = [layer.declared for layer in layers if layer.declared.outputs and not layer.declared.table and layer.rows]
    if not known:
        return 0.0
    largest = max(known, key=lambda one: int(one.elements))
    seconds = timed(largest, TEST_ROWS)
    return 2.0 * TEST_ROWS * largest.outputs * largest.inputs / seconds if seconds > 0 else 0.0


def fastest(call: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of some calls."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return min(took)


class Measurement:
    """Of one model, from its making to `leave`. A front end adds what its framework knows."""

    batch = 0  # samples of the last step

    def __init__(self, title: str, steps: int, threads: int, blas: pathlib.Path | None = None) -> None:
        """`title`: the model's name; `steps`: how many are measured; `threads`: that compute; `blas`: see poseidon.torch.init."""
        self.title, self.wanted, self.threads = title, steps, threads
        self.cores = cores()
        self.session = _session.join(rank=0, workers=1, threads=threads, cores=self.cores, levels="flat", wire="plain",
                                     final_plan_step=LATE, trace_spans=SPANS, blas=blas)
        self.load = Load()

    # ---- what a front end knows

    def steps(self) -> int:
        """How many have ended."""
        raise NotImplementedError

    def layers(self) -> list[Layer]:
        """In forward order."""
        raise NotImplementedError

    def time_product(self, layer: c.Layer, rows: int) -> float:
        """Seconds of a product of factors, on what computes."""
        raise NotImplementedError

    def place(self) -> str:
        """What computes, in words."""
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'} of {self.cores} cores"

    def detach(self) -> None:
        """Gives the model back as it was, with its last weights."""
        raise NotImplementedError

    # ---- what is made of it

    def note_step(self) -> None:
        """A step has ended. What other programs do counts from when it is warm."""
        if self.steps() == WARM:
            self.load = Load()

    def is_over(self) -> bool:
        return self.steps() >= WARM + self.wanted + 1  # the last one may have passes that are not told yet

    def document(self) -> dict[str, Any]:
        """The profile. Raises PoseidonError where too few steps were made."""
        others, own = self.load.shares()
        times = times_of(self.session.take_trace(), self.session.models - 1, self.wanted)  # layers that were thawed made a new model
        if len(times) < LEAST:
            raise PoseidonError(too_few(self.title, self.steps()))
        wholes = [one.whole() for one in times]
        if not any(wholes):
            raise PoseidonError(f"the steps of {self.title} run eagerly, where no layer's time is known, expected a compiled "
                                "training step (run_eagerly=False)", "UNIMPLEMENTED")
        layers = self.layers()
        if (said := busy(wholes, others, own, self.cores)) is not None:
            print(f"poseidon: {said}", file=sys.stderr)
        source = f"measured over {len(times)} steps on {self.place()}" + (", a busy machine" if said else "")
        document: dict[str, Any] = {"format": 1, "name": self.title, "batch": max(1, self.batch), "source": source}
        if (rate := product_flops(layers, self.time_product)) > 0:
            document["product_flops"] = rate
        return {**document, "cpu_seconds_per_wire_byte": c.CPU_SECONDS_PER_WIRE_BYTE, "cores_per_worker": self.cores,
                "compute_threads": self.threads, "layers": [entry_of(layer, times) for layer in layers]}

    def leave(self) -> None:
        try:
            self.detach()
        finally:
            self.session.leave()


def too_few(title: str, steps: int) -> str:
    """The sentence about a model that has made no more steps than that."""
    made = "no training step" if steps == 0 else "1 training step" if steps == 1 else f"{steps} training steps"
    return f"{title} has made {made} of which layers are timed, expected {WARM + LEAST + 1} or more"


# ---- `with poseidon.profile(model, "net.json"):`

class Profile(contextlib.AbstractContextManager["Profile"]):
    """Measures the steps inside. At its end the model is as it was, and the file is written."""

    def __init__(self, make: Callable[[], Measurement], path: str | os.PathLike[str]) -> None:
        self.make, self.path = make, pathlib.Path(path)
        if not self.path.parent.is_dir():
            raise PoseidonError(f"profile was given the file {self.path}, whose folder is not there, expected a folder that is",
                                "INVALID_ARGUMENT")

    def __enter__(self) -> Profile:
        self.measurement = self.make()
        return self

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        try:
            if failure is None:
                document = self.measurement.document()
                self.path.write_text(text_of(document))
                print(said_of(document, self.path))
        finally:
            self.measurement.leave()


def said_of(document: dict[str, Any], path: pathlib.Path) -> str:
    """What was measured, and what to do with it, in two lines."""
    seconds = sum(layer["forward_seconds"] + layer["backward_seconds"] for layer in document["layers"])
    elements = sum(layer["elements"] for layer in document["layers"])
    return (f"{document['name']}: {elements} parameters in {len(document['layers'])} layers, batch {document['batch']}, "
            f"{1000 * seconds:.3g} ms per step on one worker ({document['source']})\n"
            f"written to {path}: poseidon plan {path} --workers 8 --rate 10G")


def check_alone(workers: int) -> None:
    if workers > 1:
        raise PoseidonError(f"profile was called in a job of {workers} workers, expected one worker: the plan reckons with more")


def check_steps(steps: int) -> None:
    if not isinstance(steps, int) or steps < LEAST:
        raise PoseidonError(f"profile was given steps={steps}, expected a number from {LEAST}", "INVALID_ARGUMENT")


# ---- `poseidon profile train.py`

class Asked:
    """Asked for by the command, which reads the file when the script has ended."""

    def __init__(self, file: str, steps: int) -> None:
        self.file, self.steps, self.process = file, steps, os.getpid()
        self.measurement: Measurement | None = None

    def begin(self, measurement: Measurement) -> None:
        self.measurement = measurement
        atexit.register(self.end)

    def note_step(self) -> None:
        """A step has ended; with the last one that is wanted the script ends."""
        if self.measurement is not None:
            self.measurement.note_step()
            if self.measurement.is_over():
                self.end()
                raise SystemExit(0)

    def end(self) -> None:
        """Also where the script ends before."""
        measurement, self.measurement = self.measurement, None
        if measurement is None or os.getpid() != self.process:
            return
        try:
            answer = text_of(measurement.document())
        except PoseidonError as error:
            answer = json.dumps({"failure": error.message})
        pathlib.Path(self.file).write_text(answer)
        measurement.leave()


_taken = False


def take_asked() -> Asked | None:
    """What the command asks for; once, for the first model."""
    global _taken
    file = os.environ.get(FILE)
    if not file or _taken:
        return None
    _taken = True
    return Asked(file, int(os.environ.get(COUNT) or STEPS))
