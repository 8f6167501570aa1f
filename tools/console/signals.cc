// SPDX-License-Identifier: Apache-2.0
#include "tools/console/signals.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>

#include "tools/console/exit_code.h"
#include "tools/console/stop_signal.h"

namespace poseidon::tools {
namespace {

// Handlers get nothing but the signal's number: all that they read is in these globals and is never
// destroyed.
enum class Effect { kNone, kSnapshot, kStop };
std::atomic<Effect> interrupt_effect = Effect::kNone;
std::atomic<Effect> hangup_effect = Effect::kNone;
caffe::Requests requests;
std::array<std::atomic<const char*>, 2> files_left = {};

Effect EffectNamed(const std::string& name) {
  return name == "stop" ? Effect::kStop : name == "snapshot" ? Effect::kSnapshot : Effect::kNone;
}

// Does not wait for a terminal that takes nothing.
void SayAtOnce(std::string_view text) {
  pollfd polled = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&polled, 1, 0) != 1 || (polled.revents & POLLOUT) == 0) return;
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

void OnSignal(int signal_number) {
  const Effect effect = signal_number == SIGTERM  ? Effect::kStop
                        : signal_number == SIGINT ? interrupt_effect.load()
                                                  : hangup_effect.load();
  if (effect == Effect::kSnapshot) requests.snapshot.store(true);
  if (effect != Effect::kStop) return;
  if (!NoteStop(signal_number)) {
    for (const auto& path : files_left) {
      if (path.load() != nullptr) unlink(path.load());
    }
    SayAtOnce("poseidon: ended at once by a second request to stop\n");
    _exit(kExitFailed);
  }
  (signal_number == SIGTERM ? requests.terminate : requests.stop).store(true);
}

}  // namespace

void ReceiveSignals(const caffe::TrainOptions& options) {
  interrupt_effect.store(EffectNamed(options.sigint_effect));
  hangup_effect.store(EffectNamed(options.sighup_effect));
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) signal(s, OnSignal);
  UnblockSignals();
}

caffe::Requests& SignalRequests() { return requests; }

void RemoveAtSecondStop(const std::string& path) {
  for (auto& place : files_left) {
    if (path.empty()) {
      place.store(nullptr);
    } else if (place.load() == nullptr) {
      // A handler may read it at any time from now on, so it is never freed.
      place.store((new std::string(path))->c_str());
      return;
    }
  }
}

}  // namespace poseidon::tools
