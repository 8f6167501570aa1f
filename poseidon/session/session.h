// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_SESSION_H_
#define POSEIDON_SESSION_SESSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/log.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/trace.h"
#include "poseidon/session/front_end.h"
#include "poseidon/session/model.h"
#include "poseidon/session/node.h"
#include "poseidon/session/runtime.h"

namespace poseidon::session {

inline constexpr std::chrono::milliseconds kInterruptedEvery{100};

struct SessionOptions {
  NodeOptions node;
  factors::ProductEngine* engine = nullptr;  // outlives the session; null: no layer uses factors
  LogSink* log = nullptr;                // outlives the session; null: silence
  TraceRecorder* trace = nullptr;        // outlives the session; null: no trace
  // Where given: makes, on the executor it is handed, the device whose memory pushes may name (Push::on_device).
  std::function<std::unique_ptr<device::Device>(Executor&)> device = {};
  // A longer collective goes in pieces of so many bytes; the same on every member.
  std::uint64_t collective_bytes = 1u << 30;
  // Where given: every call that blocks calls it every tenth of a second, on the thread that blocks. True ends
  // the job, as Abort does, and the blocked call returns that failure.
  std::function<bool()> interrupted = {};
};

// Counters of this member, all models together.
struct Statistics {
  messaging::TrafficCell control;
  messaging::TrafficCell collectives;
  transport::ConnectionCounters wire;  // includes what encryption adds
  std::uint64_t allocated_bytes = 0;   // by the core, for landing places, sums and staging; not the channels' frames
  LinkMeasurement link;
  double busy_seconds = 0;    // at least one layer in flight, summed over the models
  double waited_seconds = 0;  // the front end blocked in Wait or WaitAny
  OverlapMeter overlap;       // what that waiting was for

  // Share of the communication that computation hid, within [0, 1]; see OverlapMeter.
  double hidden_share() const { return overlap.hidden_share(); }
};

// One worker's part in a job, for front ends. A session has one or several models (model.h), which train;
// the session itself has the job's beginning, its end, and what all workers do together besides steps.
//
// Thread: Abort, failure, NameOf and now may be called from any thread; Open, NewModel, the
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

  Rank rank() const { return rank_; }
  std::uint16_t workers() const { return options_.node.workers; }
  std::uint64_t final_plan_step() const { return options_.node.final_plan_step; }
  std::string NameOf(std::int32_t member) const;
  const std::vector<wire::RosterEntry>& roster() const { return roster_; }

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
  void Abort(const Status& reason);
  // Tells the others, should they wait for this worker, what it is busy with ("evaluates", "compiles its model"), so
  // that they wait longer; empty: nothing in particular. Any thread.
  void SayBusy(std::string with) { front_end_.Say(std::move(with)); }
  // The job's failure, OK while it runs.
  Status failure() const;
  // True in a child that was forked from the process that opened this session: its threads and connections are
  // not there, and nothing but the destructor may be called.
  bool forked() const;
  // Blocks until the job has ended here and nothing is in flight any more: OK after the orderly end,
  // else the failure. A dedicated server calls nothing else after Open; a worker calls it to be sure that
  // an Abort has gone out.
  Status AwaitEnd();

  Statistics Collect();
  TimePoint now() const { return runtime_->io().now(); }

 private:
  friend class Model;

  Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options);
  // Runs `f` on the I/O executor and waits for it.
  template <typename F>
  void RunOnIo(F f) const;
  // Ends the job if `interrupted` says so, and returns whether it did.
  bool EndIfInterrupted();
  // The future's value; if the caller is interrupted meanwhile, the job ends, which completes it.
  template <typename T>
  T Get(std::future<T> future);
  // Calls `start(completion)` on the I/O executor; the future is the completion's status.
  std::future<Status> Begin(UniqueFunction<void(Completion)> start);
  Status Await(UniqueFunction<void(Completion)> start);
  // Calls `start` on the I/O executor for each piece in turn.
  Status InPieces(TensorView view, const std::function<void(TensorView, Completion)>& start);
  Result<std::vector<ByteBuffer>> GatherAll(ConstBytes bytes);
  // True on the session's own threads, which must not wait for each other.
  bool InCallback() const;
  Status CheckMayBlock() const;

  const std::uint64_t fork_generation_;
  std::unique_ptr<Runtime> runtime_;
  const SessionOptions options_;
  NullLogSink null_log_;
  FrontEnd front_end_;
  std::unique_ptr<device::Device> device_;  // lives on runtime_->io(), null: the host
  std::unique_ptr<Node> node_;              // likewise
  Rank rank_;
  std::vector<wire::RosterEntry> roster_;
  std::vector<std::unique_ptr<Model>> models_;

  mutable Mutex mutex_;
  Status failure_ POSEIDON_GUARDED_BY(mutex_);
};

template <typename F>
void Session::RunOnIo(F f) const {
  if (runtime_->io().OnExecutor()) return f();
  std::promise<void> done;
  runtime_->io().Post([&] {
    f();
    done.set_value();
  });
  done.get_future().wait();
}

// An interrupted call waits for the job's end, after which nobody reads or writes what the call had lent.
template <typename T>
T Session::Get(std::future<T> future) {
  const FrontEnd::Blocked blocked(front_end_);
  if (options_.interrupted) {
    while (future.wait_for(kInterruptedEvery) != std::future_status::ready) {
      if (EndIfInterrupted()) break;
    }
  }
  return future.get();
}

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_SESSION_H_
