// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_WAITS_H_
#define POSEIDON_COORDINATOR_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/coordinator/progress.h"

// The graph of who waits for whom, by the members' reports. An operation is what several members bring something to: the
// gradient of a layer in a step, a collective, the layers of a model. A member that has brought its part waits for those
// that lack theirs. Who holds all up is found by walking these waits: somebody whose program does not wait in the core, or
// who waits for nothing that another lacks. Where all wait for each other, each lacks in one operation while it waits in
// another; then the operation that more than half of the workers have brought is the common order, and who lacks there has left it.
namespace poseidon::coordinator {

class WaitGraph {
 public:
  // Lifetime: that of what it is made of.
  WaitGraph(const ProgressState& state, const Standing& standing);

  // Who is missed, and for what.
  struct Missed {
    MemberId member;
    std::string what;               // "the gradient of layer 'ip1' in step 17"
    std::vector<MemberId> waiting;  // whose programs wait for it
    bool left = false;              // it has finished its part of the job
    bool blocked = false;           // its program waits in the core itself
    bool in_cycle = false;          // and those that wait for it hold it up
    bool in_doubt = false;          // in a cycle in which no operation has more than half of the workers
    std::vector<MemberId> also = {};  // who lacks in the same operation of a cycle
  };
  // None where nobody waits, or nobody knows for whom.
  std::optional<Missed> WhoIsMissed() const;

  // A part that was sent and has not arrived: "the gradient of ..." of the first, at the second. For where nobody is missed.
  struct Lost {
    std::string what;
    MemberId from;
    MemberId at;
  };
  std::optional<Lost> WhatWasLost() const;

  // What `member` waits for by its own report, and who has not brought it. None where it reports no wait.
  std::optional<std::pair<std::string, std::vector<MemberId>>> WaitOf(MemberId member) const;

 private:
  struct Lack {
    const Wait* wait = nullptr;
    MemberId at;  // where it is lacked
  };
  struct Operation {
    std::uint64_t step = 0;
    bool standing = false;             // the coordinator itself lacks it
    std::map<MemberId, Lack> lacking;  // who has not brought its part
    std::map<MemberId, Lack> sent;     // who says that it has, and it is lacked
    std::set<MemberId> brought;
    std::map<MemberId, const Wait*> owed;  // who waits for the result
  };

  Operation& At(const Wait& wait);
  void AddReport(MemberId by, const ProgressReport& report);
  void AddStanding(const Wait& wait);
  std::size_t Workers() const;  // that have not left
  bool Blocked(MemberId member) const;
  bool WaitsForOthers(MemberId member) const;
  std::vector<MemberId> WaitingIn(const Operation& operation) const;
  Missed MissedIn(const Operation& operation, MemberId member) const;
  std::optional<Missed> WhoHoldsUp() const;
  std::optional<Missed> WhoLeftTheOrder() const;
  std::optional<Missed> WhoOwesAResult() const;

  const ProgressState& state_;
  const Standing& standing_;
  std::map<std::string, Operation> operations_;  // by what their parts have in common
};

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_WAITS_H_
