// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_MEMBERS_H_
#define POSEIDON_TOOLS_LAUNCH_MEMBERS_H_

#include <chrono>
#include <cstddef>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/member.h"
#include "tools/launch/verdict.h"

namespace poseidon::launch {

// The members of a job that were started, by place. The destructor kills those that have not ended, and waits for them.
// Thread: the launcher's.
class Members {
 public:
  // Who has not answered for `answer_within`, when asked whether it lives, is frozen.
  explicit Members(std::chrono::steady_clock::duration answer_within) : answer_within_(answer_within) {}
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
  // The places of those that neither joined nor ended; of those that are frozen, where some are.
  std::vector<std::size_t> Missing() const;
  // The names of those at these places, as a list.
  std::string NamesOf(const std::vector<std::size_t>& places) const;
  // Asks those that have not ended, or only those on other hosts, whether they live.
  void AskWhoLives(bool elsewhere_only);
  // Those that have not ended, as a list of names, each with what it does instead.
  std::string Remaining() const;
  // What is known of each.
  std::vector<MemberRecord> Records() const;

  void TellFirst(const nlohmann::json& command);
  void TellAll(const nlohmann::json& command);
  void TellElsewhere(const nlohmann::json& command);
  // Tells all to end with this exit code, and closes their inputs: also on other hosts, and also while they wait for
  // others to join, members then end. `but`: the place of one that is not told.
  void LetGo(int code, std::optional<std::size_t> but = {});
  // See Member::Spare.
  void Spare(std::size_t place, Member::Clock::time_point until);
  void Kill();

 private:
  const std::chrono::steady_clock::duration answer_within_;
  std::list<Member> members_;
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_MEMBERS_H_
