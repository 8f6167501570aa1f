// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/transformer.h"

#include <array>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

// Where a crop begins on an axis with so many places for it.
std::int64_t PlaceBelow(std::uint32_t random, std::int64_t places) {
  return static_cast<std::int64_t>(Below(random, static_cast<std::uint64_t>(places)));
}

// One row of the output: (pixel - mean) * scale, forwards or backwards.
template <typename T, typename Pixel, typename Mean>
void WriteRow(const Pixel* pixels, const Mean& mean, T scale, bool mirror, std::int64_t width,
              T* out) {
  if (mirror) {
    for (std::int64_t x = 0; x < width; ++x) {
      out[width - 1 - x] = (static_cast<T>(pixels[x]) - mean(x)) * scale;
    }
  } else {
    for (std::int64_t x = 0; x < width; ++x) {
      out[x] = (static_cast<T>(pixels[x]) - mean(x)) * scale;
    }
  }
}

}  // namespace

Result<MeanPixels> ReadMeanFile(const TransformationParameter& parameters) {
  if (!parameters.has_mean_file()) return MeanPixels{};
  if (parameters.mean_value_size() > 0) {
    return InvalidArgument("transform_param has both mean_file and mean_value, expected one of them");
  }
  POSEIDON_ASSIGN_OR_RETURN(MeanPixels mean, ReadMeanBlob(parameters.mean_file()));
  if (IsWhole(mean)) return mean;
  return DataLoss("mean_file " + parameters.mean_file() + " holds " + std::to_string(mean.values.size()) +
                  " values, expected those of its shape, " + ToString(mean.shape));
}

Status CheckSteps(const TransformationParameter& parameters, Steps taken) {
  struct Entry {
    Steps steps;
    const char* layer;
    std::vector<const char*> fields;
  };
  static const std::array<Entry, 4> kEntries = {{
      {Steps::kOfAll, "Data, ImageData, MemoryData or AnnotatedData", {"crop_h", "crop_w"}},
      {Steps::kOfObjects, "AnnotatedData", {"resize_param", "distort_param", "expand_param", "emit_constraint"}},
      {Steps::kOfPairs, "ImageSegData", {"scale_factors", "crop_height", "crop_width"}},
      {Steps::kOfVideos, "VideoData", {"fix_crop", "more_fix_crop", "multi_scale", "scale_ratios", "max_distort", "is_flow"}},
  }};
  const auto* const reflection = parameters.GetReflection();
  for (const Entry& entry : kEntries) {
    if (entry.steps == taken) continue;
    for (const char* const name : entry.fields) {
      const auto* const field = parameters.GetDescriptor()->FindFieldByName(name);
      if (field->is_repeated() ? reflection->FieldSize(parameters, field) == 0 : !reflection->HasField(parameters, field)) continue;
      return InvalidArgument(std::string("transform_param has ") + name + ", expected it in a layer of type " + entry.layer + " alone");
    }
  }
  return OkStatus();
}

Result<Transformer> Transformer::Make(const TransformationParameter& parameters, Phase phase) {
  POSEIDON_RETURN_IF_ERROR(CheckSteps(parameters, Steps::kOfAll));
  Transformer made;
  made.phase_ = phase;
  const std::uint32_t height = parameters.crop_h(), width = parameters.crop_w(), side = parameters.crop_size();
  if ((height == 0) != (width == 0)) return InvalidArgument("transform_param has one of crop_h and crop_w, expected both");
  if (side > 0 && height > 0) {
    return InvalidArgument("transform_param has crop_size, crop_h and crop_w, expected crop_size or the other two");
  }
  made.crop_height_ = side > 0 ? side : height;
  made.crop_width_ = side > 0 ? side : width;
  made.mirror_ = parameters.mirror();
  made.scale_ = parameters.scale();
  made.mean_values_.assign(parameters.mean_value().begin(), parameters.mean_value().end());
  made.mean_file_ = parameters.mean_file();
  POSEIDON_ASSIGN_OR_RETURN(MeanPixels mean, ReadMeanFile(parameters));
  made.mean_shape_ = mean.shape;
  made.mean_image_ = std::move(mean.values);
  return made;
}

Result<ImageShape> Transformer::OutputShape(const ImageShape& shape,
                                            const std::string& where) const {
  if (shape.height < crop_height_ || shape.width < crop_width_) {
    const bool square = crop_height_ == crop_width_;
    return InvalidArgument(where + " has images of " + ToString(shape) + ", expected at least " + (square ? "crop_size " : "a crop of ") +
                           std::to_string(crop_height_) + (square ? "" : "x" + std::to_string(crop_width_)));
  }
  if (!mean_image_.empty() && !(mean_shape_ == shape)) {
    return InvalidArgument("mean_file " + mean_file_ + " is " + ToString(mean_shape_) + ", but " +
                           where + " has images of " + ToString(shape));
  }
  const auto values = static_cast<std::int64_t>(mean_values_.size());
  if (values > 1 && values != shape.channels) {
    return InvalidArgument(where + " has images of " + ToString(shape) +
                           ", but transform_param has " + std::to_string(values) +
                           " mean_value, expected one, or one per channel");
  }
  return crops() ? ImageShape{shape.channels, crop_height_, crop_width_} : shape;
}

Transformer::Cut Transformer::CutOf(const ImageShape& shape, const RandomWords& random) const {
  Cut cut{.mirror = mirror_ && (random[0] & 1) != 0,
          .top = 0,
          .left = 0,
          .height = crops() ? crop_height_ : shape.height,
          .width = crops() ? crop_width_ : shape.width};
  const bool anywhere = phase_ == TRAIN;
  const std::int64_t rows = shape.height - cut.height, columns = shape.width - cut.width;
  cut.top = anywhere ? PlaceBelow(random[1], rows + 1) : rows / 2;
  cut.left = anywhere ? PlaceBelow(random[2], columns + 1) : columns / 2;
  return cut;
}

template <typename T>
void Transformer::Apply(const Sample& sample, const RandomWords& random, T* out) const {
  const ImageShape& in = sample.shape;
  const Cut cut = CutOf(in, random);
  const T scale = static_cast<T>(scale_);

  for (std::int64_t c = 0; c < in.channels; ++c) {
    T level = 0;
    if (!mean_values_.empty())
      level = static_cast<T>(mean_values_[mean_values_.size() == 1 ? 0 : c]);
    for (std::int64_t y = 0; y < cut.height; ++y, out += cut.width) {
      const std::int64_t from = (c * in.height + cut.top + y) * in.width + cut.left;
      const auto write = [&](const auto* pixels) {
        if (mean_image_.empty()) {
          WriteRow(
              pixels, [level](std::int64_t) { return level; }, scale, cut.mirror, cut.width, out);
        } else {
          const float* mean = mean_image_.data() + from;
          WriteRow(
              pixels, [mean](std::int64_t x) { return static_cast<T>(mean[x]); }, scale, cut.mirror,
              cut.width, out);
        }
      };
      if (sample.bytes != nullptr) {
        write(sample.bytes + from);
      } else {
        write(sample.floats + from);
      }
    }
  }
}

template void Transformer::Apply(const Sample&, const RandomWords&, float*) const;
template void Transformer::Apply(const Sample&, const RandomWords&, double*) const;

}  // namespace poseidon::caffe
