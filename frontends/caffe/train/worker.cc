// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/worker.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "frontends/caffe/engine/engine_failure.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "frontends/caffe/train/aten_engine.h"
#include "frontends/caffe/train/determinism.h"
#include "frontends/caffe/train/device_products.h"
#include "frontends/caffe/train/engine_device.h"
#include "frontends/caffe/train/job_options.h"
#include "frontends/caffe/train/run_reports.h"
#include "frontends/caffe/train/session_sync.h"
#include "frontends/caffe/train/summary.h"
#include "frontends/caffe/train/timeline.h"
#include "frontends/plan_file/plan_json.h"
#include "poseidon/base/file.h"
#include "poseidon/base/listed.h"
#include "poseidon/base/new_file.h"
#include "poseidon/plan/planner.h"
#include "poseidon/session/tcp_session.h"

namespace poseidon::caffe {
namespace {

// Kept free for summary.json while the run itself may fill the disk.
constexpr std::size_t kSummaryRoom = std::size_t{32} << 10;

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

Result<std::unique_ptr<session::Session>> OpenSession(const MemberTask& task,
                                                      const MemberEnvironment& environment,
                                                      session::SessionOptions options) {
  std::optional<transport::tcp::Token> token = environment.token;
  if (environment.meeting) {
    POSEIDON_ASSIGN_OR_RETURN(const Meeting meeting, environment.meeting());
    options.node.listen = meeting.listen;
    options.node.coordinator = meeting.coordinator;
    token.emplace(meeting.token);
  }
  transport::tcp::Security security{ModeOf(task), *std::move(token)};
  POSEIDON_ASSIGN_OR_RETURN(
      std::unique_ptr<session::Session> session,
      session::OpenTcpSession({.security = std::move(security)}, options, [&](const transport::Address& address) {
        if (environment.listening) environment.listening(address);
      }));
  if (environment.joined) environment.joined();
  return session;
}

// Runs `work`, which returns a Status; what it throws past everybody, for want of memory or threads or for a device that fails,
// becomes one.
template <typename Work>
Status Caught(const char* doing, Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return EngineFailure(error).WithPrefix(std::string("failed while ") + doing);
  }
}

// "computes on cuda:0, but for layers of types that compute on the host: Python (1), ROIPooling (2)"
// One worker's training, from the solver file to the results.
class Run {
 public:
  Run(const MemberTask& task, const MemberEnvironment& environment)
      : task_(task), env_(environment) {}

  Status Prepare();
  // A failure of this worker alone ends the job for everybody, with its sentence.
  Status Train();
  // After Train: the sentence of a loss that ceased to be finite and ended it; empty: it did not.
  std::string WhatIsNotFinite() const;

 private:
  bool distributed() const {
    return task_.options.workers > 1 || task_.options.servers > 0 || task_.options.sync;
  }
  bool leads() const { return task_.rank == 0; }
  std::string RunFile(const std::string& name) const { return task_.options.run_dir + "/" + name; }
  void TellSaving(bool begins) const {
    if (env_.saving) env_.saving(begins);
  }
  session::Wish TakeWish();
  SolverAction Poll();
  std::vector<plan::LayerSpec> NetSpecs() { return SpecsOf(solver_->net(), solver_->SyncedLayers()); }
  Status Join();
  Status CheckDevicesAreAlike();
  Status CheckSchemes(const plan::PlanOptions& planning);
  Status TrainTogether();
  void SayWhatTrains() const;
  Status WriteTrace();
  void KeepResults(const std::string& summary);
  Status Finish(double seconds);
  std::string PlanText() const {
    return plan_file::PlanText(plan_file::PlanToJson(sync_->model().plan(), sync_->specs(), sync_->members()));
  }
  EndedRun Ended(double seconds) const;
  void SayWhereResultsAre();

