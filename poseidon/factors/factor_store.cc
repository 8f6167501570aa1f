// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/factor_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::factors {
namespace {

// A rank's rows in one step; a bound on what a header can make this member allocate.
constexpr std::uint64_t kMaxFactorBytes = std::uint64_t{1} << 34;

std::size_t Index(Part part) { return static_cast<std::size_t>(part); }

}  // namespace

FactorStore::FactorStore(const plan::FactorShape& shape, DType dtype, std::uint16_t ranks)
    : shape_(shape), dtype_(dtype), expected_(ranks, 0) {}

// An expectation is a hint: what no step can bring gets no room.
void FactorStore::Expect(Rank rank, std::uint32_t rows) {
  if (rows <= most_rows()) expected_.at(rank.value()) = rows;
}

// Division, not multiplication: rows * width may wrap.
std::uint64_t FactorStore::most_rows() const {
  return kMaxFactorBytes / std::max(width(Part::kU), width(Part::kV));
}

FactorStore::Set* FactorStore::Find(Step step) {
  const auto found =
      std::find_if(sets_.begin(), sets_.end(), [step](const Set& set) { return set.step == step; });
  return found == sets_.end() ? nullptr : &*found;
}

// The first part of a step's first rank claims a set.
Result<FactorStore::Set*> FactorStore::Open(Step step) {
  if (Set* const set = Find(step); set != nullptr) return set;
  // Such a step would never be complete again, and its set would be lost to the steps that follow.
  if (released_ && step <= *released_) {
    return DataLoss("factors of step " + std::to_string(step.value()) +
                    " came after that step's product");
  }
  const auto unused =
      std::find_if(sets_.begin(), sets_.end(), [](const Set& set) { return !set.step.has_value(); });
  if (unused == sets_.end()) {
    return DataLoss("factors of step " + std::to_string(step.value()) + " came while step " +
                    std::to_string(std::min(*sets_[0].step, *sets_[1].step).value()) +
                    " is not finished");
  }
  POSEIDON_RETURN_IF_ERROR(LayOut(*unused));
  unused->step = step;
  unused->ranks.clear();
  unused->ranks.resize(expected_.size());
  unused->weight = 0;
  return &*unused;
}

Status FactorStore::LayOut(Set& set) {
  if (set.room == expected_ && set.memory[0]) return OkStatus();
  std::vector<std::uint64_t> first(expected_.size(), 0);
  std::uint64_t rows = 0;
  for (std::size_t r = 0; r < expected_.size(); ++r) {
    first[r] = rows;
    rows += expected_[r];
  }
  if (rows > set.capacity || !set.memory[0]) {
    // The set has no room until both parts are allocated: after a failure between the two it would give places in
    // memory that is not there.
    set.room.clear();
    set.capacity = 0;
    set.memory = {};
    std::array<AlignedBytes, 2> memory;
    for (const Part part : {Part::kU, Part::kV}) {
      memory[Index(part)] = AllocateAligned(rows * width(part));
      if (rows > 0 && !memory[Index(part)]) {
        return ResourceExhausted("no memory for " + std::to_string(rows) + " rows of factors");
      }
    }
    set.memory = std::move(memory);
    set.capacity = rows;
  }
  set.room = expected_;
  set.first = std::move(first);
  return OkStatus();
}

