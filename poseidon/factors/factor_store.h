// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FACTORS_FACTOR_STORE_H_
#define POSEIDON_FACTORS_FACTOR_STORE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/factors/zero_compression.h"

namespace poseidon::factors {

enum class Part : std::uint8_t { kU = 0, kV = 1 };

// One factor layer's landing places: two sets of rows, because a fast rank may send step t+1 while
// this member still multiplies step t. Two are enough: a rank sends step t+2 only when it holds this
// member's rows of step t+1, and this member sends those only when it has the mean of step t.
//
// Within a set the ranks' rows follow one another in one allocation, each rank in the room that
// it used last, so that in the usual case (rows as before) bytes land in the concatenation itself.
// A rank with more rows than its room lands beside it, and fewer leave a gap: then Concatenate moves
// the rows together first. The result is the same bits either way.
// Thread: the owner's executor; a Concatenation may be read elsewhere until Release.
class FactorStore {
 public:
  FactorStore(const plan::FactorShape& shape, DType dtype, std::uint16_t ranks);

  // Says how many rows `rank` will probably bring: the next set that is laid out has room for them. Ignored
  // where no step can bring so many.
  void Expect(Rank rank, std::uint32_t rows);

  // Returns where `length` bytes at `offset` of a rank's factor land. `brought` must be the same in every part
  // of one rank's step; kDataLoss for bytes that do not continue what has arrived, or exceed the rows.
  Result<MutableBytes> PlaceFor(Rank rank, Step step, Part part, const WeightedRows& brought,
                                std::uint64_t offset, std::uint64_t length);
  // `length` bytes have arrived at the place that PlaceFor gave. Fails as PlaceFor does.
  Status Landed(Rank rank, Step step, Part part, const WeightedRows& brought, std::uint64_t length);
  // A frame of a factor that comes compressed: expands it into the rank's rows. It is `piece` of the `total` bytes that
  // the factor has compressed, from `offset` on. kDataLoss for what does not continue what has come, and for what
  // Compress cannot have written.
  struct Compressed {
    std::uint64_t total = 0;
    std::uint64_t offset = 0;
    ConstBytes piece;
  };
  Status Expand(Rank rank, Step step, Part part, const WeightedRows& brought, const Compressed& compressed);
  // Copies in all rows of a rank: the local rank's own, or the 0 rows of a rank that sends no bytes.
  Status Put(Rank rank, Step step, const Factors& factors, std::uint32_t weight = 0);

  // Ranks whose rows of `step` are not all in; none where no rank's are.
  std::vector<Rank> Missing(Step step) const;
  // The earliest step of which some rows are in.
  std::optional<Step> earliest() const;
  // True when every rank's rows of `step` are in.
  bool Complete(Step step) const;
  // Returns all ranks' rows in rank order, in one piece; where a rank has a weight, without the rows of ranks
  // that have none. Pre: Complete(step). Valid until Release(step); a second call returns the same memory.
  Result<Concatenation> Concatenate(Step step);
  // The step's set may be used again.
  void Release(Step step);
  // Each rank's count of rows and weight in `step`. Pre: Complete(step).
  std::vector<WeightedRows> BroughtTo(Step step) const;

  std::uint64_t allocated_bytes() const;

 private:
  struct RankRows {
    bool begun = false;
    WeightedRows brought;
    std::array<std::uint64_t, 2> arrived{};
    std::array<std::byte*, 2> place{};         // its u and v
    std::array<AlignedBytes, 2> beside;        // when its room was too small
    std::array<std::optional<Expander>, 2> expanders;  // of u and v that come compressed
  };
  struct Set {
    std::optional<Step> step;
    std::vector<std::uint32_t> room;           // rows, by rank, as laid out
    std::vector<std::uint64_t> first;          // first row of each rank's room
    std::uint64_t capacity = 0;                // rows allocated
    std::array<AlignedBytes, 2> memory;        // u and v
    std::array<AlignedBytes, 2> compact;       // when rows had to be moved together
    std::vector<RankRows> ranks;
    std::uint64_t weight = 0;                  // of the ranks that have begun, together
  };

  std::uint64_t width(Part part) const {
    return part == Part::kU ? shape_.u_bytes_per_row(dtype_) : shape_.v_bytes_per_row(dtype_);
  }
  std::uint64_t most_rows() const;  // of a rank in one step
  bool AllIn(const RankRows& own) const;
  static std::uint32_t RowsInMean(const Set& set, const RankRows& own);
  // The set that holds `step`, or null.
  Set* Find(Step step);
  const Set* Find(Step step) const { return const_cast<FactorStore*>(this)->Find(step); }
  Result<Set*> Open(Step step);
  Status LayOut(Set& set);
  Result<RankRows*> Begin(Rank rank, Step step, const WeightedRows& brought);
  static Status DoesNotContinue(Rank rank, std::uint64_t at);

  const plan::FactorShape shape_;
  const DType dtype_;
  std::vector<std::uint32_t> expected_;
  std::optional<Step> released_;  // the latest: nothing more may come for it or for an older one
  std::array<Set, 2> sets_;
};

}  // namespace poseidon::factors

#endif  // POSEIDON_FACTORS_FACTOR_STORE_H_
