// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/box_sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace poseidon::caffe {
namespace {

// A wrong number of trials is not to be years of trying.
constexpr std::uint32_t kMostTrials = 100'000;

// From `low` to `high`, which the sampler draws between.
Status CheckRange(const char* name, float low, float high, float most) {
  if (low > 0 && low <= high && high <= most) return OkStatus();
  return InvalidArgument(std::string("batch_sampler has min_") + name + " " + std::to_string(low) + " and max_" + name + " " +
                         std::to_string(high) + ", expected 0 < min <= max <= " + std::to_string(most));
}

// In SSD's order, so that it is drawn alike.
Box<float> DrawWindow(const Sampler& sampler, RandomSequence* random) {
  const float scale = random->Uniform(sampler.min_scale(), sampler.max_scale());
  const float drawn = random->Uniform(sampler.min_aspect_ratio(), sampler.max_aspect_ratio());
  // No side is longer than the image's.
  const float ratio = std::min(std::max(drawn, scale * scale), 1 / (scale * scale));
  const float width = std::min(1.0F, scale * std::sqrt(ratio));
  const float height = std::min(1.0F, scale / std::sqrt(ratio));
  const float left = random->Uniform(0, 1 - width);
  const float top = random->Uniform(0, 1 - height);
  return {left, top, left + width, top + height};
}

// The part of `box` that `other` covers.
float Covered(const Box<float>& box, const Box<float>& other) {
  const float shared = SharedArea(box, other);
  return shared > 0 ? shared / AreaOf(box) : 0;
}

bool Meets(const SampleConstraint& constraint, const Box<float>& window, const Box<float>& object) {
  const auto within = [](float number, bool has_min, float min, bool has_max, float max) {
    return (!has_min || number >= min) && (!has_max || number <= max);
  };
  return within(Overlap(window, object), constraint.has_min_jaccard_overlap(), constraint.min_jaccard_overlap(),
                constraint.has_max_jaccard_overlap(), constraint.max_jaccard_overlap()) &&
         within(Covered(window, object), constraint.has_min_sample_coverage(), constraint.min_sample_coverage(),
                constraint.has_max_sample_coverage(), constraint.max_sample_coverage()) &&
         within(Covered(object, window), constraint.has_min_object_coverage(), constraint.min_object_coverage(),
                constraint.has_max_object_coverage(), constraint.max_object_coverage());
}

bool IsEmpty(const SampleConstraint& constraint) {
  return !constraint.has_min_jaccard_overlap() && !constraint.has_max_jaccard_overlap() && !constraint.has_min_sample_coverage() &&
         !constraint.has_max_sample_coverage() && !constraint.has_min_object_coverage() && !constraint.has_max_object_coverage();
}

}  // namespace

Status CheckBatchSampler(const BatchSampler& sampler) {
  POSEIDON_RETURN_IF_ERROR(CheckRange("scale", sampler.sampler().min_scale(), sampler.sampler().max_scale(), 1));
  POSEIDON_RETURN_IF_ERROR(CheckRange("aspect_ratio", sampler.sampler().min_aspect_ratio(), sampler.sampler().max_aspect_ratio(), 1e6F));
  if (sampler.max_trials() <= kMostTrials) return OkStatus();
  return InvalidArgument("batch_sampler has max_trials " + std::to_string(sampler.max_trials()) + ", expected at most " + std::to_string(kMostTrials));
}

void DrawWindows(const BatchSampler& sampler, const std::vector<LabelledBox>& objects, RandomSequence* random, std::vector<Box<float>>* windows) {
  if (!sampler.use_original_image()) return;
  const SampleConstraint& constraint = sampler.sample_constraint();
  std::uint32_t found = 0;
  for (std::uint32_t trial = 0; trial < sampler.max_trials(); ++trial) {
    if (sampler.has_max_sample() && found >= sampler.max_sample()) return;
    const Box<float> window = DrawWindow(sampler.sampler(), random);
    const auto meets = [&](const LabelledBox& object) { return Meets(constraint, window, object.box); };
    if (!IsEmpty(constraint) && std::none_of(objects.begin(), objects.end(), meets)) continue;
    windows->push_back(window);
    ++found;
  }
}

}  // namespace poseidon::caffe
