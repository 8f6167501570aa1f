// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/factor_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace poseidon::sfb {
namespace {

// A rank's rows in one step; a bound on what a header can make this member allocate.
constexpr std::uint64_t kMaxFactorBytes = std::uint64_t{1} << 34;

std::size_t Index(Part part) { return static_cast<std::size_t>(part); }

}  // namespace

FactorStore::FactorStore(const plan::FactorShape& shape, DType dtype, std::uint16_t ranks)
    : shape_(shape), dtype_(dtype), expected_(ranks, 0) {}

void FactorStore::Expect(Rank rank, std::uint32_t rows) { expected_.at(rank.value()) = rows; }

// The first part of a step's first rank claims the set.
Status FactorStore::Open(Step step) {
  Set& set = SetOf(step);
  if (set.step == step) return OkStatus();
  if (set.step.has_value()) {
    return DataLoss("factors of step " + std::to_string(step.value()) + " came while step " +
                    std::to_string(set.step->value()) + " is not finished");
  }
  set.step = step;
  set.ranks.clear();
  set.ranks.resize(expected_.size());
  return LayOut(set);
}

Status FactorStore::LayOut(Set& set) {
  if (set.room == expected_ && set.memory[0]) return OkStatus();
  set.room = expected_;
  set.first.assign(expected_.size(), 0);
  std::uint64_t rows = 0;
  for (std::size_t r = 0; r < expected_.size(); ++r) {
    set.first[r] = rows;
    rows += expected_[r];
  }
  if (rows <= set.capacity && set.memory[0]) return OkStatus();
  set.capacity = rows;
  for (const Part part : {Part::kU, Part::kV}) {
    set.memory[Index(part)] = AllocateAligned(rows * width(part));
    if (rows > 0 && !set.memory[Index(part)]) {
      return ResourceExhausted("no memory for " + std::to_string(rows) + " rows of factors");
    }
  }
  return OkStatus();
}

Result<FactorStore::RankRows*> FactorStore::Begin(Rank rank, Step step, std::uint32_t rows) {
  if (rank.value() >= expected_.size()) {
    return DataLoss("factors name rank " + std::to_string(rank.value()) + " of " +
                    std::to_string(expected_.size()));
  }
  POSEIDON_RETURN_IF_ERROR(Open(step));
  Set& set = SetOf(step);
  RankRows& own = set.ranks[rank.value()];
  if (own.begun) {
    if (own.rows != rows) {
      return DataLoss("rank " + std::to_string(rank.value()) + " changed its rows within a step");
    }
    return &own;
  }
  if (rows * std::max(width(Part::kU), width(Part::kV)) > kMaxFactorBytes) {
    return DataLoss("rank " + std::to_string(rank.value()) + " announces " + std::to_string(rows) +
                    " rows, which is more than any batch");
  }
  own.begun = true;
  own.rows = rows;
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

Result<MutableBytes> FactorStore::PlaceFor(Rank rank, Step step, Part part, std::uint32_t rows,
                                           std::uint64_t offset, std::uint64_t length) {
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, rows));
  const std::uint64_t whole = rows * width(part);
  const std::uint64_t arrived = own->arrived[Index(part)];
  if (offset != arrived || length > whole - arrived) {
    return DataLoss("a factor of rank " + std::to_string(rank.value()) +
                    " does not continue at byte " + std::to_string(arrived));
  }
  return MutableBytes(own->place[Index(part)] + offset, length);
}

Status FactorStore::Landed(Rank rank, Step step, Part part, std::uint32_t rows,
                           std::uint64_t length) {
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, rows));
  own->arrived[Index(part)] += length;
  return OkStatus();
}

Status FactorStore::Put(Rank rank, Step step, const Factors& factors) {
  if (rank.value() < expected_.size() && SetOf(step).step == step &&
      SetOf(step).ranks[rank.value()].begun) {
    return DataLoss("rank " + std::to_string(rank.value()) + " brings its factors twice");
  }
  POSEIDON_ASSIGN_OR_RETURN(RankRows * own, Begin(rank, step, factors.rows));
  for (const Part part : {Part::kU, Part::kV}) {
    const std::uint64_t bytes = factors.rows * width(part);
    if (bytes > 0) {
      std::memcpy(own->place[Index(part)], part == Part::kU ? factors.u : factors.v, bytes);
    }
    own->arrived[Index(part)] = bytes;
  }
  return OkStatus();
}

bool FactorStore::Complete(Step step) const {
  const Set& set = SetOf(step);
  if (set.step != step) return false;
  return std::all_of(set.ranks.begin(), set.ranks.end(), [this](const RankRows& own) {
    return own.begun && own.arrived[0] == own.rows * width(Part::kU) &&
           own.arrived[1] == own.rows * width(Part::kV);
  });
}

std::vector<std::uint32_t> FactorStore::RowsOf(Step step) const {
  std::vector<std::uint32_t> rows;
  for (const RankRows& own : SetOf(step).ranks) rows.push_back(own.rows);
  return rows;
}

Result<Concatenation> FactorStore::Concatenate(Step step) {
  Set& set = SetOf(step);
  Concatenation all;
  bool contiguous = true;
  for (std::size_t r = 0; r < set.ranks.size(); ++r) {
    const RankRows& own = set.ranks[r];
    if (own.rows > 0 && (own.beside[0] || set.first[r] != all.rows)) contiguous = false;
    all.rows += own.rows;
  }
  if (contiguous) {
    all.u = set.memory[0].get();
    all.v = set.memory[1].get();
    return all;
  }
  for (const Part part : {Part::kU, Part::kV}) {
    set.compact[Index(part)] = AllocateAligned(all.rows * width(part));
    std::byte* at = set.compact[Index(part)].get();
    if (at == nullptr) {
      return ResourceExhausted("no memory for " + std::to_string(all.rows) + " rows of factors");
    }
    for (const RankRows& own : set.ranks) {
      const std::uint64_t bytes = own.rows * width(part);
      if (bytes > 0) std::memcpy(at, own.place[Index(part)], bytes);
      at += bytes;
    }
  }
  all.u = set.compact[0].get();
  all.v = set.compact[1].get();
  return all;
}

void FactorStore::Release(Step step) {
  Set& set = SetOf(step);
  if (set.step != step) return;
  set.step.reset();
  set.compact = {};
  set.ranks.clear();
}

std::uint64_t FactorStore::allocated_bytes() const {
  std::uint64_t sum = 0;
  for (const Set& set : sets_) {
    sum += set.capacity * (width(Part::kU) + width(Part::kV));
    for (const RankRows& own : set.ranks) {
      if (own.beside[0]) sum += own.rows * (width(Part::kU) + width(Part::kV));
    }
  }
  return sum;
}

}  // namespace poseidon::sfb
