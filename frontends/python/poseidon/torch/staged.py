# SPDX-License-Identifier: Apache-2.0
"""The tensors of a collective of torch.distributed that are on a device: memory of the host takes their place, in which the core
works."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import PoseidonError
from . import refusals
from .devices import Streams, can_stage, is_captured

streams_of = functools.cache(Streams)


class Staged:
    """Of one call. Made, and given its tensors, on the thread that calls; the copies are waited for on the one that runs it."""

    def __init__(self) -> None:
        self.twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by the id of the tensor, and by that of its twin
        self.copied: list[Any] = []  # events

    def on_host(self, argument: Any) -> Any:
        """The argument of a collective, whose tensors on a device have been replaced. The same tensor gives the same twin."""
        if isinstance(argument, (list, tuple)):
            return [self.on_host(one) for one in argument]
        if not isinstance(argument, torch.Tensor):
            return argument
        if argument.layout != torch.strided:
            raise PoseidonError("a collective was given a sparse tensor, expected a dense one: sparse=False, or "
                                "poseidon.torch.attach, which sends the rows of an Embedding(sparse=True)", "UNIMPLEMENTED")
        if argument.device.type == "cpu":
            return argument
        if not can_stage(argument.device):
            raise PoseidonError(f"a collective was given a tensor on {argument.device}, expected the CPU or a device with streams",
                                "UNIMPLEMENTED")
        if is_captured(argument.device):
            raise refusals.captured_collective()
        if id(argument) not in self.twins:
            twin = torch.empty(argument.shape, dtype=argument.dtype, device="cpu", pin_memory=True)
            self.twins[id(argument)] = self.twins[id(twin)] = (argument, twin)
        return self.twins[id(argument)][1]

    def originals(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [self.twins[id(tensor)][0] if id(tensor) in self.twins else tensor for tensor in tensors]

    def bring(self, given: Sequence[torch.Tensor]) -> None:
        """Launches the copies of what the collective reads, behind all that the current streams have been given so far."""
        pairs = [self.twins[id(tensor)] for tensor in given if id(tensor) in self.twins]
        for device in {original.device for original, _ in self.twins.values()}:
            streams = streams_of(device)
            streams.out.wait_stream(streams.current())
            # Also without moves: what was given before may still read a tensor that the collective writes.
            self.copied.append(streams.copy(streams.out, [pair for pair in pairs if pair[0].device == device]))

    def wait(self) -> None:
        for event in self.copied:
            event.synchronize()

    def leave(self, results: Sequence[torch.Tensor]) -> None:
        """Copies the results to the device, and returns when they are there: whatever stream reads them next need not wait."""
        pairs = [self.twins[id(tensor)] for tensor in results if id(tensor) in self.twins]
        events = []
        for device in {original.device for original, _ in pairs}:
            streams = streams_of(device)
            events.append(streams.copy(streams.back, [(twin, original) for original, twin in pairs if original.device == device]))
        for event in events:
            event.synchronize()
