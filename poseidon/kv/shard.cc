// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/shard.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace poseidon::kv {

Shard::Shard(const Spec& spec, LandingBlocks& blocks)
    : spec_(spec),
      bytes_(spec.elements * SizeOf(spec.dtype)),
      blocks_(blocks),
      arrivals_(spec.ranks) {}

Status Shard::BeginRound(Rank rank, Step step) {
  // Here and not where it is written first: Advance has no failure.
  if (!spec_.local_rank && !sum_buffer_) {
    sum_buffer_.reset(new (std::nothrow) std::byte[bytes_]);
    if (!sum_buffer_) {
      return ResourceExhausted("there is no memory for the " + std::to_string(bytes_) + " bytes of a sum");
    }
  }
  in_round_ = true;
  any_round_ = true;
  begun_by_ = rank;
  step_ = step;
  summed_ = 0;
  floor_ = 0;
  at_floor_ = arrivals_.size();
  begun_ = 0;
  sum_ = nullptr;
  for (Arrival& a : arrivals_) {
    a.arrived = 0;
    a.local = nullptr;
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
  // Bytes outside blocks are gone after the next Advance, so it must sum all of them: no earlier bytes of this rank
  // wait, and no element is split.
  if (spec_.whole || begin != summed_ || length % SizeOf(spec_.dtype) != 0) return false;
  // Another rank has come no further than this one.
  if (at_floor_ > 1) return false;
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
  const std::uint64_t lead = Lead(offset);
  a.next.reset();  // of a frame that never came to its end
  a.next = blocks_.Take(lead + length);
  if (a.next == nullptr) {
    return ResourceExhausted("there is no memory for " + std::to_string(length) + " bytes of a contribution of rank " +
                             std::to_string(rank.value()));
  }
  return MutableBytes(a.next.get() + lead, length);
}

std::uint64_t Shard::Lead(std::uint64_t at) const { return at % SizeOf(spec_.dtype); }

Status Shard::Landed(Rank rank, Step step, ConstBytes bytes, std::uint32_t weight) {
  POSEIDON_RETURN_IF_ERROR(Check(rank, step));
  Arrival& a = arrivals_[rank.value()];
  if (a.begun && a.weight != weight) {
    return DataLoss("rank " + std::to_string(rank.value()) + " changed the weight within a step");
  }
  Begin(a);
  a.weight = weight;
  const std::uint64_t lead = Lead(a.arrived);
  const bool in_block = a.next != nullptr && bytes.data() == a.next.get() + lead;
  // PlaceFor's answer still holds, whatever has landed in between: no sum goes beyond what this rank has brought.
  POSEIDON_CHECK(in_block || OthersCover(rank, bytes.size()), "bytes outside a block can be summed at once");
  const std::uint64_t end = a.arrived + bytes.size();
  if (!in_block) {
    a.pieces.push_back({.memory = bytes.data(), .begin = a.arrived, .end = end});
  } else {
    std::byte* const memory = a.next.get();
    if (lead > 0) {
      // A frame has ended within an element, whose first bytes come along, so that no element is in two blocks.
      Piece& before = a.pieces.back();
      before.end -= lead;
      std::memcpy(memory, before.memory + (before.end - before.begin), lead);
      if (before.begin == before.end) a.pieces.pop_back();
    }
    a.pieces.push_back({.memory = memory, .begin = a.arrived - lead, .end = end, .block = std::move(a.next)});
  }
  Came(a, end);
  return OkStatus();
}

Status Shard::Absent(Rank rank, Step step) {
  POSEIDON_RETURN_IF_ERROR(Check(rank, step));
  Arrival& a = arrivals_[rank.value()];
  if (a.begun) return DataLoss("a rank that has begun to contribute cannot be absent");
  Begin(a);
  Came(a, bytes_);
  return OkStatus();
}

void Shard::Begin(Arrival& a) {
  if (!std::exchange(a.begun, true)) ++begun_;
}

void Shard::Came(Arrival& a, std::uint64_t to) {
  const bool was_at_floor = a.arrived == floor_;
  a.arrived = to;
  if (!was_at_floor || to == floor_ || --at_floor_ > 0) return;
  floor_ = std::ranges::min_element(arrivals_, {}, &Arrival::arrived)->arrived;
  at_floor_ = static_cast<std::size_t>(std::ranges::count(arrivals_, floor_, &Arrival::arrived));
}

Status Shard::Local(Step step, std::byte* memory, bool absent, std::uint32_t weight, bool in_parts) {
  POSEIDON_CHECK(spec_.local_rank.has_value(), "a local contribution needs a local rank");
  POSEIDON_RETURN_IF_ERROR(Check(*spec_.local_rank, step));
  Arrival& a = arrivals_[spec_.local_rank->value()];
  Begin(a);
  a.local = absent ? nullptr : memory;
  a.weight = absent ? 0 : weight;
  sum_ = memory;
  if (!in_parts) LocalArrived(bytes_);
  return OkStatus();
}

void Shard::LocalArrived(std::uint64_t bytes) {
  Arrival& a = arrivals_[spec_.local_rank->value()];
  POSEIDON_CHECK(in_round_ && a.begun && a.arrived < bytes && bytes <= bytes_, "a local contribution grows to its end");
  Came(a, bytes);
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
  // Frames may end within an element.
  const std::uint64_t ready = floor_ - Lead(floor_);
  if (spec_.whole && ready < bytes_) return {};
  const Progress progress{summed_, ready, ready == bytes_};
  if (ready > summed_) {
    if (!spec_.local_rank) sum_ = sum_buffer_.get();
    while (summed_ < ready) {
      // As far as the first block of each rank reaches.
      std::uint64_t end = ready;
      for (const Arrival& a : arrivals_) {
        if (!a.pieces.empty()) end = std::min(end, a.pieces.front().end);
      }
      Sum(summed_, end);
      summed_ = end;
    }
  }
  if (progress.complete) in_round_ = false;
  return progress;
}

// Blocks that end here are free afterwards.
void Shard::Sum(std::uint64_t begin, std::uint64_t end) {
  summands_.clear();
  // In rank order, not in order of arrival: floating-point sums depend on it, and every run gives the same bits.
  for (const Arrival& a : arrivals_) {
    const std::byte* memory = nullptr;  // of an absent rank
    if (a.local != nullptr) memory = a.local + begin;
    if (!a.pieces.empty()) memory = a.pieces.front().memory + (begin - a.pieces.front().begin);
    summands_.push_back({memory, a.weight});
  }
  SumInRankOrder(summands_, spec_.workers == 0 ? spec_.ranks : spec_.workers, (end - begin) / SizeOf(spec_.dtype),
                 spec_.dtype, spec_.scaling, sum_ + begin);
  for (Arrival& a : arrivals_) {
    if (!a.pieces.empty() && a.pieces.front().end <= end) a.pieces.erase(a.pieces.begin());
  }
}

}  // namespace poseidon::kv
