// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_SESSION_H_
#define POSEIDON_SESSION_SESSION_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/log.h"
#include "poseidon/base/trace.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/session/node.h"
#include "poseidon/session/runtime.h"

namespace poseidon::session {

struct SessionOptions {
  NodeOptions node;
  sfb::ProductEngine* engine = nullptr;  // outlives the session; null: no layer uses factors
  LogSink* log = nullptr;                // outlives the session; null: silence
  TraceRecorder* trace = nullptr;        // outlives the session; null: no trace
  // A longer collective goes in pieces of so many bytes; the same on every member.
  std::uint64_t collective_bytes = 1u << 30;
  // Where given: asked every tenth of a second by a call that blocks, on the thread that called. True ends the
  // job, as Abort does, and the call returns that failure.
  std::function<bool()> interrupted = {};
};

// What one layer moved and took so far; bytes of this member.
struct LayerStatistics {
  messaging::TrafficCell key_value;
  messaging::TrafficCell factors;
  std::uint64_t steps = 0;
  double seconds = 0;  // from push to landed mean, summed over the steps
  std::uint64_t local_bytes = 0;  // written to the host's shared memory or read from it
};

struct Statistics {
  std::vector<LayerStatistics> layers;
  messaging::TrafficCell control;
  messaging::TrafficCell collectives;
  transport::ConnectionCounters wire;  // includes what encryption adds
  double busy_seconds = 0;    // at least one layer in flight
  double waited_seconds = 0;  // the front end blocked in Wait or WaitAny
  std::uint64_t allocated_bytes = 0;  // by the core, for landing places and sums; not the channels' frames
  LinkMeasurement link;

  // Share of the communication that computation hid: 1 - waited / busy, within [0, 1]. Waiting for a
  // worker that computes longer counts as waiting.
  double hidden_share() const;
};

// The door: one worker's place in a job, for front ends. Declare and commit the layers once; then
// for each step push every layer's gradient as soon as it exists, and wait for a layer when its mean
// is needed.
//
// Thread: Push, PushFactors, Wait and WaitAny may be called from any thread; Open, Commit, BeginStep, the
// collectives, Leave and the destructor block and belong to one thread of the caller's.
// Failure: the first failure of the job is final; every call returns it from then on, with the
// culprit's member id where there is one.
class Session {
 public:
  // Listens, joins the job and returns when every member is connected to every other. For
  // rank 0 (hosts_coordinator) `listening`, where given, is told the address others must join at,
  // before anybody has joined.
  static Result<std::unique_ptr<Session>> Open(
      std::unique_ptr<Runtime> runtime, const SessionOptions& options,
      UniqueFunction<void(const transport::Address&)> listening = {});
  // Leaves without a goodbye if Leave was not called: the others see a lost member.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Rank rank() const { return rank_; }
  std::uint16_t workers() const { return options_.node.workers; }
  std::string NameOf(std::int32_t member) const;
  const std::vector<wire::RosterEntry>& roster() const { return roster_; }

  // Declares this worker's layers and returns the provisional plan when all workers agree.
  Result<plan::Plan> Commit(const std::vector<plan::LayerSpec>& layers);
  // Called before a step's first forward pass. At the final plan's switch step it waits for that
  // plan, kFailedPrecondition if this worker has not reported; returns the plan that holds for `step`.
  Result<const plan::Plan*> BeginStep(Step step);
  const plan::Plan& plan() const { return final_plan_ ? *final_plan_ : *provisional_plan_; }
  bool plan_is_final() const { return final_plan_.has_value(); }
  // The coordinator makes the final plan when every worker has reported, before its switch step.
  void Report(const std::vector<wire::Measured::Layer>& layers);

  // Hands over a layer's flat gradient; the mean over all workers lands over it. `gradient` is lent
  // until Wait(layer) returns for this step. Returns at once.
  struct DensePush {
    LayerId layer;
    Step step;
    TensorView gradient;
    bool absent = false;       // contribute nothing (unused parameter, uneven end)
    std::uint32_t weight = 0;  // of this contribution in the mean; 0: unweighted
    // Where given: fires once, on a thread of the session's, when Wait would no longer block. It must
    // not block, nor call what blocks.
    Completion landed = {};
  };
  void Push(DensePush push);
  // Hands over a factor layer's factors; the mean lands in `gradient` (weight, then bias). Factors
  // and gradient are lent until Wait returns.
  struct FactorPush {
    LayerId layer;
    Step step;
    Factors factors;
    TensorView gradient;
    Completion landed = {};  // as in DensePush
  };
  void PushFactors(FactorPush push);
  // Blocks until the mean of the layer's last pushed step has landed.
  Status Wait(LayerId layer);
  // Blocks until Wait would not block for one of `layers`, at least one, and returns the first such in
  // the order given: whoever has to wait for one layer can do meanwhile what another waits for.
  LayerId WaitAny(std::span<const LayerId> layers);
  // True when Wait would not block.
  bool Landed(LayerId layer) const;

  // Collectives: every worker calls the same ones in the same order; they block.
  Status Sum(TensorView view);  // in rank order, unscaled
  // The same without blocking: the future is ready when the sum lies in `view`, lent until then.
  std::future<Status> StartSum(TensorView view);
  Status Broadcast(TensorView view, Rank root);
  Status Barrier();
  Result<std::vector<ByteBuffer>> Gather(ConstBytes bytes);  // every rank's bytes, by rank, to all

  // The orderly end: blocks until all workers have called it.
  Status Leave();
  // Ends the job for everybody, with this reason. Does not block.
  void Abort(const Status& reason);
  // The job's failure, OK while it runs.
  Status failure() const;
  // Blocks until the job has ended here and nothing is in flight any more: OK after the orderly end,
  // else the failure. All that a dedicated server does after Open; in a worker, what makes sure that
  // an Abort has gone out.
  Status AwaitEnd();

  Statistics Collect();
  // Begins the statistics of layer times and of waiting anew.
  void ResetTimings();
  TimePoint now() const { return runtime_->io().now(); }

 private:
  struct Pending {
    bool waiting = false;  // pushed, not landed
    Step step;
    Status status;
  };

  Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options);
  // Runs `f` on the I/O executor and waits for it.
  template <typename F>
  void RunOnIo(F f);
  // Ends the job if the caller wants out. True if so.
  bool EndIfInterrupted();
  // The future's value; if the caller is interrupted meanwhile, the job ends, which completes it.
  template <typename T>
  T Get(std::future<T> future);
  Completion Complete(LayerId layer, Completion landed);
  void PushRequest(LayerId layer, sync::SyncRequest request, Completion landed);
  // Calls `start(completion)` on the I/O executor; the future is the completion's status.
  std::future<Status> Begin(UniqueFunction<void(Completion)> start);
  Status Await(UniqueFunction<void(Completion)> start);
  Status Collective(TensorView view, bool contribute);

  std::unique_ptr<Runtime> runtime_;
  const SessionOptions options_;
  NullLogSink null_log_;
  std::unique_ptr<Node> node_;  // lives on runtime_->io()
  Rank rank_;
  std::vector<wire::RosterEntry> roster_;
  std::optional<plan::Plan> provisional_plan_;
  std::optional<plan::Plan> final_plan_;
  std::atomic<bool> reported_ = false;

  mutable std::mutex mutex_;
  std::condition_variable landed_;
  std::vector<Pending> pending_;  // by layer, guarded by mutex_
  Status failure_;                // guarded by mutex_
  Duration waited_{0};            // guarded by mutex_
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_SESSION_H_
