// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_HOSTS_H_
#define POSEIDON_PLAN_HOSTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Two levels: the workers of one host combine what they have through the host's memory, and some of
// them, the leaders, take part in the network's schemes for all, each with a part of the layers. Pure functions of who
// runs where.
namespace poseidon::plan {

// The numbers are those of the C header.
enum class Levels : std::uint8_t {
  kFlat = 0,  // every worker exchanges for itself
  kHost = 1,  // workers of one host combine first: on one host gradients alone (FactorsAreFlat)
  kAuto = 2,  // as kHost where there are several hosts and one of them has several workers, else flat
};

constexpr std::string_view NameOf(Levels levels) {
  switch (levels) {
    case Levels::kFlat:
      return "flat";
    case Levels::kHost:
      return "host";
    case Levels::kAuto:
      return "auto";
  }
  return "?";
}
constexpr std::optional<Levels> ParseLevels(std::string_view name) {
  for (const Levels levels : {Levels::kFlat, Levels::kHost, Levels::kAuto}) {
    if (NameOf(levels) == name) return levels;
  }
  return std::nullopt;
}

// Returns the host of each rank, from the machine that each worker says it runs on (empty: one of its
// own). Hosts are numbered in the order of their lowest ranks. Empty where all workers exchange flat,
// because nobody shares a machine or `levels` says so.
std::vector<std::uint32_t> HostOfRank(std::span<const std::string> machines, Levels levels);

// How many hosts there are; 0 for flat workers.
std::uint32_t HostCount(std::span<const std::uint32_t> host_of_rank);
// The ranks of one host, ascending. The first LeadersPerHost of them are its leaders.
std::vector<std::uint16_t> RanksOf(std::span<const std::uint32_t> host_of_rank, std::uint32_t host);
// The same of every host, by host.
std::vector<std::vector<std::uint16_t>> RanksByHost(std::span<const std::uint32_t> host_of_rank);

// With more leaders the messages of the smaller parts cost what another leader gains.
inline constexpr std::uint16_t kMostLeaders = 8;

// How many leaders every host has: as many as the host with the fewest workers has of them, at most kMostLeaders. 1 beside
// dedicated servers, which expect a host's contributions from one member, and of flat workers.
std::uint16_t LeadersPerHost(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers);

// Whether workers that combine gradients send factors to each other all the same, and every worker multiplies for itself: on one host,
// where nothing crosses a network. Gathered in the host's memory, they would be multiplied by one worker for all, and the dense mean
// copied to each.
bool FactorsAreFlat(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers);

// Among how many members a link's traffic is divided: a host's leaders; 1 where every worker has a link of its own (flat workers, and
// those of FactorsAreFlat).
std::uint16_t SharersOfLink(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers);

// "one host", "3 hosts".
std::string HostsText(std::uint32_t hosts);

// True for what HostOfRank can have answered about so many workers.
bool AreHosts(std::span<const std::uint32_t> host_of_rank, std::uint32_t workers);

// `values` by rank, added up by host, at most what fits; as they are for flat workers.
std::vector<std::uint32_t> SumByHost(std::span<const std::uint32_t> host_of_rank,
                                     std::span<const std::uint32_t> values);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_HOSTS_H_
