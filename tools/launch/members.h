// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_MEMBERS_H_
#define POSEIDON_TOOLS_LAUNCH_MEMBERS_H_

#include <cstddef>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/launch/member.h"
#include "tools/launch/verdict.h"

namespace poseidon::launch {

// The members of a job that were started, by place. The destructor kills those that have not ended, and waits for them.
// Thread: the launcher's.
class Members {
 public:
  Members() = default;
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;
  ~Members();

  // Starts one more and gives it its task. Lifetime: that of `member`. Those that were there stay where they are.
  Status Start(const MemberProcess& member, const nlohmann::json& task);

  std::size_t size() const { return members_.size(); }
  bool IsFirst(const Member& member) const { return &member == &members_.front(); }
  std::list<Member>::iterator begin() { return members_.begin(); }
  std::list<Member>::iterator end() { return members_.end(); }

  bool AllJoined() const;
  // Whether all have ended, and said all that they had to say.
  bool AllEnded() const;
  // Those that neither joined nor ended, as a list of names.
  std::string Missing() const;
  // Those that have not ended, as a list of names, each with what it does instead.
  std::string Remaining() const;
  // What is known of each.
  std::vector<MemberRecord> Records() const;

  void TellFirst(const nlohmann::json& command);
  void TellAll(const nlohmann::json& command);
  void TellElsewhere(const nlohmann::json& command);
  // Tells all to end with this exit code, and closes their inputs: also on other hosts, and also while they wait for
  // others to join, members then end.
  void LetGo(int code);
  void Kill();

 private:
  std::list<Member> members_;
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_MEMBERS_H_
