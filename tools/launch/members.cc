// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/members.h"

#include <algorithm>
#include <utility>

#include "poseidon/base/listed.h"
#include "tools/launch/process.h"

namespace poseidon::launch {

using nlohmann::json;

Members::~Members() {
  Kill();
  for (const Member& member : members_) member.AwaitEnd();
}

Status Members::Start(const MemberProcess& member, const json& task) {
  POSEIDON_ASSIGN_OR_RETURN(Process process, Process::Start(member.argv));
  const Status told = process.WriteLine(task.dump());
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

std::string Members::Missing() const {
  std::string names;
  for (const Member& member : members_) {
    if (!member.joined() && !member.ended()) AddListed(member.name(), &names);
  }
  return names;
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
  for (const Member& member : members_) records.push_back(member.record());
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

void Members::LetGo(int code) {
  for (Member& member : members_) member.LetGo({{"command", "end"}, {"code", code}});
}

void Members::Kill() {
  for (Member& member : members_) member.Kill();
}

}  // namespace poseidon::launch
