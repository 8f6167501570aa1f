// SPDX-License-Identifier: Apache-2.0
#include "tools/train/event_output.h"

#include <iostream>
#include <variant>

#include "tools/console/width.h"

namespace poseidon::tools {

void EventOutput::Emit(const launch::Event& event) {
  MutexLock lock(mutex_);
  std::cout << launch::EncodeEvent(event) << std::endl;
}
void EventOutput::Print(const std::string& text) { Emit(launch::Print{text}); }
std::size_t EventOutput::width() const { return OutputWidth(); }
void EventOutput::Progress(const std::string& line) { Emit(launch::Progress{line}); }
void EventOutput::Log(LogLevel level, std::string_view line) { Emit(launch::Log{level, std::string(line)}); }
void EventOutput::PrintLog(const std::string& line) { Emit(launch::LogLine{line}); }

void Replay(const launch::Event& event, const std::string& member, caffe::Output& output) {
  if (const auto* const print = std::get_if<launch::Print>(&event)) output.Print(print->text);
  if (const auto* const progress = std::get_if<launch::Progress>(&event)) output.Progress(progress->line);
  if (const auto* const log = std::get_if<launch::Log>(&event)) output.Log(log->level, member + ": " + log->line);
  if (const auto* const line = std::get_if<launch::LogLine>(&event)) output.PrintLog(line->line);
}

}  // namespace poseidon::tools
