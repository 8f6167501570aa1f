// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_CLIENT_H_
#define POSEIDON_KV_CLIENT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/kv/server.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/slices.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/sync/landings.h"
#include "poseidon/tensor/view.h"

namespace poseidon::kv {

// A worker's side of the store: a push of a layer goes to the owners of its slices, the sums come
// back over the same memory: one round trip, whose acknowledgement is the result.
//
// Thread: the mesh's executor. Lifetime: mesh and server outlive it.
class Client final : public messaging::FrameSink {
 public:
  // `local` is the shard of the same process, or null.
  Client(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, Server* local);

  void Declare(ModelId model, const std::vector<std::vector<plan::Slice>>& slices);

  // Sends `request.gradient`, host memory, and lands the result over it. One request per key at a time. For one-off keys
  // (wire::kCollectiveModel) the slices follow from the size, and every rank must use the same size, dtype and order of
  // keys. `request.done` fires when every slice's result has landed and every frame that reads the memory has left.
  void PushPull(const Key& key, sync::SyncRequest request);
  // See sync::Exchange. What has come since the last call leaves at once, a message to each owner of some of it.
  void Arrived(const Key& key, std::uint64_t elements);

  // Adds the sums that have not arrived, with the owners that owe them. Nobody owes one before this worker's contribution
  // is whole.
  void AddWaits(std::vector<wire::Wait>* waits) const;

  // Fails every request with `reason`, and those that follow.
  void Abandon(const Status& reason);

  // FrameSink, for kResult:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // A key and its request under way. Of a declared layer it is there for ever, so that a step needs no memory of its own.
  struct Row {
    std::vector<plan::Slice> slices;
    bool under_way = false;
    sync::Landings landings = {};  // of slices that others own
    sync::SyncRequest request = {};
    std::uint64_t arrived = 0;  // numbers of the gradient that have been handed on, from its beginning on
    // Slices to land or to be summed here, which none does before it has been handed on, and messages to leave.
    std::uint32_t pending = 0;
    Status failure = {};
    std::uint64_t serial = 0;

    bool whole() const { return arrived == request.gradient.elements; }
  };
  // Numbers of one slice, by their places in the gradient.
  struct Stretch {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Null where no request of the key is under way.
  Row* Find(const Key& key);
  Row& RowFor(const Key& key, const TensorView& gradient);
  void PushStretch(const Key& key, Row& row, const plan::Slice& slice, const Stretch& stretch);
  void OnPartDone(const Key& key, std::uint64_t serial, const Status& status);
  Completion PartDone(const Key& key, std::uint64_t serial);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const sync::Topology topology_;
  Server* const local_;
  std::map<Key, Row> rows_;
  std::uint64_t next_serial_ = 1;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_CLIENT_H_