Result<FactorStore::RankRows*> FactorStore::Begin(Rank rank, Step step, const WeightedRows& brought) {
  if (rank.value() >= expected_.size()) {
    return DataLoss("factors name rank " + std::to_string(rank.value()) + " of " +
                    std::to_string(expected_.size()));
  }
  POSEIDON_ASSIGN_OR_RETURN(Set * opened, Open(step));
  Set& set = *opened;
  RankRows& own = set.ranks[rank.value()];
  // Every frame repeats them. A number that grew would let bytes land beyond the rank's room.
  if (own.begun) {
    if (own.brought != brought) {
      return DataLoss("rank " + std::to_string(rank.value()) + " changed its rows or its weight within a step");
    }
    return &own;
  }
  const std::uint32_t rows = brought.rows;
  if (rows > most_rows()) {
    return DataLoss("rank " + std::to_string(rank.value()) + " announces " + std::to_string(rows) +
                    " rows, which is more than any batch");
  }
  own.begun = true;
  own.brought = brought;
  set.weight += brought.weight;
  // For the next set: ranks bring as many rows as before in the usual case. This set is laid out already.
  expected_[rank.value()] = rows;
  for (const Part part : {Part::kU, Part::kV}) {
    if (rows <= set.room[rank.value()]) {
      own.place[Index(part)] =
          set.memory[Index(part)].get() + set.first[rank.value()] * width(part);
      continue;
    }
    own.beside[Index(part)] = AllocateAligned(rows * width(part));
    if (!own.beside[Index(part)]) {
      return ResourceExhausted("no memory for " + std::to_string(rows) + " rows of factors");
    }
    own.place[Index(part)] = own.beside[Index(part)].get();
  }
  return &own;
}

Status FactorStore::DoesNotContinue(Rank rank, std::uint64_t at) {
  return DataLoss("a factor of rank " + std::to_string(rank.value()) + " does not continue at byte " +
                  std::to_string(at));
}

Result<MutableBytes> FactorStore::PlaceFor(Rank rank, Step step, Part part, const WeightedRows& brought,
                                           std::uint64_t offset, std::uint64_t length) {
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, brought));
  const std::uint64_t whole = brought.rows * width(part);
  const std::uint64_t arrived = own->arrived[Index(part)];
  if (offset != arrived || length > whole - arrived || own->expanders[Index(part)])
    return DoesNotContinue(rank, arrived);
  return MutableBytes(own->place[Index(part)] + offset, length);
}

Status FactorStore::Landed(Rank rank, Step step, Part part, const WeightedRows& brought,
                           std::uint64_t length) {
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, brought));
  // Not checked again: PlaceFor has bounded the bytes, and a frame without bytes, which asked for no place, adds none.
  own->arrived[Index(part)] += length;
  return OkStatus();
}

Status FactorStore::Expand(Rank rank, Step step, Part part, const WeightedRows& brought, const Compressed& compressed) {
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, brought));
  std::optional<Expander>& expander = own->expanders[Index(part)];
  if (!expander) {
    const std::uint64_t whole = brought.rows * width(part);
    if (whole % kWordBytes != 0 || compressed.total < LeastCompressedBytes(whole) ||
        compressed.total > MostCompressedBytes(whole)) {
      return DataLoss("a factor of rank " + std::to_string(rank.value()) + " of " + std::to_string(whole) +
                      " bytes comes as " + std::to_string(compressed.total) + ", which it cannot become");
    }
    if (own->arrived[Index(part)] != 0) return DoesNotContinue(rank, own->arrived[Index(part)]);
    expander.emplace(MutableBytes(own->place[Index(part)], whole), compressed.total);
  }
  if (compressed.offset != expander->taken() || compressed.total != expander->compressed() ||
      compressed.piece.empty()) {
    return DoesNotContinue(rank, expander->taken());
  }
  POSEIDON_RETURN_IF_ERROR(expander->Take(compressed.piece));
  own->arrived[Index(part)] = expander->expanded();
  return OkStatus();
}

Status FactorStore::Put(Rank rank, Step step, const Factors& factors, std::uint32_t weight) {
  // Begin would accept it as a further part of the same rows.
  if (const Set* const set = Find(step);
      set != nullptr && rank.value() < expected_.size() && set->ranks[rank.value()].begun) {
    return DataLoss("rank " + std::to_string(rank.value()) + " brings its factors twice");
  }
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, {factors.rows, weight}));
  for (const Part part : {Part::kU, Part::kV}) {
    const std::uint64_t bytes = factors.rows * width(part);
    if (bytes > 0) {
      std::memcpy(own->place[Index(part)], part == Part::kU ? factors.u : factors.v, bytes);
    }
    own->arrived[Index(part)] = bytes;
  }
  return OkStatus();
}

