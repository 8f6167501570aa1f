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

import contextlib
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..errors import PoseidonError
from ..membership import Membership
from ..report import NOTHING_EXCHANGED
from ..report import report as _report
from ..session import make_token_file
from ..shuffles import check_order
from . import data
from .exchange import Exchange, merged, path_of, resource_of
from .exchange import broadcast as _broadcast
from .exchange import differing as _differing
from .factors import kind_of
from .lanes import traced

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..session import Joining, Session

__all__ = ["Exchange", "GradientTape", "PoseidonError", "broadcast", "busy", "differing", "exchanges", "init",
           "make_token_file", "merged", "rank", "record", "reduce", "report", "shard", "shutdown", "trace", "workers"]

_exchanges: list[Exchange] = []
_started: dict[int, Any] = {}  # TensorFlow's variables that are the same everywhere, by their id


def _detach() -> None:
    for exchange in _exchanges:
        exchange.detach()
    _exchanges.clear()
    _started.clear()


def _abandon(session: Session) -> None:
    _detach()  # while the session is there, which ops may be calling
    session.close()


_member = Membership("poseidon.tensorflow", _detach, _abandon)


def init(**words: Unpack[Joining]) -> None:
    """Joins the job; returns when all workers are there. Arguments: those of poseidon.torch.init. A second call does nothing.
    `threads` multiply factors: as many as TensorFlow is set to use for one op, else this worker's share of its host's
    cores. `blas` multiplies them: without POSEIDON_BLAS the OpenBLAS of NumPy's wheel, where that has one."""
    if _member.session is None:
        _member.join(**{"threads": tf.config.threading.get_intra_op_parallelism_threads(), "blas": blas_of_numpy(), **words})


def blas_of_numpy() -> pathlib.Path | None:
    """TensorFlow exports no product of matrices, and NumPy is always there with it."""
    if os.environ.get("POSEIDON_BLAS"):
        return None
    libraries = pathlib.Path(np.__file__).resolve().parent.parent / "numpy.libs"
    # NumPy 1, which TensorFlow up to 2.17 has, names it otherwise.
    return next(iter(sorted([*libraries.glob("libscipy_openblas64_*.so"), *libraries.glob("libopenblas64_*.so")])), None)


def joined() -> Session:
    return _member.joined()


def rank() -> int:
    """Of this process, from 0. Raises PoseidonError where init has not been called."""
    return joined().rank


def workers() -> int:
    """How many there are. Raises PoseidonError where init has not been called."""
    return joined().workers


def record(*, step: int | None = None, test: bool = False, **numbers: Any) -> None:
    """Notes numbers of this step for `poseidon report`, where the job has a run_dir: `poseidon.record(loss=loss)`, outside of the
    tf.function, and behind an evaluation `poseidon.record(test=True, loss=..., accuracy=...)`; `step` (default: as many as have landed) and `test` as in poseidon.torch.record."""
    _member.record(numbers, step, test)


def busy(what: str) -> contextlib.AbstractContextManager[None]:
    """Around what keeps this worker from its steps while the others go on to wait for it, as an evaluation, a sampling or a slow save
    on rank 0: `with poseidon.busy("evaluates"):`. They wait ten times `stuck_after` (600 s) instead of once, also where this
    process uses no processor, and the line about it says `what` it does. It may stand in another. Any thread calls it."""
    return _member.busy(what)


def trace(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Around a few steps: what TensorFlow's threads and Poseidon did meanwhile on rank 0, on one clock, as JSON for Perfetto or
    chrome://tracing. The job was joined with init(trace_spans=100_000): so many sends, receives and sums are kept at
    most. On other workers this does nothing. Steps that trace a function belong before it. Where the steps raise, nothing
    is written. TensorFlow profiles one thing at a time."""
    return traced(joined(), _exchanges, path)


def report() -> str:
    """What Poseidon did, as a table to print: how each layer goes and why, the bytes that it moves per step and the time from its
    push to its mean, planned and measured on this worker; totals beside dense gradients; how much of the communication was hidden.
    Counted in every job, without an option. On one worker nothing is exchanged, and the text says so."""
    if workers() == 1:
        return NOTHING_EXCHANGED
    return _report(joined(), [exchange.account for exchange in _exchanges])


def shard(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """This worker's part of a data set of batches, whose order is the same on all workers: of every `workers()` batches that
    of its rank. So workers with batches of b see what one with batches of workers() * b would. The samples of the batches that
    are left over at the end are divided evenly; of batches made with drop_remainder=True they are left out. Fewer samples than workers are left out: a worker without any would keep the
    others waiting. A data set that is shuffled without a seed, or with seeds that differ between workers, is refused. All
    workers call it. Joins the job where init() has not been called."""
    init()
    if workers() == 1:
        return dataset
    check_order(dataset, joined())
    return data.shard(dataset, rank(), workers())


def exchange_of(variables: Sequence[Any], gradients: Sequence[Any]) -> Exchange:
    """The exchange of just these variables, in this order, whose gradients are first these. All workers make the same ones."""
    wanted = [id(variable) for variable in variables]
    for exchange in _exchanges:
        if [id(variable) for variable in exchange.variables] == wanted:
            return exchange
    kinds = [kind_of(gradient, resource_of(variable)) for gradient, variable in zip(gradients, variables, strict=True)]
    with tf.init_scope():
        _exchanges.append(Exchange(joined(), variables, kinds))
    return _exchanges[-1]


def exchanges() -> list[Exchange]:
    """All of this job, in the order in which they were made: for a look at their plans."""
    return list(_exchanges)


def start(variables: Sequence[Any], in_step: bool = False) -> None:
    """Those that are new here become rank 0's; in an eager step that is too late."""
    known = {id(resource_of(variable)): variable for variable in variables}
    fresh = [variable for number, variable in known.items() if number not in _started]
    if fresh:
        _started.update((id(resource_of(variable)), resource_of(variable)) for variable in fresh)
        if broadcast(fresh) and in_step and tf.executing_eagerly():
            raise PoseidonError(f"'{path_of(fresh[0])}' and others were not equal on all workers in an eager step, expected "
                                "poseidon.tensorflow.broadcast(variables) before it", "FAILED_PRECONDITION")


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def reduce(gradients: Sequence[Any], variables: Sequence[Any], samples: tf.Tensor | int = 0) -> list[Any]:
    """The means over all workers of `gradients`, those of `variables`, in the same order; None stays None. Where batches differ
    in size between workers, all say of how many `samples` their gradients are means, and count by them. Where a tf.function
    is traced for the first time, the variables become rank 0's before it runs; an eager loop calls broadcast() first.
    One worker keeps its gradients."""
    if workers() == 1:
        return list(gradients)
    start(variables, in_step=True)
    return exchange_of(variables, gradients).reduce(gradients, samples)


def broadcast(variables: Sequence[Any], root: int = 0) -> bool:
    """Leaves rank `root`'s numbers in everybody's variables; whether that changed a worker's."""
    return _broadcast(joined(), variables, root)


def differing(variables: Sequence[Any]) -> list[str]:
    """The paths of those variables that are not the same on all workers, bit for bit. All call it."""
    return _differing(joined(), variables)


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
    _member.shutdown()
