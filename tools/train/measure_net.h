// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_MEASURE_NET_H_
#define POSEIDON_TOOLS_MEASURE_NET_H_

#include <string>

#include "poseidon/base/result.h"
#include "tools/profile/profile.h"

namespace poseidon::tools {

struct MeasureOptions {
  std::string model;    // net prototxt
  int iterations = 18;  // rounded up to a multiple of 9, the trainer's own window
  int threads = 0;      // 0: one per core
  int level = 0;
  std::string stages;  // comma-separated
};

// Trains the net for a few iterations on one worker (SGD with momentum, learning rate 0) by the
// trainer's clock, and multiplies factors of its largest fully connected layer. A failure is a
// sentence about the net.
Result<profile::Profile> MeasureNet(const MeasureOptions& options);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_MEASURE_NET_H_
