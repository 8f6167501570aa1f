// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/features.h"

#include <array>
#include <cstdint>
#include <limits>

#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {
namespace {

constexpr std::size_t kAxes = 4;

Status SetShape(const std::string& name, const Shape& shape, FeatureForm form, Datum* datum) {
  std::array<std::int64_t, kAxes> dims{1, 1, 1, 1};  // axes that are missing are behind, as Caffe reads an old shape
  if (shape.size() > kAxes) {
    return InvalidArgument("blob '" + name + "' has " + std::to_string(shape.size()) + " axes, expected at most " + std::to_string(kAxes) +
                           ": a Datum has channels, height and width");
  }
  for (std::size_t i = 0; i < shape.size(); ++i) dims[i] = shape[i];
  if (form == FeatureForm::kPoseidon) dims = {dims[0], 1, dims[1] * dims[2] * dims[3], 1};
  for (const std::int64_t dim : dims) {
    if (dim > std::numeric_limits<int>::max()) return InvalidArgument("blob '" + name + "' has too many numbers a row for a Datum");
  }
  datum->set_channels(static_cast<int>(dims[1]));
  datum->set_height(static_cast<int>(dims[2]));
  datum->set_width(static_cast<int>(dims[3]));
  return OkStatus();
}

// The label of each row; empty where the form has none.
Result<std::vector<int>> LabelsOf(const Net& net, std::int64_t rows, FeatureForm form) {
  std::vector<int> labels;
  if (form == FeatureForm::kCaffe) return labels;
  const Blob* const blob = net.blob("label");
  if (blob == nullptr || blob->count() < rows) {
    return InvalidArgument("the net has no blob 'label' with a number for each of " + std::to_string(rows) + " rows, which features in Poseidon-Caffe's form have");
  }
  const at::Tensor numbers = OnHost(blob->data);
  for (std::int64_t i = 0; i < rows; ++i) labels.push_back(static_cast<int>(numbers.const_data_ptr<float>()[i]));
  return labels;
}

}  // namespace

Result<std::vector<std::string>> FeaturesOf(const Net& net, const std::string& name, FeatureForm form) {
  const Blob* const blob = net.blob(name);
  if (blob == nullptr) return InvalidArgument("unknown feature blob '" + name + "': the net has no blob of that name");
  const at::Tensor numbers = OnHost(blob->data);
  const Shape shape = blob->shape();
  const std::int64_t rows = shape.empty() ? 1 : shape[0];
  Datum datum;
  POSEIDON_RETURN_IF_ERROR(SetShape(name, shape, form, &datum));
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<int> labels, LabelsOf(net, rows, form));
  std::vector<std::string> features(static_cast<std::size_t>(rows));
  const std::int64_t width = rows == 0 ? 0 : numbers.numel() / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* const first = numbers.const_data_ptr<float>() + row * width;
    datum.mutable_float_data()->Assign(first, first + width);
    if (!labels.empty()) datum.set_label(labels[static_cast<std::size_t>(row)]);
    if (!datum.SerializeToString(&features[static_cast<std::size_t>(row)])) {
      return ResourceExhausted("blob '" + name + "' has too many numbers a row for a Datum");
    }
  }
  return features;
}

}  // namespace poseidon::caffe
