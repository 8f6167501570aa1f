// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_MODEL_H_
#define POSEIDON_SESSION_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/trace.h"
#include "poseidon/messaging/traffic.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/plan/history.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/layer_clock.h"
#include "poseidon/plan/plan.h"
#include "poseidon/session/declaration.h"
#include "poseidon/session/overlap.h"
#include "poseidon/session/pace.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

class BlockingNode;
class Node;

// Bytes and times of one layer so far; bytes of this member.
struct LayerStatistics {
  messaging::TrafficCell gradients;  // in steps whose scheme takes gradients
  messaging::TrafficCell factors;    // in steps whose scheme takes factors, results that come back for them included
  std::uint64_t steps = 0;
  double seconds = 0;  // from push to landed mean, summed over the steps
  std::uint64_t local_bytes = 0;  // that processors wrote to the host's shared memory or read from it
};

struct ModelStatistics {
  std::vector<LayerStatistics> layers;
  double busy_seconds = 0;    // at least one layer in flight
  double waited_seconds = 0;  // the front end blocked in Wait or WaitAny, or said Waited
  OverlapMeter overlap;       // what that waiting was for

  // Share of the communication that computation hid, within [0, 1]; see OverlapMeter.
  double hidden_share() const { return overlap.hidden_share(); }
};

// The steps of a model from its first on, whatever ResetTimings does.
struct StepsSoFar {
  std::uint64_t begun = 0;
  OverlapMeter overlap;  // of those whose numbers are in
};

// A worker's contribution to one step of one layer, as a front end hands it over.
struct Push : sync::Contribution {
  // Where given: fires once, on a thread of the session's, when Wait would no longer block. It must
  // not block, nor call what blocks.
  Completion landed = {};
};

enum class Pass : std::uint8_t { kForward, kBackward };

// One model of a session. Declare and commit the layers once; then for each step begin it, push every
// layer's gradient as soon as it exists, and wait for a layer when its mean is needed.
//
// It keeps what every front end needs: which step each layer may push, the plan that holds, the layers' clocks
// and the report from which the final plan is made, and what waiting was for.
//
// Thread: MemoryOf, Push, Arrived, Wait, WaitAny, Landed, SchemeOf, Timed, Waited, Collect and CountSteps may be called from any thread, a layer's
// calls one at a time; the others block and belong to the session's one thread.
// Failure: a call out of turn is refused and changes nothing; the job's failure is final and answers every call.
class Model {
 public:
  // What a model knows of its job.
  struct Place {
    Rank rank;
    std::uint16_t workers = 1;
    std::uint64_t final_plan_step = 0;
    TraceRecorder* trace = nullptr;  // outlives the model; null: no trace
  };
  // By Session::NewModel. Completions of the node's may use the model until the node has ended, and not later.
  Model(BlockingNode& node, ModelId id, const Place& place);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  ModelId id() const { return id_; }

  // Adds a layer, numbered from 0. Before Commit. `by_device`: a test product of the program's device, of a layer that says
  // by_device; its bits show whether two devices are alike.
  Result<LayerId> Declare(plan::LayerSpec layer, std::optional<factors::ProductTest> by_device = std::nullopt);
  // Compares the layers with every other worker's and makes the provisional plan, which it returns. Once.
  Result<plan::Plan> Commit();
  // Declares all of `layers` and commits.
  Result<plan::Plan> Commit(std::vector<plan::LayerSpec> layers);
  bool committed() const;
  const std::vector<plan::LayerSpec>& layers() const { return specs_; }
  Status CheckLayer(LayerId layer) const;

  // Called before a step's first forward pass; steps count up. At the final plan's switch step it waits for that
  // plan, kFailedPrecondition if this worker has not reported. Returns the plan that holds for `step`. All workers
  // learn what one of them wishes; see Agreed. `on_device`: for how many seconds the program's device computed in the step that ends
  // here, where it knows; all workers learn it (OverlapMeter).
  Result<const plan::Plan*> BeginStep(Step step, Wish wish = {}, double on_device = 0);
  // Returns the wishes of all workers together for the step begun last: the same answer on all of them. Blocks until
  // every worker has begun that step.
  Result<Wish> Agreed();
  // The newest plan. Pre: Commit. Thread: the session's.
  const plan::Plan& plan() const { return final_plan_ ? *final_plan_ : *provisional_plan_; }
  bool plan_is_final() const { return final_plan_.has_value(); }
  // The same for any thread: a copy; nothing before Commit.
  std::optional<plan::Plan> NewestPlan() const;
  // How the layer is to be pushed in `step`, which has begun.
  Result<plan::Scheme> SchemeOf(LayerId layer, Step step) const;
  // Whether the mean of a step under `scheme` is handed out as what all workers brought (Gathered): of a table, and of a
  // layer whose product the device makes.
  bool Gathers(LayerId layer, plan::Scheme scheme) const;

