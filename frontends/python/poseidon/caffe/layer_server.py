# SPDX-License-Identifier: Apache-2.0
"""`python -m poseidon.caffe.layer_server`: runs the layers of type Python of the `poseidon` program's nets, which starts it.

Its standard input is a socket to the program, whose messages tools/train/python_host.cc describes. What layers print goes to
standard error. It ends when the program does.
"""
from __future__ import annotations

import io
import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import numpy

from ..errors import PoseidonError
from .blob import Array, Blob, BlobVec
from .layer import new_object, what_raised


class ServedBlob(Blob):
    """A blob of a net of the program. Its arrays are this process's; they are the net's when a method begins, and become the net's
    when it ends."""

    def __init__(self, shape: Iterable[int] = ()) -> None:
        """`shape`: extents of its axes."""
        self._data: Array = numpy.zeros(tuple(shape), numpy.float32)
        self._diff: Array = numpy.zeros_like(self._data)
        self.is_shaped = self.is_fixed = False

    @property
    def data(self) -> Array:
        """The numbers. Those of a bottom cannot be written into: the program does not take them back."""
        if not self.is_fixed:
            return self._data
        shown: Array = self._data.view()
        shown.flags.writeable = False
        return shown

    @property
    def diff(self) -> Array:
        """Their gradients, zero before the first backward pass."""
        return self._diff

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its axes."""
        return self._data.shape

    def reshape(self, *dims: int) -> None:
        """Gives it the shape `dims`. Its numbers stay where there are as many."""
        self.is_shaped = True
        if numpy.prod(dims, dtype=numpy.int64) != self._data.size:
            self._data = numpy.zeros(dims, numpy.float32)
            self._diff = numpy.zeros(dims, numpy.float32)
        elif dims != self.shape:
            self._data, self._diff = self._data.reshape(dims), self._diff.reshape(dims)


class Served:
    """A layer of the user's, and its blobs by the program's numbers: learned ones are -1, -2, ..."""

    def __init__(self, asked: dict[str, Any]) -> None:
        """`asked`: class, param_str and phase."""
        self.name = f"{asked['module']}.{asked['layer']}"
        self.blobs: dict[int, ServedBlob] = {}
        self.learned: list[Blob] = []
        self.layer = new_object(asked["module"], asked["layer"], asked["param_str"], asked["phase"])
        self.layer.blobs = BlobVec(lambda: self.learned, self.add)
        self.is_set_up = False

    def add(self, dims: tuple[int, ...]) -> None:
        """One more learned blob."""
        if self.is_set_up:
            raise PoseidonError("a layer adds learned blobs in its setup only", "FAILED_PRECONDITION")
        blob = self.blobs[-1 - len(self.learned)] = ServedBlob(dims)
        self.learned.append(blob)

    def blob(self, number: int) -> ServedBlob:
        """The blob that the program calls `number`, the same object every time."""
        return self.blobs.setdefault(number, ServedBlob())

    def run(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Runs a method; the answer has the shapes of tops and, as arrays, what the method has written."""
        for number in asked["bottom"]:
            self.blob(number).is_fixed = number not in asked["top"]
        before = [blob.data.tobytes() for blob in self.learned]
        answer = self.step(asked)
        answer["arrays"] += [("data", -1 - i) for i, blob in enumerate(self.learned) if before[i:i + 1] != [blob.data.tobytes()]]
        return answer

    def step(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Runs a method; the answer is as yet without learned blobs."""
        step, bottom, top = asked["do"], *([self.blob(number) for number in asked[what]] for what in ("bottom", "top"))
        if step == "backward":
            for blob in self.learned:
                blob.diff[...] = 0  # the program adds what comes
            self.layer.backward(top, asked["propagate_down"], bottom)
            numbers = [number for number, wanted in zip(asked["bottom"], asked["propagate_down"]) if wanted]
            return {"shapes": [], "arrays": [("diff", number) for number in [*numbers, *(-1 - i for i in range(len(self.learned)))]]}
        getattr(self.layer, step)(bottom, top)
        self.is_set_up = True
        return {"shapes": [(number, blob.shape) for number, blob in zip(asked["top"], top) if blob.is_shaped],
                "arrays": [("data", number) for number in (asked["top"] if step == "forward" else ())]}


class Server:
    """The layers of a program."""

    def __init__(self, program: socket.socket) -> None:
        """`program`: the socket to it."""
        self.program = program
        self.layers: dict[int, Served] = {}
        self.made = 0

    def read(self, view: memoryview) -> None:
        """Fills `view`; ends the process where the program has ended."""
        while view:
            got = self.program.recv_into(view)
            if not got:
                sys.exit()
            view = view[got:]

    def receive(self) -> dict[str, Any]:
        """The next message; its arrays are in the blobs of its layer."""
        length = bytearray(8)
        self.read(memoryview(length))
        text = bytearray(struct.unpack("=Q", length)[0])
        self.read(memoryview(text))
        asked: dict[str, Any] = json.loads(text)
        for what, number, shape in asked["arrays"]:
            blob = self.layers[asked["object"]].blob(number)
            blob.reshape(*shape)
            blob.is_fixed = False
            numbers = blob.data if what == "data" else blob.diff
            self.read(memoryview(numbers.reshape(-1).view(numpy.uint8).data))
        return asked

    def send(self, answer: dict[str, Any], layer: Served | None = None) -> None:
        """Sends a message with the arrays of `layer` that "arrays" names."""
        arrays = [(what, number, getattr(layer.blob(number), what)) for what, number in answer.get("arrays", ())] if layer else []
        text = json.dumps({**answer, "arrays": [(what, number, array.shape) for what, number, array in arrays]}).encode()
        self.program.sendall(struct.pack("=Q", len(text)) + text)
        for _, _, array in arrays:
            self.program.sendall(array.tobytes())

    def make(self, asked: dict[str, Any]) -> int:
        """A new layer's number."""
        made = Served(asked)
        self.made += 1
        self.layers[self.made] = made
        return self.made

    def answer(self, asked: dict[str, Any]) -> None:
        """Does what a message asks for, and answers."""
        layer = self.layers.get(asked.get("object", 0))
        name = f"{layer.name}.{asked['do']}" if layer else f"{asked.get('module')}.{asked.get('layer')}"
        try:
            if layer is None:
                self.send({"object": self.make(asked)})
            else:
                self.send(layer.run(asked), layer)
        except BaseException as failure:
            frames = failure.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
                frames = frames.tb_next
            traceback.print_exception(failure.with_traceback(frames))
            self.send({"failed": what_raised(name, failure)})

    def serve(self) -> None:
        """Serves until the program ends."""
        self.send({})
        while True:
            asked = self.receive()
            if asked["do"] == "drop":
                self.layers.pop(asked["object"], None)
            else:
                self.answer(asked)


def main() -> None:
    """Serves the program at the other end of standard input."""
    program = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    Server(program).serve()


if __name__ == "__main__":
    main()
