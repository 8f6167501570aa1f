// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_FACTOR_INBOX_H_
#define POSEIDON_SYNC_FACTOR_INBOX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "poseidon/factors/factor_store.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/layer.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// Gives the factors of many layers their places, and checks the frames that bring them: a frame is its sender's own,
// of a layer that is known here, and of whole rows. Those of a factor that is compressed have no place: the channel
// keeps them, and they are expanded into the rows.
//
// Thread: the mesh's executor.
class FactorInbox final : public messaging::FrameSink {
 public:
  // `arrived` is called when a frame of a layer has landed.
  FactorInbox(const Topology& topology, std::function<void(const wire::Key&)> arrived);

  // Factors of this shape land for `key` from now on: u of [rows x outputs], v of [rows x inputs].
  void Add(const wire::Key& key, const plan::FactorShape& shape, DType dtype);
  bool has(const wire::Key& key) const { return layers_.contains(key); }
  // Pre: has(key).
  factors::FactorStore& store(const wire::Key& key) { return layers_.find(key)->second.store; }
  // Rows that a plan was made of, by rank: room for them is made in advance. Those of other ranks, or of a key that is
  // not here, are ignored.
  void Expect(const wire::Key& key, std::span<const std::uint32_t> rows);

  // The operands of the product that makes the mean of one step: all ranks' rows, and alpha, one over the workers or
  // over the sum of their weights. Only alpha divides a layer of factors. Pre: the step is complete.
  struct Mean {
    factors::Concatenation rows;
    double alpha = 1;
  };
  Result<Mean> MeanOf(const wire::Key& key, Step step);

  // Adds the factors that are missing in steps of which some factors have arrived.
  void AddWaits(std::vector<wire::Wait>* waits) const;
  // Refuses every frame from now on, with this reason.
  void Close(const Status& reason) { closed_ = reason; }
  std::uint64_t allocated_bytes() const;

  // FrameSink, for kFactor:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  struct Layer {
    plan::FactorShape shape;
    DType dtype = DType::kF32;
    factors::FactorStore store;
  };

  // kDataLoss for a frame that is not its sender's, names no layer with factors, or brings no whole rows.
  Result<Layer*> Find(MemberId from, const wire::FrameHeader& header);

  const Topology topology_;
  const std::function<void(const wire::Key&)> arrived_;
  std::map<wire::Key, Layer> layers_;
  Status closed_;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_FACTOR_INBOX_H_
