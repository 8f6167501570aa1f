// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/object_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "frontends/caffe/data/box_sampler.h"
#include "frontends/caffe/data/distort.h"
#include "frontends/caffe/data/pixels.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// An image of that many times the sides is too large for anything.
constexpr float kMostExpansion = 100;

Box<float> Clipped(const Box<float>& box) {
  const auto clip = [](float x) { return std::clamp(x, 0.0F, 1.0F); };
  return {clip(box.x1), clip(box.y1), clip(box.x2), clip(box.y2)};
}

float AspectOf(const ImageShape& shape) { return static_cast<float>(shape.width) / static_cast<float>(shape.height); }

// The pixel of a side of `size` pixels that stands at place `at`, which may be outside; -1 where none does.
std::int64_t BorderPixel(ResizeParameter::Pad_mode mode, std::int64_t at, std::int64_t size) {
  if (at >= 0 && at < size) return at;
  if (mode == ResizeParameter::REPEAT_NEAREST) return std::clamp<std::int64_t>(at, 0, size - 1);
  if (mode != ResizeParameter::MIRRORED) return -1;
  const std::int64_t period = std::max<std::int64_t>(1, 2 * (size - 1));
  const std::int64_t place = ((at % period) + period) % period;
  return place < size ? place : period - place;
}

Interpolation InterpolationOf(ResizeParameter::Interp_mode mode) {
  switch (mode) {
    case ResizeParameter::AREA: return Interpolation::kArea;
    case ResizeParameter::NEAREST: return Interpolation::kNearest;
    case ResizeParameter::CUBIC: return Interpolation::kCubic;
    case ResizeParameter::LANCZOS4: return Interpolation::kLanczos4;
    case ResizeParameter::LINEAR: break;
  }
  return Interpolation::kLinear;
}

Status CheckResize(const ResizeParameter& resize) {
  if (resize.height() == 0 || resize.width() == 0) return InvalidArgument("resize_param has no height or width, expected both above 0");
  if (resize.prob() != 1) {
    return InvalidArgument("resize_param has prob " + std::to_string(resize.prob()) + ", expected 1: SSD's layer scales every image, whatever it says");
  }
  return OkStatus();
}

Status CheckExpansion(const ExpansionParameter& expansion, const TransformationParameter& transform) {
  if (!(expansion.max_expand_ratio() > 1 && expansion.max_expand_ratio() <= kMostExpansion)) {
    return InvalidArgument("expand_param has max_expand_ratio " + std::to_string(expansion.max_expand_ratio()) + ", expected above 1 and at most " +
                           std::to_string(kMostExpansion));
  }
  if (transform.has_mean_file()) return InvalidArgument("transform_param has expand_param and mean_file, expected mean_value: images have many sizes");
  return OkStatus();
}

}  // namespace

Result<ObjectTransform> ObjectTransform::Make(const TransformationParameter& transform, const AnnotatedDataParameter& annotated, Phase phase) {
  TransformationParameter last = transform;  // what is left for the last step
  last.clear_distort_param();
  last.clear_expand_param();
  last.clear_resize_param();
  last.clear_emit_constraint();
  if (transform.has_distort_param()) POSEIDON_RETURN_IF_ERROR(CheckDistortion(transform.distort_param()));
  if (transform.has_expand_param()) POSEIDON_RETURN_IF_ERROR(CheckExpansion(transform.expand_param(), transform));
  if (transform.has_resize_param()) POSEIDON_RETURN_IF_ERROR(CheckResize(transform.resize_param()));
  for (const BatchSampler& sampler : annotated.batch_sampler()) POSEIDON_RETURN_IF_ERROR(CheckBatchSampler(sampler));
  POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(last, phase));
  ObjectTransform made(std::move(transformer));
  made.mean_values_.assign(transform.mean_value().begin(), transform.mean_value().end());
  made.distorts_ = transform.has_distort_param();
  made.distortion_ = transform.distort_param();
  made.expands_ = transform.has_expand_param();
  made.expansion_ = transform.expand_param();
  made.resizes_ = transform.has_resize_param();
  made.resize_ = transform.resize_param();
  made.emits_ = transform.has_emit_constraint();
  made.emit_ = transform.emit_constraint();
  made.samplers_.assign(annotated.batch_sampler().begin(), annotated.batch_sampler().end());
  return made;
}

