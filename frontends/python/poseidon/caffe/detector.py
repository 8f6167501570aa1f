# SPDX-License-Identifier: Apache-2.0
"""Nets that look at windows of images, as pycaffe's Detector."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from ..errors import PoseidonError
from . import io
from .blob import Array
from .classifier import transformer_of
from .net import TEST, Net, Path


class Detector(Net):
    """A net in phase TEST that classifies windows of images."""

    def __init__(self, model_file: Path, pretrained_file: Path, mean: NDArray[Any] | None = None, input_scale: float | None = None,
                 raw_scale: float | None = None, channel_swap: Sequence[int] | None = None, context_pad: int | None = None) -> None:
        """`model_file`: the deploy prototxt. `pretrained_file`: its weights. `mean`, `input_scale`, `raw_scale`, `channel_swap`: as
        io.Transformer has them. `context_pad`: how many pixels of the input, on each side, show what is around the window."""
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Windows are cropped with `context_pad` pixels of context; beyond an image's edges is the mean."""
        name = self.inputs[0]
        channels, height, width = self.blobs[name].shape[1:]
        self.crop_dims, self.context_pad = numpy.array((height, width, channels)), context_pad
        if context_pad and 2 * context_pad >= width:
            raise PoseidonError(f"context_pad {context_pad} leaves nothing of an input of width {width}", "INVALID_ARGUMENT")
        self.crop_mean = numpy.zeros((height, width, channels), numpy.float32)
        mean = self.transformer.mean.get(name)
        if context_pad and mean is not None:
            shown = self.transformer.deprocess(name, numpy.zeros((channels, height, width), numpy.float32))
            self.crop_mean = numpy.asarray(shown, numpy.float32)

    def detect_windows(self, images_windows: Iterable[tuple[str, Iterable[Sequence[int]]]]) -> list[dict[str, Any]]:
        """What the net says of windows. `images_windows`: pairs of an image's file and its windows (ymin, xmin, ymax, xmax). Returns a
        dictionary with "window", "prediction" and "filename" for each."""
        found: list[dict[str, Any]] = []
        crops: list[Array] = []
        name = self.inputs[0]
        for file, windows in images_windows:
            image = io.load_image(file)
            for window in windows:
                crops.append(self.transformer.preprocess(name, self.crop(image, window)))
                found.append({"window": window, "filename": file})
        if crops:
            predictions = self.forward_all(**self._first(numpy.asarray(crops)))[self.outputs[0]]
            for each, prediction in zip(found, predictions):
                each["prediction"] = prediction
        return found

    def detect_selective_search(self, image_fnames: Sequence[str]) -> list[dict[str, Any]]:
        """Not there: the selective search that would propose windows of `image_fnames` is a MATLAB program."""
        raise PoseidonError("detect_selective_search needs a MATLAB program that is not part of this, expected windows for detect_windows",
                            "UNIMPLEMENTED")

    def crop(self, im: Array, window: Sequence[int]) -> Array:
        """The `window` (ymin, xmin, ymax, xmax) of the image `im`, with its context."""
        box = numpy.array([int(edge) for edge in window])
        inside = im[box[0]:box[2], box[1]:box[3]]
        if inside.size == 0:
            raise PoseidonError(f"window {tuple(box)} is outside of an image of {im.shape[0]}x{im.shape[1]}", "INVALID_ARGUMENT")
        return self._with_context(im, box) if self.context_pad else inside

    def _with_context(self, im: Array, box: NDArray[Any]) -> Array:
        """The window enlarged so that it fills the input but for the context; outside of the image is the mean. As in R-CNN
        (Girshick et al., CVPR 2014, supplementary material A)."""
        size = int(self.crop_dims[1])
        scale = size / (size - 2.0 * (self.context_pad or 0))
        half = (box[2:] - box[:2] + 1) / 2.0
        centre = box[:2] + half
        whole = numpy.round(numpy.concatenate([centre - scale * half, centre + scale * half]))
        unit = size / (whole[2:] - whole[:2] + 1)  # pixels of the input by pixels of the image
        offset = numpy.round(numpy.maximum(0, -whole[:2]) * unit).astype(int)
        limits = numpy.array([im.shape[0], im.shape[1]] * 2)
        clipped = numpy.clip(whole, 0, limits).astype(int)
        extent = numpy.round((clipped[2:] - clipped[:2] + 1) * unit).astype(int)
        extent = numpy.minimum(extent, size - offset)
        shown = numpy.array(self.crop_mean, numpy.float32)
        part = io.resize_image(im[clipped[0]:clipped[2], clipped[1]:clipped[3]], tuple(extent))
        shown[offset[0]:offset[0] + extent[0], offset[1]:offset[1] + extent[1]] = part
        return shown
