// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_SILENCE_H_
#define POSEIDON_COORDINATOR_SILENCE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/coordinator/membership.h"

// Who is to blame when members do not hear each other. Every member that hears nothing from another
// for suspect_after says so to all, so each knows who hears whom; all members ask the same pure
// function, and those who can talk to each other get the same answer.
namespace poseidon::coordinator {

// One member's knowledge of who hears whom.
struct Hearing {
  MemberId self;
  const std::vector<Member>& members;
  // By member id: how long this member has heard nothing from it. None: it has left, or it is this
  // member.
  std::vector<std::optional<Duration>> silence;
  // The first says that it hears nothing from the second, and for how long.
  std::map<std::pair<MemberId, MemberId>, Duration> reported = {};
};

struct Blame {
  std::optional<MemberId> culprit;  // none: nobody can know which member it is
  std::string reason;               // one sentence: what was seen, and what follows
};

// A member is silent when it has not been heard for suspect_after. One that nobody hears is frozen, or gone,
// or cut off. It is to blame if another process of its host is heard, because then its host and
// network are well, or if more hosts are heard than are silent. Else the silent ones may be well and
// this side cut off, and there is no culprit. Where every member is heard by somebody only links are broken:
// the culprit is the member at the end of all of them, if they are two or more.
// Members of one address count as one host: they reach each other without a network.
Blame BlameForSilence(const Hearing& hearing, const LivenessRule& rule);

// "worker 1 on host b, worker 2 on host c and worker 3 on host d".
std::string DescribeAll(const std::vector<Member>& members, const std::set<MemberId>& which);

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_SILENCE_H_
