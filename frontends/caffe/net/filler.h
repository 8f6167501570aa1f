// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_FILLER_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_FILLER_H_

#include <ATen/core/Tensor.h>
#include <google/protobuf/message.h>

#include <vector>

#include "frontends/caffe/net/random.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Overwrites `tensor` (contiguous, f32 or f64) by the rule `filler` names: constant,
// uniform, gaussian (also sparse), positive_unitball, xavier, msra or bilinear. Element i depends on
// the stream, i and the shape only: not on threads, and f32 gets the rounded f64 numbers.
//
// As in Caffe, fan-in is count / shape[0] and fan-out count / shape[1] whatever the layer means by
// its axes. Fails for an unknown rule and for shapes or options the rule cannot take.
Status Fill(const FillerParameter& filler, const RandomStream& stream, const at::Tensor& tensor);

// What Fill would refuse the fillers for that `options` hold, at any depth; each reason once.
std::vector<Status> RefusedFillers(const google::protobuf::Message& options);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_FILLER_H_
