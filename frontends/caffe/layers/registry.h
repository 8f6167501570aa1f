// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_REGISTRY_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/missing.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// A layer of the type that `param` names. An unknown type, the only failure, is an error that names a known one that is
// spelled nearly so; a known one joined by its line in layers.inc.
Result<std::unique_ptr<Layer>> MakeLayer(const LayerParameter& param, const LayerContext& context);

// What a layer would be refused for: a type that there is not, counts of bottoms and tops, fillers.
LayerRefusals RefusalsOf(const LayerParameter& param);

// In alphabetical order.
std::vector<std::string> LayerTypes();

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_REGISTRY_H_
