// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/compression.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "poseidon/plan/units.h"

namespace poseidon::plan {
namespace {

// Per byte of a factor that is not in the cache, on one core (docs/decisions/schemes.md has the measurements).
constexpr double kCompressSecondsPerByte = 0.2e-9;
constexpr double kExpandSecondsPerByte = 0.2e-9;
// Of a message, whatever its size: looking at a part of it first, and memory that is touched once more.
constexpr double kSecondsPerFactor = 10e-6;

// A bit for each word of 32: what is added where there are no zeros.
constexpr double kBitmapShare = 1.0 / 32;

}  // namespace

CompressionCosts CompressionCostsOf(const ClusterSpec& cluster) {
  return {.wire = (cluster.bandwidth > 0 ? 1 / cluster.bandwidth : 0) + cluster.cpu_seconds_per_wire_byte,
          .compress = kCompressSecondsPerByte,
          .expand = kExpandSecondsPerByte};
}

std::uint64_t MostPayingBytes(std::uint64_t bytes, std::uint32_t receivers, const CompressionCosts& costs) {
  const double wire = receivers * costs.wire;
  if (wire <= 0) return 0;
  const double spent = static_cast<double>(bytes) * (costs.compress + receivers * costs.expand) + kSecondsPerFactor;
  const double most = static_cast<double>(bytes) - spent / wire;
  return most > 0 ? static_cast<std::uint64_t>(most) : 0;
}

std::string WhenFactorsAreCompressed(const Plan& plan, ZeroCompression mode) {
  const bool sends = std::any_of(plan.layers.begin(), plan.layers.end(),
                                 [](const LayerPlan& layer) { return TakesFactors(layer.scheme); });
  const std::uint32_t receivers = plan.cluster.factor_contributors() - 1;
  if (!sends || mode == ZeroCompression::kOff || receivers == 0) return {};
  if (mode == ZeroCompression::kAlways) return "every factor leaves without its zeros, as asked for";
  const CompressionCosts costs = CompressionCostsOf(plan.cluster);
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 30;  // beside which kSecondsPerFactor is nothing
  const double most = static_cast<double>(MostPayingBytes(kLarge, receivers, costs)) / static_cast<double>(kLarge);
  char text[200];
  std::snprintf(text, sizeof text,
                "a byte takes %.2f ns on the wire, and %.2f ns to leave zeros out of factors and put them back",
                1e9 * costs.wire, 1e9 * (costs.compress / receivers + costs.expand));
  if (most <= kBitmapShare) return std::string(text) + ": no factor leaves without its zeros";
  std::snprintf(text + std::string_view(text).size(), sizeof text - std::string_view(text).size(),
                ": large factors leave without them where more than %.0f %% are zeros",
                100 * (1 + kBitmapShare - most));
  return std::string(text) + "; predictions count them whole";
}

}  // namespace poseidon::plan
