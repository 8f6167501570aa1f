// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/stream.h"

#include <cerrno>
#include <cmath>
#include <ctime>

namespace poseidon::replay {

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void SleepUntil(double when) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(std::floor(when));
  until.tv_nsec = static_cast<long>(1e9 * (when - std::floor(when)));
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

namespace {

double ThreadCpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

void Spin(double seconds) {
  const double until = ThreadCpuSeconds() + seconds;
  volatile std::uint64_t work = 1;
  while (ThreadCpuSeconds() < until) {
    for (int i = 0; i < 4000; ++i) work = work * 6364136223846793005u + 1;
  }
}

}  // namespace

void Stream::Run(double seconds, bool idle) {
  if (kind_ == Kind::kSpins) {
    std::lock_guard core(core_);
    return Spin(seconds);
  }
  double due = 0;
  {
    std::lock_guard lock(mutex_);
    due = timeline_.Queue(seconds, idle, Now());
  }
  SleepUntil(due);
}

}  // namespace poseidon::replay
