// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_STRONG_ID_H_
#define POSEIDON_BASE_STRONG_ID_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace poseidon {

// A number that cannot be confused with another kind of number.
template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr StrongId next() const { return StrongId(static_cast<Rep>(value_ + 1)); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_ = 0;
};

// A process in the job, dense from 0: workers first (member = rank at start), then dedicated
// servers. Member 0 hosts the coordinator.
using MemberId = StrongId<struct MemberTag, std::uint16_t>;
// A logical worker: owns a share of the batch and a place in sums.
using Rank = StrongId<struct RankTag, std::uint16_t>;
// One model of a process; a layer's place in the agreed declaration order of its model.
using ModelId = StrongId<struct ModelTag, std::uint16_t>;
using LayerId = StrongId<struct LayerTag, std::uint32_t>;
// A training iteration, from 0.
using Step = StrongId<struct StepTag, std::uint64_t>;
// The version of the membership, and of the plan within a generation.
using Generation = StrongId<struct GenerationTag, std::uint32_t>;
using PlanEpoch = StrongId<struct PlanEpochTag, std::uint32_t>;

}  // namespace poseidon

template <typename Tag, typename Rep>
struct std::hash<poseidon::StrongId<Tag, Rep>> {
  std::size_t operator()(poseidon::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};

#endif  // POSEIDON_BASE_STRONG_ID_H_
