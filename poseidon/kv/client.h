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
// Of each slice no more leaves than the flow's window beyond what its owner has answered: by sums, and where another worker is late, by
// grants (server.h). Workers then keep in step, and what an owner sums is still in its cache (docs/decisions/sums.md).
//
// Thread: the mesh's executor. Lifetime: mesh and server outlive it.
class Client final : public messaging::FrameSink {
 public:
  // `local` is the shard of the same process, or null. Slices that are not kEven have no windows: their owners sum whole ones.
  Client(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, Server* local,
         plan::Placement placement = plan::Placement::kEven);

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

  // Whether frames of this type are a client's.
  static bool Takes(wire::FrameType type) { return type == wire::FrameType::kResult || type == wire::FrameType::kGrant; }
  // FrameSink, for these:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // A key and its request under way. Of a declared layer it is there for ever, so that a step needs no memory of its own.
  struct Row {
    std::vector<plan::Slice> slices;  // in the order of the gradient
    // Of each slice, in bytes of the gradient: as far as it has been pushed, and as far as it may be.
    struct Way {
      std::uint64_t pushed = 0;
      std::uint64_t may = 0;
    };
    std::vector<Way> ways = {};
    std::uint64_t window = 0;  // bytes
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
    bool held = false;  // the window keeps back what is there behind it
  };

  // Null where no request of the key is under way.
  Row* Find(const Key& key);
  Row& RowFor(const Key& key, const TensorView& gradient);
  // Pushes what there is of the slice, and may be.
  void PushOn(const Key& key, Row& row, std::size_t slice);
  // The slice with this byte of the gradient, or how many there are, where none has it.
  static std::size_t SliceAt(const Row& row, std::uint64_t byte);
  void OnSummed(const Key& key, Row& row, std::uint64_t to);
  Status OnGrant(MemberId from, const wire::FrameHeader& header);
  void PushStretch(const Key& key, Row& row, const plan::Slice& slice, const Stretch& stretch);
  void OnPartDone(const Key& key, std::uint64_t serial, const Status& status);
  Completion PartDone(const Key& key, std::uint64_t serial);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const sync::Topology topology_;
  Server* const local_;
  const bool windows_;
  std::map<Key, Row> rows_;
  std::uint64_t next_serial_ = 1;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_CLIENT_H_