  const MemberTask& task_;
  const MemberEnvironment& env_;
  Timeline timeline_;
  int threads_ = 1;
  Placement placement_;
  std::unique_ptr<Determinism> determinism_;  // of what a device computes
  std::unique_ptr<RunReports> reports_;
  std::unique_ptr<factors::ProductEngine> engine_;
  std::unique_ptr<Solver> solver_;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<SessionSync> sync_;
  session::Statistics statistics_;
  session::ModelStatistics trained_;
  std::string hash_;
  bool replicas_equal_ = true;
  std::unique_ptr<File> room_;  // as many bytes as a summary takes, in the run directory
  Status results_;  // whether summary and plan could be written
};

Status Run::Prepare() {
  FlushSubnormals();
  threads_ = ComputeThreads(task_);
  at::set_num_threads(threads_);
  engine_ = MakeAtenEngine(threads_);
  if (leads() && !task_.options.run_dir.empty()) {
    Result<std::unique_ptr<File>> room = TakeRoomBeside(RunFile("summary.json"), kSummaryRoom);
    if (!room.ok()) return room.status().WithPrefix("run directory " + task_.options.run_dir);
    room_ = *std::move(room);
  }
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter parameters, ReadJobSolver(task_.options));
  SolverOptions options;
  POSEIDON_ASSIGN_OR_RETURN(options.dtype, ParseDType(task_.options.dtype));
  POSEIDON_ASSIGN_OR_RETURN(placement_, PlacementOf(task_, parameters));
  if (!placement_.on_host()) {
    if (task_.options.tf32) AllowTf32();
    std::function<void(const std::string&)> say;
    if (leads()) say = [this](const std::string& sentence) { env_.output.Log(LogLevel::kNotice, sentence); };
    determinism_ = std::make_unique<Determinism>(std::move(say));
  }
  options.placement = placement_;
  options.seed = parameters.random_seed() >= 0
                     ? static_cast<std::uint64_t>(parameters.random_seed())
                     : 1;
  options.share.rank = task_.rank;
  options.share.world = task_.options.workers;
  options.folder = std::filesystem::path(task_.options.solver).parent_path().string();
  options.writes_snapshots = leads();
  options.poll = [this](std::uint64_t) { return Poll(); };
  options.stops_when_not_finite = task_.options.on_nan == "stop";
  options.stop_wanted = [this] { return env_.requests.stop.load() || env_.requests.terminate.load(); };
  // Not of the first plan, which knows of no measurements.
  options.plan_text = [this] { return sync_ && sync_->model().plan_is_final() ? PlanText() : std::string(); };
  options.trace = [this](const TraceSpan& span) { timeline_.Record(span); };
  reports_ = std::make_unique<RunReports>(task_, env_.output);
  options.observer = &reports_->observer();
  POSEIDON_ASSIGN_OR_RETURN(solver_, Solver::Create(parameters, std::move(options)));
  if (solver_->net().layer_count() == 0) {
    return InvalidArgument("the net that " + task_.options.solver + " trains has no layers in phase TRAIN");
  }
  if (solver_->SyncedLayers().empty()) {
    return InvalidArgument("the net that " + task_.options.solver +
                           " trains has no layer that learns, expected one with weights whose lr_mult is not 0");
  }
  if (!task_.options.weights.empty()) {
    POSEIDON_RETURN_IF_ERROR(solver_->LoadWeightFiles(task_.options.weights));
  }
  if (!task_.options.snapshot.empty()) {
    POSEIDON_RETURN_IF_ERROR(solver_->Restore(task_.options.snapshot));
  }
  timeline_.BeginAt(solver_->iteration());
  return OkStatus();
}

std::string Run::WhatIsNotFinite() const {
  if (task_.options.on_nan != "stop" || !solver_->not_finite()) return "";
  return InWords(*solver_->not_finite(), solver_->net(), task_.options.workers) +
         "; training stopped (--on-nan go goes on)";
}

session::Wish Run::TakeWish() {
  const bool terminate = env_.requests.terminate.load();
  const bool snapshot = env_.requests.snapshot.exchange(false);
  const bool broken = task_.options.on_nan == "stop" && solver_->not_finite().has_value();
  return {.stop = terminate || broken || env_.requests.stop.load(), .snapshot = terminate || snapshot};
}

// On several workers the answer is what all of them brought together at the iteration's beginning; a
// failed job shows in the next step.
SolverAction Run::Poll() {
  if (sync_) {
    const Result<SolverAction> agreed = sync_->Agreed();
    return agreed.ok() ? *agreed : SolverAction::kNone;
  }
  return ActionFor(TakeWish());
}

