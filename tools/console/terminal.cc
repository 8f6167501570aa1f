// SPDX-License-Identifier: Apache-2.0
#include "tools/console/terminal.h"

#include <unistd.h>

#include <string>

#include "tools/console/colour.h"
#include "tools/console/line_writer.h"
#include "tools/console/width.h"

namespace poseidon::tools {
namespace {

const char* ColourOf(LogLevel level) {
  switch (level) {
    case LogLevel::kWarning: return kYellow;
    case LogLevel::kError: return kRed;
    default: return nullptr;
  }
}

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kNotice: return "notice";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "?";
}

}  // namespace

Terminal::Terminal() : interactive_(isatty(STDOUT_FILENO) == 1), colours_(ShowsColours(STDERR_FILENO)) {}

std::size_t Terminal::width() const { return OutputWidth(); }

void Terminal::ClearProgress() {
  if (!progress_shown_) return;
  StandardOutput().Write("\r\x1b[K");
  progress_shown_ = false;
}

void Terminal::Pin(PinnedLines* pinned) {
  MutexLock lock(mutex_);
  ClearProgress();
  pinned_ = pinned;
}

void Terminal::Write(LineWriter& stream, const std::string& text) {
  if (pinned_ != nullptr && &stream == &StandardOutput()) return pinned_->Print(text);
  ClearProgress();
  stream.Write(text);
}

void Terminal::Print(const std::string& text) {
  MutexLock lock(mutex_);
  Write(StandardOutput(), text + "\n");
}

void Terminal::Progress(const std::string& line) {
  if (!interactive_) return;
  MutexLock lock(mutex_);
  if (pinned_ != nullptr) return pinned_->Note(line);
  StandardOutput().WriteOrDrop("\r\x1b[K" + line);
  progress_shown_ = true;
}

void Terminal::Log(LogLevel level, std::string_view line) {
  if (level == LogLevel::kDebug) return;
  MutexLock lock(mutex_);
  const std::string name = InColour(colours_ ? ColourOf(level) : nullptr, std::string(NameOf(level)) + ":");
  Write(StandardError(), name + " " + std::string(line) + "\n");
}

void Terminal::PrintLog(const std::string& line) {
  MutexLock lock(mutex_);
  Write(StandardError(), line + "\n");
}

}  // namespace poseidon::tools
