# SPDX-License-Identifier: Apache-2.0
"""Which samples of a step are whose, whatever the framework."""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

Batch = TypeVar("Batch")


def part_of(samples: Any, rank: int, workers: int) -> tuple[Any, Any]:
    """The first of a worker's samples among so many, and the first that is not: shares differ by one at most."""
    return samples * rank // workers, samples * (rank + 1) // workers


def divided(samples: int, weights: Sequence[float]) -> list[int]:
    """So many samples by weight: of each worker its part, rounded so that all are given, the largest remainders first, and one at least
    where there are as many. The same on all workers."""
    total = math.fsum(weights)
    exact = [samples * weight / total for weight in weights]
    counts = [math.floor(part) for part in exact]
    for rank in sorted(range(len(weights)), key=lambda rank: (counts[rank] - exact[rank], rank))[:samples - sum(counts)]:
        counts[rank] += 1
    while samples >= len(weights) and (least := min(counts)) == 0:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(least)] += 1
    return counts


def turns(batches: Iterable[Batch], rank: int, workers: int, samples_in: Callable[[Batch], int],
          share: Callable[[list[Batch], int, int], Batch], whole: bool = False) -> Generator[Batch, None, None]:
    """Of every `workers` batches that of a rank. The samples of those that are left over at the end are divided evenly: `share`
    has them, and from which of them to which; fewer than one for each worker are left out, and with `whole` all of them."""
    given = iter(batches)
    while step := list(itertools.islice(given, workers)):
        if len(step) == workers:
            yield step[rank]
        elif not whole and (rest := sum(map(samples_in, step))) >= workers:
            yield share(step, *part_of(rest, rank, workers))
