# SPDX-License-Identifier: Apache-2.0
"""Nets, as pycaffe has them."""
from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any

import numpy

from ..errors import PoseidonError, kind_of
from . import library as c
from . import settings
from .blob import Array, Blob, BlobVec, Keeper

Path = str | os.PathLike[str]
TRAIN, TEST = 0, 1


class NetLayer:
    """A layer of a net."""

    def __init__(self, name: str, kind: str, blobs: BlobVec) -> None:
        """`name` and `kind`, its type, are those of the prototxt; `blobs` what it learns."""
        self.name, self.type, self.blobs = name, kind, blobs


class Net:
    """A net of a prototxt: `Net(prototxt, phase)`, `Net(prototxt, phase, weights=model)` or `Net(prototxt, model, phase)`.

    Blobs of one name after in-place layers are one; blobs that several layers read have copies named NAME_LAYER_I_split_J, as
    Caffe shows them.
    """

    def __init__(self, network_file: Path, phase: int | Path, level: int = 0, stages: Sequence[str] | None = None,
                 weights: Path | None = None) -> None:
        """`network_file`: the prototxt. `phase`: caffe.TRAIN or caffe.TEST; in the old form, the weights, and the phase in `level`.
        `level`, `stages`: which layers belong to the net, as include and exclude in the prototxt ask for. `weights`: a
        .caffemodel, or an HDF5 file."""
        if not isinstance(phase, int):
            weights, phase, level = phase, level, 0
        if phase not in (TRAIN, TEST):
            raise PoseidonError(f"the phase is {phase}, expected caffe.TRAIN or caffe.TEST", "INVALID_ARGUMENT")
        seed = settings.seed()
        state = c.State(phase=phase, level=level, stages="\n".join(stages or ()).encode(), seed=1 if seed is None else seed)
        made = c_void_p()
        settings.listen()
        c.library().net_new(c.encoded(network_file), byref(state), byref(made))
        keeper = Keeper(made.value)
        c.owned(keeper, c.library().net_free, made.value or 0)
        self._adopt(keeper)
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def _of_solver(cls, handle: int, solver: object) -> Net:
        net = cls.__new__(cls)
        net._adopt(Keeper(handle, solver))
        return net

    def _adopt(self, keeper: Keeper) -> None:
        self._keeper, self._net = keeper, keeper.net
        graph = json.loads(c.library().net_describe(keeper.net))
        names = [self._shown(name) for name in graph["blobs"]]
        layers = graph["layers"]
        self.name: str = graph["name"]
        self.phase: int = graph["phase"]
        self._layer_names: list[str] = [layer["name"] for layer in layers]
        self._blob_names = names
        self._made = [Blob(c.library().net_blob(keeper.net, index), keeper) for index in range(len(names))]
        self._loss_weights: list[float] = graph["loss_weights"]
        self.inputs: list[str] = [names[index] for index in graph["inputs"]]
        self.outputs: list[str] = [names[index] for index in graph["outputs"]]
        self.top_names = OrderedDict((layer["name"], [names[top] for top in layer["tops"]]) for layer in layers)
        self.bottom_names = OrderedDict((layer["name"], [names[bottom] for bottom in layer["bottoms"]]) for layer in layers)
        self.layers = [NetLayer(layer["name"], layer["type"], self._learned(index, layer["learned"]))
                       for index, layer in enumerate(layers)]

    @staticmethod
    def _shown(name: str) -> str:
        return "(automatic)" if name.endswith(" (automatic)") else name

    def _learned(self, layer: int, count: int) -> BlobVec:
        blobs = [Blob(c.library().net_learned(self._net, layer, index), self._keeper, learned=True) for index in range(count)]
        return BlobVec(lambda: blobs)

    @property
    def blobs(self) -> OrderedDict[str, Blob]:
        """The blobs that layers read and make, by name, from input to output."""
        if "_blobs_dict" not in self.__dict__:
            self._blobs_dict = OrderedDict(zip(self._blob_names, self._made))
        return self._blobs_dict

    @property
    def params(self) -> OrderedDict[str, BlobVec]:
        """The learned blobs of layers that have some, by the layer's name."""
        if "_params_dict" not in self.__dict__:
            self._params_dict = OrderedDict((layer.name, layer.blobs) for layer in self.layers if len(layer.blobs))
        return self._params_dict

    @property
    def layer_dict(self) -> OrderedDict[str, NetLayer]:
        """The layers by name."""
        return OrderedDict(zip(self._layer_names, self.layers))

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """By how much each blob counts in the loss."""
        return OrderedDict(zip(self._blob_names, self._loss_weights))

    @property
    def _blob_loss_weights(self) -> list[float]:
        return self._loss_weights

    def _index(self, layer: str) -> int:
        if layer not in self._layer_names:
            raise ValueError(f"the net has no layer '{layer}', expected one of {', '.join(self._layer_names)}")
        return self._layer_names.index(layer)

    def _forward(self, start: int, end: int) -> float:
        loss = c_double()
        c.library().net_forward(self._net, start, end, byref(loss))
        return loss.value

    def _backward(self, start: int, end: int) -> None:
        c.library().net_backward(self._net, start, end)

    def forward(self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None,
                **inputs: Any) -> dict[str, Array]:
        """Runs the layers `start` to `end` (all, without them) and returns the outputs, or the tops of `end`, and the `blobs` asked
        for, by name. `inputs`: arrays by the names of the net's inputs, of all of them or of none. Without them, layers of data
        give the next batch."""
        first = 0 if start is None else self._index(start)
        last = len(self.layers) - 1 if end is None else self._index(end)
        wanted = list(dict.fromkeys([*(self.outputs if end is None else self.top_names[end]), *(blobs or ())]))
        if inputs:
            self._fill(inputs, self.inputs, "Input blob arguments do not match net inputs.", "Input is not batch sized", False)
        self._forward(first, last)
        return {name: self.blobs[name].data for name in wanted}

    def backward(self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None,
                 **outputs: Any) -> dict[str, Array]:
        """Runs the layers `start` down to `end` backward (all, without them) and returns the gradients of the inputs, or of the
        bottoms of `end`, and of the blobs `diffs`, by name. `outputs`: gradients by the names of the net's outputs, of all of them
        or of none. Gradients of learned blobs are added to those that are there; see clear_param_diffs."""
        first = len(self.layers) - 1 if start is None else self._index(start)
        last = 0 if end is None else self._index(end)
        wanted = list(dict.fromkeys([*(self.inputs if end is None else self.bottom_names[end]), *(diffs or ())]))
        if outputs:
            self._fill(outputs, self.outputs, "Top diff arguments do not match net outputs.", "Diff is not batch sized", True)
        self._backward(first, last)
        return {name: self.blobs[name].diff for name in wanted}

    def _fill(self, arrays: Mapping[str, Any], names: Sequence[str], others: str, unfit: str, diff: bool) -> None:
        if set(arrays) != set(names):
            raise Exception(f"{others} (given {', '.join(sorted(arrays))}; the net has {', '.join(names) or 'none'})")
        for name, array in arrays.items():
            array = numpy.asarray(array)
            if array.shape[:1] != self.blobs[name].shape[:1]:
                raise Exception(f"{unfit} ('{name}' of shape {array.shape}, the blob has {self.blobs[name].shape})")
            blob = self.blobs[name]
            (blob.diff if diff else blob.data)[...] = array

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> dict[str, Array]:
        """Runs all of `inputs`, however many rows they have, batch by batch; returns the outputs and the `blobs` asked for, of all
        rows."""
        rows = self._rows(inputs)
        kept: dict[str, list[Array]] = {}
        for batch in self._batch(inputs):
            self._keep(kept, self.forward(blobs=blobs, **batch))
        return self._joined(kept, rows)

    def forward_backward_all(self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None,
                             **arrays: Any) -> tuple[dict[str, Array], dict[str, Array]]:
        """Runs forward and backward, batch by batch. `arrays`: by the names of inputs and of outputs, whose gradients they are.
        Returns the outputs and `blobs`, and the gradients of the inputs and of the blobs `diffs`, of all rows."""
        rows = self._rows(arrays)
        forward = {name: array for name, array in arrays.items() if name in self.inputs}
        backward = {name: array for name, array in arrays.items() if name in self.outputs}
        outs: dict[str, list[Array]] = {}
        gradients: dict[str, list[Array]] = {}
        downs = self._batch(backward) if backward else iter(())
        for batch in self._batch(forward) if forward else self._nothing(rows):
            self._keep(outs, self.forward(blobs=blobs, **batch))
            self._keep(gradients, self.backward(diffs=diffs, **next(downs, {})))
        return self._joined(outs, rows), self._joined(gradients, rows)

    def _first(self, array: Array) -> dict[str, Any]:
        return {self.inputs[0]: array}

    def _nothing(self, rows: int) -> Iterator[dict[str, Any]]:
        for _ in range(-(-rows // self._batch_size())):
            yield {}

    @staticmethod
    def _rows(arrays: Mapping[str, Any]) -> int:
        if not arrays:
            raise PoseidonError("there is nothing to run in batches, expected arrays of inputs", "INVALID_ARGUMENT")
        return len(next(iter(arrays.values())))

    def _batch_size(self) -> int:
        return next(iter(self.blobs.values())).shape[0]

    def _batch(self, blobs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Batches of the net's size; the last one is filled up with zeros."""
        size, rows = self._batch_size(), self._rows(blobs)
        for begin in range(0, rows, size):
            batch = {name: numpy.asarray(array[begin:begin + size]) for name, array in blobs.items()}
            missing = size - min(size, rows - begin)
            yield {name: numpy.concatenate([part, numpy.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
                   for name, part in batch.items()}

    @staticmethod
    def _keep(kept: dict[str, list[Array]], arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            kept.setdefault(name, []).extend(numpy.atleast_1d(array).copy())

    def _joined(self, kept: Mapping[str, list[Array]], rows: int) -> dict[str, Array]:
        padding = -rows % self._batch_size()
        return {name: numpy.asarray(parts)[:len(parts) - padding] for name, parts in kept.items()}

    def set_input_arrays(self, data: Any, labels: Any) -> None:
        """Gives a first layer of type MemoryData its data, [n, channels, height, width], and n labels, which are copied; n is a multiple
        of its batch_size. Passes take them from the beginning. `data`, `labels`: float32 arrays."""
        arrays = []
        for name, array in ("data", data), ("labels", labels):
            if not isinstance(array, numpy.ndarray) or array.dtype != numpy.float32:
                what = f"an array of {array.dtype}" if isinstance(array, numpy.ndarray) else kind_of(array)
                raise PoseidonError(f"{name} is {what}, expected a float32 array", "INVALID_ARGUMENT")
            arrays.append(numpy.ascontiguousarray(array))
        images, numbers = arrays
        if images.ndim != 4 or numbers.size != images.shape[0] or numbers.shape[:1] != images.shape[:1]:
            raise PoseidonError(f"data of shape {images.shape} and labels of shape {numbers.shape}, expected four axes and a label a row",
                                "INVALID_ARGUMENT")
        c.library().net_set_input_arrays(self._net, images.ctypes.data, (c_int64 * 4)(*images.shape), numbers.ctypes.data)

    def reshape(self) -> None:
        """All blobs take the shapes that follow from those of the inputs, without a pass."""
        c.library().net_reshape(self._net)

    def clear_param_diffs(self) -> None:
        """The gradients of learned blobs become zero."""
        c.library().net_clear_param_diffs(self._net)

    def copy_from(self, weights: Path) -> None:
        """Takes the weights of layers of the same name from the file `weights`, a .caffemodel or an HDF5 file."""
        c.library().net_copy_from(self._net, c.encoded(weights))

    def share_with(self, other: Net) -> None:
        """From here on both nets have the learned blobs of `other`, in layers of the same name."""
        c.library().net_share_with(self._net, other._net)

    def save(self, filename: Path) -> None:
        """Writes net and weights to `filename`, a .caffemodel."""
        c.library().net_save(self._net, c.encoded(filename), 0)

    def save_hdf5(self, filename: Path) -> None:
        """Writes the weights to `filename`, an HDF5 file as Caffe has them."""
        c.library().net_save(self._net, c.encoded(filename), 1)

    def load_hdf5(self, filename: Path) -> None:
        """Takes the weights of the HDF5 file `filename`."""
        self.copy_from(filename)
