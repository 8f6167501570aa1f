// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_BOXES_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_BOXES_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "frontends/caffe/data/box.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The boxes that a net's predictions are relative to, and what a unit of each coordinate of a prediction is.
template <typename T>
struct Priors {
  std::vector<Box<T>> boxes;
  std::vector<std::array<T, 4>> variances;
};

// Of a blob of shape 1 x 2 x 4P, which PriorBox makes. Fails for another shape, for a variance that is not above 0, and for a
// box without area where `code` divides by its sides.
template <typename T>
Result<Priors<T>> ReadPriors(const at::Tensor& blob, PriorBoxParameter::CodeType code);

// How boxes become predictions: which form, and whether the loss or the prediction holds the variances.
struct BoxCode {
  PriorBoxParameter::CodeType type = PriorBoxParameter::CORNER;
  bool variance_in_target = false;
};

// The box that four predictions stand for, relative to prior `index`.
template <typename T>
Box<T> Decode(const BoxCode& code, const Priors<T>& priors, std::size_t index, const T* prediction);
// The reverse; `box` has an area where the code is CENTER_SIZE.
template <typename T>
std::array<T, 4> Encode(const BoxCode& code, const Priors<T>& priors, std::size_t index, const Box<T>& box);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_BOXES_H_
