// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FSC_SENDER_H_
#define POSEIDON_FSC_SENDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/bytes.h"
#include "poseidon/fsc/owner.h"
#include "poseidon/fsc/part.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/sync/factor_outbox.h"
#include "poseidon/sync/landings.h"

namespace poseidon::fsc {

// A worker's side: sends each shard's owner the factors from which it makes its part, and lands the parts that come
// back in the gradient.
//
// Memory: one copy of u per layer, ordered by shard, as large as the most rows took, and what is compressed of it and
// of v. Thread: the I/O executor. Lifetime: the environment and the owner outlive it.
class Sender final : public messaging::FrameSink {
 public:
  // Pre: env.among.self_rank. `local` is the shard of the same process, or null.
  Sender(const sync::ExchangeEnvironment& env, Owner* local);

  // A layer, and the part of it that each shard owns.
  void Declare(const wire::Key& key, const plan::LayerSpec& layer, std::vector<LayerPart> parts);
  // What bytes cost, from now on.
  void UsePlan(const plan::Plan& plan) { compression_.UsePlan(plan); }
  // See sync::Exchange.
  void Start(const wire::Key& key, sync::SyncRequest request);

  // Adds the parts that have not arrived, with the owners that owe them.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  void Abandon(const Status& reason);
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kResult:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  struct Outstanding {
    sync::Landings landings;    // of parts that others own
    std::uint32_t pending = 0;  // frames to leave, stretches to land
    bool own_part = false;      // is still being made here
    Status failure = {};
    Completion done;
    std::uint64_t serial = 0;
  };
  struct Layer {
    plan::LayerSpec spec;
    std::vector<LayerPart> parts;
    ByteBuffer u;  // by part: [rows x units]
    std::vector<sync::PackedFactor> packed_u;  // by part
    sync::PackedFactor packed_v = {};          // the same for all owners
    std::optional<Outstanding> outstanding = std::nullopt;
  };

  void PackU(Layer& layer, const Factors& factors);
  Factors FactorsFor(const Layer& layer, const LayerPart& part, const Factors& whole) const;
  void PackV(Layer& layer, const Factors& factors);
  void SendPart(const wire::Key& key, Layer& layer, std::size_t index, const sync::SyncRequest& request);
  // Null where nothing waits for it, which is no fault once the job has ended.
  Result<Outstanding*> Find(const wire::FrameHeader& header);
  Completion PartDone(const wire::Key& key, std::uint64_t serial);
  void OnPartDone(const wire::Key& key, std::uint64_t serial, const Status& status);
  void OnOwnPartDone(const wire::Key& key, const Status& status);
  void FinishIfDone(Layer& layer, const Status& status);

  const sync::ExchangeEnvironment env_;
  Owner* const local_;
  sync::CompressionRule compression_;
  std::map<wire::Key, Layer> layers_;
  std::uint64_t next_serial_ = 1;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::fsc

#endif  // POSEIDON_FSC_SENDER_H_
