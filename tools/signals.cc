// SPDX-License-Identifier: Apache-2.0
#include "tools/signals.h"

#include <signal.h>

#include <atomic>

namespace poseidon::tools {
namespace {

// Handlers are given nothing but the signal's number.
std::atomic<SignalRequests*> receiver = nullptr;

}  // namespace

SignalRequests::~SignalRequests() {
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) signal(s, SIG_DFL);
  receiver.store(nullptr);
}

void SignalRequests::Begin() {
  receiver.store(this);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) signal(s, OnSignal);
}

void SignalRequests::OnSignal(int signal_number) {
  SignalRequests* const self = receiver.load();
  if (self == nullptr) return;
  if (signal_number == SIGTERM) return self->requests_.terminate.store(true);
  const std::string& effect =
      signal_number == SIGINT ? self->options_.sigint_effect : self->options_.sighup_effect;
  if (effect == "stop") self->requests_.stop.store(true);
  if (effect == "snapshot") self->requests_.snapshot.store(true);
}

}  // namespace poseidon::tools
