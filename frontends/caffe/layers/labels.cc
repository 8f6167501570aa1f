// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/labels.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "frontends/caffe/net/placement.h"

namespace poseidon::caffe {

Result<ClassView> ViewClasses(const Blob& scores, const Blob& labels, std::int64_t axis) {
  const auto shape = scores.data.sizes();
  const std::int64_t axes = scores.data.dim();
  ClassView view;
  POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", axis, axes, &view.axis));
  view.outer = CountOf(shape, 0, view.axis);
  view.classes = scores.data.size(view.axis);
  view.inner = CountOf(shape, view.axis + 1, axes);
  if (labels.count() != view.outer * view.inner) {
    return InvalidArgument("has " + std::to_string(labels.count()) + " labels (" +
                           ShapeText(labels.data.sizes()) + ") for scores of shape " +
                           ShapeText(shape) + ", expected " +
                           std::to_string(view.outer * view.inner));
  }
  return view;
}

Result<ClassView> ViewRows(const Blob& rows, const Blob& labels, std::int64_t axis, const at::Tensor& weight) {
  const auto sizes = rows.data.sizes();
  const std::int64_t count = CountOf(sizes, 0, std::min(axis, rows.data.dim()));
  if (CountOf(sizes) != count * weight.size(1) || labels.count() != count) {
    return InvalidArgument("has bottoms of shape " + ShapeText(sizes) + " and " + ShapeText(labels.data.sizes()) + ", expected " +
                           std::to_string(weight.size(1)) + " numbers and a label for each row");
  }
  return ClassView{.axis = axis, .outer = count, .classes = weight.size(0), .inner = 1};
}

Result<Labels> ReadLabels(const at::Tensor& labels, const ClassView& view, std::optional<int> ignored,
                          std::optional<std::int64_t>* bad_row) {
  Labels read;
  read.index = labels.to(at::kLong).view({view.outer, 1, view.inner});
  read.valid_count = read.index.numel();
  std::vector<at::Tensor> numbers;
  if (ignored) {
    const at::Tensor valid = read.index.ne(*ignored);
    read.index.mul_(valid);
    read.valid = valid.to(labels.scalar_type());
    numbers.push_back(valid.sum());
  }
  if (read.index.numel() > 0) {
    const auto [low, high] = at::aminmax(read.index);
    numbers.push_back(low);
    numbers.push_back(high);
  }
  if (numbers.empty()) return read;
  // Together, because a device is waited for.
  const at::Tensor known = OnHost(at::stack(numbers));
  const std::int64_t* next = known.const_data_ptr<std::int64_t>();
  if (ignored) read.valid_count = *next++;
  if (read.index.numel() == 0) return read;
  const std::int64_t least = next[0];
  const std::int64_t most = next[1];
  if (least < 0 || most >= view.classes) {
    const at::Tensor wrong = read.index.eq(least < 0 ? least : most).view({-1});
    if (bad_row != nullptr) *bad_row = at::argmax(wrong.to(at::kLong)).item<std::int64_t>() / view.inner;
    return InvalidArgument("label " + std::to_string(least < 0 ? least : most) +
                           " is not among the " + std::to_string(view.classes) + " classes");
  }
  return read;
}

double Normalizer(const LossParameter& loss, LossParameter::NormalizationMode fallback, const ClassView& view,
                  std::int64_t valid_count) {
  double count = 1;
  switch (NormalizationOf(loss, fallback)) {
    case LossParameter::FULL: count = static_cast<double>(view.outer * view.inner); break;
    case LossParameter::VALID: count = static_cast<double>(valid_count); break;
    case LossParameter::BATCH_SIZE: count = static_cast<double>(view.outer); break;
    case LossParameter::NONE: break;
    case LossParameter::PRE_FIXED: count = static_cast<double>(loss.pre_fixed_normalizer()); break;
  }
  return std::max(1.0, count);
}

LossParameter::NormalizationMode NormalizationOf(const LossParameter& loss,
                                                 LossParameter::NormalizationMode fallback) {
  if (loss.has_normalization()) return loss.normalization();
  if (loss.has_normalize()) {
    return loss.normalize() ? LossParameter::VALID : LossParameter::BATCH_SIZE;
  }
  return fallback;
}

bool IsMaskedMean(const LossParameter& loss, LossParameter::NormalizationMode fallback) {
  return loss.has_ignore_label() && NormalizationOf(loss, fallback) == LossParameter::VALID;
}

}  // namespace poseidon::caffe
