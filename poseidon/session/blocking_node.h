// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_BLOCKING_NODE_H_
#define POSEIDON_SESSION_BLOCKING_NODE_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/log.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/unique_function.h"
#include "poseidon/session/front_end.h"
#include "poseidon/session/node.h"
#include "poseidon/session/runtime.h"
#include "poseidon/session/session_options.h"

namespace poseidon::session {

// A call that blocks asks so often whether the caller wants out (SessionOptions::interrupted).
inline constexpr std::chrono::milliseconds kInterruptedEvery{100};

// A node with its threads and its device, as the program's own threads use it: calls are carried to the I/O executor,
// and those that wait for an answer can be interrupted. Session and Model are made on it.
//
// Thread: any, but Open, Get, Await and the destructor block and belong to the program's own. `rank` and `roster` stay as
// they are once Open has returned.
// Lifetime: `options` outlives it.
class BlockingNode {
 public:
  BlockingNode(std::unique_ptr<Runtime> runtime, const SessionOptions& options);
  // Ends without a goodbye what Leave has not ended; nothing is in flight any more when it returns, and no completion is
  // still to fire. In a forked child it destroys nothing.
  ~BlockingNode();
  BlockingNode(const BlockingNode&) = delete;
  BlockingNode& operator=(const BlockingNode&) = delete;

  // See Session::Open. Once.
  Status Open(UniqueFunction<void(const transport::Address&)> listening);

  Rank rank() const { return rank_; }
  const std::vector<wire::RosterEntry>& roster() const { return roster_; }
  // The job's failure, OK while it runs.
  Status failure() const;
  // See Session::forked.
  bool forked() const;
  TimePoint now() const { return runtime_->io().now(); }
  FrontEnd& front_end() { return front_end_; }
  void Abort(const Status& reason);

  // Calls `f(node)` on the I/O executor and returns at once.
  template <typename F>
  void Post(F f);
  // The same, and returns when it has run.
  template <typename F>
  void Run(F f);
  // What all lanes have moved and allocated. Any thread: blocks until the lanes have answered, which wait for nobody.
  LaneTotals Totals();
  // Calls `start(node, completion)` on the I/O executor; the future is the completion's status.
  std::future<Status> Begin(UniqueFunction<void(Node&, Completion)> start);
  // The same, and blocks until it completes.
  Status Await(UniqueFunction<void(Node&, Completion)> start);
  // The future's value; if the caller is interrupted meanwhile, the job ends, which completes it.
  template <typename T>
  T Get(std::future<T> future);

  // kFailedPrecondition on the session's own threads, which must not wait for each other.
  Status CheckMayBlock() const;
  // Ends the job if `interrupted` says so, and returns whether it did. For calls that wait in loops of their own.
  bool EndIfInterrupted();

 private:
  template <typename F>
  void RunOnIo(F f);

  const std::uint64_t fork_generation_;
  std::unique_ptr<Runtime> runtime_;
  const SessionOptions& options_;
  NullLogSink null_log_;
  FrontEnd front_end_;
  std::unique_ptr<device::Device> device_;  // lives on runtime_->io(), null: the host
  std::unique_ptr<Node> node_;              // likewise
  Rank rank_;
  std::vector<wire::RosterEntry> roster_;

  mutable Mutex mutex_;
  Status failure_ POSEIDON_GUARDED_BY(mutex_);
};

template <typename F>
void BlockingNode::Post(F f) {
  runtime_->io().Post([this, f = std::move(f)]() mutable { f(*node_); });
}

template <typename F>
void BlockingNode::RunOnIo(F f) {
  if (runtime_->io().OnExecutor()) return f();
  std::promise<void> done;
  runtime_->io().Post([&] {
    f();
    done.set_value();
  });
  done.get_future().wait();
}

template <typename F>
void BlockingNode::Run(F f) {
  RunOnIo([&] { f(*node_); });
}

// An interrupted call waits for the job's end, after which nobody reads or writes what the call had lent.
template <typename T>
T BlockingNode::Get(std::future<T> future) {
  const FrontEnd::Blocked blocked(front_end_);
  if (options_.interrupted) {
    while (future.wait_for(kInterruptedEvery) != std::future_status::ready) {
      if (EndIfInterrupted()) break;
    }
  }
  return future.get();
}

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_BLOCKING_NODE_H_
