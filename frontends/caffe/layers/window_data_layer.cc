// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/listed_windows.h"
#include "frontends/caffe/data/transformer.h"
#include "frontends/caffe/layers/batch_layer.h"
#include "frontends/caffe/net/random.h"

namespace poseidon::caffe {
namespace {

constexpr std::uint32_t kLargestCrop = 1 << 13;

// Of an option that two messages have, what one of them says.
template <typename T>
Status Either(const std::string& name, bool has_one, const T& one, bool has_other, const T& other, T* value) {
  if (has_one && has_other && one != other) {
    return InvalidArgument("has another " + name +
                           " in transform_param than in window_data_param, expected it in one of them");
  }
  if (has_one || has_other) *value = has_one ? one : other;
  return OkStatus();
}

// Windows drawn from a window file, as R-CNN trains on them.
class WindowDataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const WindowDataParameter& data = param().window_data_param();
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    if (!data.has_source()) return InvalidArgument("has no source, expected a window file");
    ListedWindowsOptions listed{.file = data.source(),
                                .root_folder = data.root_folder(),
                                .cache_images = data.cache_images(),
                                .fg_threshold = data.fg_threshold(),
                                .bg_threshold = data.bg_threshold()};
    POSEIDON_RETURN_IF_ERROR(ReadTransform(&listed));
    POSEIDON_RETURN_IF_ERROR(ReadWarp(&listed.warp));
    POSEIDON_RETURN_IF_ERROR(ReadBatch(&listed));
    const RandomStream stream(context().seed, RandomPurpose::kWindow, unique_name(), phase() == TRAIN ? 0 : 1);
    listed.draw = [stream](std::uint64_t sample) { return stream.Draw(sample, 0); };
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenListedWindows(std::move(listed)));
    return ReadFrom(std::move(samples), {.rows = data.batch_size()}, {});
  }

 private:
  // Caffe 1.0 looks for scale in window_data_param and for the others in transform_param; its older versions have all
  // in the former.
  Status ReadTransform(ListedWindowsOptions* listed) {
    const TransformationParameter& newer = param().transform_param();
    POSEIDON_RETURN_IF_ERROR(CheckSteps(newer, Steps::kOfWindows));
    const WindowDataParameter& older = param().window_data_param();
    TransformationParameter mean = newer;
    std::string file;
    std::uint32_t crop_size = 0;
    POSEIDON_RETURN_IF_ERROR(Either("crop_size", newer.has_crop_size(), newer.crop_size(), older.has_crop_size(),
                                    older.crop_size(), &crop_size));
    POSEIDON_RETURN_IF_ERROR(
        Either("mirror", newer.has_mirror(), newer.mirror(), older.has_mirror(), older.mirror(), &listed->mirror));
    POSEIDON_RETURN_IF_ERROR(
        Either("scale", newer.has_scale(), newer.scale(), older.has_scale(), older.scale(), &listed->pixels.scale));
    POSEIDON_RETURN_IF_ERROR(
        Either("mean_file", newer.has_mean_file(), newer.mean_file(), older.has_mean_file(), older.mean_file(), &file));
    if (!file.empty()) mean.set_mean_file(file);
    POSEIDON_ASSIGN_OR_RETURN(listed->pixels.mean, ReadMeanFile(mean));
    if (crop_size == 0 || crop_size > kLargestCrop) {
      return InvalidArgument("crop_size is " + std::to_string(crop_size) +
                             ", expected the side of the crops, from 1 to " + std::to_string(kLargestCrop));
    }
    listed->warp.crop_size = crop_size;
    if (newer.mean_value_size() == 0) return OkStatus();
    if (newer.mean_value_size() != 1 && newer.mean_value_size() != 3) {
      return InvalidArgument("has " + std::to_string(newer.mean_value_size()) +
                             " mean_value, expected one, or one for each of three channels");
    }
    MeanPixels& values = listed->pixels.mean;
    values.shape = {3, 1, 1};
    for (int c = 0; c < 3; ++c) values.values.push_back(newer.mean_value(newer.mean_value_size() == 1 ? 0 : c));
    return OkStatus();
  }

  Status ReadWarp(WarpOptions* warp) const {
    const WindowDataParameter& data = param().window_data_param();
    if (data.crop_mode() != "warp" && data.crop_mode() != "square") {
      return InvalidArgument("crop_mode is '" + data.crop_mode() + "', expected 'warp' or 'square'");
    }
    warp->square = data.crop_mode() == "square";
    warp->context_pad = data.context_pad();
    if (2 * warp->context_pad < warp->crop_size) return OkStatus();
    return InvalidArgument("context_pad is " + std::to_string(data.context_pad()) +
                           ", expected less than half of crop_size, " + std::to_string(warp->crop_size));
  }

  // In training the workers draw one batch together, in which the windows have their places by their sample numbers.
  Status ReadBatch(ListedWindowsOptions* listed) const {
    const WindowDataParameter& data = param().window_data_param();
    if (!(data.fg_fraction() >= 0 && data.fg_fraction() <= 1)) {
      return InvalidArgument("fg_fraction is " + std::to_string(data.fg_fraction()) + ", expected from 0 to 1");
    }
    const bool shared = phase() == TRAIN;
    listed->batch = std::uint64_t{data.batch_size()} * (shared ? static_cast<std::uint64_t>(context().share.world) : 1);
    listed->begin = shared ? context().share.taken * data.batch_size() : 0;
    // In floats, as Caffe has it, which round a batch of more than 2^24 windows up.
    const float foreground = static_cast<float>(listed->batch) * data.fg_fraction();
    listed->foreground = std::min(listed->batch, static_cast<std::uint64_t>(foreground));
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Layer> MakeWindowDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<WindowDataLayer>(param, context);
}

}  // namespace poseidon::caffe
