// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_SHARD_H_
#define POSEIDON_KV_SHARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/kv/landing_blocks.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::kv {

// One slice of one key at its owner: collects every rank's contribution to a step and sums them in
// rank order, as far as all of them have arrived. No network here: bytes and ranks only.
//
// Memory: bytes that must wait for another rank's land in blocks (landing_blocks.h), which are free again once they are
// summed: at most the slice for each rank that is not local, where one rank is late, and the stretches by which the
// ranks differ, where they come in step. The bytes of the last rank to arrive need no block: they are summed from where
// they landed. The sum is written over the local contribution, or, without a local rank, into a buffer of slice size,
// allocated when the first round begins. One round at a time is enough: a rank pushes step t+1 only when it holds the
// whole sum of step t, and the sum of t+1 is written only where all contributions of t+1 are in.
// Thread: the owner's executor.
class Shard {
 public:
  struct Spec {
    std::uint64_t elements = 0;
    DType dtype = DType::kF32;
    std::uint16_t ranks = 1;
    std::optional<Rank> local_rank = std::nullopt;
    Scaling scaling = Scaling::kMean;
    std::uint16_t workers = 0;  // that an unweighted mean divides by; 0: as many as ranks
    bool whole = false;  // nothing is summed before every contribution has arrived to its end
  };
  // A stretch of the slice, in bytes from its beginning, whose sum has just been written.
  struct Progress {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool complete = false;  // the slice is whole; the next step may begin
  };

  // `blocks`, which may serve many shards, outlives this one.
  Shard(const Spec& spec, LandingBlocks& blocks);

  std::uint64_t bytes() const { return bytes_; }
  Step step() const { return step_; }
  // Ranks whose contributions the round under way still lacks; none between rounds.
  std::vector<Rank> Missing() const;
  // Whether every rank has begun to contribute to the round under way.
  bool all_have_begun() const { return begun_ == arrivals_.size(); }
  // Bytes of the rank's contribution that have arrived in the round under way, or in the last one.
  std::uint64_t arrived(Rank rank) const { return arrivals_[rank.value()].arrived; }
  // Bytes of the sum's own buffer, without blocks.
  std::uint64_t sum_bytes() const { return sum_buffer_ ? bytes_ : 0; }

  // Returns the rank that began the round under way and its step, where `rank` has not contributed to it and now
  // contributes to another step. Nobody knows which of the two is wrong; the calls below refuse it.
  struct Disagreement {
    Rank with;
    Step step;
  };
  std::optional<Disagreement> Disagrees(Rank rank, Step step) const;

  // Returns where `length` bytes of a remote rank's contribution at `offset` land. They must continue
  // what has arrived of this rank's contribution to the current step; kDataLoss otherwise, and
  // kResourceExhausted where there is no memory for them or the sum. Empty where every other rank
  // has come that far: then they may land anywhere, because the next Advance sums them.
  Result<MutableBytes> PlaceFor(Rank rank, Step step, std::uint64_t offset, std::uint64_t length);
  // Those bytes have arrived, at `bytes`. Where PlaceFor returned an empty place they must stay there until
  // Advance has run, which must be the next call. `weight` as in tensor/sum.h, the same in every part.
  Status Landed(Rank rank, Step step, ConstBytes bytes, std::uint32_t weight);
  // The rank adds nothing to this step.
  Status Absent(Rank rank, Step step);
  // The local rank's whole contribution is at `memory`, over which the sum is written; with
  // `absent` only the place counts. Lent until the step is complete. With `in_parts` none of it has arrived yet.
  Status Local(Step step, std::byte* memory, bool absent, std::uint32_t weight, bool in_parts = false);
  // The first `bytes` of the local contribution in parts have arrived, more than before. Only they are read, and the sum
  // is written over nothing else. Pre: Local has begun one in this step, and it is not whole.
  void LocalArrived(std::uint64_t bytes);

  // Sums the stretch that all ranks' contributions now cover and that is not summed yet. `begin == end` where
  // there is none, or where spec.whole and some contribution has not arrived to its end.
  Progress Advance();
  // The sum, valid where Advance said so, until all ranks have begun the next step.
  const std::byte* sum() const { return sum_; }

 private:
  // Bytes of a contribution from `begin` to `end` of the slice. `begin` is that of an element.
  struct Piece {
    const std::byte* memory = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    LandingBlocks::Block block = {};  // none where they landed elsewhere
  };
  struct Arrival {
    std::vector<Piece> pieces;           // of a remote rank: what has arrived and is not summed, in order
    LandingBlocks::Block next = {};      // where PlaceFor has said that bytes land
    const std::byte* local = nullptr;    // the local rank's contribution, unless it is absent
    std::uint64_t arrived = 0;
    std::uint32_t weight = 0;
    bool begun = false;
  };

  Status Check(Rank rank, Step step);
  Status BeginRound(Rank rank, Step step);
  bool OthersCover(Rank rank, std::uint64_t length) const;
  void Begin(Arrival& a);
  // A contribution has arrived as far as `to`.
  void Came(Arrival& a, std::uint64_t to);
  // Bytes before `at` that belong to the element in which `at` is.
  std::uint64_t Lead(std::uint64_t at) const;
  void Sum(std::uint64_t begin, std::uint64_t end);

  const Spec spec_;
  const std::uint64_t bytes_;
  LandingBlocks& blocks_;
  std::vector<Arrival> arrivals_;
  std::vector<Summand> summands_;  // of Sum, kept for its memory
  std::size_t begun_ = 0;  // ranks, in the round under way or the last one
  bool in_round_ = false;
  bool any_round_ = false;
  Rank begun_by_;  // the round under way, or the last one
  Step step_;
  std::unique_ptr<std::byte[]> sum_buffer_;
  std::byte* sum_ = nullptr;
  std::uint64_t summed_ = 0;
  // As far as every rank has come, and how many ranks have come no further: looked for among all ranks only when the last
  // of those comes further, so that a frame costs the same however many ranks there are.
  std::uint64_t floor_ = 0;
  std::size_t at_floor_ = 0;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_SHARD_H_
