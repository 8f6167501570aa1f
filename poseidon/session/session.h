// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_SESSION_H_
#define POSEIDON_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/mutex.h"
#include "poseidon/session/blocking_node.h"
#include "poseidon/session/figures_teller.h"
#include "poseidon/session/model.h"
#include "poseidon/session/runtime.h"
#include "poseidon/session/session_options.h"

namespace poseidon::session {

// Counters of this member, all models together.
struct Statistics {
  messaging::TrafficCell control;
  messaging::TrafficCell collectives;
  transport::ConnectionCounters wire;  // includes what encryption adds
  std::uint64_t allocated_bytes = 0;   // by the core, for landing places, sums and staging; not the channels' frames
  LinkMeasurement link;
  double bandwidth = 0;          // of the link, that the job may use, bytes per second each way; 0: all
  double busy_seconds = 0;    // at least one layer in flight, summed over the models
  double waited_seconds = 0;  // the front end blocked in Wait or WaitAny
  OverlapMeter overlap;       // what that waiting was for

  // Share of the communication that computation hid, within [0, 1]; see OverlapMeter.
  double hidden_share() const { return overlap.hidden_share(); }
};

// One worker's part in a job, for front ends. A session has one or several models (model.h), which train;
// the session itself has the job's beginning, its end, and what all workers do together besides steps.
//
// Thread: Abort, failure, NameOf, now, Collect and ResetTimings may be called from any thread; Open, NewModel, the
// collectives, Leave and the destructor block and belong to one thread of the caller's.
// Failure: the first failure of the job is final; every call returns it from then on, with the
// culprit's member id where there is one.
class Session {
 public:
  // Listens, joins the job and returns when every member is connected to every other. For
  // rank 0 (hosts_coordinator) `listening`, where given, is called with the address others must join at,
  // before anybody has joined.
  static Result<std::unique_ptr<Session>> Open(
      std::unique_ptr<Runtime> runtime, const SessionOptions& options,
      UniqueFunction<void(const transport::Address&)> listening = {});
  // If Leave was not called, the connections end without a goodbye and the others see a lost member. In a
  // forked child it destroys nothing.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Rank rank() const { return node_.rank(); }
  std::uint16_t workers() const { return options_.node.workers; }
  const sync::Strategy& strategy() const { return options_.node.strategy; }
  std::uint64_t final_plan_step() const { return options_.node.final_plan_step; }
  std::string NameOf(std::int32_t member) const;
  const std::vector<wire::RosterEntry>& roster() const { return node_.roster(); }

  // A new, empty model, which lives as long as the session. Every worker makes the same ones in the same order.
  Result<Model*> NewModel();

  // Collectives: every worker calls the same ones in the same order; they block.
  Status Sum(TensorView view);  // in rank order, unscaled
  // The same without blocking: the future is ready when the sum is in `view`, lent until then.
  std::future<Status> StartSum(TensorView view);
  Status Broadcast(TensorView view, Rank root);
  Status Barrier();
  Result<std::vector<ByteBuffer>> Gather(ConstBytes bytes);  // every rank's bytes, by rank, to all

  // The orderly end: blocks until all workers have called it.
  Status Leave();
  // Ends the job for everybody, with this reason. Does not block.
  void Abort(const Status& reason) { node_.Abort(reason); }
  // Tells the others, should they wait for this worker, what it is busy with ("evaluates", "compiles its model"), so
  // that they wait longer; empty: nothing in particular. Any thread.
  void SayBusy(std::string with) { node_.front_end().Say(std::move(with)); }
  // The job's failure, OK while it runs.
  Status failure() const { return node_.failure(); }
  // True in a child that was forked from the process that opened this session: its threads and connections are
  // not there, and nothing but the destructor may be called.
  bool forked() const { return node_.forked(); }
  // Blocks until the job has ended here and nothing is in flight any more: OK after the orderly end,
  // else the failure. A dedicated server calls nothing else after Open; a worker calls it to be sure that
  // an Abort has gone out.
  Status AwaitEnd();

  // Any thread, and also while a model is made.
  Statistics Collect();
  // Begins times of layers and of waiting anew, of all models; bytes go on. Any thread likewise.
  void ResetTimings();
  TimePoint now() const { return node_.now(); }

 private:
  Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options);
  // Calls `start` on the I/O executor for each piece in turn.
  Status InPieces(TensorView view, const std::function<void(Node&, TensorView, Completion)>& start);
  Result<std::vector<ByteBuffer>> GatherAll(ConstBytes bytes);
  Sighting Look();
  void AddWait(const wire::Wait& wait, place::Figures* figures) POSEIDON_REQUIRES(mutex_);

  const SessionOptions options_;
  Mutex mutex_;
  // Before node_, whose end completes what they wait for.
  std::vector<std::unique_ptr<Model>> models_ POSEIDON_GUARDED_BY(mutex_);
  BlockingNode node_;
  std::unique_ptr<FiguresTeller> figures_;  // null where nobody asks; last, because it looks at the others
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_SESSION_H_
