// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace poseidon::launch {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int s : signals) sigaddset(&mask, s);
  sigprocmask(SIG_BLOCK, &mask, &before_);
  descriptor_ = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
}

SignalQueue::~SignalQueue() {
  if (!ok()) return;
  close(descriptor_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::Next() const {
  signalfd_siginfo info;
  if (read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void TakeAsByDefault(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);
}

}  // namespace poseidon::launch
