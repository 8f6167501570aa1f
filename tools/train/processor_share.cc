// SPDX-License-Identifier: Apache-2.0
#include "tools/train/processor_share.h"

#include <cmath>
#include <ctime>

namespace poseidon::tools {
namespace {

constexpr double kEnoughAlone = 0.8;
constexpr double kEnoughOfSeveral = 0.6;

double SecondsOf(clockid_t clock) {
  std::timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

ProcessorShare::ProcessorShare()
    : wall_(SecondsOf(CLOCK_MONOTONIC)), processor_(SecondsOf(CLOCK_THREAD_CPUTIME_ID)) {}

double ProcessorShare::now() const {
  const double wall = SecondsOf(CLOCK_MONOTONIC) - wall_;
  return wall > 0 ? (SecondsOf(CLOCK_THREAD_CPUTIME_ID) - processor_) / wall : 1;
}

std::string BusyMachineWarning(double share, int threads) {
  if (share >= (threads > 1 ? kEnoughOfSeveral : kEnoughAlone)) return "";
  return "the thread that was timed had a processor for " + std::to_string(std::lround(100 * share)) +
         " % of the time only: times are too long; measure again when other programs rest, or with fewer --threads";
}

}  // namespace poseidon::tools
