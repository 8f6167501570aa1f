// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_BEATS_H_
#define POSEIDON_TOOLS_LAUNCH_BEATS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace poseidon::launch {

// Whether the launcher's machine is still there. A machine that vanishes ends no connection; so the launcher sends
// {"command": "beat", "within"} to members elsewhere: the next one comes within so many seconds. {"command": "pause"}: it is
// being suspended, and sends none until it goes on. Thread-safe.
class Beats {
 public:
  // A command of the launcher, these two or another one.
  void Take(const nlohmann::json& command) {
    const std::string word = command.value("command", "");
    if (word == "pause") due_ = kNever;
    if (word == "beat") due_ = Now() + static_cast<std::int64_t>(command.value("within", 0.0) * 1e9);
  }
  // Whether a beat should come.
  bool Expected() const { return due_ != kNever; }
  // Whether it should have come by now.
  bool Missed() const { return Now() > due_; }

  // How often Missed() should be asked.
  static constexpr std::chrono::milliseconds kBetweenLooks{200};

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  static std::int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::atomic<std::int64_t> due_{kNever};
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_BEATS_H_
