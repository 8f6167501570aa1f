// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_WARP_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_WARP_H_

#include <cstdint>
#include <optional>

#include "frontends/caffe/data/float_image.h"
#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/window_file.h"

// How a window of an image becomes a square crop, in the arithmetic of Caffe's layer WindowData.
namespace poseidon::caffe {

struct WarpOptions {
  std::int64_t crop_size = 0;    // from 1 to 2^13
  std::int64_t context_pad = 0;  // below half of it
  bool square = false;           // the window is first made as wide as high, by its longer side
};

// The region of an image that is scaled, and where it lies in the crop.
struct WarpPlace {
  std::int64_t x = 0, y = 0, width = 0, height = 0;                     // of the image
  std::int64_t left = 0, top = 0, scaled_width = 0, scaled_height = 0;  // of the crop
};

// With context_pad the window is enlarged until, scaled, that many pixels of context are on each side of it. What of
// the enlarged window is outside of the image is padding, whose pixels are zero. Mirrored, the padding of the right is
// on the left. Nothing where no pixel of it is left; without context_pad and square, where the window is not within the
// image. `image` is its height and width.
std::optional<WarpPlace> PlaceOfWindow(const WindowBox& box, const ImageShape& image, const WarpOptions& options,
                                       bool mirror);

// What is done to the pixels of a crop.
struct WarpedPixels {
  MeanPixels mean;  // a value per channel, or an image, whose centre is taken: at least as large as the crop
  float scale = 1;
};

// Writes the crop [channels, crop_size, crop_size] of `image`: (pixel - mean) * scale, and zeros around it. The place
// is of this image.
Status WarpWindow(const Image& image, const WarpPlace& place, std::int64_t crop_size, bool mirror,
                  const WarpedPixels& pixels, float* out);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_WARP_H_
