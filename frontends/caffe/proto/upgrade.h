// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_H_

#include <string>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/missing.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Rewrites the older forms of a net in place into today's:
//   `layers` with an inner `layer`, the first form of all (see upgrade_v0.h)   -> `layers`
//   transform options inside data, image and window layers (old `layers` only) -> transform_param
//   `layers` with enum types, blobs_lr, weight_decay, param strings            -> `layer`
//   `input` with `input_dim` or `input_shape`                                  -> a first Input layer
//   `input` without either, of blobs that a layer makes                        -> nothing
//   three params of a BatchNorm layer                                          -> lr and decay 0
//   `bn_stats_batch_size` of Intel's fork                                      -> stats_batch_size of every BatchNorm
// Fails, naming `name`, when forms of layers are mixed, for what the first form does not have, and for
// input dimensions that do not fit the inputs.
Status UpgradeNet(const std::string& name, NetParameter* net);

// solver_type: ADAM -> type: "Adam". Both at once are an error.
Status UpgradeSolver(const std::string& name, SolverParameter* solver);

// Read and upgraded; errors name the file. `judge` as in ReadTextFile.
Result<NetParameter> ReadNet(const std::string& prototxt, const JudgeLayer& judge = {});
Result<NetParameter> ReadModel(const std::string& caffemodel);
// Nets inside the solver are upgraded as well; nets it only names are not read.
Result<SolverParameter> ReadSolver(const std::string& prototxt);
// The same as it is written, but for a list of devices.
Result<SolverParameter> ReadSolverText(const std::string& prototxt);

// A layer of the older form (its options of transforms are where they were) in today's.
LayerParameter UpgradedLayer(const V1LayerParameter& old);

// "InnerProduct" for INNER_PRODUCT; empty for NONE.
std::string TypeName(V1LayerParameter::LayerType type);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_H_
