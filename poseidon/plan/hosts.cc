// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/hosts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace poseidon::plan {

std::vector<std::uint32_t> HostOfRank(std::span<const std::string> machines, Levels levels) {
  std::vector<std::uint32_t> host_of_rank;
  std::map<std::string, std::uint32_t> known;
  std::uint32_t hosts = 0;
  for (const std::string& machine : machines) {
    std::uint32_t host = hosts;
    if (!machine.empty()) host = known.emplace(machine, hosts).first->second;
    if (host == hosts) ++hosts;
    host_of_rank.push_back(host);
  }
  const bool nobody_shares = hosts == machines.size();
  if (levels == Levels::kFlat || nobody_shares || (levels == Levels::kAuto && hosts == 1)) return {};
  return host_of_rank;
}

std::uint32_t HostCount(std::span<const std::uint32_t> host_of_rank) {
  return host_of_rank.empty() ? 0
                              : *std::max_element(host_of_rank.begin(), host_of_rank.end()) + 1;
}

std::vector<std::uint16_t> RanksOf(std::span<const std::uint32_t> host_of_rank,
                                   std::uint32_t host) {
  return RanksByHost(host_of_rank)[host];
}

std::vector<std::vector<std::uint16_t>> RanksByHost(std::span<const std::uint32_t> host_of_rank) {
  std::vector<std::vector<std::uint16_t>> ranks(HostCount(host_of_rank));
  for (std::size_t r = 0; r < host_of_rank.size(); ++r) ranks[host_of_rank[r]].push_back(static_cast<std::uint16_t>(r));
  return ranks;
}

std::uint16_t LeadersPerHost(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers) {
  if (host_of_rank.empty() || servers > 0) return 1;
  std::size_t fewest = kMostLeaders;
  for (const auto& ranks : RanksByHost(host_of_rank)) fewest = std::min(fewest, ranks.size());
  return static_cast<std::uint16_t>(fewest);
}

bool FactorsAreFlat(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers) {
  return servers == 0 && HostCount(host_of_rank) == 1;
}

std::uint16_t SharersOfLink(std::span<const std::uint32_t> host_of_rank, std::uint32_t servers) {
  return FactorsAreFlat(host_of_rank, servers) ? std::uint16_t{1} : LeadersPerHost(host_of_rank, servers);
}

std::string HostsText(std::uint32_t hosts) { return hosts == 1 ? "one host" : std::to_string(hosts) + " hosts"; }

bool AreHosts(std::span<const std::uint32_t> host_of_rank, std::uint32_t workers) {
  if (host_of_rank.empty()) return true;
  std::uint32_t hosts = 0;
  for (const std::uint32_t host : host_of_rank) {
    // Without a gap in the numbers every host has a rank, and RanksOf finds its leader (AtLeaders).
    if (host > hosts) return false;
    if (host == hosts) ++hosts;
  }
  // HostOfRank answers with nothing where every worker has a host of its own.
  return host_of_rank.size() == workers && hosts < workers;
}

std::vector<std::uint32_t> SumByHost(std::span<const std::uint32_t> host_of_rank,
                                     std::span<const std::uint32_t> values) {
  if (host_of_rank.empty() || values.empty()) return {values.begin(), values.end()};
  std::vector<std::uint32_t> sums(HostCount(host_of_rank), 0);
  for (std::size_t r = 0; r < values.size(); ++r) {
    std::uint32_t& sum = sums[host_of_rank[r]];
    // Each worker reports a value of its own, so the sum of a host may exceed 32 bits.
    sum += std::min(values[r], std::numeric_limits<std::uint32_t>::max() - sum);
  }
  return sums;
}

}  // namespace poseidon::plan
