// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon::coordinator {
namespace {

using ::testing::HasSubstr;

// Workers on the hosts that the letters of `hosts` name.
std::vector<Member> On(const std::string& hosts) {
  std::vector<Member> members;
  for (const char host : hosts) {
    const auto id = static_cast<std::uint16_t>(members.size());
    members.push_back({.id = MemberId(id),
                       .rank = Rank(id),
                       .shard = id,
                       .connection = ConnectionId(id),
                       .host = std::string(1, host),
                       .address = std::string("10.0.0.") + host});
  }
  return members;
}

struct Link {
  std::uint16_t by;
  std::uint16_t about;
};

// What `self` makes of `silent` and of what the others said.
Blame Seen(std::uint16_t self, const std::string& hosts, const std::vector<std::uint16_t>& silent,
           const std::vector<Link>& reported = {}) {
  const LivenessRule rule;
  const std::vector<Member> members = On(hosts);
  Hearing hearing{.self = MemberId(self), .members = members, .silence = {}};
  for (const Member& member : members) {
    const bool quiet = std::find(silent.begin(), silent.end(), member.id.value()) != silent.end();
    hearing.silence.push_back(quiet ? rule.dead_after_silence() : Duration{0});
  }
  hearing.silence[self].reset();
  for (const Link& link : reported) {
    hearing.reported.emplace(std::pair(MemberId(link.by), MemberId(link.about)), rule.suspect_after());
  }
  return BlameForSilence(hearing, rule);
}

TEST(Silent, AMemberThatNobodyHearsIsToBlameWhereMoreHostsAreHeard) {
  const Blame blame = Seen(0, "abc", {1}, {{2, 1}});
  EXPECT_EQ(blame.culprit, MemberId(1));
  EXPECT_EQ(blame.reason,
            "worker 1 on host b has been silent for 29.5 s: it is frozen, or its host or network is gone");
  EXPECT_EQ(Seen(2, "abc", {0}, {{1, 0}}).reason,
            "worker 0 on host a, which runs the coordinator, has been silent for 29.5 s: it is frozen, or "
            "its host or network is gone");
}

TEST(Silent, TwoAtOnceAreBothNamed) {
  const Blame blame = Seen(0, "abcde", {2, 4}, {{1, 2}, {1, 4}, {3, 2}, {3, 4}});
  EXPECT_EQ(blame.culprit, MemberId(2));
  EXPECT_EQ(blame.reason,
            "worker 2 on host c and worker 4 on host e have been silent for 29.5 s: they are frozen, or "
            "their hosts or networks are gone");
}

TEST(Silent, WhoHearsNobodyCannotTell) {
  const Blame blame = Seen(0, "abc", {1, 2});
  EXPECT_EQ(blame.culprit, std::nullopt);
  EXPECT_EQ(blame.reason,
            "worker 0 on host a has heard nobody for 29.5 s: it is cut off, or worker 1 on host b and "
            "worker 2 on host c are frozen or gone; it cannot be told which");
  EXPECT_EQ(Seen(1, "ab", {0}).culprit, std::nullopt);
}

TEST(Silent, EqualHalvesCannotTellAndSayWhatTheySaw) {
  const std::vector<Link> heard_here = {{1, 2}, {1, 3}};
  const Blame blame = Seen(0, "aabb", {2, 3}, heard_here);
  EXPECT_EQ(blame.culprit, std::nullopt);
  EXPECT_EQ(blame.reason,
            "worker 0 on host a and worker 1 on host a hear each other, but nothing from worker 2 on host "
            "b and worker 3 on host b for 29.5 s: the network between them is gone, or worker 2 on host b "
            "and worker 3 on host b are frozen or gone; it cannot be told which");
  EXPECT_EQ(Seen(0, "abcd", {2, 3}, heard_here).culprit, std::nullopt);
  // Three hosts: the side with two of them is right.
  EXPECT_EQ(Seen(0, "aabbc", {2, 3}, {{1, 2}, {1, 3}, {4, 2}, {4, 3}}).culprit, MemberId(2));
  EXPECT_EQ(Seen(2, "aabbc", {0, 1, 4}, {{3, 0}, {3, 1}, {3, 4}}).culprit, std::nullopt);
}

TEST(Silent, OnAHostThatLivesNobodyIsCutOff) {
  EXPECT_EQ(Seen(0, "aaa", {1, 2}).culprit, MemberId(1));
  EXPECT_EQ(Seen(0, "ab", {1}).culprit, std::nullopt);
  EXPECT_EQ(Seen(0, "aa", {1}).culprit, MemberId(1));
  // Its neighbour is heard, so the host is well.
  EXPECT_EQ(Seen(0, "abb", {2}, {{1, 2}}).culprit, MemberId(2));
}

TEST(Silent, OneBrokenLinkHasTwoEnds) {
  // The third hears both.
  const Blame blame = Seen(0, "abc", {1});
  EXPECT_EQ(blame.culprit, std::nullopt);
  EXPECT_THAT(blame.reason, HasSubstr("it cannot be told which end of their link fails"));
  EXPECT_EQ(Seen(2, "abc", {}, {{0, 1}}).culprit, std::nullopt);
  // Between two hosts there is one link, whoever uses it.
  EXPECT_EQ(Seen(0, "aabbc", {2, 3}, {{1, 2}, {1, 3}}).culprit, std::nullopt);
}

TEST(Silent, OfSeveralBrokenLinksTheCommonEndIsToBlame) {
  EXPECT_EQ(Seen(0, "abcd", {}, {{1, 2}, {1, 3}}).culprit, MemberId(1));
  // It hears nobody, and all hear it.
  EXPECT_EQ(Seen(0, "abc", {}, {{2, 0}, {2, 1}}).culprit, MemberId(2));
  EXPECT_EQ(Seen(0, "abbcc", {}, {{1, 3}, {1, 0}, {2, 4}, {2, 0}}).culprit, MemberId(1));
}

TEST(Silent, WhoHasLeftIsNeitherSilentNorHeard) {
  const LivenessRule rule;
  const std::vector<Member> members = On("abc");
  const Hearing hearing{.self = MemberId(0),
                        .members = members,
                        .silence = {std::nullopt, rule.dead_after_silence(), std::nullopt}};
  EXPECT_EQ(BlameForSilence(hearing, rule).culprit, std::nullopt);
}

}  // namespace
}  // namespace poseidon::coordinator
