// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/member.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "tools/launch/descendants.h"

namespace poseidon::launch {

using nlohmann::json;

Member::Member(const MemberProcess& member, Process process)
    : record_{.member = &member, .pid = process.pid()}, process_(std::move(process)) {}

bool Member::IsStopped() const {
  const std::optional<ProcessState> state = StateOf(process_.pid());
  return state && (state->letter == 'T' || state->letter == 't');
}

void Member::Tell(const json& command) {
  if (!ended()) static_cast<void>(process_.WriteLine(command.dump()));
}

std::vector<std::string> Member::ReadLines() {
  std::vector<std::string> lines;
  const std::optional<std::string> text = process_.ReadSome();
  if (!text) {
    output_open_ = false;
    return lines;
  }
  partial_line_ += *text;
  for (std::size_t end; (end = partial_line_.find('\n')) != std::string::npos;) {
    lines.push_back(partial_line_.substr(0, end));
    partial_line_.erase(0, end + 1);
  }
  return lines;
}

bool Member::Reap() {
  const std::optional<int> status = process_.TryWait();
  if (!status) return false;
  record_.wait_status = status;
  process_.CloseInput();
  return true;
}

void Member::LetGo(const json& end) {
  if (ended()) return;
  record_.ended_by_us = true;
  Tell(end);
  process_.CloseInput();
}

void Member::Kill() {
  if (ended()) return;
  record_.ended_by_us = true;
  process_.Signal(SIGKILL);
}

void Member::AwaitEnd() const {
  if (!ended()) waitpid(process_.pid(), nullptr, 0);
}

void Member::NoteFailure(const Failed& failure) {
  if (!record_.failure) record_.failure = failure;
}

bool Member::IsFrozen(Clock::duration patience) const {
  return !ended() && (IsStopped() || (asked_ && Clock::now() >= *asked_ + patience));
}

Member::Clock::time_point Member::Ask() {
  if (!asked_) {
    asked_ = Clock::now();
    Tell({{"command", "answer"}});
  }
  return *asked_;
}

}  // namespace poseidon::launch
