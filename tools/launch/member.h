// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_MEMBER_H_
#define POSEIDON_TOOLS_LAUNCH_MEMBER_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/launcher.h"
#include "tools/launch/process.h"
#include "tools/launch/verdict.h"

namespace poseidon::launch {

// One member that was started: its process, what is known of it, and what it does now. Thread: the launcher's.
class Member {
 public:
  using Clock = std::chrono::steady_clock;

  // Lifetime: that of `member`.
  Member(const MemberProcess& member, Process process);

  const MemberRecord& record() const { return record_; }
  const std::string& name() const { return record_.member->name; }
  bool remote() const { return record_.member->remote; }
  bool ended() const { return process_.ended(); }
  // Its output, for poll; -1 once that has ended.
  int output() const { return output_open_ ? process_.output() : -1; }
  // Whether it is stopped on this host (SIGSTOP, a debugger), so that it answers nobody.
  bool IsStopped() const;

  // Writes a command to it. Who no longer reads is ending, which is noticed by itself.
  void Tell(const nlohmann::json& command);
  // Reads what is there. Returns the whole lines of it.
  std::vector<std::string> ReadLines();
  // Whether it has ended since it was last asked; its input is closed then. What it has said is there by then.
  bool Reap();
  // Nothing is read any more: a grandchild may hold the output open.
  void CloseOutput() { output_open_ = false; }

  // Tells it to end, and closes its input: members whose input ends, end.
  void LetGo(const nlohmann::json& end);
  // Ends it by force.
  void Kill();
  // Waits until its process is gone.
  void AwaitEnd() const;

  // What it has said.
  void NoteEvent() { record_.spoke = true; }
  void NoteJoined() { joined_ = true; }
  bool joined() const { return joined_; }
  void NoteSaving(bool saving) { saving_ = saving; }
  bool saving() const { return saving_; }
  void NoteAnswer() { asked_.reset(); }
  // Whether it is stopped here, or was asked whether it lives and has not answered for `patience`.
  bool IsFrozen(Clock::duration patience) const;
  // The first counts.
  void NoteFailure(const Failed& failure);
  // Asks it whether it lives, unless it was asked and has not answered. Returns when it was asked. A member reads and
  // answers in a thread of its own, whatever it is writing.
  Clock::time_point Ask();
  // It has saved while the job ends, and is not ended before that moment.
  void Spare(Clock::time_point until) { spared_until_ = until; }
  const std::optional<Clock::time_point>& spared_until() const { return spared_until_; }

 private:
  MemberRecord record_;
  Process process_;
  std::string partial_line_;
  bool output_open_ = true;
  bool joined_ = false;
  bool saving_ = false;
  std::optional<Clock::time_point> spared_until_;
  std::optional<Clock::time_point> asked_;  // whether it lives, and has not answered
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_MEMBER_H_
