// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_EXPORT_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_EXPORT_H_

#include <string>

#include "frontends/caffe/export/deploy_net.h"
#include "frontends/caffe/export/onnx.pb.h"
#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// `net`, built of `deploy` in the TEST phase, f32, with its weights, as an ONNX model of operator set 13. Inputs and outputs
// have their blobs' names. With `any_batch` the model takes any batch where every layer of the net does: where the same
// net builds with one image more and all shapes grow with it. `version` is ours. kUnimplemented names all layers
// that ONNX cannot say.
Result<onnx::ModelProto> ToOnnx(const Net& net, const DeployNet& deploy, bool any_batch, const std::string& version);

// Writes the model to `path`. With `apart`, and where it would exceed the 2 GiB of a protobuf message, the large tensors are in
// PATH.data, which belongs beside it. Each file is whole or as it was before; takes the tensors out of `model` then.
Status WriteOnnx(onnx::ModelProto model, const std::string& path, bool apart);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_EXPORT_H_
