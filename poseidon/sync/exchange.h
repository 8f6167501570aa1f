// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_EXCHANGE_H_
#define POSEIDON_SYNC_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/base/trace.h"
#include "poseidon/messaging/frame_sink.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/sync/contribution.h"
#include "poseidon/sync/strategy.h"
#include "poseidon/sync/topology.h"
#include "poseidon/wire/frame.h"
#include "poseidon/wire/messages.h"

namespace poseidon::factors {
class GatheredRows;
class ProductEngine;
}  // namespace poseidon::factors

namespace poseidon::sync {

// One step of one layer, on its way from a worker's gradient to the mean over all workers. The contribution's memory is
// lent until `done`. It is in parts only where the exchange takes parts.
struct SyncRequest : Contribution {
  messaging::Priority priority = {};
  // Of a table, and of a layer whose product the device makes: where the mean lands instead of in `gradient`.
  factors::GatheredRows* gathered = nullptr;
  Completion done = {};  // on the executor of the exchange, never within the call that took the request
  bool only_wakes = false;  // `done` runs nothing of the program's: the scheduler calls it at once where all went well
};

// Host memory of an exchange's own, for one layer. What a request brings at `brought`, its gradient or its factors, u and behind
// it v, is not copied. Where its gradient is `brought`, the mean lands in `mean`.
struct OwnMemory {
  MutableBytes brought;  // whole pages, each
  MutableBytes mean;
  std::shared_ptr<const void> held;  // both live as long as this is held
};

// One way to exchange layers, as a row of plan/schemes.h describes it: how contributions travel and
// where they become the mean. A member has one object of each kind for all models.
//
// Every exchange keeps the same promises: the mean is summed in rank order and has the same bits on
// every worker; an absent contribution is not counted in a weighted mean and adds nothing to an
// unweighted one; `done` fires exactly once, after the mean has landed and every frame that reads
// the request's memory has left.
//
// Thread: the executor of its lane, which is the I/O executor for lane 0 (plan/lanes.h).
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual plan::Scheme scheme() const = 0;

  // Takes the layers of a model, in the order of their numbers, and leaves out those that the scheme does
  // not apply to. Each model once.
  virtual void Declare(ModelId model, std::span<const plan::LayerSpec> layers) = 0;
  // Takes a plan of a declared model, which holds from its switch step on. Plans come in that order.
  virtual void UsePlan(ModelId model, const plan::Plan& plan) = 0;

  // Where requests of a declared layer may bring what they bring; none where any memory is as good. `brought` is free
  // between two requests, and `mean` is unchanged from the end of one to the begin of the next.
  virtual std::optional<OwnMemory> MemoryOf(const wire::Key& /*key*/) const { return std::nullopt; }
  // Begins one step of one declared layer: one step per layer at a time. Only in workers.
  virtual void Start(const wire::Key& key, SyncRequest request) = 0;
  // Whether a request may come in parts.
  virtual bool takes_parts() const { return false; }
  // Among how many shards a layer is divided of which every lane carries a part; 0: every layer goes whole through one lane
  // (plan::DealToLanes).
  virtual std::uint16_t divides_over() const { return 0; }
  // The first `elements` numbers of the request in parts that is under way have come, more than before. Its mean is whole
  // only once all have. Ignored where there is none: it may have failed meanwhile.
  virtual void Arrived(const wire::Key& /*key*/, std::uint64_t /*elements*/) {}

  // Returns who takes the frames of this type that carry this scheme; null where this member takes none.
  virtual messaging::FrameSink* SinkOf(wire::FrameType type) = 0;

  // Adds the contributions and results that this member waits for, with the members that owe them.
  virtual void AddWaits(std::vector<wire::Wait>* waits) const = 0;
  // Fails every request with `reason`, and those that follow. A product under way still writes: its
  // request completes when it has ended.
  virtual void Abandon(const Status& reason) = 0;

  // Bytes allocated by now, and what full use of the declared layers takes at most, as far as it is
  // known without rows.
  virtual std::uint64_t allocated_bytes() const = 0;
  virtual std::uint64_t declared_bytes() const { return 0; }
};

// The services that an exchange uses. All references outlive it.
struct ExchangeEnvironment {
  Executor& io;
  Executor& compute;  // products
  messaging::Mesh& mesh;
  Topology among;  // who exchanges layers: every worker, or the leaders in this one's place on their hosts
  Topology flat;   // every worker
  factors::ProductEngine* engine = nullptr;  // null: no layer is sent as factors, but rows of tables
  TraceRecorder* trace = nullptr;
  Strategy strategy = {};
  plan::LaneShare lane = {};  // of the lane whose executor and mesh these are
  // Ends the job. For failures that no request of this member can report.
  std::function<void(const Status&)> fail;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_EXCHANGE_H_