  // The session's own memory for a layer; none where any memory is as good, and where gradients are on the session's device. The
  // mean of a gradient that is pushed from there lands in its `mean`. Blocks for a moment. Pre: Commit.
  std::optional<sync::OwnMemory> MemoryOf(LayerId layer);
  // Hands over a layer's gradient or its factors; the mean over all workers lands over the gradient, which is not the session's own
  // memory where factors are handed over. Gradient and
  // factors are lent until Wait(layer) returns for this step. Returns at once.
  Status Push(LayerId layer, session::Push push);
  // The first `elements` numbers of the gradient pushed in parts hold their values, and leave where their exchange takes
  // parts. Grows; the push is whole once all are there. Returns at once. kFailedPrecondition where none in parts is under
  // way, kInvalidArgument for fewer than before or more than the layer has.
  Status Arrived(LayerId layer, std::uint64_t elements);
  // Blocks until the mean of the layer's last pushed step has landed, or the job has ended: then it returns the
  // job's failure. kFailedPrecondition in a callback of the session, which must not block.
  Status Wait(LayerId layer);
  // Blocks until Wait would not block for at least one of `layers`, and returns the first such in the order
  // given: then the caller can update that layer while others are on their way. Pre: not empty.
  LayerId WaitAny(std::span<const LayerId> layers);
  // True when Wait would not block.
  bool Landed(LayerId layer) const;
  // Whether the layer's last push was of a step that Gathers.
  bool HasGathered(LayerId layer) const;
  // The mean of that step. Pre: HasGathered, and Wait(layer) has returned OK. Valid until the layer's next push.
  const factors::GatheredRows& Gathered(LayerId layer) const { return *gathered_[layer.value()]; }

  // The engine ran a layer's pass between two moments of the steady clock (plan::SteadyNow): counts towards the
  // layer's costs that the planner gets, and is a span of the trace. The update counts as forward.
  void Timed(LayerId layer, Pass pass, Step step, TimePoint begin, TimePoint end);
  // Adds the time for which the front end waited in the step begun last for layers that it takes by `landed` and not
  // by Wait.
  void Waited(Duration time);
  // Reports to the coordinator what the layers take; it makes the final plan when every worker has reported. Two steps
  // before the final plan's switch step the model reports by itself: what `measure` returns where MeasureWith was
  // called, else the passes that were timed.
  void Report(std::vector<wire::Measured::Layer> layers);
  // For an engine that keeps clocks of its own. `measure` is asked once, on the session's thread, in BeginStep. Before
  // the first step.
  void MeasureWith(std::function<std::vector<wire::Measured::Layer>()> measure) { measure_ = std::move(measure); }

  ModelStatistics Collect() const;
  StepsSoFar CountSteps() const;
  // Begins the statistics of layer times and of waiting anew.
  void ResetTimings();

 private:
  struct Layer {
    bool waiting = false;  // pushed, not landed
    std::optional<Step> last;  // pushed
    std::optional<std::uint64_t> arrived;  // of a push in parts that is not whole yet
    Status status;
    std::uint32_t rows = 0;  // of the last push
    int awaited = 0;         // calls that block for it
    Completion landed;       // of the push under way
    MutableBytes brought;    // of the session's own memory, once somebody has asked for it
  };

  using PlanTaker = UniqueFunction<void(Result<plan::Plan>)>;
  Result<plan::Plan> AwaitPlan(UniqueFunction<void(Node&, PlanTaker)> start);
  // The scheme of the push's step, where the push is as that scheme takes it.
  Result<plan::Scheme> Check(LayerId layer, const session::Push& push) const;
  void BeginPace(Step step, const Wish& wish, double on_device);
  void AddWaited(Duration time) POSEIDON_REQUIRES(mutex_);
  std::optional<LayerId> FirstLanded(std::span<const LayerId> layers) const POSEIDON_REQUIRES(mutex_);
  void MeterEnded();
  void ReportMeasured();
  void Complete(LayerId layer, const Status& status);

  BlockingNode& node_;
  const ModelId id_;
  const Place place_;
  std::set<std::string, std::less<>> names_;
  std::vector<plan::LayerSpec> specs_;
  DeviceTests device_tests_;
  bool reported_ = false;
  std::function<std::vector<wire::Measured::Layer>()> measure_;
  Pace pace_;

  mutable Mutex mutex_;
  ConditionVariable landed_;
  std::vector<Layer> layers_ POSEIDON_GUARDED_BY(mutex_);
  // Written under mutex_ by the session's thread, which therefore reads them without it.
  std::optional<plan::Plan> provisional_plan_;
  std::optional<plan::Plan> final_plan_;
  std::optional<plan::History> plans_ POSEIDON_GUARDED_BY(mutex_);
  Duration waited_ POSEIDON_GUARDED_BY(mutex_){0};
  std::optional<plan::LayerClock> clock_ POSEIDON_GUARDED_BY(mutex_);
  bool timed_ POSEIDON_GUARDED_BY(mutex_) = false;
  OverlapMeter overlap_ POSEIDON_GUARDED_BY(mutex_);
  StepsSoFar so_far_ POSEIDON_GUARDED_BY(mutex_);
  double step_waited_ POSEIDON_GUARDED_BY(mutex_) = 0;  // of waited_, seconds in the step under way
  // Steps that began before it are not in overlap_.
  TimePoint metered_from_ POSEIDON_GUARDED_BY(mutex_);

  // By layer, null for those of which no step Gathers. Used by whoever has the layer's turn: the exchange from Push on, then
  // the caller.
  std::vector<std::unique_ptr<factors::GatheredRows>> gathered_;
  // By layer, on its way from Push to the I/O executor. Used by whoever has the layer's turn.
  std::vector<sync::SyncRequest> requests_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_MODEL_H_
