// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/members.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "poseidon/base/listed.h"
#include "tools/launch/process.h"
#include "tools/launch/task_text.h"

namespace poseidon::launch {

using nlohmann::json;

Members::~Members() {
  Kill();
  for (const Member& member : members_) member.AwaitEnd();
}

Status Members::Start(const MemberProcess& member, const json& task) {
  POSEIDON_ASSIGN_OR_RETURN(Process process, Process::Start(member.argv));
  const Status told = process.WriteLine(EncodeTask(task));
  members_.emplace_back(member, std::move(process));
  return told;
}

bool Members::AllJoined() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.joined(); });
}

bool Members::AllEnded() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.ended() && member.output() < 0; });
}

std::vector<std::size_t> Members::Missing() const {
  std::vector<std::size_t> missing, frozen;
  std::size_t place = 0;
  for (const Member& member : members_) {
    const std::size_t here = place++;
    if (member.joined() || member.ended()) continue;
    missing.push_back(here);
    if (member.IsFrozen(answer_within_)) frozen.push_back(here);
  }
  return frozen.empty() ? missing : frozen;
}

std::string Members::NamesOf(const std::vector<std::size_t>& places) const {
  std::string names;
  for (const std::size_t place : places) {
    AddListed(std::next(members_.begin(), static_cast<std::ptrdiff_t>(place))->name(), &names);
  }
  return names;
}

void Members::AskWhoLives(bool elsewhere_only) {
  for (Member& member : members_) {
    if (!member.ended() && (member.remote() || !elsewhere_only)) member.Ask();
  }
}

std::string Members::Remaining() const {
  std::string names;
  for (const Member& member : members_) {
    if (member.ended()) continue;
    AddListed(member.name() + (member.saving() ? " (is saving)" : member.IsStopped() ? " (is stopped)" : ""), &names);
  }
  return names;
}

std::vector<MemberRecord> Members::Records() const {
  std::vector<MemberRecord> records;
  for (const Member& member : members_) {
    records.push_back(member.record());
    records.back().frozen = member.IsFrozen(answer_within_);
  }
  return records;
}

void Members::TellFirst(const json& command) {
  if (!members_.empty()) members_.front().Tell(command);
}

void Members::TellAll(const json& command) {
  for (Member& member : members_) member.Tell(command);
}

void Members::TellElsewhere(const json& command) {
  for (Member& member : members_) {
    if (member.remote()) member.Tell(command);
  }
}

void Members::LetGo(int code, std::optional<std::size_t> but) {
  std::size_t place = 0;
  for (Member& member : members_) {
    if (place++ != but) member.LetGo({{"command", "end"}, {"code", code}});
  }
}

void Members::Spare(std::size_t place, Member::Clock::time_point until) {
  std::next(members_.begin(), static_cast<std::ptrdiff_t>(place))->Spare(until);
}

void Members::Kill() {
  for (Member& member : members_) member.Kill();
}

}  // namespace poseidon::launch