Result<ImageShape> ObjectTransform::Apply(const std::string& where, const SampleBlocks& random, std::uint64_t sample, ObjectImage* from,
                                          std::vector<float>* pixels) const {
  RandomSequence words(random, sample, 1);  // block 0 is that of crop and mirror
  if (distorts_) {
    if (from->image.shape.channels != 3) {
      return InvalidArgument(where + " is " + ToString(from->image.shape) +
                             ", expected 3 channels for distort_param: force_color makes them");
    }
    Distort(distortion_, &words, &from->image);
  }
  if (expands_) {
    const Status expanded = Expand(&words, from);
    if (!expanded.ok()) return expanded.WithPrefix(where);
  }
  if (!samplers_.empty()) CutSample(&words, from);
  const ImageShape before = from->image.shape;
  if (resizes_) POSEIDON_RETURN_IF_ERROR(Scale(where, &words, &from->image));

  const Sample stored{.shape = from->image.shape, .bytes = from->image.planes.data()};
  POSEIDON_ASSIGN_OR_RETURN(const ImageShape shape, transformer_.OutputShape(stored.shape, where));
  const RandomWords first = random(sample, 0);
  pixels->resize(static_cast<std::size_t>(shape.count()));
  transformer_.Apply(stored, first, pixels->data());

  if (resizes_) {
    for (LabelledBox& object : from->objects) object.box = Scaled(before, object.box);
  }
  const Transformer::Cut cut = transformer_.CutOf(stored.shape, first);
  const auto part = [](std::int64_t at, std::int64_t size) { return static_cast<float>(at) / static_cast<float>(size); };
  const Box<float> window{part(cut.left, stored.shape.width), part(cut.top, stored.shape.height), part(cut.left + cut.width, stored.shape.width),
                          part(cut.top + cut.height, stored.shape.height)};
  Project(window, &from->objects);
  if (cut.mirror) {
    for (LabelledBox& object : from->objects) object.box = {1 - object.box.x2, object.box.y1, 1 - object.box.x1, object.box.y2};
  }
  const Status extrapolated = Extrapolate(before, window, &from->objects);
  if (!extrapolated.ok()) return extrapolated.WithPrefix(where);
  return shape;
}

// The image lies somewhere in a larger one of the mean's colour.
Status ObjectTransform::Expand(RandomSequence* random, ObjectImage* image) const {
  if (random->Uniform(0, 1) > expansion_.prob()) return OkStatus();
  const ImageShape shape = image->image.shape;
  const auto values = static_cast<std::int64_t>(mean_values_.size());
  if (values > 1 && values != shape.channels) return OkStatus();  // the transformer refuses it in its own words
  const float ratio = random->Uniform(1, expansion_.max_expand_ratio());
  const auto height = static_cast<std::int64_t>(static_cast<float>(shape.height) * ratio);
  const auto width = static_cast<std::int64_t>(static_cast<float>(shape.width) * ratio);
  const auto place = [random](std::int64_t room) {
    return static_cast<std::int64_t>(random->NextBelow(static_cast<std::uint64_t>(std::max<std::int64_t>(1, room))));
  };
  const std::int64_t top = place(height - shape.height);
  const std::int64_t left = place(width - shape.width);
  Image expanded;
  POSEIDON_RETURN_IF_ERROR(Allocate({shape.channels, height, width}, &expanded));
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const auto plane = expanded.planes.begin() + c * height * width;
    std::fill(plane, plane + height * width, values == 0 ? std::uint8_t{0} : Saturated(At(mean_values_, values == 1 ? 0 : c)));
    for (std::int64_t y = 0; y < shape.height; ++y) {
      const auto row = image->image.planes.begin() + (c * shape.height + y) * shape.width;
      std::copy(row, row + shape.width, plane + (top + y) * width + left);
    }
  }
  const auto side = [](std::int64_t at, std::int64_t size) { return static_cast<float>(at) / static_cast<float>(size); };
  Project({side(-left, shape.width), side(-top, shape.height), side(width - left, shape.width), side(height - top, shape.height)}, &image->objects);
  image->image = std::move(expanded);
  return OkStatus();
}