Status Run::Join() {
  session::SessionOptions options;
  POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task_.options, NetSpecs(), solver_->restored_plan()));
  POSEIDON_RETURN_IF_ERROR(CheckSchemes(wanted.planning));
  POSEIDON_ASSIGN_OR_RETURN(options.node, WorkerNodeOptionsOf(task_, wanted.planning, threads_));
  if (leads() && task_.options.workers > 1 && !wanted.note.empty()) env_.output.Print(wanted.note);
  options.engine = engine_.get();
  options.log = &env_.output;
  options.trace = timeline_.recorder();
  options.interrupted = env_.interrupted;
  options.figures = env_.figures;
  if (!placement_.on_host()) {
    options.device = [this](Executor& io) { return std::make_unique<EngineDevice>(io, placement_); };
  }
  POSEIDON_ASSIGN_OR_RETURN(session_, OpenSession(task_, env_, std::move(options)));
  POSEIDON_RETURN_IF_ERROR(CheckDevicesAreAlike());
  SessionSync::Options sync;
  sync.layer_seconds = [this] { return solver_->layer_clock().Means(); };
  sync.wish = [this] { return TakeWish(); };
  sync.on_device = [this] { return reports_->reporter().TakeDeviceSeconds(); };
  sync.final_plan = [this] { reports_->reporter().ResetStepTimes(); };
  sync.joining = wanted.joining;
  sync.iter_size = solver_->parameters().iter_size();
  sync_ = std::make_unique<SessionSync>(*session_, solver_->net(), solver_->SyncedLayers(),
                                        std::move(sync));
  POSEIDON_RETURN_IF_ERROR(sync_->Begin());
  solver_->Connect(sync_.get(), sync_.get());
  return OkStatus();
}

// Updates round differently on another kind of device, and replicas would cease to be equal.
Status Run::CheckDevicesAreAlike() {
  const std::string own = KindOf(placement_);
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<ByteBuffer> kinds, session_->Gather(AsBytes(own)));
  for (std::size_t rank = 0; rank < kinds.size(); ++rank) {
    if (AsString(kinds[rank]) == AsString(kinds[0])) continue;
    return InvalidArgument("worker " + std::to_string(rank) + " computes on " + AsString(kinds[rank]) + " and worker 0 on " +
                           AsString(kinds[0]) + ", expected one kind of device in a job");
  }
  return OkStatus();
}

// The layers are the net's here, one by one: what a user may name, joined or not.
Status Run::CheckSchemes(const plan::PlanOptions& planning) {
  if (planning.forced.empty()) return OkStatus();
  return plan::ProvisionalPlan(SpecsOf(solver_->net(), solver_->SyncedLayers()), {}, planning).status();
}

Status Run::Train() {
  Status status = Caught("training", [this] { return TrainTogether(); });
  if (status.ok() || !session_) return status;
  if (session_->failure().ok()) {
    session_->Abort(status);  // the others hear it with this worker's name
    if (task_.options.workers > 1) {
      status = status.WithPrefix("worker " + std::to_string(task_.rank) + " on host " + task_.host);
    }
  }
  // Factors that are lent may be read until then.
  static_cast<void>(session_->AwaitEnd());
  return status;
}

Status Run::TrainTogether() {
  if (distributed()) {
    POSEIDON_RETURN_IF_ERROR(Join());
  } else {
    // Options that matter only with other workers are checked all the same.
    POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task_.options, NetSpecs()));
    POSEIDON_RETURN_IF_ERROR(NodeOptionsOf(task_, wanted.planning).status());
    POSEIDON_RETURN_IF_ERROR(CheckSchemes(wanted.planning));
    if (env_.joined) env_.joined();  // alone, a job is complete
  }
  std::function<session::Statistics()> communication;
  if (task_.options.workers > 1) communication = [this] { return session_->Collect(); };
  if (leads()) SayWhatTrains();
  reports_->Begin(*solver_, std::move(communication), [this](bool begins) { TellSaving(begins); });
  const auto begin = std::chrono::steady_clock::now();
  POSEIDON_RETURN_IF_ERROR(solver_->Solve());
  return Finish(Seconds(std::chrono::steady_clock::now() - begin));
}

void Run::SayWhatTrains() const {
  const std::string note = PlacementNote(placement_, solver_->parameters());
  if (!note.empty()) env_.output.Print(note);
  if (!placement_.on_host()) env_.output.Print(WhereItComputes(placement_, solver_->net()));
  const std::string& name = solver_->net().name();
  env_.output.Print("training " + (name.empty() ? "the net of " + task_.options.solver : name) + " with " +
                    std::to_string(task_.options.workers) + " worker" + (task_.options.workers == 1 ? "" : "s") + ", " +
                    std::to_string(threads_) + " compute thread" + (threads_ == 1 ? "" : "s") +
                    " each, subnormal numbers flushed to zero");
}

