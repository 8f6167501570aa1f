// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_PROCESSOR_SHARE_H_
#define POSEIDON_TOOLS_TRAIN_PROCESSOR_SHARE_H_

#include <string>

namespace poseidon::tools {

// Which share of the time, since it was made, its thread had a processor. Thread: the one that made it.
class ProcessorShare {
 public:
  ProcessorShare();
  double now() const;

 private:
  double wall_;
  double processor_;
};

// For the user whose times were measured by `threads` compute threads, the first of which had a processor for `share` of the
// time: that others took it; empty: the times are good. The first of several also waits for the others.
std::string BusyMachineWarning(double share, int threads);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_PROCESSOR_SHARE_H_