bool FactorStore::AllIn(const RankRows& own) const {
  return own.begun && own.arrived[0] == own.brought.rows * width(Part::kU) &&
         own.arrived[1] == own.brought.rows * width(Part::kV);
}

// Left out, not multiplied by 0: rows that count nothing may hold NaNs.
std::uint32_t FactorStore::RowsInMean(const Set& set, const RankRows& own) {
  return set.weight != 0 && own.brought.weight == 0 ? 0 : own.brought.rows;
}

bool FactorStore::Complete(Step step) const {
  const Set* const set = Find(step);
  if (set == nullptr) return false;
  return std::all_of(set->ranks.begin(), set->ranks.end(), [this](const RankRows& own) { return AllIn(own); });
}

std::vector<Rank> FactorStore::Missing(Step step) const {
  std::vector<Rank> missing;
  const Set* const set = Find(step);
  for (std::uint16_t r = 0; set != nullptr && r < set->ranks.size(); ++r) {
    if (!AllIn(set->ranks[r])) missing.push_back(Rank(r));
  }
  return missing;
}

std::optional<Step> FactorStore::earliest() const {
  std::optional<Step> earliest;
  for (const Set& set : sets_) {
    if (set.step && (!earliest || *set.step < *earliest)) earliest = set.step;
  }
  return earliest;
}

std::vector<WeightedRows> FactorStore::BroughtTo(Step step) const {
  std::vector<WeightedRows> brought;
  const Set* const set = Find(step);
  POSEIDON_CHECK(set != nullptr, "the rows of a step are asked for while it is complete");
  for (const RankRows& own : set->ranks) brought.push_back(own.brought);
  return brought;
}

Result<Concatenation> FactorStore::Concatenate(Step step) {
  Set* const found = Find(step);
  POSEIDON_CHECK(found != nullptr, "a step is concatenated while it is complete");
  Set& set = *found;
  Concatenation all{.weight = set.weight};
  bool contiguous = true;
  for (std::size_t r = 0; r < set.ranks.size(); ++r) {
    const RankRows& own = set.ranks[r];
    const std::uint32_t rows = RowsInMean(set, own);
    if (rows == 0) continue;
    // A rank with fewer rows than its room, or with none that count, moves the first row of all behind it.
    if (own.beside[0] || set.first[r] != all.rows) contiguous = false;
    all.rows += rows;
    if (set.weight != 0) all.ranks.push_back(own.brought);
  }
  if (contiguous) {
    all.u = set.memory[0].get();
    all.v = set.memory[1].get();
    return all;
  }
  for (const Part part : {Part::kU, Part::kV}) {
    // Asked again for the same step, the answer is the same memory (factor_store.h).
    if (set.compact[Index(part)]) continue;
    set.compact[Index(part)] = AllocateAligned(all.rows * width(part));
    std::byte* at = set.compact[Index(part)].get();
    if (at == nullptr) {
      return ResourceExhausted("no memory for " + std::to_string(all.rows) + " rows of factors");
    }
    for (const RankRows& own : set.ranks) {
      const std::uint64_t bytes = RowsInMean(set, own) * width(part);
      if (bytes > 0) std::memcpy(at, own.place[Index(part)], bytes);
      at += bytes;
    }
  }
  all.u = set.compact[0].get();
  all.v = set.compact[1].get();
  return all;
}

void FactorStore::Release(Step step) {
  Set* const set = Find(step);
  if (set == nullptr) return;
  released_ = step;
  set->step.reset();
  set->compact = {};
  set->ranks.clear();
}

std::uint64_t FactorStore::allocated_bytes() const {
  std::uint64_t sum = 0;
  for (const Set& set : sets_) {
    sum += set.capacity * (width(Part::kU) + width(Part::kV));
    for (const RankRows& own : set.ranks) {
      const std::uint32_t rows = (own.beside[0] ? own.brought.rows : 0) + (set.compact[0] ? RowsInMean(set, own) : 0);
      sum += rows * (width(Part::kU) + width(Part::kV));
    }
  }
  return sum;
}

}  // namespace poseidon::factors
