// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_input.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "frontends/caffe/data/npy_file.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

// The last three of `dims`, with ones in front.
ImageShape LastThree(const std::vector<std::int64_t>& dims) {
  ImageShape shape{1, 1, 1};
  std::int64_t* const places[] = {&shape.width, &shape.height, &shape.channels};
  for (std::size_t i = 0; i < std::min<std::size_t>(3, dims.size()); ++i) *places[i] = dims[dims.size() - 1 - i];
  return shape;
}

Result<MeanPixels> FromNpy(const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(path));
  if (array.shape.size() == 1) return MeanPixels{.shape = {array.shape[0], 1, 1}, .values = std::move(array.values)};
  return MeanPixels{.shape = LastThree(array.shape), .values = std::move(array.values)};
}

Status FitMean(const ImageShape& input, MeanPixels* mean) {
  if (mean->values.empty()) return OkStatus();
  if (mean->shape.channels == 1 && input.channels > 1) {  // the same for each of them, as NumPy broadcasts it
    mean->shape.channels = input.channels;
    const std::vector<float> plane = mean->values;
    for (std::int64_t c = 1; c < input.channels; ++c) mean->values.insert(mean->values.end(), plane.begin(), plane.end());
  }
  if (mean->shape.channels != input.channels) {
    return InvalidArgument("the mean is " + ToString(mean->shape) + ", expected the " + std::to_string(input.channels) + " channels of the net's input");
  }
  const bool is_image = mean->shape.height > 1 || mean->shape.width > 1;
  if (is_image && mean->shape != input) *mean = Scaled(*mean, input.height, input.width);
  return OkStatus();
}

Status CheckSwap(const std::vector<int>& swap, std::int64_t channels) {
  if (swap.empty()) return OkStatus();
  const bool fits = static_cast<std::int64_t>(swap.size()) == channels &&
                    std::all_of(swap.begin(), swap.end(), [&](int c) { return c >= 0 && c < channels; });
  if (fits) return OkStatus();
  return InvalidArgument("the swap of channels does not fit the net's input, expected " + std::to_string(channels) + " numbers from 0 to " +
                         std::to_string(channels - 1));
}

}  // namespace

Result<MeanPixels> ReadMeanBlob(const std::string& path) {
  BlobProto blob;
  POSEIDON_RETURN_IF_ERROR(ReadBinaryFile(path, &blob));
  MeanPixels mean{.shape = {blob.channels(), blob.height(), blob.width()}, .values = {blob.data().begin(), blob.data().end()}};
  if (blob.has_shape()) mean.shape = LastThree({blob.shape().dim().begin(), blob.shape().dim().end()});
  if (mean.values.empty()) mean.values.assign(blob.double_data().begin(), blob.double_data().end());
  return mean;
}

bool IsWhole(const MeanPixels& mean) {
  const ImageShape& shape = mean.shape;
  constexpr std::int64_t kMostSide = 1 << 20;  // their product fits
  return std::min({shape.channels, shape.height, shape.width}) > 0 && std::max({shape.channels, shape.height, shape.width}) <= kMostSide &&
         static_cast<std::int64_t>(mean.values.size()) == shape.count();
}

Result<MeanPixels> ReadMeanPixels(const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(MeanPixels mean, path.ends_with(".npy") ? FromNpy(path) : ReadMeanBlob(path));
  if (IsWhole(mean)) return mean;
  return DataLoss("mean file " + path + " has " + std::to_string(mean.values.size()) + " numbers, which are not the " +
                  ToString(mean.shape) + " that it says");
}

MeanPixels ValuePerChannel(const MeanPixels& mean) {
  MeanPixels values{.shape = {mean.shape.channels, 1, 1}, .values = {}};
  const std::int64_t plane = mean.shape.height * mean.shape.width;
  for (std::int64_t c = 0; c < mean.shape.channels && !mean.values.empty(); ++c) {
    double sum = 0;
    for (std::int64_t i = 0; i < plane; ++i) sum += double{mean.values[static_cast<std::size_t>(c * plane + i)]};
    values.values.push_back(static_cast<float>(sum / static_cast<double>(plane)));
  }
  return values;
}

Result<ImageInput> ImageInput::Make(InputOptions options, const ImageShape& input) {
  if (input.channels != 1 && input.channels != 3) {
    return InvalidArgument("the net's input is " + ToString(input) + ", expected one or three channels: images have no others");
  }
  POSEIDON_RETURN_IF_ERROR(CheckSwap(options.channel_swap, input.channels));
  POSEIDON_RETURN_IF_ERROR(FitMean(input, &options.mean));
  if (options.context_pad > 0 && (input.height != input.width || 2 * options.context_pad >= input.width)) {
    return InvalidArgument("context of " + std::to_string(options.context_pad) +
                           " pixels does not fit the net's input, " + ToString(input) +
                           ", expected a square one with more than twice as many");
  }
  const bool scales_numbers = options.scaled.is_given();
  if (!scales_numbers) options.scaled = {input.height, input.width};
  if (options.scaled.height < input.height || options.scaled.width < input.width) {
    return InvalidArgument("images are scaled to " + std::to_string(options.scaled.height) + "x" + std::to_string(options.scaled.width) +
                           ", expected at least the net's input, " + std::to_string(input.height) + "x" + std::to_string(input.width));
  }
  ImageInput made(std::move(options), input);
  made.scales_numbers_ = scales_numbers;
  return made;
}

