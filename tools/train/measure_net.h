// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_MEASURE_NET_H_
#define POSEIDON_TOOLS_TRAIN_MEASURE_NET_H_

#include "poseidon/base/result.h"
#include "tools/profile/plan_command.h"
#include "tools/profile/profile.h"

namespace poseidon::tools {

// Trains the net for a few iterations on one worker (SGD with momentum, learning rate 0) by the
// trainer's clock, and multiplies factors of its largest fully connected layer. A failure is a
// sentence about the net.
Result<profile::Profile> MeasureNet(const profile::MeasureOptions& options);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_MEASURE_NET_H_