Status Run::WriteTrace() {
  std::span<const plan::LayerSpec> declared;
  if (sync_) declared = sync_->specs();
  POSEIDON_ASSIGN_OR_RETURN(const std::string trace, timeline_.Collect(session_.get(), solver_->net(), declared));
  if (!leads() || task_.options.run_dir.empty()) return OkStatus();
  return WriteFileAtomically(trace, RunFile("trace.json"));
}

Status Run::Finish(double seconds) {
  hash_ = WeightsHash(solver_->net());
  POSEIDON_RETURN_IF_ERROR(reports_->End(*solver_, sync_.get()));
  if (session_) {
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());  // nobody waits for bytes of this worker
    statistics_ = session_->Collect();
    trained_ = sync_->model().Collect();
    POSEIDON_ASSIGN_OR_RETURN(std::vector<ByteBuffer> hashes, session_->Gather(AsBytes(hash_)));
    for (const ByteBuffer& other : hashes) {
      if (AsString(other) != hash_) replicas_equal_ = false;
    }
  }
  const EndedRun ended = Ended(seconds);
  if (leads()) {
    TellSaving(true);
    KeepResults(SummaryText(ended));
    TellSaving(false);
  }
  if (const Status traced = WriteTrace(); !traced.ok()) {
    if (session_ && !session_->failure().ok()) return traced;
    env_.output.Log(LogLevel::kWarning, "no trace: " + traced.message());
  }
  if (leads()) {
    PrintEnd(ended, env_.output);
    SayWhereResultsAre();
  }
  if (session_) POSEIDON_RETURN_IF_ERROR(session_->Leave());
  if (!replicas_equal_) return Internal("the workers' weights differ at the end of the run");
  if (!results_.ok()) return results_;
  return reports_->reporter().SnapshotOutcome();
}

EndedRun Run::Ended(double seconds) const {
  return {.task = task_,
          .solver = *solver_,
          .net = solver_->net(),
          .reporter = reports_->reporter(),
          .sync = sync_.get(),
          .statistics = statistics_,
          .trained = trained_,
          .seconds = seconds,
          .weights_hash = hash_,
          .replicas_equal = replicas_equal_,
          .threads = threads_};
}

// The summary goes first: on a disk that is nearly full it matters most. What cannot be written fails the run, but not
// before the others have heard that this worker is done.
void Run::KeepResults(const std::string& summary) {
  results_ = reports_->WriteNetOutputs();
  if (task_.options.run_dir.empty()) return;
  room_.reset();
  const Status written = WriteFileAtomically(summary, RunFile("summary.json"));
  if (results_.ok()) results_ = written;
  if (!sync_ || !results_.ok()) return;
  results_ = WriteFileAtomically(PlanText(), RunFile("plan.json"));
}

void Run::SayWhereResultsAre() {
  if (task_.options.run_dir.empty()) return;
  std::string results;  // an earlier run's are not there any more
  for (const char* const name : {"summary.json", "metrics.jsonl", "trace.json", "plan.json"}) {
    std::error_code error;
    if (std::filesystem::exists(RunFile(name), error)) AddListed(name, &results);
  }
  if (!results.empty()) env_.output.Print("results in " + task_.options.run_dir + ": " + results);
}

}  // namespace

Result<RunEnd> RunWorker(const MemberTask& task, const MemberEnvironment& environment) {
  Run run(task, environment);
  POSEIDON_RETURN_IF_ERROR(Caught("reading solver, net and data", [&] { return run.Prepare(); }));
  POSEIDON_RETURN_IF_ERROR(run.Train());
  return RunEnd{.not_finite = run.WhatIsNotFinite()};
}

Status RunServer(const MemberTask& task, const MemberEnvironment& environment) {
  FlushSubnormals();
  session::SessionOptions options;
  POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task.options, {}));
  POSEIDON_ASSIGN_OR_RETURN(options.node, NodeOptionsOf(task, wanted.planning));
  options.log = &environment.output;
  options.interrupted = environment.interrupted;
  options.figures = environment.figures;
  // A scheme may have the owners of shards make products.
  const int threads = ComputeThreads(task);
  at::set_num_threads(threads);
  const std::unique_ptr<factors::ProductEngine> engine = MakeAtenEngine(threads);
  options.engine = engine.get();
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<session::Session> session,
                            OpenSession(task, environment, std::move(options)));
  return session->AwaitEnd();
}

}  // namespace poseidon::caffe
