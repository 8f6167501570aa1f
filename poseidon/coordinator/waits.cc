// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/waits.h"

#include <algorithm>
#include <tuple>

namespace poseidon::coordinator {

WaitGraph::WaitGraph(const ProgressState& state, const Standing& standing) : state_(state), standing_(standing) {
  bool any_blocked = false;
  for (const auto& [by, report] : state_.reports) {
    AddReport(by, report);
    any_blocked |= report.blocked;
  }
  // Without a program that waits in a call, all may just be computing on their way to what the coordinator lacks.
  for (const Wait& wait : standing_.waits) {
    if (any_blocked) AddStanding(wait);
  }
  // Whoever makes a sum for its host lacks the shares of others there, and the other hosts lack its sum: it has brought
  // its own part. So has a member whose part is lacked where it did not arrive.
  for (auto& [of, operation] : operations_) {
    for (const MemberId member : operation.brought) {
      const auto found = operation.lacking.find(member);
      if (found == operation.lacking.end()) continue;
      operation.sent.insert(*found);
      operation.lacking.erase(found);
    }
  }
}

WaitGraph::Operation& WaitGraph::At(const Wait& wait) {
  Operation& operation = operations_[wait.of.empty() ? wait.what : wait.of];
  operation.step = wait.step;
  return operation;
}

void WaitGraph::AddReport(MemberId by, const ProgressReport& report) {
  const bool works = by.value() < state_.members.size() && state_.members[by.value()].role == Role::kWorker;
  for (const Wait& wait : report.waits) {
    Operation& operation = At(wait);
    for (const MemberId member : wait.on) operation.lacking.emplace(member, Lack{&wait, by});
    // A server that lacks parts brings none.
    if (works && std::find(wait.on.begin(), wait.on.end(), by) == wait.on.end()) operation.brought.insert(by);
  }
  for (const Wait& wait : report.owed) {
    Operation& operation = At(wait);
    operation.brought.insert(by);
    operation.owed.emplace(by, &wait);
  }
}

void WaitGraph::AddStanding(const Wait& wait) {
  Operation& operation = At(wait);
  operation.standing = true;
  for (const MemberId member : wait.on) operation.lacking.emplace(member, Lack{&wait, kHost});
  for (const Member& member : state_.members) {
    const bool lacks = operation.lacking.contains(member.id);
    if (!lacks && member.role == Role::kWorker) operation.brought.insert(member.id);
  }
}

std::size_t WaitGraph::Workers() const {
  return static_cast<std::size_t>(std::count_if(state_.members.begin(), state_.members.end(), [this](const Member& member) {
    return member.role == Role::kWorker && !standing_.left.contains(member.id);
  }));
}

bool WaitGraph::Blocked(MemberId member) const {
  const auto report = state_.reports.find(member);
  return report != state_.reports.end() && report->second.blocked;
}

bool WaitGraph::WaitsForOthers(MemberId member) const {
  return std::any_of(operations_.begin(), operations_.end(), [member](const auto& named) {
    return !named.second.lacking.empty() && named.second.brought.contains(member);
  });
}

// Those that have brought their part, and those whose reports do not say what they wait for.
std::vector<MemberId> WaitGraph::WaitingIn(const Operation& operation) const {
  std::vector<MemberId> waiting;
  for (const auto& [member, report] : state_.reports) {
    const bool brought = operation.brought.contains(member);
    const bool unknown = report.waits.empty() && report.owed.empty() && !operation.lacking.contains(member);
    if (report.blocked && (brought || unknown) && !standing_.gone.contains(member)) waiting.push_back(member);
  }
  if (!waiting.empty()) return waiting;
  // No program waits: the one that makes the sum lacks it, or who has left does.
  std::set<MemberId> lacked_at;
  for (const auto& [member, lack] : operation.lacking) lacked_at.insert(lack.at);
  for (const MemberId member : operation.standing ? standing_.left : lacked_at) {
    if (!operation.lacking.contains(member)) waiting.push_back(member);
  }
  return waiting;
}

WaitGraph::Missed WaitGraph::MissedIn(const Operation& operation, MemberId member) const {
  return {.member = member,
          .what = operation.lacking.at(member).wait->what,
          .waiting = WaitingIn(operation),
          .left = standing_.left.contains(member),
          .blocked = Blocked(member)};
}

std::optional<WaitGraph::Missed> WaitGraph::WhoIsMissed() const {
  if (std::optional<Missed> missed = WhoHoldsUp()) return missed;
  if (std::optional<Missed> missed = WhoLeftTheOrder()) return missed;
  return WhoOwesAResult();
}

// First a member that has left, because it will bring nothing; then one whose program does not wait in the core, and then
// one that waits for nobody that is known, because it holds up those that do; then the earlier step.
std::optional<WaitGraph::Missed> WaitGraph::WhoHoldsUp() const {
  using Place = std::tuple<bool, bool, bool, std::uint64_t, MemberId>;
  std::optional<std::pair<Place, const Operation*>> first;
  for (const auto& [of, operation] : operations_) {
    for (const auto& [member, lack] : operation.lacking) {
      const bool left = standing_.left.contains(member);
      if (!left && Blocked(member) && WaitsForOthers(member)) continue;
      const Place place{!left, Blocked(member), operation.standing, operation.step, member};
      if (!first || place < first->first) first = {place, &operation};
    }
  }
  if (!first) return std::nullopt;
  return MissedIn(*first->second, std::get<MemberId>(first->first));
}

// All that are missed wait themselves, so their waits close a cycle.
std::optional<WaitGraph::Missed> WaitGraph::WhoLeftTheOrder() const {
  const Operation* common = nullptr;
  const auto before = [](const Operation& a, const Operation& b) {
    // The more have brought it the better.
    return std::tuple(b.brought.size(), a.standing, a.step) < std::tuple(a.brought.size(), b.standing, b.step);
  };
  for (const auto& [of, operation] : operations_) {
    if (!operation.lacking.empty() && (common == nullptr || before(operation, *common))) common = &operation;
  }
  if (common == nullptr) return std::nullopt;
  Missed missed = MissedIn(*common, common->lacking.begin()->first);
  missed.in_cycle = true;
  // All workers take part in every operation. Nobody says of some that they lack: followers of a leader that lacks itself.
  missed.in_doubt = 2 * common->brought.size() <= Workers();
  for (const auto& [member, lack] : common->lacking) {
    if (member != missed.member) missed.also.push_back(member);
  }
  return missed;
}

// All parts are there: what was made of them has not arrived.
std::optional<WaitGraph::Missed> WaitGraph::WhoOwesAResult() const {
  std::optional<std::tuple<bool, std::uint64_t, MemberId>> first;
  const Wait* result = nullptr;
  for (const auto& [of, operation] : operations_) {
    if (!operation.sent.empty()) continue;  // a part is lacked, although it was sent
    for (const auto& [by, wait] : operation.owed) {
      if (!Blocked(by)) continue;
      for (const MemberId member : wait->on) {
        const std::tuple place(Blocked(member), wait->step, member);
        if (!first || place < *first) first = place, result = wait;
      }
    }
  }
  if (!first) return std::nullopt;
  const MemberId member = std::get<MemberId>(*first);
  Missed missed{.member = member, .what = result->what, .waiting = {}, .blocked = Blocked(member)};
  for (const auto& [other, report] : state_.reports) {
    if (other != member && report.blocked && !standing_.gone.contains(other)) missed.waiting.push_back(other);
  }
  return missed;
}

std::optional<WaitGraph::Lost> WaitGraph::WhatWasLost() const {
  for (const auto& [of, operation] : operations_) {
    if (operation.sent.empty()) continue;
    const auto& [from, lack] = *operation.sent.begin();
    return Lost{lack.wait->what, from, lack.at};
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, std::vector<MemberId>>> WaitGraph::WaitOf(MemberId member) const {
  const Operation* lacked = nullptr;
  for (const auto& [of, operation] : operations_) {
    if (operation.lacking.empty() || !operation.brought.contains(member)) continue;
    const auto place = [](const Operation& one) { return std::pair(one.standing, one.step); };
    if (lacked == nullptr || place(operation) < place(*lacked)) lacked = &operation;
  }
  if (lacked != nullptr) {
    std::vector<MemberId> on;
    for (const auto& [other, lack] : lacked->lacking) on.push_back(other);
    return std::pair(lacked->lacking.begin()->second.wait->what, std::move(on));
  }
  for (const auto& [of, operation] : operations_) {
    const auto owed = operation.owed.find(member);
    if (owed != operation.owed.end()) return std::pair(owed->second->what, owed->second->on);
  }
  return std::nullopt;
}

}  // namespace poseidon::coordinator
