# SPDX-License-Identifier: Apache-2.0
"""What is done to windows of images, once more in NumPy: the crops of Caffe's WindowData, and those of pycaffe's Detector."""

import numpy

F = numpy.float32


def whole(number):
    """Rounded as C's round does: halves away from zero."""
    return int(numpy.copysign(numpy.floor(abs(float(number)) + 0.5), number))


def places(extent, wanted):
    """For each of `wanted` pixels, the two of `extent` beside its centre and the share of the second, as floats."""
    at = ((numpy.arange(wanted) + 0.5) * (1 / (wanted / extent)) - 0.5).astype(F)
    first = numpy.floor(at).astype(int)
    return first, at - first.astype(F)


def scaled_bytes(image, height, width):
    """cv2.resize of bytes [height, width, channels] with weights of 11 bits."""
    old_height, old_width = image.shape[:2]
    pixels = image.astype(numpy.int64)
    if (old_height, old_width) == (height, width):
        return image
    if (old_height, old_width) == (2 * height, 2 * width):
        return ((pixels[::2, ::2] + pixels[1::2, ::2] + pixels[::2, 1::2] + pixels[1::2, 1::2] + 2) // 4).astype(numpy.uint8)
    first, share = places(old_width, width)
    share = numpy.where((first < 0) | (first >= old_width - 1), F(0), share)
    left = numpy.rint((1 - share) * F(2048)).astype(numpy.int64)[None, :, None]
    right = numpy.rint(share * F(2048)).astype(numpy.int64)[None, :, None]
    columns = numpy.clip(first, 0, old_width - 1), numpy.clip(first + 1, 0, old_width - 1)
    rows = pixels[:, columns[0]] * left + pixels[:, columns[1]] * right
    first, share = places(old_height, height)
    upper = numpy.rint((1 - share) * F(2048)).astype(numpy.int64)[:, None, None]
    lower = numpy.rint(share * F(2048)).astype(numpy.int64)[:, None, None]
    above, below = rows[numpy.clip(first, 0, old_height - 1)], rows[numpy.clip(first + 1, 0, old_height - 1)]
    return ((((upper * (above >> 4)) >> 16) + ((lower * (below >> 4)) >> 16) + 2) >> 2).astype(numpy.uint8)


def window_data(image, box, size, pad=0, square=False, mirror=False, mean=None, scale=1.0):
    """A row of WindowData's first top. `image`: bytes [height, width, channels], blue first. `box`: x1, y1, x2, y2. `mean`:
    [channels, height, width], or a number for each channel."""
    x1, y1, x2, y2 = box
    left = top = 0
    width = height = size
    if pad or square:
        enlarge = F(size) / F(size - 2 * pad)
        half_w, half_h = F(x2 - x1 + 1) / F(2), F(y2 - y1 + 1) / F(2)
        middle_x, middle_y = F(x1) + half_w, F(y1) + half_h
        if square:
            half_w = half_h = max(half_w, half_h)
        x1, x2 = whole(middle_x - half_w * enlarge), whole(middle_x + half_w * enlarge)
        y1, y2 = whole(middle_y - half_h * enlarge), whole(middle_y + half_h * enlarge)
        unit_x, unit_y = F(size) / F(x2 - x1 + 1), F(size) / F(y2 - y1 + 1)
        off_left, off_right = max(0, -x1), max(0, x2 - image.shape[1] + 1)
        off_top, off_bottom = max(0, -y1), max(0, y2 - image.shape[0] + 1)
        x1, x2, y1, y2 = x1 + off_left, x2 - off_right, y1 + off_top, y2 - off_bottom
        left = whole(F(off_right if mirror else off_left) * unit_x)
        top = whole(F(off_top) * unit_y)
        width = min(whole(F(x2 - x1 + 1) * unit_x), size - left)
        height = min(whole(F(y2 - y1 + 1) * unit_y), size - top)
    part = scaled_bytes(image[y1:y2 + 1, x1:x2 + 1], height, width)
    if mirror:
        part = part[:, ::-1]
    planes = part.transpose(2, 0, 1).astype(F)
    if mean is not None:
        mean = numpy.asarray(mean, F)
        if mean.ndim == 1:
            planes = planes - mean[:, None, None]
        else:
            begin = (mean.shape[2] - size) // 2
            planes = planes - mean[:, begin + top:begin + top + height, begin + left:begin + left + width]
    crop = numpy.zeros((image.shape[2], size, size), F)
    crop[:, top:top + height, left:left + width] = planes * F(scale)
    return crop


def scaled(image, height, width):
    """Numbers [height, width, channels], linear between pixel centres."""
    for axis, wanted in (0, height), (1, width):
        extent = image.shape[axis]
        at = numpy.clip((numpy.arange(wanted) + 0.5) * extent / wanted - 0.5, 0, extent - 1)
        first = numpy.floor(at).astype(int)
        share = (at - first).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        image = image.take(first, axis) * (1 - share) + image.take(numpy.minimum(first + 1, extent - 1), axis) * share
    return image


def detector(image, window, size, pad, mean, raw_scale=255.0, input_scale=1.0, swap=(2, 1, 0)):
    """What pycaffe's Detector makes of a window for a square input. `image`: bytes [height, width, 3], red first. `window`: ymin,
    xmin, ymax, xmax, the last two behind the window. `mean`: a number for each channel of the input, or None."""
    image = image / 255.0
    ymin, xmin, ymax, xmax = window
    if not pad:
        shown = scaled(image[ymin:ymax, xmin:xmax], size, size)
        inside = numpy.ones((size, size), bool)
    else:
        enlarge = size / (size - 2.0 * pad)
        sides = []
        for low, high, extent in (ymin, ymax, image.shape[0]), (xmin, xmax, image.shape[1]):
            half = (high - low + 1) / 2
            begin, end = numpy.round(low + half - enlarge * half), numpy.round(low + half + enlarge * half)
            unit = size / (end - begin + 1)
            offset = int(numpy.round(max(0, -begin) * unit))
            first, last = int(max(begin, 0)), int(min(end, extent))
            sides.append((first, last, offset, min(int(numpy.round((last - first + 1) * unit)), size - offset)))
        (y1, y2, top, height), (x1, x2, left, width) = sides
        shown, inside = numpy.zeros((size, size, 3)), numpy.zeros((size, size), bool)
        shown[top:top + height, left:left + width] = scaled(image[y1:y2, x1:x2], height, width)
        inside[top:top + height, left:left + width] = True
    planes = shown.transpose(2, 0, 1)[list(swap)] * raw_scale
    if mean is not None:
        planes = planes - numpy.asarray(mean, float)[:, None, None]
    return planes * inside * input_scale  # what is outside of the image is the mean
