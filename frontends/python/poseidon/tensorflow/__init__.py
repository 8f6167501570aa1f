# SPDX-License-Identifier: Apache-2.0
"""Poseidon under a TensorFlow training loop.

  import poseidon.tensorflow as poseidon
  poseidon.init()                                   # as poseidon run, torchrun, mpirun or srun started us
  with tf.GradientTape() as tape: ...
  gradients = poseidon.reduce(tape.gradient(loss, variables), variables)

or `tape = poseidon.GradientTape(tape)`, whose gradient() gives means. The loop is a tf.function, or the exchange overlaps
with nothing. Keras models: poseidon.keras.
"""
from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .. import session as _session
from ..errors import PoseidonError
from ..session import make_token_file
from .exchange import Exchange
from .exchange import broadcast as _broadcast

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Exchange", "GradientTape", "PoseidonError", "broadcast", "init", "make_token_file", "rank", "reduce", "shutdown",
           "workers"]

_joined: Session | None = None
_exchanges: list[Exchange] = []
_failure: BaseException | None = None


def init(**words: Any) -> None:
    """Joins the job; returns when all workers are there. Arguments: those of poseidon.torch.init. A second call does nothing.
    The first plan stays (final_plan_step): a graph does not show what its layers take."""
    global _joined
    if _joined is not None:
        return
    _joined = _session.join(**{"threads": 1, "final_plan_step": None, **words})
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        global _failure
        _failure = error
        before(kind, error, trace)
    sys.excepthook = note
    atexit.register(_end)


def joined() -> Session:
    if _joined is None:
        raise PoseidonError("poseidon.tensorflow.init has not been called")
    return _joined


def rank() -> int:
    return joined().rank


def workers() -> int:
    return joined().workers


def exchange_of(variables: Sequence[Any]) -> tuple[Exchange, bool]:
    """The exchange of just these variables, in this order, and whether it is new. All workers make the same ones."""
    wanted = [id(variable) for variable in variables]
    for exchange in _exchanges:
        if [id(variable) for variable in exchange.variables] == wanted:
            return exchange, False
    with tf.init_scope():
        _exchanges.append(Exchange(joined(), variables))
    return _exchanges[-1], True


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def reduce(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The means over all workers of `gradients`, those of `variables`, in the same order; None stays None. Where a tf.function
    is traced for the first time, the variables become rank 0's before it runs; an eager loop calls broadcast() first.
    One worker keeps its gradients."""
    if workers() == 1:
        return list(gradients)
    exchange, fresh = exchange_of(variables)
    if fresh and _broadcast(exchange.session, variables) and tf.executing_eagerly():
        raise PoseidonError("the workers' variables were not equal in the first eager step, expected "
                            "poseidon.tensorflow.broadcast(variables) before it", "FAILED_PRECONDITION")
    return exchange.reduce(gradients, variables)


def broadcast(variables: Sequence[Any], root: int = 0) -> bool:
    """Leaves rank `root`'s numbers in everybody's variables; whether that changed a worker's."""
    return _broadcast(joined(), variables, root)


class GradientTape:
    """A tape whose gradients are means over all workers. Everything else is the tape's own."""

    def __init__(self, tape: tf.GradientTape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> GradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._tape.__exit__(*raised)

    def gradient(self, target: Any, sources: Any, *arguments: Any, **words: Any) -> Any:
        gradients = self._tape.gradient(target, sources, *arguments, **words)
        flat = tf.nest.flatten(sources)
        return tf.nest.pack_sequence_as(sources, reduce(tf.nest.flatten(gradients), flat))


def shutdown() -> None:
    """Leaves the job in order; blocks until all workers have come here. Implied at the end of the process. While an exception
    is under way the job ends for everybody: the others wait for gradients that will not come."""
    global _joined, _failure
    _failure = _failure or sys.exc_info()[1]
    if _failure is not None and not (isinstance(_failure, SystemExit) and _failure.code in (None, 0)):
        return _end()
    if _joined is not None:
        for exchange in _exchanges:
            exchange.detach()
        _exchanges.clear()
        leaving, _joined = _joined, None
        atexit.unregister(_end)
        leaving.leave()


def _end() -> None:
    """The process ends: in order, or with an exception, which the others are told."""
    global _joined
    if _failure is None:
        shutdown()
    elif _joined is not None:
        atexit.unregister(_end)
        for exchange in _exchanges:
            exchange.detach()
        _exchanges.clear()
        _joined.abort(f"{type(_failure).__name__}: {_failure}")
        _joined.close()
        _joined = None
