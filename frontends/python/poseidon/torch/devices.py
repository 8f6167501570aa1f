# SPDX-License-Identifier: Apache-2.0
"""Gradients on a device: their way to the memory of the host, in which the core works, and back.

A hook only launches: a copy on a stream of its own, behind what the current stream has been given so far. A thread waits for
the copy and then pushes. The mean comes back on another stream, for which the current one waits; no thread does.

Streams and events are those of the device's own module of torch (torch.cuda): nothing here is compiled.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

Moves = list[tuple[torch.Tensor, torch.Tensor]]  # from, into: of equal shape and dtype

# Bytes of a gradient that leave together, while the rest is copied: the time that a copy takes beyond which waking a thread
# costs little, and a few milliseconds on a link of 10 Gbit/s.
PART = 4 << 20


def module_of(device: torch.device) -> Any:
    """torch's module for a kind of device, as torch.cuda."""
    return getattr(torch, device.type, None)


def accelerator() -> torch.device | None:
    """The kind of device, without a number, that torch has beside the CPU."""
    if not hasattr(torch, "accelerator"):  # before torch 2.6
        return torch.device("cuda") if torch.cuda.is_available() else None
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def can_stage(device: torch.device) -> bool:
    return hasattr(module_of(device), "Stream")


def is_captured(device: torch.device) -> bool:
    """Whether what the current stream is given is recorded in a graph, and does not run."""
    captured = getattr(module_of(device), "is_current_stream_capturing", None)
    return captured is not None and captured()


def parts_of(source: torch.Tensor, into: torch.Tensor) -> Moves:
    """The copy of one flat gradient, in parts of PART bytes."""
    size = max(1, PART // source.element_size())
    return list(zip(source.split(size), into.split(size)))


def pinned(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of the host that copies reach while the host goes on."""
    return torch.empty(elements, dtype=dtype, device="cpu", pin_memory=True)


FOR_ALL_DEVICES = 1  # cudaHostRegisterPortable


def register(device: torch.device, address: int, size: int) -> bool:
    """Registers memory of the host that others own, so that copies reach it as they do pinned memory, until `unregister`. False where the
    device takes none, or not this."""
    runtime = getattr(module_of(device), "cudart", None)
    if runtime is None:
        return False
    with module_of(device).device(device):
        if int(runtime().cudaHostRegister(address, size, FOR_ALL_DEVICES)) == 0:
            return True
        # Otherwise what is launched next is said to have failed.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=device)
    return False


def unregister(device: torch.device, address: int) -> None:
    with module_of(device).device(device):
        module_of(device).cudart().cudaHostUnregister(address)


class Streams:
    """Of one device: for copies to the host, and for copies back."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.module = device, module_of(device)
        self.out, self.back = self.module.Stream(device=device), self.module.Stream(device=device)

    def current(self) -> Any:
        return self.module.current_stream(self.device)

    def copy(self, stream: Any, moves: Moves) -> Any:
        """The event at which they have been made. A thread that waits for it sleeps. Nothing of it is differentiated.

        The device is current meanwhile. Otherwise the end of the stream's block would make the thread's own device current, and CUDA
        takes half a GB of a device when it becomes current."""
        with torch.no_grad(), self.module.device(self.device), self.module.stream(stream):
            for source, into in moves:
                into.copy_(source, non_blocking=True)
        copied = self.module.Event(blocking=True)
        copied.record(stream)
        return copied


class Carrier:
    """Of one exchange. Any thread may send, one at a time for each device; pushes are made on one thread, in the order in which
    they were sent."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "poseidon-carrier")
        self.streams: dict[torch.device, Streams] = {}
        self.registered: list[tuple[torch.device, int]] = []

    def of(self, device: torch.device) -> Streams:
        if device not in self.streams:
            self.streams[device] = Streams(device)
        return self.streams[device]

    def send(self, device: torch.device, moves: Moves, push: Callable[[], None],
             arrived: Callable[[int], None] | None = None) -> Future[None]:
        """Copies to pinned memory what the current stream has computed when it comes here, and calls `push` when that has ended;
        the future is done then, with what `push` raised. What `moves` has is held, and has to stay unchanged, until then. Without
        moves `push` waits likewise: memory that it lends may be in use by what the current stream was given before.

        `arrived`: `moves` are the parts of one gradient. `push` is called when the first has been made, and then `arrived` when
        each has, with how many numbers there are by then."""
        streams = self.of(device)
        streams.out.wait_stream(streams.current())
        lots = [moves] if arrived is None else [[move] for move in moves]
        copied = [streams.copy(streams.out, lot) for lot in lots]
        return self.thread.submit(self.carry, copied, moves, push, arrived)

    @staticmethod
    def carry(copied: list[Any], moves: Moves, push: Callable[[], None], arrived: Callable[[int], None] | None) -> None:
        """`moves` lives until here: a device uses memory again that nobody holds, whatever other streams do with it."""
        there = 0
        for number, event in enumerate(copied):
            event.synchronize()
            if number == 0:
                push()
            if arrived is not None:
                there += moves[number][0].numel()
                arrived(there)

    def bring(self, device: torch.device, moves: Moves) -> None:
        """Copies from pinned memory; what the current stream is given from now on sees the numbers. Nothing that it was given
        since the push of the same memory may use `into`."""
        streams = self.of(device)
        streams.copy(streams.back, moves)
        streams.current().wait_stream(streams.back)

    def register(self, device: torch.device, address: int, size: int) -> bool:
        """Registers memory of the session's with the device, until `stop`. False where the device does not take it."""
        taken = register(device, address, size)
        if taken:
            self.registered.append((device, address))
        return taken

    def stop(self) -> None:
        """No push is made any more when this returns, and no device reads memory of the session's."""
        self.thread.shutdown(wait=True, cancel_futures=True)
        try:
            for device, streams in self.streams.items():
                streams.module.synchronize(device)
        finally:
            while self.registered:
                unregister(*self.registered.pop())
