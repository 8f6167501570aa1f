# SPDX-License-Identifier: Apache-2.0
"""Nets that say what images show, as pycaffe's Classifier."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from . import io
from .blob import Array
from .net import TEST, Net, Path


def transformer_of(net: Net, mean: NDArray[Any] | None, input_scale: float | None, raw_scale: float | None,
                   channel_swap: Sequence[int] | None) -> io.Transformer:
    """Prepares images for the first input of `net`; what is None is left out."""
    name = net.inputs[0]
    transformer = io.Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


class Classifier(Net):
    """A net in phase TEST that takes images as io.load_image gives them."""

    def __init__(self, model_file: Path, pretrained_file: Path, image_dims: Sequence[int] | None = None,
                 mean: NDArray[Any] | None = None, input_scale: float | None = None, raw_scale: float | None = None,
                 channel_swap: Sequence[int] | None = None) -> None:
        """`model_file`: the deploy prototxt. `pretrained_file`: its weights. `image_dims`: the size (height, width) that images get before
        they are cropped; that of the input without it. `mean`, `input_scale`, `raw_scale`, `channel_swap`: as io.Transformer has
        them."""
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = numpy.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = self.crop_dims if image_dims is None else numpy.array(image_dims)

    def predict(self, inputs: Sequence[NDArray[Any]], oversample: bool = True) -> Array:
        """The net's first output for each image of `inputs`, [height, width, channels]: the mean over ten crops, or that of the centre
        crop where `oversample` is false."""
        images = numpy.asarray([io.resize_image(image, tuple(self.image_dims)) for image in inputs])
        if oversample:
            images = io.oversample(list(images), tuple(self.crop_dims))
        else:
            top, left = (int(begin) for begin in self.image_dims / 2.0 - self.crop_dims / 2.0)
            height, width = (int(extent) for extent in self.crop_dims)
            images = images[:, top:top + height, left:left + width, :]
        name = self.inputs[0]
        prepared = numpy.asarray([self.transformer.preprocess(name, image) for image in images], numpy.float32)
        found = self.forward_all(**self._first(prepared))[self.outputs[0]]
        return found.reshape(len(found) // 10, 10, -1).mean(1) if oversample else found
