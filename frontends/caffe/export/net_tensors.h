// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_NET_TENSORS_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_NET_TENSORS_H_

#include <string>

#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

// A net's learned blobs as named tensors: "conv1.0" is blob 0 of layer conv1, "ip#2.1" blob 1 of the second layer of name ip.
namespace poseidon::caffe {

// Writes the blobs of all layers of `net`, f32, shared ones under each of their layers.
Status WriteNetTensors(const Net& net, const std::string& path);

// The file as a saved model for `net`, layer by layer under the layers' own names; those that the net does not have stay as they
// are. A tensor without ".INDEX" behind its name is refused, and a layer of which one is missing.
Result<NetParameter> ReadNetTensors(const Net& net, const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_NET_TENSORS_H_
