# SPDX-License-Identifier: Apache-2.0
"""Solvers, as pycaffe has them."""
from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any, ClassVar

from .. import failures, interruption
from ..errors import PoseidonError
from . import library as c
from . import settings
from .net import Net, Path


class Parameters:
    """A solver's parameters, as its file has them: every field of SolverParameter. base_lr can be set."""

    def __init__(self, solver: int, text: str) -> None:
        """`solver`: the library's handle. `text`: the parameters as protobuf text."""
        self.__dict__.update(_solver=solver, _text=text)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if "_message" not in self.__dict__:
            from .proto import caffe_pb2
            self.__dict__["_message"] = caffe_pb2.protobuf(".text_format").Parse(self._text, caffe_pb2.SolverParameter())
        return getattr(self._message, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "base_lr":
            raise AttributeError(f"{name} of a solver that runs cannot be set, expected base_lr")
        c.library().solver_set_base_lr(self._solver, value)
        self.__dict__.pop("_message", None)
        self.__dict__["_text"] = c.library().solver_parameters(self._solver).decode()


class Kept:
    """The library's solver, which lives as long as whoever has it, its nets and their blobs."""

    def __init__(self, prototxt: Path, kind: str | None) -> None:
        """`prototxt`, `kind`: as Solver has them."""
        self.callbacks: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self.events: list[Any] = []
        seed = settings.seed()
        options = c.SolverOptions(type=kind.encode() if kind else None, seed=-1 if seed is None else seed)
        made = c_void_p()
        settings.listen()
        c.library().solver_new(c.encoded(prototxt), byref(options), byref(made))
        self.handle = made.value or 0
        self.owned = c.owned(self, c.library().solver_free, self.handle)
        rank, workers = settings.place()
        if workers > 1:  # it is there until the process ends, which leaves the job then
            failures.install(rank)
            atexit.register(self.end)

    def add_callback(self, begins: Callable[[], object], ready: Callable[[], object]) -> None:
        """As Solver has it. The library hears of it with the first one, because updates then wait for no layer's turn."""
        self.callbacks.append((begins, ready))
        if not self.events:
            call, callbacks = self.call, self.callbacks  # a static method: the events must not keep the solver
            self.events += [c.Event(lambda: call(callbacks, 0)), c.Event(lambda: call(callbacks, 1))]
            c.library().solver_call(self.handle, *self.events)

    def end(self) -> None:
        """The process ends: with an exception that the other workers hear of, or by an exit code that the library sees, when Python is
        gone."""
        self.owned.detach()
        settings.fall_silent()
        failure = getattr(sys, "last_value", None)
        if failure is not None and failures.has_failed(failure):
            c.library().solver_abort(self.handle, failures.reason_of(failure).encode())

    @staticmethod
    def call(callbacks: list[tuple[Callable[[], object], Callable[[], object]]], which: int) -> int:
        """Calls one function of each pair; 0 where it raised."""
        try:
            for pair in callbacks:
                pair[which]()
        except BaseException as failure:
            interruption.put(failure)
            return 0
        return 1


class Solver:
    """The solver of a file, of the type that it names: what caffe.get_solver returns."""

    _type: ClassVar[str | None] = None

    def __init__(self, solver_file: Path) -> None:
        """`solver_file`: the prototxt."""
        self._kept = Kept(solver_file, self._type)
        self.net = Net._of_solver(c.library().solver_net(self._kept.handle, -1), self._kept)
        self.test_nets: list[Net] = []
        while (test := c.library().solver_net(self._kept.handle, len(self.test_nets))) is not None:
            self.test_nets.append(Net._of_solver(test, self._kept))
        self.param = Parameters(self._kept.handle, c.library().solver_parameters(self._kept.handle).decode())

    @property
    def iter(self) -> int:
        """Iterations done."""
        return int(c.library().solver_iteration(self._kept.handle))

    @property
    def lr(self) -> float:
        """The learning rate of the last iteration."""
        return float(c.library().solver_rate(self._kept.handle))

    def step(self, iterations: int) -> None:
        """Trains for `iterations` more, with the tests and snapshots that are due. Where a layer in Python or a callback raises, the
        update of the iteration under way is made in no layer: weights and `iter` are those after the iteration before it, and the
        next step makes it anew. Ctrl-C ends an iteration so before the next such layer or callback is called, and otherwise when it
        is done. Where another worker has ended the job, some layers may lack the last update."""
        if iterations < 0:
            raise PoseidonError(f"step({iterations}), expected 0 or more iterations", "INVALID_ARGUMENT")
        c.library().solver_step(self._kept.handle, iterations)

    def solve(self, resume_file: Path | None = None) -> None:
        """Trains to max_iter, with tests and snapshots, as `poseidon train` does. `resume_file`: a .solverstate to go on from."""
        if resume_file is not None:
            self.restore(resume_file)
        c.library().solver_solve(self._kept.handle)

    def restore(self, state_file: Path) -> None:
        """Goes back to the snapshot whose .solverstate is `state_file`."""
        c.library().solver_restore(self._kept.handle, c.encoded(state_file))

    def snapshot(self) -> None:
        """Writes a snapshot, SNAPSHOT_PREFIX_iter_N.caffemodel and .solverstate."""
        c.library().solver_snapshot(self._kept.handle)

    def add_callback(self, on_start: Callable[[], object], on_gradients_ready: Callable[[], object]) -> None:
        """Has every iteration call `on_start` when it begins, with the weights that the iterations before it have made and gradients
        of zero, and `on_gradients_ready` once its gradients are computed, which weights are then updated with."""
        self._kept.add_callback(on_start, on_gradients_ready)

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, as `poseidon train` writes it into summary.json."""
        return str(c.library().solver_hash(self._kept.handle).decode())

    def share_weights(self, net: Net) -> None:
        """From here on `net` has this solver's weights."""
        net.share_with(self.net)


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum, whatever type the file names."""
    _type = "SGD"


class NesterovSolver(SGDSolver):
    """Nesterov's accelerated gradient."""
    _type = "Nesterov"


class AdaGradSolver(SGDSolver):
    """AdaGrad."""
    _type = "AdaGrad"


class RMSPropSolver(SGDSolver):
    """RMSProp."""
    _type = "RMSProp"


class AdaDeltaSolver(SGDSolver):
    """AdaDelta."""
    _type = "AdaDelta"


class AdamSolver(SGDSolver):
    """Adam."""
    _type = "Adam"


def get_solver(solver_file: Path) -> Solver:
    """The solver of the prototxt `solver_file`, of the type that it names."""
    return Solver(solver_file)
