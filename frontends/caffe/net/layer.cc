// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {

Layer::Layer(const LayerParameter& param, const LayerContext& context)
    : param_(param), context_(context) {
  param_.clear_blobs();
}

Status Layer::SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) { return OkStatus(); }

Status Layer::Backward(const Blobs& /*top*/, const std::vector<bool>& /*propagate_down*/,
                       const Blobs& /*bottom*/) {
  return Unimplemented("this layer has no backward pass");
}

at::TensorOptions Layer::options() const { return at::TensorOptions().dtype(context_.dtype).device(context_.placement.device()); }

void Layer::DeclareParam(Shape shape, const FillerParameter& filler) {
  declarations_.push_back({std::move(shape), filler});
}

void Layer::FreezeParam(int index) {
  while (param_.param_size() <= index) param_.add_param();
  param_.mutable_param(index)->set_lr_mult(0);
}

Layer::DiffTarget Layer::ParamDiff(int index) {
  const auto at = static_cast<std::size_t>(index);
  const bool add = !std::exchange(*slots_[at].stale, false);
  return {blobs_[at].diff, add};
}

void Layer::AddParamDiff(int index, const at::Tensor& gradient) {
  const auto [diff, add] = ParamDiff(index);
  if (add) {
    diff.add_(gradient.view(diff.sizes()));
  } else {
    diff.copy_(gradient.view(diff.sizes()));
  }
}

void Layer::LeaveParamDiffs() {
  for (Slot& slot : slots_) *slot.stale = false;
}

Status CheckArity(const Layer& layer) {
  const LayerParameter& param = layer.param();
  const Arity arity = layer.arity();
  const auto check = [](const char* what, int count, int least, int most) -> Status {
    if (count >= least && count <= most) return OkStatus();
    const std::string expected = least == most          ? std::to_string(least)
                                 : most == Arity::kAny ? std::to_string(least) + " or more"
                                                       : std::to_string(least) + " to " + std::to_string(most);
    return InvalidArgument("has " + std::to_string(count) + " " + what + ", expected " + expected);
  };
  const int bottoms = param.bottom_size();
  const int tops = param.top_size() == 0 && layer.is_loss() ? 1 : param.top_size();  // a loss makes one of its own
  POSEIDON_RETURN_IF_ERROR(check("bottoms", bottoms, arity.min_bottom, arity.max_bottom));
  POSEIDON_RETURN_IF_ERROR(check("tops", tops, arity.min_top, arity.max_top));
  if (arity.top_per_bottom && bottoms != tops) {
    return InvalidArgument("has " + std::to_string(bottoms) + " bottoms and " + std::to_string(tops) + " tops, expected as many of each");
  }
  return OkStatus();
}

void SetShape(Blob* blob, const Shape& shape, const at::TensorOptions& options) {
  if (blob->data.defined() && blob->data.sizes() == at::IntArrayRef(shape)) return;
  blob->data = at::empty(shape, options);
}

at::Tensor& DiffOf(Blob* blob) {
  if (!blob->diff.defined() || blob->diff.sizes() != blob->data.sizes()) {
    blob->diff = at::empty_like(blob->data, at::MemoryFormat::Contiguous);
  }
  return blob->diff;
}

std::string ShapeText(at::IntArrayRef shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const std::int64_t extent : shape) {
    if (!text.empty()) text += 'x';
    text += std::to_string(extent);
  }
  return text;
}

Status CanonicalAxis(const char* option, std::int64_t axis, std::int64_t axes,
                     std::int64_t* result) {
  if (axis < -axes || axis >= axes) {
    return InvalidArgument(std::string(option) + " is " + std::to_string(axis) +
                           ", but the blob has " + std::to_string(axes) + " axes");
  }
  *result = axis < 0 ? axis + axes : axis;
  return OkStatus();
}

std::int64_t CountOf(at::IntArrayRef shape, std::int64_t begin, std::int64_t end) {
  std::int64_t count = 1;
  for (std::int64_t axis = begin; axis < end; ++axis) {
    count *= At(shape, axis);
  }
  return count;
}

std::int64_t CountOf(at::IntArrayRef shape) { return CountOf(shape, 0, static_cast<std::int64_t>(shape.size())); }

}  // namespace poseidon::caffe
