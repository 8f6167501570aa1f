// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_DETECTOR_CROP_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_DETECTOR_CROP_H_

#include <cstdint>
#include <optional>

#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/window_warp.h"

// How a window of an image becomes the input of a net, in the arithmetic of pycaffe's Detector, which is not that of
// WindowData.
namespace poseidon::caffe {

// Rows and columns of an image; the last two are behind the window.
struct DetectorWindow {
  std::int64_t ymin = 0, xmin = 0, ymax = 0, xmax = 0;  // from -2^24 to 2^24
};

// Without context what the image has of the window fills the input of height x width, else the window is enlarged until
// `context_pad` pixels of the input, which is square, are context on each side. Nothing where the window does not begin
// in the image, or no pixel of it is left.
std::optional<WarpPlace> PlaceOfDetection(const DetectorWindow& window, const ImageShape& image,
                                          const ImageShape& input, std::int64_t context_pad);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_DETECTOR_CROP_H_
