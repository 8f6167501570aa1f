# SPDX-License-Identifier: Apache-2.0
"""Images and arrays on their way into nets and out of them, as pycaffe has it."""
from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from ..errors import PoseidonError
from .blob import Array

_GREY = (0.2125, 0.7154, 0.0721)  # luminance of red, green, blue (ITU-R BT.709), as scikit-image's


def _messages() -> Any:
    return importlib.import_module(".proto.caffe_pb2", __package__)


# --- Messages and arrays ---------------------------------------------------------------------------

def blobproto_to_array(blob: Any, return_diff: bool = False) -> NDArray[Any]:
    """The numbers of the BlobProto `blob` in their shape; its gradient with `return_diff`."""
    if return_diff:
        numbers = numpy.array(blob.double_diff if len(blob.double_diff) else blob.diff)
    else:
        numbers = numpy.array(blob.double_data if len(blob.double_data) else blob.data)
    if any(blob.HasField(name) for name in ("num", "channels", "height", "width")):
        return numbers.reshape(blob.num, blob.channels, blob.height, blob.width)
    return numbers.reshape(tuple(blob.shape.dim))


def array_to_blobproto(arr: NDArray[Any], diff: NDArray[Any] | None = None) -> Any:
    """A BlobProto with the numbers of `arr`, and with the gradient `diff` of the same shape."""
    blob = _messages().BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(float).flat)
    if diff is not None:
        blob.diff.extend(diff.astype(float).flat)
    return blob


def arraylist_to_blobprotovector_str(arraylist: Sequence[NDArray[Any]]) -> bytes:
    """The bytes of a BlobProtoVector of `arraylist`."""
    vector = _messages().BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(array) for array in arraylist)
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(str: bytes) -> list[NDArray[Any]]:
    """The arrays in the bytes `str` of a BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in _messages().BlobProtoVector.FromString(str).blobs]


def array_to_datum(arr: NDArray[Any], label: int | None = None) -> Any:
    """A Datum of `arr`, [channels, height, width], of bytes where its type is uint8, else of floats, with its `label`."""
    if arr.ndim != 3:
        raise ValueError(f"the array has shape {arr.shape}, expected channels, height and width")
    datum = _messages().Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == numpy.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).flat)
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> NDArray[Any]:
    """The numbers of `datum`, [channels, height, width]."""
    if datum.encoded:
        raise ValueError("the datum is an encoded image, expected planes of numbers")
    shape = (datum.channels, datum.height, datum.width)
    if len(datum.data):
        numbers: NDArray[Any] = numpy.frombuffer(datum.data, numpy.uint8).copy()
    else:
        numbers = numpy.array(datum.float_data, dtype=float)
    return numbers.reshape(shape)


# --- Preparing inputs ------------------------------------------------------------------------------

class Transformer:
    """Prepares images for the inputs of a net. In order: the size of the input, transposition, order of channels, raw scale, mean,
    input scale."""

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        """`inputs`: the shape of each input by its name, as {"data": net.blobs["data"].data.shape}."""
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, NDArray[Any]] = {}
        self.input_scale: dict[str, float] = {}

    def _check(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise Exception(f"{in_} is not one of the net inputs: {self.inputs}")
        return self.inputs[in_]

    def preprocess(self, in_: str, data: NDArray[Any]) -> Array:
        """The image `data`, [height, width, channels], as the input `in_` takes it."""
        size = self._check(in_)[2:]
        image: Any = numpy.array(data, numpy.float32)
        if image.shape[:2] != size:
            image = resize_image(image, size)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_]), :, :]
        if in_ in self.raw_scale:
            image = image * numpy.float32(self.raw_scale[in_])
        if in_ in self.mean:
            image = image - self.mean[in_]
        if in_ in self.input_scale:
            image = image * numpy.float32(self.input_scale[in_])
        return numpy.asarray(image, numpy.float32)

    def deprocess(self, in_: str, data: NDArray[Any]) -> NDArray[Any]:
        """The image that `data`, a row of the input `in_`, was made of, in the input's size."""
        self._check(in_)
        image: Any = numpy.array(data).squeeze()
        if in_ in self.input_scale:
            image = image / self.input_scale[in_]
        if in_ in self.mean:
            image = image + self.mean[in_]
        if in_ in self.raw_scale:
            image = image / self.raw_scale[in_]
        if in_ in self.channel_swap:
            image = image[numpy.argsort(self.channel_swap[in_]), :, :]
        if in_ in self.transpose:
            image = image.transpose(numpy.argsort(self.transpose[in_]))
        return numpy.asarray(image)

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """The axes of an image become those of input `in_` by `order`: (2, 0, 1) puts channels first."""
        if len(order) != len(self._check(in_)) - 1:
            raise Exception("Transpose order needs to have the same number of dimensions as the input.")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """The channels of input `in_`, its first axis after transposition, come in `order`: (2, 1, 0) makes BGR of RGB."""
        if len(order) != self._check(in_)[1]:
            raise Exception("Channel swap needs to have the same number of dimensions as the input channels.")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Numbers of input `in_` are multiplied by `scale` before the mean is subtracted: 255 where a net wants bytes."""
        self._check(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: NDArray[Any]) -> None:
        """`mean`, by channel or of every pixel, is subtracted from input `in_`. One of another size is resized."""
        shape = self._check(in_)
        if mean.ndim == 1:
            if mean.shape[0] != shape[1]:
                raise ValueError("Mean channels incompatible with input.")
            mean = mean[:, numpy.newaxis, numpy.newaxis]
        else:
            of_image = (1, *mean.shape) if mean.ndim == 2 else mean.shape
            if len(of_image) != 3:
                raise ValueError("Mean shape invalid")
            if of_image != shape[1:]:
                mean = resize_image(mean.reshape(of_image).transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Numbers of input `in_` are multiplied by `scale` in the end."""
        self._check(in_)
        self.input_scale[in_] = scale