void ObjectTransform::CutSample(RandomSequence* random, ObjectImage* image) const {
  std::vector<Box<float>> windows;
  for (const BatchSampler& sampler : samplers_) DrawWindows(sampler, image->objects, random, &windows);
  if (windows.empty()) return;
  const Box<float> window = Clipped(windows[static_cast<std::size_t>(random->NextBelow(windows.size()))]);
  const ImageShape& shape = image->image.shape;
  // At least a pixel, and none outside.
  const auto pixels = [](float low, float high, std::int64_t size) {
    const auto sides = static_cast<float>(size);
    const std::int64_t first = std::min(static_cast<std::int64_t>(low * sides), size - 1);
    return std::pair{first, std::clamp<std::int64_t>(static_cast<std::int64_t>(high * sides - low * sides), 1, size - first)};
  };
  const auto [top, height] = pixels(window.y1, window.y2, shape.height);
  const auto [left, width] = pixels(window.x1, window.x2, shape.width);
  image->image = CutOut(image->image, top, left, height, width);
  Project(window, &image->objects);
}

Status ObjectTransform::Scale(const std::string& where, RandomSequence* random, Image* image) const {
  Interpolation interpolation = Interpolation::kLinear;
  if (const int modes = resize_.interp_mode_size(); modes > 0) {
    interpolation = InterpolationOf(resize_.interp_mode(static_cast<int>(random->NextBelow(static_cast<std::uint64_t>(modes)))));
  }
  std::int64_t height = resize_.height(), width = resize_.width();
  const float aspect = AspectOf(image->shape);
  const bool wider = aspect > static_cast<float>(width) / static_cast<float>(height);
  const auto from_width = [&] { return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<float>(width) / aspect)); };
  const auto from_height = [&] { return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<float>(height) * aspect)); };
  switch (resize_.resize_mode()) {
    case ResizeParameter::WARP: break;
    case ResizeParameter::FIT_SMALL_SIZE:
      if (aspect < static_cast<float>(width) / static_cast<float>(height)) {
        height = from_width();
      } else {
        width = from_height();
      }
      break;
    case ResizeParameter::FIT_LARGE_SIZE_AND_PAD:
      if (wider) {
        height = from_width();
      } else {
        width = from_height();
      }
      break;
  }
  Image scaled;
  if (const Status done = ResizeBy(interpolation, *image, height, width, &scaled); !done.ok()) {
    return done.WithPrefix(where + " scaled by resize_param");
  }
  if (resize_.resize_mode() == ResizeParameter::FIT_LARGE_SIZE_AND_PAD) return Pad(where, scaled, image);
  *image = std::move(scaled);
  return OkStatus();
}

Status ObjectTransform::Pad(const std::string& where, const Image& image, Image* padded) const {
  const ImageShape& shape = image.shape;
  const std::int64_t height = resize_.height(), width = resize_.width();
  const int values = resize_.pad_value_size();
  if (values > 1 && values != shape.channels) {
    return InvalidArgument(where + " is " + ToString(shape) + ", but resize_param has " + std::to_string(values) +
                           " pad_value, expected one, or one per channel");
  }
  if (const Status made = Allocate({shape.channels, height, width}, padded); !made.ok()) return made.WithPrefix(where + " padded by resize_param");
  const std::int64_t top = (height - shape.height) / 2, left = (width - shape.width) / 2;
  std::uint8_t* out = padded->planes.data();
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const std::uint8_t fill = values == 0 ? std::uint8_t{0} : Saturated(resize_.pad_value(values == 1 ? 0 : static_cast<int>(c)));
    for (std::int64_t y = 0; y < height; ++y) {
      const std::int64_t row = BorderPixel(resize_.pad_mode(), y - top, shape.height);
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t column = BorderPixel(resize_.pad_mode(), x - left, shape.width);
        *out++ = row < 0 || column < 0 ? fill : At(image.planes, (c * shape.height + row) * shape.width + column);
      }
    }
  }
  return OkStatus();
}

