// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_FACTOR_OUTBOX_H_
#define POSEIDON_SYNC_FACTOR_OUTBOX_H_

#include <cstdint>
#include <functional>

#include "poseidon/base/bytes.h"
#include "poseidon/factors/factor_store.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/compression.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// Says how many bytes a factor may have compressed for it to leave so.
class CompressionRule {
 public:
  // Until there is a plan, no factor pays under kAuto.
  explicit CompressionRule(plan::ZeroCompression mode) : mode_(mode) {}

  void UsePlan(const plan::Plan& plan) { costs_ = plan::CompressionCostsOf(plan.cluster); }
  // Of a factor of so many bytes, for so many members; 0: it leaves as it is.
  std::uint64_t MostBytes(std::uint64_t bytes, std::uint32_t receivers) const;
  // Whether a factor is looked at first, before all of it is compressed.
  bool looks_first() const { return mode_ == plan::ZeroCompression::kAuto; }

 private:
  plan::ZeroCompression mode_;
  plan::CompressionCosts costs_;
};

// The bytes of one factor as they leave: the caller's, or compressed in memory of its own, which it keeps for the next
// step's. Thread: the I/O executor.
class PackedFactor {
 public:
  // From now on `bytes` are those of `factor`, lent until every frame has left, or of what it has become. Pre: no frame
  // reads the bytes before. Dense factors cost a look at 4 KiB of them. Where there is no memory, a factor leaves as it
  // is.
  void Pack(ConstBytes factor, std::uint32_t receivers, const CompressionRule& rule);

  ConstBytes bytes() const { return bytes_; }
  // As in FrameHeader: 0 where the bytes are the caller's.
  std::uint32_t words() const { return words_; }
  std::uint64_t allocated_bytes() const { return room_; }

 private:
  bool MakeRoom(std::uint64_t bytes);

  ConstBytes bytes_;
  std::uint32_t words_ = 0;
  factors::AlignedBytes memory_;
  std::uint64_t room_ = 0;
};

// A layer's factors on their way to one member, as the inbox there expects them.
struct FactorsToSend {
  plan::Scheme scheme = plan::Scheme::kFactorBroadcast;
  DType dtype = DType::kF32;
  const PackedFactor& u;  // their bytes are lent until every frame has left
  const PackedFactor& v;
};
// Sends u, then v. Without rows it sends one empty frame for both, because a second would come after the others have
// gone on. Priority, step and weight are those of the request. `left` makes the completion of one frame. Returns
// the number of frames.
std::uint32_t SendFactors(messaging::Mesh& mesh, MemberId to, Rank self_rank, const wire::Key& key,
                          const SyncRequest& request, const FactorsToSend& what,
                          const std::function<Completion()>& left);

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_FACTOR_OUTBOX_H_
