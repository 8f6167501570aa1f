// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_GOLDEN_KINDS_H_
#define POSEIDON_TESTS_GOLDEN_KINDS_H_

#include "tests/golden/case.h"
#include "frontends/caffe/net/placement.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// One function per kind of case, each in its own file and in the table of kinds.inc. The working
// directory is the folder of the case. A failure (not an outcome) means that the case could not be
// run as asked; it counts as failed.
// `placement`: where its nets are.
#define POSEIDON_GOLDEN_KIND(kind, function) \
  Result<CaseOutcome> function(const GoldenCase& golden, const Placement& placement);
#include "tests/golden/kinds.inc"
#undef POSEIDON_GOLDEN_KIND

// For all kinds: the layer types of the case's net that do not exist here, as "layer type LSTM", or
// empty.
std::string MissingLayerTypes(const GoldenCase& golden);

}  // namespace poseidon::caffe

#endif  // POSEIDON_TESTS_GOLDEN_KINDS_H_
