# SPDX-License-Identifier: Apache-2.0
"""Whether a tf.data.Dataset, of which every worker takes its own batches, has the same order on all of them: where it has not,
samples are seen twice or never.

TensorFlow's data sets know their inputs, functions and seeds, under names that are not public: one without them counts as one
that keeps the order. Nothing here needs TensorFlow before there is a data set: Keras on torch asks too.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import PoseidonError

if TYPE_CHECKING:
    from .session import Session

Answer = TypeVar("Answer")

SEEDS = slice(2, 4)  # among the inputs of a shuffle's op, behind the data set and the size of its buffer
NO_SEED = (0, 0)


def check_order(dataset: Any, session: Session) -> None:
    """Raises PoseidonError where `dataset` may come in another order on each worker. All workers call it."""
    compare([dataset], session)


def check_order_before_shards(dataset: Any, session: Session) -> None:
    """The same of what Dataset.shard divides in `dataset`. Where there is one shard alone, the samples are the worker's own."""
    shards = [one for one in all_of(dataset) if kind_of(one) == "_ShardDataset" and number(one, "_num_shards") != 1]
    compare([one._input_dataset for one in shards], session)


def compare(datasets: Sequence[Any], session: Session) -> None:
    session.compare("orders of the data sets", [order for dataset in datasets for order in orders_of(dataset)], "no shuffle",
                    ", expected the same seeds on all workers, those of tf.random.set_seed and keras.utils.set_random_seed too")


def orders_of(dataset: Any) -> Iterator[str]:
    """Each part of `dataset` that draws its order, in words."""
    may_overtake = otherwise(False, lambda: dataset.options().deterministic is False)
    for one in all_of(dataset):
        deterministic = getattr(one, "_deterministic", "true")
        if deterministic == "false" or (deterministic == "default" and may_overtake):
            raise overtaking()
        if "Shuffle" in kind_of(one):
            yield shuffled(number(one, "_seed"), number(one, "_seed2"))
        elif kind_of(one) == "_DirectedInterleaveDataset":
            for drawn in all_of(one._selector_input):
                if kind_of(drawn) == "_RandomDataset":
                    yield drawn_from_several(number(drawn, "_seed"), number(drawn, "_seed2"))
        for graph in graphs_of(one):
            for nodes in graph.node, *(inner.node_def for inner in graph.library.function):
                yield from orders_in({node.name: node for node in nodes})


def graphs_of(dataset: Any) -> list[Any]:
    """Of its functions."""
    return otherwise([], lambda: [function.function.graph.as_graph_def() for function in dataset._functions()])


def orders_in(nodes: dict[str, Any]) -> Iterator[str]:
    """The same of the data sets that a function makes, whose ops these are."""
    for node in nodes.values():
        if "Dataset" in node.op and node.attr["deterministic"].s == b"false":
            raise overtaking()
        if "Shuffle" in node.op and "Dataset" in node.op:
            yield shuffled(*(seed_of(nodes, source) for source in node.input[SEEDS]))


def shuffled(*seeds: int | None) -> str:
    if seeds == NO_SEED:
        raise refused("is shuffled without a seed", "shuffle(n, seed=1) or list_files(pattern, seed=1)")
    return f"a shuffle with the seeds {seeds}"


def drawn_from_several(*seeds: int | None) -> str:
    if seeds == NO_SEED:
        raise refused("is drawn from several without a seed", "sample_from_datasets(datasets, seed=1)")
    return f"a choice among data sets with the seeds {seeds}"


def overtaking() -> PoseidonError:
    return refused("takes elements in the order in which threads have made them", "deterministic=True")


def refused(what: str, expected: str) -> PoseidonError:
    return PoseidonError(f"the data set {what} before the workers divide it, so that each has it in another order, expected "
                         f"{expected}", "INVALID_ARGUMENT")


def all_of(dataset: Any) -> Iterator[Any]:
    """`dataset` and all that it is made of, each once."""
    waiting, seen = [dataset], dict[int, Any]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            yield one
            waiting += otherwise([], lambda: one._inputs())
            if hasattr(one, "_dataset"):  # of TensorFlow 1, around another
                waiting.append(one._dataset)


def kind_of(dataset: Any) -> str:
    return type(dataset).__name__


def number(dataset: Any, name: str) -> int | None:
    """None where it is not known before a graph runs."""
    return otherwise(None, lambda: int(getattr(dataset, name)))


def seed_of(nodes: dict[str, Any], source: str) -> int | None:
    """That of a shuffle in a function; None where it is computed as the function runs."""
    import tensorflow
    node: Any = nodes.get(source.partition(":")[0])
    if node is not None and node.op == "SelectV2":  # of the given one and of another, should all be 0
        return seed_of(nodes, node.input[2])
    return otherwise(None, lambda: int(tensorflow.make_ndarray(node.attr["value"].tensor)))


def otherwise(fallback: Answer, ask: Callable[[], Answer]) -> Answer:
    """What TensorFlow answers, whatever its version: it promises nothing about these names."""
    try:
        return ask()
    except Exception:
        return fallback
