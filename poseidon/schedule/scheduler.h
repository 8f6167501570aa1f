// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SCHEDULE_SCHEDULER_H_
#define POSEIDON_SCHEDULE_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/trace.h"
#include "poseidon/messaging/order.h"
#include "poseidon/plan/history.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/sync/exchanges.h"
#include "poseidon/sync/strategy.h"

// Wait-free backpropagation: a layer's gradient leaves the moment it exists (Zhang et al., USENIX ATC
// 2017, section 3). On the wire the older step goes first, then the plan's order decides
// (plan/send_order.h): mostly that in which the next forward pass needs the results.
namespace poseidon::schedule {

// A layer between two steps, and its legal moves: kIdle -> kInFlight -> kIdle, kInFlight -> kFailed.
enum class LayerState : std::uint8_t { kIdle, kInFlight, kFailed };
std::string_view NameOf(LayerState state);

// The time of a layer's synchronisation, from the push to the landed mean.
struct LayerTiming {
  std::uint64_t steps = 0;
  double seconds = 0;       // summed over the steps
  double last_seconds = 0;
};

// The layer-state table of one model. Pushes go to the exchange of the layer's scheme at once; what
// orders them on the wire is the priority they carry, which every channel obeys between two writes.
//
// Thread: the I/O executor. Completions of pushes are posted to `completions`, exactly once each, but for the success of a
// request that `only_wakes`, which completes on the I/O executor.
// Lifetime: the exchanges outlive it.
class Scheduler {
 public:
  // For a model of `layers` layers, which the exchanges know.
  Scheduler(Executor& io, Executor& completions, const sync::Exchanges& exchanges, ModelId model, std::size_t layers,
            const sync::Strategy& strategy = {});
  ~Scheduler();

  // The schemes and the order to follow from `plan.switch_step` on.
  void UsePlan(const plan::Plan& plan);

  // `last` has a flag per layer: whether it ends the backward pass. Bytes that the network takes between the
  // first push of those layers and their last mean delay the next forward pass by their whole time. Calls `tell`
  // with true when that interval begins and with false when it ends, from within Push and the exchanges'
  // completions. Holds from the next push on.
  void WatchLast(const std::vector<bool>& last, std::function<void(bool)> tell);

  // Begins one step of one layer. The scheme is the plan's for that step; factors where it takes
  // gradients or the reverse, a step not after the layer's last one, or a second push before the first is done
  // complete with kFailedPrecondition. A request in parts waits here until it is whole where the exchange takes no parts.
  void Push(LayerId layer, sync::SyncRequest request);
  // See sync::Exchange. Ignored where the layer has no request in parts under way.
  void Arrived(LayerId layer, std::uint64_t elements);
  // The job has ended: requests that wait here fail with `reason`.
  void Abandon(const Status& reason);

  LayerState state(LayerId layer) const { return rows_.at(layer.value()).state; }
  const LayerTiming& timing(LayerId layer) const { return rows_.at(layer.value()).timing; }
  // Time during which at least one layer was in flight.
  Duration busy() const;
  void ResetTimings();

 private:
  struct Row {
    LayerState state = LayerState::kIdle;
    std::optional<Step> step;
    TimePoint pushed_at;
    LayerTiming timing;
    bool ends_backward = false;
    bool only_wakes = false;  // of the request under way
    sync::Exchange* in_parts = nullptr;          // takes the parts of the request under way; null: it is not in parts
    std::optional<sync::SyncRequest> incomplete;  // in parts, and its exchange takes none
  };

  // What completes the requests under way, by layer. Shared with the exchanges' completions, one of which may come when the
  // scheduler is gone.
  struct Endings {
    Scheduler* scheduler;
    Executor& completions;
    std::vector<Completion> done;

    void End(LayerId layer, const Status& status);
  };

  Status Check(const Row& row, LayerId layer, const sync::SyncRequest& request,
               plan::Scheme scheme) const;
  void Begin(Row& row, Step step);
  Completion Ending(LayerId layer, Completion done);
  void HandOver(LayerId layer, sync::Exchange& exchange, sync::SyncRequest request);
  void OnDone(LayerId layer, Completion done, const Status& status);
  bool LastUnlanded(Step step) const;
  void TellLast(bool ends);

  Executor& io_;
  Executor& completions_;
  const sync::Exchanges& exchanges_;
  const ModelId model_;
  const messaging::Order order_;
  std::vector<Row> rows_;
  plan::History plans_;
  std::function<void(bool)> tell_last_;
  bool backward_ends_ = false;  // the last argument of tell_last_
  std::uint32_t in_flight_ = 0;
  TimePoint busy_since_;
  Duration busy_{0};
  const std::shared_ptr<Endings> endings_;
};

}  // namespace poseidon::schedule

#endif  // POSEIDON_SCHEDULE_SCHEDULER_H_
