// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "frontends/caffe/data/video_frames.h"
#include "frontends/caffe/layers/batch_layer.h"

namespace poseidon::caffe {
namespace {

// Frames of videos as channels, and labels (temporal segment networks).
class VideoDataLayer final : public BatchLayer {
 public:
  using BatchLayer::BatchLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const VideoDataParameter& data = param().video_data_param();
    TransformationParameter transform = param().transform_param();
    POSEIDON_RETURN_IF_ERROR(CheckSteps(transform, Steps::kOfVideos));
    POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
    if (!data.has_source()) return InvalidArgument("has no source, expected a list of videos");
    if ((data.new_height() > 0) != (data.new_width() > 0)) {
      return InvalidArgument("has new_height " + std::to_string(data.new_height()) + " and new_width " + std::to_string(data.new_width()) +
                             ", expected both or none");
    }
    if (data.new_length() == 0 || data.num_segments() == 0) return InvalidArgument("needs new_length and num_segments above 0");
    if (transform.has_mean_file()) return InvalidArgument("has mean_file in transform_param, expected mean_value");
    if (transform.multi_scale() && transform.crop_size() == 0) return InvalidArgument("has multi_scale without crop_size in transform_param");
    if (transform.max_distort() < 0) return InvalidArgument("max_distort is below 0");
    const bool flow = data.modality() == VideoDataParameter::FLOW;
    VideoFramesOptions frames{.list = data.source(),
                              .root_folder = data.root_folder(),
                              .flow = flow,
                              .pattern = flow ? "flow_%c_%04d.jpg" : "image_%04d.jpg",
                              .segments = data.num_segments(),
                              .length = data.new_length(),
                              .size = {data.new_height(), data.new_width()},
                              .crop = transform.crop_size(),
                              .trains = phase() == TRAIN,
                              .mirror = transform.mirror(),
                              .corners = transform.fix_crop(),
                              .more_corners = transform.fix_crop() && transform.more_fix_crop(),
                              .most_apart = transform.max_distort(),
                              .turns_flow = transform.is_flow(),
                              .blocks = Blocks({})};
    if (!data.name_pattern().empty()) frames.pattern = data.name_pattern();
    if (transform.multi_scale()) {
      frames.ratios.assign(transform.scale_ratios().begin(), transform.scale_ratios().end());
      if (frames.ratios.empty()) frames.ratios = {1, 0.875F, 0.75F, 0.66F};  // the fork's
      for (const float ratio : frames.ratios) {
        if (!(ratio > 0 && ratio <= 1)) return InvalidArgument("scale_ratios has " + std::to_string(ratio) + ", expected above 0, at most 1");
      }
    }
    if (data.shuffle()) frames.shuffle = Shuffle({});
    for (const char* const done : {"mirror", "crop_size", "fix_crop", "more_fix_crop", "multi_scale", "scale_ratios", "max_distort", "is_flow"}) {
      transform.GetReflection()->ClearField(&transform, transform.GetDescriptor()->FindFieldByName(done));
    }
    POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(transform, phase()));
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenVideoFrames(std::move(frames), std::move(transformer)));
    return ReadFrom(std::move(samples), {.rows = data.batch_size(), .rand_skip = data.rand_skip()}, {});
  }
};

}  // namespace

std::unique_ptr<Layer> MakeVideoDataLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<VideoDataLayer>(param, context);
}

}  // namespace poseidon::caffe
