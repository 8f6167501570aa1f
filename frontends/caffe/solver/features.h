// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_FEATURES_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_FEATURES_H_

#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// How the row of a blob becomes a Datum with float_data.
enum class FeatureForm {
  kCaffe,     // channels, height and width of the blob; no label
  kPoseidon,  // Poseidon-Caffe's: 1 x numbers x 1, and the label from the net's blob `label`
};

// Returns a serialized Datum for every row (first axis) of the blob `name`, as the last Forward has left it. Fails where there is no such
// blob, where it has more than Caffe's four axes, and, in Poseidon-Caffe's form, where no blob `label` has a number for
// every row.
Result<std::vector<std::string>> FeaturesOf(const Net& net, const std::string& name, FeatureForm form);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_FEATURES_H_