// Pixels of an image are blue, green, red.
template <typename Pixel>
void ImageInput::Write(const Pixel* planes, const From& from, const To& to, bool mirror, float* out) const {
  const auto raw_scale = static_cast<float>(options_.raw_scale / 255), input_scale = static_cast<float>(options_.input_scale);
  const MeanPixels& mean = options_.mean;
  const bool is_image = mean.shape.height > 1 || mean.shape.width > 1;
  for (std::int64_t c = 0; c < input_.channels; ++c) {
    const std::int64_t source = options_.channel_swap.empty() ? c : input_.channels - 1 - options_.channel_swap[static_cast<std::size_t>(c)];
    for (std::int64_t y = 0; y < to.height; ++y) {
      const Pixel* const row = planes + source * from.plane + (from.top + y) * from.stride + from.left;
      const std::int64_t first = (c * input_.height + to.top + y) * input_.width + to.left;
      for (std::int64_t x = 0; x < to.width; ++x) {
        const auto pixel = static_cast<float>(row[mirror ? to.width - 1 - x : x]);
        const float minus = mean.values.empty() ? 0 : mean.values[static_cast<std::size_t>(is_image ? first + x : c)];
        out[first + x] = (pixel * raw_scale - minus) * input_scale;
      }
    }
  }
}

Status ImageInput::CheckChannels(const Image& image) const {
  if (image.shape.channels == input_.channels) return OkStatus();
  return InvalidArgument("the image is " + ToString(image.shape) + ", expected " + std::to_string(input_.channels) +
                         " channels");
}

Status ImageInput::ApplyWindow(const Image& image, const DetectorWindow& window, std::vector<float>* out) const {
  POSEIDON_RETURN_IF_ERROR(CheckChannels(image));
  const std::optional<WarpPlace> place = PlaceOfDetection(window, image.shape, input_, options_.context_pad);
  if (!place) {
    return InvalidArgument("the window from row " + std::to_string(window.ymin) + " to " + std::to_string(window.ymax) +
                           " and column " + std::to_string(window.xmin) + " to " + std::to_string(window.xmax) +
                           " has nothing of the image, which is " + ToString(image.shape) +
                           ", expected one that begins in it");
  }
  const Image part = CutOut(image, place->y, place->x, place->height, place->width);
  const FloatImage scaled = Scaled({.shape = part.shape, .values = {part.planes.begin(), part.planes.end()}},
                                   place->scaled_height, place->scaled_width);
  out->assign(static_cast<std::size_t>(input_.count()), 0.0F);
  Write(scaled.values.data(),
        {.plane = place->scaled_height * place->scaled_width, .stride = place->scaled_width, .top = 0, .left = 0},
        {.top = place->top, .left = place->left, .height = place->scaled_height, .width = place->scaled_width}, false,
        out->data());
  return OkStatus();
}

// `planes` have the size that options say.
template <typename Pixel>
void ImageInput::WriteCrops(const Pixel* planes, std::vector<float>* out) const {
  const ImageSize& size = options_.scaled;
  const std::int64_t below = size.height - input_.height, right = size.width - input_.width;
  const std::pair<std::int64_t, std::int64_t> corners[] = {{0, 0}, {0, right}, {below, 0}, {below, right}, {below / 2, right / 2}};
  const auto row = static_cast<std::size_t>(input_.count());
  out->resize(row * static_cast<std::size_t>(rows()));
  const auto write = [&](const std::pair<std::int64_t, std::int64_t>& corner, bool mirror, float* to) {
    Write(planes, {size.height * size.width, size.width, corner.first, corner.second}, {0, 0, input_.height, input_.width}, mirror, to);
  };
  if (!options_.ten_crops) return write(corners[4], false, out->data());
  for (std::size_t i = 0; i < 10; ++i) write(corners[i % 5], i >= 5, out->data() + i * row);
}

Status ImageInput::Apply(const Image& image, std::vector<float>* out) const {
  POSEIDON_RETURN_IF_ERROR(CheckChannels(image));
  const ImageSize& size = options_.scaled;
  if (image.shape.height == size.height && image.shape.width == size.width) {
    WriteCrops(image.planes.data(), out);
  } else if (scales_numbers_) {
    const FloatImage scaled =
        Scaled({.shape = image.shape, .values = {image.planes.begin(), image.planes.end()}}, size.height, size.width);
    WriteCrops(scaled.values.data(), out);
  } else {
    Image scaled;
    POSEIDON_RETURN_IF_ERROR(Resize(image, size.height, size.width, &scaled));
    WriteCrops(scaled.planes.data(), out);
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
