// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/shard.h"

#include <algorithm>
#include <new>
#include <string>

namespace poseidon::kv {

Shard::Shard(const Spec& spec)
    : spec_(spec),
      bytes_(spec.elements * SizeOf(spec.dtype)),
      arrivals_(spec.ranks) {}

Status Shard::BeginRound(Rank rank, Step step) {
  // Here and not where it is written first: Advance has no failure.
  if (!spec_.local_rank && !sum_buffer_) {
    sum_buffer_.reset(new (std::nothrow) std::byte[bytes_]);
    if (!sum_buffer_) {
      return ResourceExhausted("there is no memory for the " + std::to_string(bytes_) + " bytes of a sum");
    }
    allocated_ += bytes_;
  }
  in_round_ = true;
  any_round_ = true;
  begun_by_ = rank;
  step_ = step;
  summed_ = 0;
  sum_ = nullptr;
  for (Arrival& a : arrivals_) {
    a.arrived = 0;
    a.memory = nullptr;
    a.memory_at = 0;
    a.weight = 0;
    a.begun = false;
  }
  return OkStatus();
}

// A contribution must be to the round under way, or begin the next one; a rank contributes once.
Status Shard::Check(Rank rank, Step step) {
  if (rank.value() >= spec_.ranks) {
    return DataLoss("a contribution names rank " + std::to_string(rank.value()) + " of " +
                    std::to_string(spec_.ranks));
  }
  if (!in_round_) {
    // Before the first round step_ is no step's number, and step 0 may come.
    if (any_round_ && step <= step_) {
      return DataLoss("a contribution to step " + std::to_string(step.value()) +
                      " came after that step's sum");
    }
    POSEIDON_RETURN_IF_ERROR(BeginRound(rank, step));
  }
  if (step != step_) {
    return DataLoss("a contribution is for step " + std::to_string(step.value()) +
                    ", expected step " + std::to_string(step_.value()));
  }
  if (arrivals_[rank.value()].arrived == bytes_) {
    return DataLoss("rank " + std::to_string(rank.value()) + " contributes twice to step " +
                    std::to_string(step.value()));
  }
  return OkStatus();
}

std::optional<Shard::Disagreement> Shard::Disagrees(Rank rank, Step step) const {
  if (!in_round_ || step == step_ || arrivals_[rank.value()].begun) return std::nullopt;
  return Disagreement{begun_by_, step_};
}

// Whether `length` bytes more of this rank complete whole elements that can be summed at once.
bool Shard::OthersCover(Rank rank, std::uint64_t length) const {
  const std::uint64_t begin = arrivals_[rank.value()].arrived;
  // Bytes outside the slot are gone after the next Advance, so it must sum all of them: no earlier bytes of this rank
  // wait, and no element is split.
  if (spec_.whole || begin != summed_ || length % SizeOf(spec_.dtype) != 0) return false;
  for (std::uint16_t r = 0; r < spec_.ranks; ++r) {
    if (r != rank.value() && arrivals_[r].arrived < begin + length) return false;
  }
  return true;
}

Result<MutableBytes> Shard::PlaceFor(Rank rank, Step step, std::uint64_t offset,
                                     std::uint64_t length) {
  POSEIDON_RETURN_IF_ERROR(Check(rank, step));
  Arrival& a = arrivals_[rank.value()];
  if (offset != a.arrived || length > bytes_ - a.arrived) {
    return DataLoss("a contribution of rank " + std::to_string(rank.value()) +
                    " does not continue at byte " + std::to_string(a.arrived));
  }
  if (OthersCover(rank, length)) return MutableBytes{};
  if (!a.slot) {
    a.slot.reset(new (std::nothrow) std::byte[bytes_]);
    if (!a.slot) {
      return ResourceExhausted("there is no memory for the " + std::to_string(bytes_) +
                               " bytes of a contribution of rank " + std::to_string(rank.value()));
    }
    allocated_ += bytes_;
  }
  return MutableBytes(a.slot.get() + offset, length);
}

Status Shard::Landed(Rank rank, Step step, ConstBytes bytes, std::uint32_t weight) {
  POSEIDON_RETURN_IF_ERROR(Check(rank, step));
  Arrival& a = arrivals_[rank.value()];
  if (a.begun && a.weight != weight) {
    return DataLoss("rank " + std::to_string(rank.value()) + " changed the weight within a step");
  }
  a.begun = true;
  a.weight = weight;
  const bool in_slot = a.slot && bytes.data() == a.slot.get() + a.arrived;
  // PlaceFor's answer still holds, whatever has landed in between: no sum goes beyond what this rank has brought.
  POSEIDON_CHECK(in_slot || OthersCover(rank, bytes.size()),
                 "bytes outside the slot can be summed at once");
  a.memory = in_slot ? a.slot.get() : bytes.data();
  a.memory_at = in_slot ? 0 : a.arrived;
  a.arrived += bytes.size();
  return OkStatus();
}

Status Shard::Absent(Rank rank, Step step) {
  POSEIDON_RETURN_IF_ERROR(Check(rank, step));
  Arrival& a = arrivals_[rank.value()];
  if (a.begun) return DataLoss("a rank that has begun to contribute cannot be absent");
  a.begun = true;
  a.arrived = bytes_;
  return OkStatus();
}

Status Shard::Local(Step step, std::byte* memory, bool absent, std::uint32_t weight, bool in_parts) {
  POSEIDON_CHECK(spec_.local_rank.has_value(), "a local contribution needs a local rank");
  POSEIDON_RETURN_IF_ERROR(Check(*spec_.local_rank, step));
  Arrival& a = arrivals_[spec_.local_rank->value()];
  a.begun = true;
  a.memory = absent ? nullptr : memory;
  a.weight = absent ? 0 : weight;
  sum_ = memory;
  if (!in_parts) LocalArrived(bytes_);
  return OkStatus();
}

void Shard::LocalArrived(std::uint64_t bytes) {
  Arrival& a = arrivals_[spec_.local_rank->value()];
  POSEIDON_CHECK(in_round_ && a.begun && a.arrived < bytes && bytes <= bytes_, "a local contribution grows to its end");
  a.arrived = bytes;
}

std::vector<Rank> Shard::Missing() const {
  std::vector<Rank> missing;
  if (!in_round_) return missing;
  for (std::uint16_t r = 0; r < spec_.ranks; ++r) {
    if (!arrivals_[r].begun || arrivals_[r].arrived < bytes_) missing.push_back(Rank(r));
  }
  return missing;
}

Shard::Progress Shard::Advance() {
  if (!in_round_) return {};
  std::uint64_t ready = bytes_;
  for (const Arrival& a : arrivals_) ready = std::min(ready, a.arrived);
  // Frames may end within an element.
  ready -= ready % SizeOf(spec_.dtype);
  if (spec_.whole && ready < bytes_) return {};
  const Progress progress{summed_, ready, ready == bytes_};
  if (ready > summed_) {
    if (!spec_.local_rank) sum_ = sum_buffer_.get();
    std::vector<Summand> summands;
    summands.reserve(arrivals_.size());
    // In rank order, not in order of arrival: floating-point sums depend on it, and every run gives the same bits.
    for (const Arrival& a : arrivals_) {
      summands.push_back(
          {a.memory == nullptr ? nullptr : a.memory + (summed_ - a.memory_at), a.weight});
    }
    SumInRankOrder(summands, spec_.workers == 0 ? spec_.ranks : spec_.workers,
                   (ready - summed_) / SizeOf(spec_.dtype), spec_.dtype, spec_.scaling,
                   sum_ + summed_);
    summed_ = ready;
  }
  if (progress.complete) in_round_ = false;
  return progress;
}

}  // namespace poseidon::kv
