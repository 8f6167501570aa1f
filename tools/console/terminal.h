// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_TERMINAL_H_
#define POSEIDON_TOOLS_CONSOLE_TERMINAL_H_

#include <cstddef>
#include <string>

#include "frontends/caffe/train/output.h"
#include "poseidon/base/mutex.h"
#include "tools/console/pinned_lines.h"

namespace poseidon::tools {

// Output for the person at the terminal: text on standard output, log lines on standard error, and,
// where standard output is a terminal, a progress line that the next output replaces. Never blocks: lines
// wait for a terminal that is paused, and those that it does not take in the end are dropped.
class Terminal final : public caffe::Output {
 public:
  Terminal();
  // From here on all that goes to standard output's terminal goes above these lines, and progress is the last of them; null: no longer.
  // Only where one thread uses this object, which also uses the lines.
  void Pin(PinnedLines* pinned);
  void Print(const std::string& text) override;
  void Progress(const std::string& line) override;
  void Log(LogLevel level, std::string_view line) override;
  void PrintLog(const std::string& line) override;
  std::size_t width() const override;

 private:
  void ClearProgress() POSEIDON_REQUIRES(mutex_);
  void Write(LineWriter& stream, const std::string& text) POSEIDON_REQUIRES(mutex_);
  const bool interactive_;
  const bool colours_;  // of the names of log levels
  Mutex mutex_;
  bool progress_shown_ POSEIDON_GUARDED_BY(mutex_) = false;
  PinnedLines* pinned_ POSEIDON_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_TERMINAL_H_
