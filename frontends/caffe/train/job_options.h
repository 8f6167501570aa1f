// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_JOB_OPTIONS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_JOB_OPTIONS_H_

#include <map>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/net/placement.h"
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

// The numbers that --gpu names: from 0 with commas, or "all" of `devices`. kInvalidArgument for other words.
Result<std::vector<int>> GpusNamed(const std::string& text, int devices);

// The devices of this host that --gpu names (GpusNamed). kNotFound where there is no GPU. A number that no device has is found where
// the device is asked for.
Result<std::vector<int>> GpusIn(const std::string& text);

// The device of worker `local_worker` of this host: of those that `gpus` names (GpusIn), by turns. kNotFound where it is not there.
Result<Placement> GpuOf(const std::string& gpus, int local_worker);

// Where a worker computes. The workers of a host take the devices that --gpu names by turns; without it, where the solver says GPU,
// the accelerator's devices from the solver's device_id on. On the host where nobody asked for a GPU, and where the solver did and there
// is none: Caffe's files say so, whatever they are run on. Where --gpu did and there is none: kNotFound.
Result<Placement> PlacementOf(const MemberTask& task, const SolverParameter& solver);
// What of that a user may not expect, in a sentence; empty: nothing.
std::string PlacementNote(const Placement& placement, const SolverParameter& solver);
// "computes on cuda:0, but for layers of types that compute on the host: ROIPooling (1)".
std::string WhereItComputes(const Placement& placement, const Net& net);

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