Box<float> ObjectTransform::Scaled(const ImageShape& shape, const Box<float>& box) const {
  // Only bars at two sides move a box.
  Box<float> scaled = Clipped(box);
  if (resize_.resize_mode() != ResizeParameter::FIT_LARGE_SIZE_AND_PAD) return scaled;
  const auto height = static_cast<float>(resize_.height()), width = static_cast<float>(resize_.width());
  const float aspect = AspectOf(shape);
  if (aspect > width / height) {
    const float used = width / aspect / height, bar = (1 - used) / 2;
    scaled.y1 = bar + scaled.y1 * used;
    scaled.y2 = bar + scaled.y2 * used;
  } else {
    const float used = aspect * height / width, bar = (1 - used) / 2;
    scaled.x1 = bar + scaled.x1 * used;
    scaled.x2 = bar + scaled.x2 * used;
  }
  return scaled;
}

void ObjectTransform::Project(const Box<float>& window, std::vector<LabelledBox>* objects) const {
  const float width = window.x2 - window.x1, height = window.y2 - window.y1;
  std::vector<LabelledBox> inside;
  for (LabelledBox object : *objects) {
    const Box<float>& box = object.box;
    if (!IsEmitted(window, box)) continue;
    object.box = Clipped({(box.x1 - window.x1) / width, (box.y1 - window.y1) / height, (box.x2 - window.x1) / width, (box.y2 - window.y1) / height});
    if (AreaOf(object.box) > 0) inside.push_back(object);
  }
  *objects = std::move(inside);
}

bool ObjectTransform::IsEmitted(const Box<float>& window, const Box<float>& box) const {
  if (!emits_) return true;
  if (emit_.emit_type() == EmitConstraint::MIN_OVERLAP) {
    const float shared = SharedArea(box, window);
    return (shared > 0 ? shared / AreaOf(box) : 0) > emit_.emit_overlap();
  }
  const float x = (box.x1 + box.x2) / 2, y = (box.y1 + box.y2) / 2;
  return x >= window.x1 && x <= window.x2 && y >= window.y1 && y <= window.y2;
}

Status ObjectTransform::Extrapolate(const ImageShape& shape, const Box<float>& window, std::vector<LabelledBox>* objects) const {
  const auto height_scale = static_cast<float>(resize_.height_scale()), width_scale = static_cast<float>(resize_.width_scale());
  if (!resizes_ || height_scale == 0 || width_scale == 0 || resize_.resize_mode() != ResizeParameter::FIT_SMALL_SIZE) return OkStatus();
  auto height = static_cast<float>(resize_.height()), width = static_cast<float>(resize_.width());
  const float aspect = AspectOf(shape);
  if (aspect < width / height) {
    height = width / aspect;
  } else {
    width = height * aspect;
  }
  height *= window.y2 - window.y1;
  width *= window.x2 - window.x1;
  if (height < height_scale || width < width_scale) {
    return InvalidArgument("resize_param has height_scale " + std::to_string(resize_.height_scale()) + " and width_scale " +
                           std::to_string(resize_.width_scale()) + ", expected at most the crop's " + std::to_string(height) + " and " +
                           std::to_string(width));
  }
  for (LabelledBox& object : *objects) {
    object.box = {object.box.x1 * width / width_scale, object.box.y1 * height / height_scale, object.box.x2 * width / width_scale,
                  object.box.y2 * height / height_scale};
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
