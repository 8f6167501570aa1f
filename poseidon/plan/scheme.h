// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SCHEME_H_
#define POSEIDON_PLAN_SCHEME_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace poseidon::plan {

// How a layer's gradient becomes the mean over all workers. The numbers are part of the wire
// protocol.
enum class Scheme : std::uint8_t {
  kKeyValue = 1,         // slices summed by their shard's owner
  kFactorBroadcast = 2,  // factors to everyone, one product everywhere; or the rows of a table, as they are
};

// What the planner makes least.
enum class Policy : std::uint8_t {
  kTime = 1,   // the predicted step time, and a little of the link's, over all layers together
  kBytes = 2,  // the bytes of the busiest machine, layer by layer: the published rule
};

// What a worker hands over for a layer under this scheme: its factors, or else its flat gradient.
constexpr bool TakesFactors(Scheme scheme) { return scheme != Scheme::kKeyValue; }

constexpr bool IsValid(Scheme scheme) {
  return scheme == Scheme::kKeyValue || scheme == Scheme::kFactorBroadcast;
}
constexpr bool IsValid(Policy policy) {
  return policy == Policy::kTime || policy == Policy::kBytes;
}
constexpr std::string_view NameOf(Scheme scheme) {
  switch (scheme) {
    case Scheme::kKeyValue:
      return "kv";
    case Scheme::kFactorBroadcast:
      return "sfb";
  }
  return "?";
}
constexpr std::string_view NameOf(Policy policy) {
  switch (policy) {
    case Policy::kTime:
      return "time";
    case Policy::kBytes:
      return "bytes";
  }
  return "?";
}
constexpr std::optional<Scheme> ParseScheme(std::string_view name) {
  for (const Scheme scheme : {Scheme::kKeyValue, Scheme::kFactorBroadcast}) {
    if (NameOf(scheme) == name) return scheme;
  }
  return std::nullopt;
}
constexpr std::optional<Policy> ParsePolicy(std::string_view name) {
  for (const Policy policy : {Policy::kTime, Policy::kBytes}) {
    if (NameOf(policy) == name) return policy;
  }
  return std::nullopt;
}

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SCHEME_H_
