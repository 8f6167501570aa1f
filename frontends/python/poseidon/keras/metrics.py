# SPDX-License-Identifier: Apache-2.0
"""Metrics, and other numbers that a step counts, of all workers' samples.

A variable that a step changes says by how it is changed what those of all workers make together: what is added to it is added up,
a maximum is the largest one. TensorFlow's graph of a step shows that (updates.py); elsewhere the variables of metrics are sums, as
Keras' own are.
"""
from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..session import view_of

if TYPE_CHECKING:
    from .training import Backend

# As variables are made where nobody says how those of all workers go together. It is "mean" up to Keras 3.6.
UNSAID = inspect.signature(keras.Variable.__init__).parameters["aggregation"].default

Kinds = Mapping[int, str]  # by a variable's id, what its updates are: "sum", "max" or "min"


def kind_of(variable: Any, kinds: Kinds, otherwise: str) -> str:
    """How the variables of all workers make one: "sum", "mean", "max", "min" or "first"."""
    said = getattr(variable, "aggregation", UNSAID)
    if said == "only_first_replica":
        return "first"
    if said == "mean" != UNSAID:
        return "mean"
    return kinds.get(id(variable), otherwise)


def of_all(model: Any, backend: Backend, logs: Any, kinds: Kinds, repeated: bool) -> Any:
    """In place of `logs`, what a step of fit or of evaluate has returned: the metrics of all workers' samples, each counted once.
    `repeated`: every worker has seen the same samples. Of what a model's own step returns, results of metrics are theirs, other
    numbers are averaged over the workers."""
    own = results(model)
    with states_of_all(model, backend, kinds, repeated):
        of_all_workers = results(model)
    if not isinstance(logs, dict) or set(logs) == set(flat(of_all_workers)):
        return flat(of_all_workers)
    return in_logs(backend, logs, own, of_all_workers)


def results(model: Any) -> dict[str, Any]:
    """By metric, as numbers that stay when its variables change."""
    fixed = lambda value: np.array(keras.ops.convert_to_numpy(value))
    return {metric.name: keras.tree.map_structure(fixed, metric.result()) for metric in model.metrics}


def flat(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The names that Keras gives: those in a dict stand for themselves."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        found.update(flat(value) if isinstance(value, dict) else {name: value})
    return found


@contextlib.contextmanager
def states_of_all(model: Any, backend: Backend, kinds: Kinds, repeated: bool) -> Iterator[None]:
    """In which the metrics' variables are those of all workers."""
    variables = [variable for metric in model.metrics for variable in metric.variables]
    own = [np.array(variable) for variable in variables]
    combine(backend, {id(one): one for one in variables}.values(), lambda variable: kind_of(variable, kinds, "sum"), repeated)
    try:
        yield
    finally:
        for variable, before in zip(variables, own):
            variable.assign(before)


def combine(backend: Backend, variables: Any, kind: Any, repeated: bool = False) -> None:
    """Leaves in every worker's variables what those of all make together; a sum of what is `repeated` on each is one of them."""
    groups: dict[str, list[Any]] = {}
    for variable in variables:
        groups.setdefault(kind(variable), []).append(variable)
    workers = backend.session().workers
    for name in sorted(groups):
        if name in ("sum", "mean"):
            backend.sum(groups[name], divide_by=workers if repeated or name == "mean" else 1)
        elif name == "first":
            backend.broadcast(groups[name])
        else:
            take_extreme(backend, groups[name], np.max if name == "max" else np.min)


def take_extreme(backend: Backend, variables: list[Any], choose: Any) -> None:
    session = backend.session()
    for variable in variables:
        number = np.asarray(variable, "float64").reshape(-1)
        of_each = np.zeros((session.workers, number.size))
        of_each[session.rank] = number
        session.sum(view_of(of_each.data))
        variable.assign(choose(of_each, axis=0).reshape(variable.shape).astype(np.asarray(variable).dtype))


def in_logs(backend: Backend, logs: dict[str, Any], own: dict[str, Any], of_all_workers: dict[str, Any]) -> dict[str, Any]:
    """`logs` of all workers. A number that is on every worker what the metric of its name has given there is that metric's."""
    known, known_of_all = ({**flat(given), **given} for given in (own, of_all_workers))
    values = dict(paths_of(logs))
    is_metric = [is_same(value, found(known, path)) for path, value in values.items()]
    numbers = np.array([*map(mean_of, values.values()), *map(float, is_metric)])
    session = backend.session()
    if numbers.size:
        session.sum(view_of(numbers.data))
    means, votes = np.split(numbers / session.workers, 2)
    chosen = {path: found(known_of_all, path) if votes[at] == 1 else means[at] for at, path in enumerate(values)}

    def rebuilt(part: dict[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
        return {name: rebuilt(value, (*above, name)) if isinstance(value, dict) else chosen[above + (name,)]
                for name, value in part.items()}
    return rebuilt(logs, ())


def paths_of(logs: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every number in `logs`, with the names that lead to it."""
    for name, value in logs.items():
        if isinstance(value, dict):
            yield from paths_of(value, (*above, name))
        else:
            yield (*above, name), value


def found(results: dict[str, Any], path: tuple[str, ...]) -> Any:
    """The result that a step calls so: of the metric, or within its dict."""
    value: Any = results
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return results.get(path[-1]) if value is None else value


def mean_of(value: Any) -> float:
    return float(np.mean(keras.ops.convert_to_numpy(value)))


def is_same(value: Any, result: Any) -> bool:
    if result is None or isinstance(result, dict):
        return False
    numbers = keras.ops.convert_to_numpy(value)
    return np.shape(numbers) == np.shape(result) and np.allclose(numbers, result, rtol=1e-4, atol=0, equal_nan=True)
