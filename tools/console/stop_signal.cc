// SPDX-License-Identifier: Apache-2.0
#include "tools/console/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace poseidon::tools {
namespace {

std::atomic<int> first_signal = 0;

}  // namespace

void UnblockSignals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ours, s);
  pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
}

int StopSignal() { return first_signal.load(); }

bool NoteStop(int signal_number) {
  int none = 0;
  return first_signal.compare_exchange_strong(none, signal_number);
}

}  // namespace poseidon::tools
