// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_DEBUG_LINES_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_DEBUG_LINES_H_

#include <functional>
#include <string>

#include "frontends/caffe/net/net.h"

namespace poseidon::caffe {

// Prints for debug_info as Caffe does, line by line: mean absolute values of what layers compute.
using DebugSink = std::function<void(const std::string& line)>;

// The tops and the learned blobs of a layer that has run forward.
void DebugForward(const Net& net, int layer, const DebugSink& sink);
// The gradients of the bottoms and, unless `by_factors` (then there are none), of the learned blobs.
void DebugBackward(const Net& net, int layer, bool by_factors, const DebugSink& sink);
// Norms over all learned blobs and their gradients.
void DebugAllParams(const Net& net, const DebugSink& sink);
// A learned blob before its update and, in `update`, what is taken off it.
void DebugUpdate(const Net& net, const LearnableParam& param, const at::Tensor& before, const at::Tensor& update,
                 const DebugSink& sink);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_DEBUG_LINES_H_