# --- Images ----------------------------------------------------------------------------------------

def load_image(filename: str | os.PathLike[str], color: bool = True) -> Array:
    """The image of a file, [height, width, 3] in RGB, or [height, width, 1] without `color`, as numbers from 0 to 1. `filename`: of any
    format that Pillow reads."""
    try:
        image_module: Any = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(f"load_image reads with Pillow, which cannot be imported ({error}): pip install pillow") from None
    numbers: Array
    with image_module.open(filename) as image:
        if image.mode in ("1", "L"):
            numbers = numpy.asarray(image.convert("L"), numpy.float32)[:, :, numpy.newaxis] / numpy.float32(255)
        elif image.mode.startswith("I"):
            numbers = numpy.asarray(image).astype(numpy.float32)[:, :, numpy.newaxis] / numpy.float32(65535)
        else:
            numbers = numpy.asarray(image.convert("RGB"), numpy.float32) / numpy.float32(255)
    if color and numbers.shape[2] == 1:
        numbers = numpy.tile(numbers, (1, 1, 3))
    elif not color and numbers.shape[2] == 3:
        numbers = (numbers @ numpy.array(_GREY, numpy.float32))[:, :, numpy.newaxis]
    return numbers


def _between(extent: int, wanted: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], Array]:
    """For each of `wanted` pixels the two of `extent` that it lies between, by their centres, and how near the second is."""
    at = numpy.clip((numpy.arange(wanted) + 0.5) * (extent / wanted) - 0.5, 0, extent - 1)
    first = numpy.floor(at).astype(numpy.int64)
    return first, numpy.minimum(first + 1, extent - 1), (at - first).astype(numpy.float32)


def resize_image(im: NDArray[Any], new_dims: Sequence[int], interp_order: int = 1) -> Array:
    """The image `im`, [height, width, channels], in the size `new_dims` (height, width). `interp_order`: 1, the default, interpolates
    linearly between pixel centres, 0 takes the nearest pixel."""
    height, width = (int(extent) for extent in new_dims)
    if interp_order not in (0, 1):
        raise PoseidonError(f"interp_order is {interp_order}, expected 0 (nearest) or 1 (linear)", "INVALID_ARGUMENT")
    image = numpy.asarray(im, numpy.float32)
    if 0 in image.shape or height < 1 or width < 1:
        raise PoseidonError(f"an image of shape {image.shape} cannot be resized to {height}x{width}", "INVALID_ARGUMENT")
    for axis, wanted in (0, height), (1, width):
        first, second, share = _between(image.shape[axis], wanted)
        if interp_order == 0:
            image = image.take(numpy.where(share < 0.5, first, second), axis)
            continue
        weight = share.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        lower = image.take(first, axis)
        image = lower + (image.take(second, axis) - lower) * weight
    return numpy.ascontiguousarray(image, numpy.float32)


def oversample(images: Sequence[NDArray[Any]], crop_dims: Sequence[int]) -> Array:
    """Ten crops of the size `crop_dims` (height, width) of each of `images`, [height, width, channels]: the four corners, the centre,
    and their mirror images."""
    height, width = (int(extent) for extent in crop_dims)
    crops = []
    for image in images:
        down, right = image.shape[0] - height, image.shape[1] - width
        if down < 0 or right < 0:
            raise PoseidonError(f"crops of {height}x{width} do not fit an image of {image.shape[0]}x{image.shape[1]}",
                                "INVALID_ARGUMENT")
        middle = (int(image.shape[0] / 2.0 - height / 2.0), int(image.shape[1] / 2.0 - width / 2.0))
        five = [image[top:top + height, left:left + width] for top, left in
                ((0, 0), (0, right), (down, 0), (down, right), middle)]
        crops += five + [crop[:, ::-1] for crop in five]
    return numpy.asarray(crops, numpy.float32)
