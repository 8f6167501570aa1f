// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/boxes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
template <typename T>
Result<Priors<T>> ReadPriors(const at::Tensor& blob, PriorBoxParameter::CodeType code) {
  const std::int64_t count = blob.dim() > 2 ? blob.size(2) / 4 : 0;
  if (blob.dim() < 3 || blob.numel() != 8 * count) {
    return InvalidArgument("priors have shape " + ShapeText(blob.sizes()) + ", expected 1x2 and a multiple of 4");
  }
  const at::Tensor numbers = blob.contiguous();
  const T* box = numbers.template const_data_ptr<T>();
  const T* variance = box + 4 * count;
  Priors<T> priors;
  for (std::int64_t i = 0; i < count; ++i, box += 4, variance += 4) {
    priors.boxes.push_back({box[0], box[1], box[2], box[3]});
    priors.variances.push_back({variance[0], variance[1], variance[2], variance[3]});
    const bool positive = std::all_of(variance, variance + 4, [](T v) { return v > 0; });
    const bool has_sides = box[2] > box[0] && box[3] > box[1];
    if (!positive || (!has_sides && code != PriorBoxParameter::CORNER)) {
      return InvalidArgument("prior " + std::to_string(i) + (positive ? " has no area" : " has a variance that is not above 0"));
    }
  }
  return priors;
}

template <typename T>
Box<T> Decode(const BoxCode& code, const Priors<T>& priors, std::size_t index, const T* prediction) {
  const Box<T>& prior = priors.boxes[index];
  std::array<T, 4> p = {prediction[0], prediction[1], prediction[2], prediction[3]};
  for (std::size_t i = 0; i < 4 && !code.variance_in_target; ++i) p[i] *= priors.variances[index][i];
  const T width = prior.x2 - prior.x1;
  const T height = prior.y2 - prior.y1;
  switch (code.type) {
    case PriorBoxParameter::CORNER: break;
    case PriorBoxParameter::CORNER_SIZE:
      return {prior.x1 + p[0] * width, prior.y1 + p[1] * height, prior.x2 + p[2] * width, prior.y2 + p[3] * height};
    case PriorBoxParameter::CENTER_SIZE: {
      const T x = p[0] * width + (prior.x1 + prior.x2) / 2;
      const T y = p[1] * height + (prior.y1 + prior.y2) / 2;
      const T w = std::exp(p[2]) * width / 2;
      const T h = std::exp(p[3]) * height / 2;
      return {x - w, y - h, x + w, y + h};
    }
  }
  return {prior.x1 + p[0], prior.y1 + p[1], prior.x2 + p[2], prior.y2 + p[3]};
}

template <typename T>
std::array<T, 4> Encode(const BoxCode& code, const Priors<T>& priors, std::size_t index, const Box<T>& box) {
  const Box<T>& prior = priors.boxes[index];
  const T width = prior.x2 - prior.x1;
  const T height = prior.y2 - prior.y1;
  std::array<T, 4> encoded = {box.x1 - prior.x1, box.y1 - prior.y1, box.x2 - prior.x2, box.y2 - prior.y2};
  switch (code.type) {
    case PriorBoxParameter::CORNER: break;
    case PriorBoxParameter::CORNER_SIZE:
      for (std::size_t i = 0; i < 4; ++i) encoded[i] /= i % 2 == 0 ? width : height;
      break;
    case PriorBoxParameter::CENTER_SIZE:
      encoded = {((box.x1 + box.x2) / 2 - (prior.x1 + prior.x2) / 2) / width, ((box.y1 + box.y2) / 2 - (prior.y1 + prior.y2) / 2) / height,
                 std::log((box.x2 - box.x1) / width), std::log((box.y2 - box.y1) / height)};
      break;
  }
  for (std::size_t i = 0; i < 4 && !code.variance_in_target; ++i) encoded[i] /= priors.variances[index][i];
  return encoded;
}

template struct Priors<float>;
template struct Priors<double>;
template Result<Priors<float>> ReadPriors(const at::Tensor&, PriorBoxParameter::CodeType);
template Result<Priors<double>> ReadPriors(const at::Tensor&, PriorBoxParameter::CodeType);
template Box<float> Decode(const BoxCode&, const Priors<float>&, std::size_t, const float*);
template Box<double> Decode(const BoxCode&, const Priors<double>&, std::size_t, const double*);
template std::array<float, 4> Encode(const BoxCode&, const Priors<float>&, std::size_t, const Box<float>&);
template std::array<double, 4> Encode(const BoxCode&, const Priors<double>&, std::size_t, const Box<double>&);

}  // namespace poseidon::caffe
