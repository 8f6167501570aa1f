// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_WORKER_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_WORKER_H_

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/output.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"
#include "poseidon/place/figures.h"
#include "poseidon/transport/tcp/token.h"
#include "poseidon/transport/transport.h"

namespace poseidon::caffe {

// Requests from outside, set by signal handlers or the launcher's messages, read between iterations.
struct Requests {
  std::atomic<bool> stop{false};
  std::atomic<bool> terminate{false};      // stop, with a snapshot in any case
  std::atomic<bool> snapshot{false};  // once; taken by the solver
};

// Where a member meets the others.
struct Meeting {
  transport::Address listen;       // where this member does
  transport::Address coordinator;  // where rank 0 does; unused by rank 0
  transport::tcp::Token token;
};

struct MemberEnvironment {
  Output& output;
  Requests& requests;
  // The job's secret; absent for one worker without a network.
  std::optional<transport::tcp::Token> token;
  // Rank 0: called with the address at which the others join.
  std::function<void(const transport::Address&)> listening;
  // Called when every member is connected to every other.
  std::function<void()> joined = {};
  // Called with true when this member begins to write the run's files, and with false when it has: who
  // ends it meanwhile loses them.
  std::function<void(bool begins)> saving = {};
  // Where given: is told about once a second how this member does; SessionOptions::figures.
  place::TellFigures figures = {};
  // Asked by whatever blocks before all have joined and while waiting for others: true ends the job.
  std::function<bool()> interrupted = {};
  // Asked when the member is ready to join, where its task and `token` do not say it.
  std::function<Result<Meeting>()> meeting = {};
};

// How a run ended in which nothing failed.
struct RunEnd {
  // The loss ceased to be finite, and that ended the run: the sentence, the same on all workers. Empty: it did not.
  std::string not_finite;
};

// Trains as one worker of the job, from reading the solver file to writing the run's results (rank
// 0). The Status carries the sentence for the user, and the culprit where a member was lost.
// Thread: the caller's; blocks until the end. From then on it counts subnormal numbers as zero.
Result<RunEnd> RunWorker(const MemberTask& task, const MemberEnvironment& environment);

// Hosts a shard as a dedicated server until the job ends.
Status RunServer(const MemberTask& task, const MemberEnvironment& environment);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_WORKER_H_
