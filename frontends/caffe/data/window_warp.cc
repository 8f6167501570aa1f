// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/window_warp.h"

#include <algorithm>
#include <cmath>

namespace poseidon::caffe {
namespace {

// One axis of a window: its region of the image, and of the crop.
struct WarpSide {
  std::int64_t first, extent;  // of the image
  std::int64_t before, after;  // padding of the crop
  std::int64_t scaled;         // what is between
};

// Numbers are floats and round away from zero, as Caffe's do, so that a region is the same one to the pixel.
std::int64_t Rounded(float number) { return static_cast<std::int64_t>(std::round(number)); }

// `centre` and `half` are of the window, `from` is the extent of the image.
WarpSide Enlarged(float centre, float half, std::int64_t from, const WarpOptions& options) {
  const auto crop = static_cast<float>(options.crop_size);
  const float scale = crop / static_cast<float>(options.crop_size - 2 * options.context_pad);
  const std::int64_t first = Rounded(centre - half * scale), last = Rounded(centre + half * scale);
  const std::int64_t before = std::max<std::int64_t>(0, -first), after = std::max<std::int64_t>(0, last - from + 1);
  const float unit = crop / static_cast<float>(last - first + 1);  // pixels of the crop by pixels of the image
  const std::int64_t extent = (last - after) - (first + before) + 1;
  return {.first = first + before,
          .extent = extent,
          .before = Rounded(static_cast<float>(before) * unit),
          .after = Rounded(static_cast<float>(after) * unit),
          .scaled = Rounded(static_cast<float>(extent) * unit)};
}

}  // namespace

std::optional<WarpPlace> PlaceOfWindow(const WindowBox& box, const ImageShape& image, const WarpOptions& options,
                                       bool mirror) {
  const std::int64_t width = std::int64_t{box.x2} - box.x1 + 1, height = std::int64_t{box.y2} - box.y1 + 1;
  if (options.context_pad == 0 && !options.square) {
    const bool inside =
        box.x1 >= 0 && box.y1 >= 0 && width > 0 && height > 0 && box.x2 < image.width && box.y2 < image.height;
    if (!inside) return std::nullopt;
    return WarpPlace{.x = box.x1,
                     .y = box.y1,
                     .width = width,
                     .height = height,
                     .scaled_width = options.crop_size,
                     .scaled_height = options.crop_size};
  }
  float half_width = static_cast<float>(width) / 2, half_height = static_cast<float>(height) / 2;
  const float centre_x = static_cast<float>(box.x1) + half_width, centre_y = static_cast<float>(box.y1) + half_height;
  if (options.square) half_width = half_height = std::max(half_width, half_height);
  const WarpSide across = Enlarged(centre_x, half_width, image.width, options);
  const WarpSide down = Enlarged(centre_y, half_height, image.height, options);
  const std::int64_t left = mirror ? across.after : across.before, top = down.before;
  const WarpPlace place{
      .x = across.first,
      .y = down.first,
      .width = across.extent,
      .height = down.extent,
      .left = left,
      .top = top,
      .scaled_width = std::min(across.scaled, options.crop_size - left),  // they may be too many by rounding
      .scaled_height = std::min(down.scaled, options.crop_size - top)};
  if (std::min({place.width, place.height, place.scaled_width, place.scaled_height}) < 1) return std::nullopt;
  return place;
}

Status WarpWindow(const Image& image, const WarpPlace& place, std::int64_t crop_size, bool mirror,
                  const WarpedPixels& pixels, float* out) {
  Image scaled;
  POSEIDON_RETURN_IF_ERROR(Resize(CutOut(image, place.y, place.x, place.height, place.width), place.scaled_height, place.scaled_width, &scaled));
  std::fill(out, out + image.shape.channels * crop_size * crop_size, 0.0F);
  const MeanPixels& mean = pixels.mean;
  const bool is_image = mean.shape.height > 1 || mean.shape.width > 1;
  // The mean is cut as if it were square, by its width.
  const std::int64_t margin = (mean.shape.width - crop_size) / 2;
  for (std::int64_t c = 0; c < image.shape.channels; ++c) {
    const float level = mean.values.empty() || is_image ? 0 : mean.values[static_cast<std::size_t>(c)];
    for (std::int64_t y = 0; y < place.scaled_height; ++y) {
      const std::uint8_t* const row = scaled.planes.data() + (c * place.scaled_height + y) * place.scaled_width;
      const std::int64_t at = (c * crop_size + place.top + y) * crop_size + place.left;
      const float* const means = is_image ? mean.values.data() +
                                                (c * mean.shape.height + margin + place.top + y) * mean.shape.width +
                                                margin + place.left
                                          : nullptr;
      for (std::int64_t x = 0; x < place.scaled_width; ++x) {
        const float pixel = row[mirror ? place.scaled_width - 1 - x : x];
        out[at + x] = (pixel - (is_image ? means[x] : level)) * pixels.scale;
      }
    }
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
