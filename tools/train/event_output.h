// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_EVENT_OUTPUT_H_
#define POSEIDON_TOOLS_TRAIN_EVENT_OUTPUT_H_

#include <cstddef>
#include <string>

#include "frontends/caffe/train/output.h"
#include "poseidon/base/mutex.h"
#include "tools/launch/events.h"

namespace poseidon::tools {

// A member's output as events for its launcher, on standard output. The launcher says how wide its terminal is (COLUMNS).
// Thread: any.
class EventOutput final : public caffe::Output {
 public:
  void Print(const std::string& text) override;
  void Progress(const std::string& line) override;
  void Log(LogLevel level, std::string_view line) override;
  void PrintLog(const std::string& line) override;
  std::size_t width() const override;
  void Emit(const launch::Event& event);

 private:
  Mutex mutex_;  // keeps lines whole
};

// Plays what a member's EventOutput was told at another output, in the launcher. Other events do nothing.
void Replay(const launch::Event& event, const std::string& member, caffe::Output& output);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_EVENT_OUTPUT_H_
