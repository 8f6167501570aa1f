// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/silence.h"

#include <algorithm>
#include <cstddef>

namespace poseidon::coordinator {
namespace {

using Members = std::set<MemberId>;
using Hosts = std::set<std::string>;

template <typename T>
using Pairs = std::set<std::pair<T, T>>;

// Returns the member that is part of all pairs, where there are two or more of them.
// One pair has two ends and does not show which of them fails. A member of all pairs is an end of the first one.
template <typename T>
std::optional<T> PartOfAll(const Pairs<T>& pairs) {
  if (pairs.size() < 2) return std::nullopt;
  for (const T& candidate : {pairs.begin()->first, pairs.begin()->second}) {
    const bool part_of_all = std::all_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return pair.first == candidate || pair.second == candidate;
    });
    if (part_of_all) return candidate;
  }
  return std::nullopt;
}

class Explaining {
 public:
  Explaining(const Hearing& hearing, const LivenessRule& rule)
      : hearing_(hearing), rule_(rule), members_(hearing.members) {
    for (const Member& member : members_) {
      if (IsHere(member.id)) (IsHeard(member.id) ? alive_ : gone_).insert(member.id);
    }
  }

  Blame Explain() const { return gone_.empty() ? BlameForLinks() : BlameForGone(); }

 private:
  bool IsHere(MemberId member) const {
    return member == hearing_.self || hearing_.silence[member.value()].has_value();
  }
  Duration SilenceOf(MemberId member) const {
    return hearing_.silence[member.value()].value_or(Duration{0});
  }
  // A report about a third member counts only from a member that this one hears itself.
  bool Speaks(MemberId member) const {
    return IsHere(member) && SilenceOf(member) < rule_.suspect_after();
  }
  bool Hears(MemberId by, MemberId about) const {
    if (by == hearing_.self) return SilenceOf(about) < rule_.suspect_after();
    return !hearing_.reported.contains({by, about});
  }
  bool IsHeard(MemberId member) const {
    return member == hearing_.self ||
           std::any_of(members_.begin(), members_.end(), [&](const Member& by) {
             return by.id != member && Speaks(by.id) && Hears(by.id, member);
           });
  }

  std::string Name(MemberId member) const {
    return coordinator::Describe(members_[member.value()]) +
           (member == kHost ? ", which runs the coordinator," : "");
  }
  const std::string& HostOf(MemberId member) const { return members_[member.value()].address; }
  Hosts HostsOf(const Members& members) const {
    Hosts hosts;
    for (const MemberId member : members) hosts.insert(HostOf(member));
    return hosts;
  }
  std::string LongestSilence() const {
    Duration longest = rule_.suspect_after();
    for (const auto& silence : hearing_.silence) longest = std::max(longest, silence.value_or(longest));
    for (const auto& [link, silence] : hearing_.reported) longest = std::max(longest, silence);
    return InSeconds(longest);
  }

  Blame BlameForGone() const {
    const Hosts alive_hosts = HostsOf(alive_);
    Hosts gone_hosts = HostsOf(gone_);
    std::optional<MemberId> on_live_host;
    // A host with a process that is heard is well, and so is its network: the silent process there is frozen. Only
    // hosts of which nobody is heard may have been cut off.
    for (const MemberId member : gone_) {
      if (!alive_hosts.contains(HostOf(member))) continue;
      gone_hosts.erase(HostOf(member));
      if (!on_live_host) on_live_host = member;
    }
    // Hosts are counted and not members, because a cable cuts off all members of its host. With equal halves each side
    // would blame the other.
    if (gone_hosts.size() >= alive_hosts.size() && !on_live_host) return CannotTellWhoIsCutOff();
    const MemberId culprit = on_live_host.value_or(*gone_.begin());
    if (gone_.size() == 1) {
      return {culprit, Name(culprit) + " has been silent for " + LongestSilence() +
                           ": it is frozen, or its host or network is gone"};
    }
    return {culprit, DescribeAll(members_, gone_) + " have been silent for " + LongestSilence() +
                         ": they are frozen, or their hosts or networks are gone"};
  }

  Blame CannotTellWhoIsCutOff() const {
    const std::string silent = DescribeAll(members_, gone_);
    const std::string are = gone_.size() == 1 ? " is" : " are";
    if (alive_.size() == 1) {
      return {std::nullopt, DescribeAll(members_, alive_) + " has heard nobody for " +
                                LongestSilence() + ": it is cut off, or " + silent + are +
                                " frozen or gone; it cannot be told which"};
    }
    return {std::nullopt, DescribeAll(members_, alive_) +
                              " hear each other, but nothing from " + silent + " for " +
                              LongestSilence() + ": the network between them is gone, or " +
                              silent + are + " frozen or gone; it cannot be told which"};
  }

  Blame BlameForLinks() const {
    Pairs<MemberId> broken;
    Pairs<std::string> broken_hosts;
    std::pair<MemberId, MemberId> one_way;  // the last that was found
    for (const Member& by : members_) {
      for (const Member& about : members_) {
        if (!Speaks(by.id) || !IsHere(about.id) || by.id == about.id || Hears(by.id, about.id)) continue;
        broken.insert(std::minmax(by.id, about.id));
        broken_hosts.insert(std::minmax(by.address, about.address));
        one_way = {by.id, about.id};
      }
    }
    // Between two hosts there is one network link, however many members use it.
    const std::optional<std::string> host = PartOfAll(broken_hosts);
    const bool within_one_host =
        broken_hosts.size() == 1 && broken_hosts.begin()->first == broken_hosts.begin()->second;
    // Within one host no network is used, so its links are judged by their members.
    const std::optional<MemberId> member = within_one_host ? PartOfAll(broken) : std::nullopt;
    if (member || host) {
      Members at_fault;
      Members others;
      for (const auto& [a, b] : broken) {
        for (const MemberId end : {a, b}) {
          const bool blamed = member ? end == *member : HostOf(end) == *host;
          (blamed ? at_fault : others).insert(end);
        }
      }
      // The lowest id, which all members choose alike.
      return {*at_fault.begin(),
              "the links between " + DescribeAll(members_, at_fault) + " and " +
                  DescribeAll(members_, others) + " have been silent for " + LongestSilence() +
                  ", and no others: the network of " + DescribeAll(members_, at_fault) + " fails"};
    }
    return {std::nullopt, coordinator::Describe(members_[one_way.first.value()]) +
                              " has heard nothing from " +
                              coordinator::Describe(members_[one_way.second.value()]) + " for " +
                              LongestSilence() +
                              ", though both run: it cannot be told which end of their link fails"};
  }

  const Hearing& hearing_;
  const LivenessRule& rule_;
  const std::vector<Member>& members_;
  Members alive_;  // heard by somebody whom this member hears, or by itself
  Members gone_;
};

}  // namespace

Blame BlameForSilence(const Hearing& hearing, const LivenessRule& rule) {
  return Explaining(hearing, rule).Explain();
}

std::string DescribeAll(const std::vector<Member>& members, const std::set<MemberId>& which) {
  std::string text;
  std::size_t left = which.size();
  for (const MemberId member : which) {
    if (!text.empty()) text += left == 1 ? " and " : ", ";
    text += Describe(members[member.value()]);
    --left;
  }
  return text;
}

}  // namespace poseidon::coordinator
