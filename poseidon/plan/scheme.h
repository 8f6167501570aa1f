// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_SCHEME_H_
#define POSEIDON_PLAN_SCHEME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace poseidon::plan {

// How a layer's gradient becomes the mean over all workers. The numbers are part of the wire
// protocol. What else there is to know of a scheme is its row (schemes.h), which answers the
// functions below.
enum class Scheme : std::uint8_t {
  kKeyValue = 1,         // slices summed by their shard's owner
  kFactorBroadcast = 2,  // factors to everyone, one product everywhere; or the rows of a table, as they are
  kFactorScatter = 3,    // factors to the shards' owners, each of which makes its slice of the sum
};

bool IsValid(Scheme scheme);
// The name in flags, plan files, options and reports; "?" of what is not valid.
std::string_view NameOf(Scheme scheme);
std::optional<Scheme> ParseScheme(std::string_view name);
// Whether a worker hands over factors for a layer under this scheme (of a table, its rows), and not its
// flat gradient.
bool TakesFactors(Scheme scheme);
// All names in a sentence, each behind `before`: "kv, sfb or fsc", "LAYER=kv, LAYER=sfb or LAYER=fsc".
std::string SchemeNames(std::string_view before = {});

// The scheme that others are compared with. It sends whole gradients, so its cost is defined for every layer,
// also for one that it does not apply to.
inline constexpr Scheme kDense = Scheme::kKeyValue;

// The quantity that the planner minimises.
enum class Policy : std::uint8_t {
  kTime = 1,   // the predicted step time, and a little of the link's, over all layers together
  kBytes = 2,  // the bytes of the busiest machine, layer by layer: the published rule
};

constexpr bool IsValid(Policy policy) {
  return policy == Policy::kTime || policy == Policy::kBytes;
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
constexpr std::optional<Policy> ParsePolicy(std::string_view name) {
  for (const Policy policy : {Policy::kTime, Policy::kBytes}) {
    if (NameOf(policy) == name) return policy;
  }
  return std::nullopt;
}

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_SCHEME_H_
