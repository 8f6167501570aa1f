# SPDX-License-Identifier: Apache-2.0
"""Which samples of a step are whose, whatever the framework."""
from __future__ import annotations

from typing import Any


def part_of(samples: Any, rank: int, workers: int) -> tuple[Any, Any]:
    """The first of a worker's samples among so many, and the first that is not: shares differ by one at most."""
    return samples * rank // workers, samples * (rank + 1) // workers
