// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_COMPRESSION_H_
#define POSEIDON_PLAN_COMPRESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "poseidon/plan/cluster.h"
#include "poseidon/plan/plan.h"

// Whether factors leave without their zeros, and when that pays. Pure functions.
namespace poseidon::plan {

// The numbers are those of the C header.
enum class ZeroCompression : std::uint8_t {
  kAuto = 0,    // each factor for which it takes less time than sending the zeros
  kOff = 1,     // none
  kAlways = 2,  // every factor, for tests
};

constexpr std::string_view NameOf(ZeroCompression mode) {
  switch (mode) {
    case ZeroCompression::kAuto:
      return "auto";
    case ZeroCompression::kOff:
      return "off";
    case ZeroCompression::kAlways:
      return "always";
  }
  return "?";
}
constexpr std::optional<ZeroCompression> ParseZeroCompression(std::string_view name) {
  for (const ZeroCompression mode : {ZeroCompression::kAuto, ZeroCompression::kOff, ZeroCompression::kAlways}) {
    if (NameOf(mode) == name) return mode;
  }
  return std::nullopt;
}

// What a byte costs, in seconds.
struct CompressionCosts {
  double wire = 0;      // of the link, and of both ends' processors, each time that it is sent
  double compress = 0;  // once at the sender
  double expand = 0;    // at each receiver
};
CompressionCosts CompressionCostsOf(const ClusterSpec& cluster);

// Returns the most bytes that a factor of so many bytes may have compressed, for `receivers` members, if compressing it
// is to take less time than its zeros take on the wire; 0 where no number is small enough. Workers send alike, so what
// the receivers spend on this one's factor this one spends on theirs.
std::uint64_t MostPayingBytes(std::uint64_t bytes, std::uint32_t receivers, const CompressionCosts& costs);

// One line: from which share of zeros on factors leave without them, and the costs that say so. Empty where the plan
// sends no factors, or they never leave compressed.
std::string WhenFactorsAreCompressed(const Plan& plan, ZeroCompression mode);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_COMPRESSION_H_
