// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_JOB_OPTIONS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_JOB_OPTIONS_H_

#include <map>
#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/train/joining.h"
#include "frontends/caffe/train/options.h"
#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/planner.h"
#include "poseidon/session/node.h"
#include "poseidon/tensor/dtype.h"
#include "poseidon/transport/tcp/tcp_context.h"

// Translates a member's task to the options of the solver, the planner and the core.
namespace poseidon::caffe {

// Of a worker: the cores divided by the members of this host, one of them kept for the I/O thread where there are enough.
int ComputeThreads(const MemberTask& task);
Result<DType> ParseDType(const std::string& name);

// The solver of the job: with the task's levels and stages, and with the batches of one worker where it asks for a
// global batch.
Result<SolverParameter> ReadJobSolver(const TrainOptions& options);

// The user's wishes for a net's layers, before any of them was measured.
struct Wanted {
  plan::PlanOptions planning;
  JoiningRule joining;
  // For the user of a run that goes on from a snapshot: why it does not follow a plan in there. Bits are those of an
  // uninterrupted run under the same plan only.
  std::string note;
};
// The user's schemes (by layer; "*" is every layer of `layers` that can go by factors and is not named itself), then a plan file's, then
// those of the snapshot that is resumed (`restored`, text of a plan.json, may be empty), which say nothing of a job of another size.
// A server knows no layers: rank 0 makes the plan.
Result<Wanted> WantedOf(const TrainOptions& options, const std::vector<plan::LayerSpec>& layers, const std::string& restored = {});

Result<session::NodeOptions> NodeOptionsOf(const MemberTask& task, const plan::PlanOptions& planning);
// Of a worker with so many compute threads.
Result<session::NodeOptions> WorkerNodeOptionsOf(const MemberTask& task, const plan::PlanOptions& planning, int threads);
transport::tcp::Security::Mode ModeOf(const MemberTask& task);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_JOB_OPTIONS_H_
