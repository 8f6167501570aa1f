// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/worker.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "frontends/caffe/net/filter.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"
#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "frontends/caffe/train/aten_engine.h"
#include "frontends/plan_file/plan_json.h"
#include "frontends/caffe/train/reporter.h"
#include "frontends/caffe/train/results.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/base/listed.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/planner.h"
#include "poseidon/plan/slices.h"
#include "poseidon/session/tcp_session.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

// Spans a worker keeps: the first three iterations and the last, a few hundred of a small net.
constexpr std::size_t kTraceSpans = 30'000;
// What a net's layer computes and waits for has its number from here on in the trace; below are the session's layers.
constexpr int kNetLayers = 1'000'000;
constexpr int kClockRounds = 5;
// Kept free for summary.json while the run itself may fill the disk.
constexpr std::size_t kSummaryRoom = std::size_t{32} << 10;

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Bytes of memory that new allocations can have, as the kernel estimates it; 0: unknown.
std::uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib << 10;
  }
  return 0;
}

// Cores divided by the members of this host, one of them kept for the I/O thread where there are
// enough.
int ComputeThreads(const MemberTask& task) {
  if (task.options.threads > 0) return task.options.threads;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int own = std::max(1, cores / std::max(1, task.local_members));
  return own >= 4 && task.local_members + task.options.workers > 2 ? own - 1 : own;
}

Result<DType> ParseDType(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f64") return DType::kF64;
  return InvalidArgument("dtype '" + name + "' is unknown, expected f32 or f64");
}

// With a global batch size the workers share it: each data layer's batch must divide evenly.
Status DivideBatches(int workers, NetParameter* net) {
  for (LayerParameter& layer : *net->mutable_layer()) {
    if (!layer.has_data_param()) continue;
    const auto batch = layer.data_param().batch_size();
    if (batch % static_cast<unsigned>(workers) != 0) {
      return InvalidArgument("layer '" + layer.name() + "': batch_size " + std::to_string(batch) +
                             " cannot be divided among " + std::to_string(workers) + " workers");
    }
    layer.mutable_data_param()->set_batch_size(batch / static_cast<unsigned>(workers));
  }
  return OkStatus();
}

Result<SolverParameter> ReadJobSolver(const MemberTask& task) {
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter solver, ReadSolver(task.options.solver));
  if (task.options.level != 0) {
    solver.mutable_train_state()->set_level(task.options.level);
  }
  for (const std::string& stage : task.options.stages) {
    solver.mutable_train_state()->add_stage(stage);
  }
  solver.set_snapshot_prefix(CompleteSnapshotPrefix(solver.snapshot_prefix(), task.options.solver));
  if (task.options.global_batch && task.options.workers > 1) {
    const std::string folder = std::filesystem::path(task.options.solver).parent_path().string();
    POSEIDON_ASSIGN_OR_RETURN(SolverNets nets, ReadSolverNets(solver, folder));
    // Without the layers of the test phase, whose batches nobody divides.
    POSEIDON_ASSIGN_OR_RETURN(nets.train.net, FilterNet(nets.train.net, nets.train.state));
    POSEIDON_RETURN_IF_ERROR(DivideBatches(task.options.workers, &nets.train.net));
    solver.clear_net();
    solver.clear_net_param();
    solver.clear_train_net();
    solver.clear_test_net();
    solver.clear_test_net_param();
    solver.clear_test_state();
    *solver.mutable_train_net_param() = nets.train.net;
    for (const SolverNets::Part& test : nets.tests) {
      *solver.add_test_net_param() = test.net;
      *solver.add_test_state() = test.state;
    }
  }
  return solver;
}

// What is wanted of a net's layers before any of them was measured.
struct Wanted {
  plan::PlanOptions planning;
  JoiningRule joining;
};

void Pin(const plan_file::PinnedPlan& plan, const std::string& name, Wanted* wanted) {
  wanted->planning.forced = plan.schemes;
  wanted->planning.forced_by = name;
  wanted->joining.together = plan.joined;
  wanted->joining.said_by = name;
  // What it names singly was alone, so that it has one scheme under one name again.
  for (const auto& [layer, scheme] : plan.schemes) wanted->joining.apart.insert(layer);
  for (const std::vector<std::string>& names : plan.joined) wanted->joining.apart.erase(names.front());
}

// The user's schemes, then a plan file's, then those of the snapshot that is resumed (`restored`, text of a plan.json,
// may be empty), which say nothing of a job of another size.
Result<Wanted> WantedOf(const TrainOptions& options, const std::string& restored = {}) {
  Wanted wanted;
  const auto policy = plan::ParsePolicy(options.policy);
  if (!policy) {
    return InvalidArgument("policy '" + options.policy + "' is unknown, expected time or bytes");
  }
  wanted.planning.policy = *policy;
  if (!options.plan_file.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(const plan_file::PinnedPlan pinned, plan_file::ReadPlan(options.plan_file));
    Pin(pinned, "plan file " + options.plan_file, &wanted);
  } else if (!restored.empty()) {
    const std::string name = "the plan in " + options.snapshot;
    POSEIDON_ASSIGN_OR_RETURN(const plan_file::PinnedPlan pinned, plan_file::ParsePlan(restored, name));
    if (pinned.workers == options.workers) Pin(pinned, name, &wanted);
  }
  for (const auto& [layer, name] : options.schemes) {
    const auto scheme = plan::ParseScheme(name);
    if (!scheme) {
      return InvalidArgument("scheme '" + name + "' of layer '" + layer +
                             "' is unknown, expected " + plan::SchemeNames());
    }
    wanted.planning.forced[layer] = *scheme;
    wanted.joining.apart.insert(layer);
  }
  return wanted;
}

Result<session::NodeOptions> NodeOptionsOf(const MemberTask& task, const plan::PlanOptions& planning) {
  session::NodeOptions node;
  node.role = task.server ? wire::Role::kServer : wire::Role::kWorker;
  node.workers = task.options.workers;
  node.servers = task.options.servers;
  node.requested_rank = task.rank;
  node.hosts_coordinator = !task.server && task.rank == 0;
  node.host = task.host;
  const auto levels = plan::ParseLevels(task.options.levels);
  if (!levels) {
    return InvalidArgument("levels is '" + task.options.levels + "', expected flat, host or auto");
  }
  node.levels = *levels;
  const std::vector<std::string>& machines = task.options.machines;
  if (!machines.empty() && machines.size() != task.options.workers) {
    return InvalidArgument("machines names " + std::to_string(machines.size()) +
                           ", expected one for each of the " +
                           std::to_string(task.options.workers) + " workers");
  }
  const auto rank = static_cast<std::size_t>(task.rank);
  node.machine = rank < machines.size() ? machines[rank] : local::ThisMachine();
  node.listen = {task.listen_host, task.listen_port};
  node.coordinator = {task.coordinator_host, task.coordinator_port};
  node.liveness.dead_after = FromSeconds(task.options.dead_after);
  node.progress.stuck_after = FromSeconds(task.options.stuck_after);
  node.join_timeout = FromSeconds(task.options.join_timeout);
  node.final_plan_step = task.options.final_plan_step;
  node.memory_limit_bytes = task.server ? AvailableMemory() / 10 * 9 : 0;
  node.planning = planning;
  return node;
}

transport::tcp::Security::Mode ModeOf(const MemberTask& task) {
  return task.tls ? transport::tcp::Security::Mode::kTls : transport::tcp::Security::Mode::kAuth;
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

// Runs `work`, which returns a Status; what it throws past everybody, for want of memory or threads, becomes one.
template <typename Work>
Status Caught(const char* doing, Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(std::string("out of memory while ") + doing);
  } catch (const std::exception& error) {
    return ResourceExhausted(std::string("failed while ") + doing + ": " + error.what());
  }
}

// One worker's training, from the solver file to the results.
class Run {
 public:
  Run(const MemberTask& task, const MemberEnvironment& environment)
      : task_(task), env_(environment), trace_({.spans = kTraceSpans}) {}

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
  Status Join();
  Status CheckSchemes(const plan::PlanOptions& planning);
  Status TrainTogether();
  std::string LayerName(std::int32_t number) const;
  Result<std::vector<Duration>> ClockOffsets();
  std::vector<TraceSpan> TakeSpans();
  Status WriteTrace();
  void KeepResults(const json& summary);
  Status Finish(double seconds);
  void SayWhatPlanIsResumed();
  std::string PlanText() const {
    return plan_file::PlanToJson(sync_->model().plan(), sync_->specs(), sync_->members()).dump(1) + "\n";
  }
  plan::Plan OwnPlan() const;
  json SnapshotSummary() const;
  json Summary(double seconds) const;
  void PrintEnd(const json& summary);

  const MemberTask& task_;
  const MemberEnvironment& env_;
  TraceRecorder trace_;  // of the session's steps, the first of which is iteration first_iteration_
  std::uint64_t first_iteration_ = 0;
  int threads_ = 1;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<factors::ProductEngine> engine_;
  std::unique_ptr<Solver> solver_;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<SessionSync> sync_;
  session::Statistics statistics_;
  session::ModelStatistics trained_;
  std::string hash_;
  bool replicas_equal_ = true;
  std::optional<FileDraft> room_;  // as many bytes as a summary takes, in the run directory
  Status results_;  // whether summary and plan could be written
};

Status Run::Prepare() {
  FlushSubnormals();
  threads_ = ComputeThreads(task_);
  at::set_num_threads(threads_);
  engine_ = MakeAtenEngine(threads_);
  if (leads() && !task_.options.run_dir.empty()) {
    Result<FileDraft> room = FileDraft::Write(std::string(kSummaryRoom, ' '), RunFile("room"));
    if (!room.ok()) return room.status().WithPrefix("run directory " + task_.options.run_dir);
    room_ = *std::move(room);
  }
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter parameters, ReadJobSolver(task_));
  SolverOptions options;
  POSEIDON_ASSIGN_OR_RETURN(options.dtype, ParseDType(task_.options.dtype));
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
  options.trace = [this](TraceSpan span) {
    span.layer += kNetLayers;
    span.step -= first_iteration_;
    trace_.Record(span);
  };
  reporter_ = std::make_unique<Reporter>(env_.output, leads());
  options.observer = reporter_.get();
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
  first_iteration_ = solver_->iteration();
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

std::string Run::LayerName(std::int32_t number) const {
  if (number < 0) return "";
  if (number >= kNetLayers) return solver_->net().UniqueName(number - kNetLayers);
  return sync_->specs()[static_cast<std::size_t>(number)].name;
}

Status Run::Join() {
  session::SessionOptions options;
  POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task_.options, solver_->restored_plan()));
  POSEIDON_RETURN_IF_ERROR(CheckSchemes(wanted.planning));
  POSEIDON_ASSIGN_OR_RETURN(options.node, NodeOptionsOf(task_, wanted.planning));
  SayWhatPlanIsResumed();
  options.node.cores = static_cast<double>(std::max(1u, std::thread::hardware_concurrency())) /
                       std::max(1, task_.local_members);
  options.node.cpu_seconds_per_wire_byte = session::CpuSecondsPerWireByte(ModeOf(task_));
  options.node.compute_threads = static_cast<std::uint32_t>(threads_);
  options.engine = engine_.get();
  options.log = &env_.output;
  options.trace = &trace_;
  options.interrupted = env_.interrupted;
  POSEIDON_ASSIGN_OR_RETURN(session_, OpenSession(task_, env_, std::move(options)));
  SessionSync::Options sync;
  sync.layer_seconds = [this] { return solver_->layer_clock().Means(); };
  sync.wish = [this] { return TakeWish(); };
  sync.final_plan = [this] { reporter_->ResetStepTimes(); };
  sync.joining = wanted.joining;
  sync.iter_size = solver_->parameters().iter_size();
  sync_ = std::make_unique<SessionSync>(*session_, solver_->net(), solver_->SyncedLayers(),
                                        std::move(sync));
  POSEIDON_RETURN_IF_ERROR(sync_->Begin());
  solver_->Connect(sync_.get(), sync_.get());
  return OkStatus();
}

// Bits are those of an uninterrupted run under the same plan only.
void Run::SayWhatPlanIsResumed() {
  const TrainOptions& options = task_.options;
  if (!leads() || options.snapshot.empty() || !options.plan_file.empty() || options.workers == 1) return;
  const std::string& text = solver_->restored_plan();
  if (text.empty()) {
    env_.output.Print(options.snapshot + " holds no plan, so this run makes its own; its weights may differ in bits from "
                      "those of an uninterrupted run (--plan FILE follows that run's plan.json)");
    return;
  }
  const Result<plan_file::PinnedPlan> pinned = plan_file::ParsePlan(text, options.snapshot);
  if (pinned.ok() && pinned->workers != options.workers) {
    env_.output.Print(options.snapshot + " was written by " + std::to_string(pinned->workers) + " workers, so " +
                      std::to_string(options.workers) + " make a plan of their own");
  }
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
    // What only matters with other workers is wrong all the same.
    POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task_.options));
    POSEIDON_RETURN_IF_ERROR(NodeOptionsOf(task_, wanted.planning).status());
    POSEIDON_RETURN_IF_ERROR(CheckSchemes(wanted.planning));
    if (env_.joined) env_.joined();  // alone, a job is complete
  }
  std::int64_t rows = 0;
  for (int i = 0; i < solver_->net().layer_count() && rows == 0; ++i) {
    const Blobs& tops = solver_->net().tops(i);
    if (!tops.empty() && tops[0]->data.dim() > 0) rows = tops[0]->data.size(0);
  }
  Reporter::Options reporting;
  if (leads() && !task_.options.run_dir.empty()) reporting.metrics_path = RunFile("metrics.jsonl");
  reporting.max_iter = static_cast<std::uint64_t>(solver_->parameters().max_iter());
  reporting.images_per_iteration = static_cast<std::uint64_t>(rows) *
                                   static_cast<std::uint64_t>(solver_->parameters().iter_size()) *
                                   task_.options.workers;
  if (task_.options.workers > 1) {
    reporting.hidden_share = [this] { return sync_->model().Collect().hidden_share(); };
  }
  reporting.resumed_from = task_.options.snapshot;
  reporting.saving = [this](bool begins) { TellSaving(begins); };
  reporter_->Begin(std::move(reporting));
  if (leads()) {
    env_.output.Print("training " + solver_->net().name() + " with " +
                      std::to_string(task_.options.workers) + " worker" +
                      (task_.options.workers == 1 ? "" : "s") + ", " + std::to_string(threads_) +
                      " compute thread" + (threads_ == 1 ? "" : "s") + " each, subnormal numbers flushed to zero");
  }
  const auto begin = std::chrono::steady_clock::now();
  POSEIDON_RETURN_IF_ERROR(solver_->Solve());
  return Finish(Seconds(std::chrono::steady_clock::now() - begin));
}

// Everyone reads its clock right behind a barrier; the least difference of several rounds is the
// best estimate of the offset to worker 0.
Result<std::vector<Duration>> Run::ClockOffsets() {
  std::vector<Duration> offsets(task_.options.workers, Duration{0});
  std::vector<Duration> error(task_.options.workers, Duration::max());
  for (int round = 0; round < kClockRounds; ++round) {
    std::vector<std::int64_t> times(task_.options.workers, 0);
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());
    times[static_cast<std::size_t>(task_.rank)] = session_->now().since_origin.count();
    POSEIDON_RETURN_IF_ERROR(session_->Sum(ViewOf(std::span(times))));
    for (std::size_t w = 0; w < times.size(); ++w) {
      const Duration offset(times[0] - times[w]);
      const Duration size = offset < Duration{0} ? -offset : offset;
      if (size < error[w]) {
        error[w] = size;
        offsets[w] = offset;
      }
    }
  }
  // Members of one machine share its clock: what was measured there is only the round's noise.
  for (std::size_t w = 0; w < offsets.size(); ++w) {
    if (session_->roster()[w].host == session_->roster()[0].host) offsets[w] = Duration{0};
  }
  return offsets;
}

// With a step's number in the solver's iterations.
std::vector<TraceSpan> Run::TakeSpans() {
  std::vector<TraceSpan> spans = trace_.Take();
  for (TraceSpan& span : spans) span.step += first_iteration_;
  return spans;
}

Status Run::WriteTrace() {
  std::vector<UnpackedSpans> owners;
  std::vector<std::vector<TraceSpan>> spans;
  std::vector<Duration> offsets(1, Duration{0});
  if (session_) {
    POSEIDON_ASSIGN_OR_RETURN(offsets, ClockOffsets());
    POSEIDON_ASSIGN_OR_RETURN(std::vector<ByteBuffer> packed,
                              session_->Gather(PackSpans(TakeSpans())));
    if (!leads()) return OkStatus();
    for (const ByteBuffer& one : packed) {
      POSEIDON_ASSIGN_OR_RETURN(UnpackedSpans unpacked, UnpackSpans(one));
      spans.push_back(unpacked.spans);
      owners.push_back(std::move(unpacked));
    }
  } else {
    spans.push_back(TakeSpans());
  }
  if (task_.options.run_dir.empty()) return OkStatus();
  return WriteFileAtomically(ChromeTrace(spans, offsets, [this](std::int32_t n) { return LayerName(n); }),
                             RunFile("trace.json"));
}

Status Run::Finish(double seconds) {
  hash_ = WeightsHash(solver_->net());
  if (session_) {
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());  // nobody waits for bytes of this worker
    statistics_ = session_->Collect();
    trained_ = sync_->model().Collect();
    POSEIDON_ASSIGN_OR_RETURN(std::vector<ByteBuffer> hashes, session_->Gather(AsBytes(hash_)));
    for (const ByteBuffer& other : hashes) {
      if (AsString(other) != hash_) replicas_equal_ = false;
    }
  }
  const json summary = leads() ? Summary(seconds) : json();
  if (leads()) {
    TellSaving(true);
    KeepResults(summary);
    TellSaving(false);
  }
  if (const Status traced = WriteTrace(); !traced.ok()) {
    if (session_ && !session_->failure().ok()) return traced;
    env_.output.Log(LogLevel::kWarning, "no trace: " + traced.message());
  }
  if (leads()) PrintEnd(summary);
  if (session_) POSEIDON_RETURN_IF_ERROR(session_->Leave());
  if (!replicas_equal_) return Internal("the workers' weights differ at the end of the run");
  if (!results_.ok()) return results_;
  return reporter_->SnapshotOutcome();
}

// The summary goes first: on a disk that is nearly full it matters most. What cannot be written fails the run, but not
// before the others have heard that this worker is done.
void Run::KeepResults(const json& summary) {
  if (task_.options.run_dir.empty()) return;
  room_.reset();
  results_ = WriteFileAtomically(summary.dump(1) + "\n", RunFile("summary.json"));
  if (!sync_ || !results_.ok()) return;
  results_ = WriteFileAtomically(PlanText(), RunFile("plan.json"));
}

// The plan with this worker's own bytes, exact, where the plan has the busiest worker's: slices of
// different workers may differ by 16 elements.
plan::Plan Run::OwnPlan() const {
  plan::Plan own = sync_->model().plan();
  const auto slices = plan::AssignSlices(sync_->specs(), own.cluster.shards());
  for (std::size_t i = 0; i < own.layers.size(); ++i) {
    const plan::LayerPayload payload =
        plan::PayloadOf(sync_->specs()[i], slices[i], own.layers[i], own.cluster);
    const plan::NodeBytes& bytes = payload.workers[static_cast<std::size_t>(task_.rank)];
    own.layers[i].bytes_sent = bytes.sent;
    own.layers[i].bytes_received = bytes.received;
  }
  return own;
}

// Where the run's newest snapshot is, and which attempt after it failed.
json Run::SnapshotSummary() const {
  json snapshots = {{"written", nullptr}, {"lost", nullptr}};
  if (const auto& written = reporter_->written_snapshot()) {
    snapshots["written"] = {{"iteration", written->iteration}, {"state", written->state}, {"model", written->model}};
  }
  if (const auto& lost = reporter_->lost_snapshot()) {
    snapshots["lost"] = {{"iteration", lost->iteration}, {"reason", lost->status.message()}};
  }
  return snapshots;
}

json Run::Summary(double seconds) const {
  json plan = json::array();
  json step = {{"predicted", 0.0}, {"measured", reporter_->median_step_seconds()}};
  if (sync_) {
    const plan::Plan used = OwnPlan();
    const auto outcomes =
        OutcomesOf(sync_->before_final_plan(), trained_, sync_->steps_under_final_plan());
    step["predicted"] = used.step_seconds;
    for (std::size_t i = 0; i < used.layers.size(); ++i) {
      const plan::LayerPlan& layer = used.layers[i];
      json entry = {{"layer", sync_->specs()[i].name},
                    {"scheme", plan::NameOf(layer.scheme)},
                    {"rows", layer.measured.rows},
                    {"reason", layer.reason},
                    {"predicted_bytes", {{"sent", layer.bytes_sent}, {"received", layer.bytes_received}}},
                    {"predicted_seconds", layer.transfer_seconds + layer.rebuild_seconds}};
      if (sync_->members()[i].size() > 1) entry["joined"] = sync_->members()[i];
      if (!outcomes.empty()) {
        entry["counted_bytes"] = {{"sent", outcomes[i].bytes_sent},
                                  {"received", outcomes[i].bytes_received}};
        entry["measured_seconds"] = outcomes[i].seconds;
      } else {
        entry["counted_bytes"] = nullptr;  // the run ended before its final plan
        entry["measured_seconds"] = nullptr;
      }
      plan.push_back(std::move(entry));
    }
  }
  json summary = {{"workers", task_.options.workers},
                  {"servers", task_.options.servers},
                  {"iterations", solver_->iteration()},
                  {"seconds", seconds},
                  {"images_per_s", reporter_->images_per_second()},
                  {"test", reporter_->last_test()},
                  {"snapshot", SnapshotSummary()},
                  {"plan", std::move(plan)},
                  {"step_seconds", std::move(step)},
                  {"hidden_share", statistics_.hidden_share()},
                  {"replicas_equal", replicas_equal_},
                  {"weights_hash", hash_},
                  {"threads", threads_}};
  if (const std::optional<NotFinite>& found = solver_->not_finite()) {
    summary["not_finite"] = {{"iteration", found->iteration},
                             {"worker", found->worker},
                             {"layer", found->layer < 0 ? "" : solver_->net().UniqueName(found->layer)},
                             {"message", InWords(*found, solver_->net(), task_.options.workers)},
                             {"stopped", task_.options.on_nan == "stop"}};
  }
  if (session_) {
    const auto count = [](const messaging::TrafficCell& cell) {
      return json{{"sent", cell.sent.payload_bytes}, {"received", cell.received.payload_bytes}};
    };
    std::uint64_t headers_out = statistics_.control.sent.header_bytes +
                                statistics_.collectives.sent.header_bytes;
    std::uint64_t local_bytes = 0;
    for (const session::LayerStatistics& layer : trained_.layers) {
      local_bytes += layer.local_bytes;
      headers_out += layer.gradients.sent.header_bytes + layer.factors.sent.header_bytes;
    }
    summary["traffic"] = {
        {"control_payload", count(statistics_.control)},
        {"collective_payload", count(statistics_.collectives)},
        {"header_bytes_sent", headers_out},
        {"shared_memory_bytes", local_bytes},
        {"encryption_bytes_sent", statistics_.wire.wire_bytes_out - statistics_.wire.bytes_written},
        {"encryption_bytes_received", statistics_.wire.wire_bytes_in - statistics_.wire.bytes_read},
        {"wire_bytes_sent", statistics_.wire.wire_bytes_out},
        {"wire_bytes_received", statistics_.wire.wire_bytes_in}};
    summary["waited_seconds"] = {{"communication", statistics_.overlap.exposed()},
                                 {"slower_workers", statistics_.overlap.skew()}};
    summary["busy_seconds"] = statistics_.busy_seconds;
    summary["core_allocated_bytes"] = statistics_.allocated_bytes;
    summary["link"] = {{"bytes_per_second", statistics_.link.bytes_per_second},
                       {"latency_seconds", statistics_.link.latency_seconds}};
  }
  return summary;
}

void Run::PrintEnd(const json& summary) {
  Output& out = env_.output;
  if (sync_) {
    const plan::Plan used = OwnPlan();
    const auto outcomes =
        OutcomesOf(sync_->before_final_plan(), trained_, sync_->steps_under_final_plan());
    out.Print("\nplan (per worker and step):\n" + plan::PlanTable(used, sync_->specs(), outcomes) +
              plan::PlanSummary(used, reporter_->median_step_seconds()) + "\n" +
              plan::WhatWouldHelp(used, sync_->specs()));
    const session::OverlapMeter& overlap = statistics_.overlap;
    const double steps = static_cast<double>(std::max<std::uint64_t>(1, overlap.steps()));
    char line[200];
    std::snprintf(line, sizeof(line),
                  "communication hidden behind computation: %.0f %% (waited per step: %.1f ms for bytes, "
                  "%.1f ms for slower workers)",
                  100 * statistics_.hidden_share(), 1e3 * overlap.exposed() / steps,
                  1e3 * overlap.skew() / steps);
    out.Print(line);
  }
  std::string tests;
  for (const auto& [name, value] : reporter_->last_test()) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.4f", value);
    AddListed(name + " " + number, &tests);
  }
  if (!tests.empty()) out.Print("last test: " + tests);
  char line[200];
  std::snprintf(line, sizeof(line), "%llu iterations in %.1f s, %.0f images/s",
                static_cast<unsigned long long>(solver_->iteration()),
                summary["seconds"].get<double>(), reporter_->images_per_second());
  out.Print(line);
  out.Print("weights " + hash_.substr(0, 16) + (replicas_equal_ ? ", equal on all workers" : ", NOT EQUAL"));
  if (task_.options.run_dir.empty()) return;
  std::string results;  // an earlier run's are not there any more
  for (const char* const name : {"summary.json", "metrics.jsonl", "trace.json", "plan.json"}) {
    std::error_code error;
    if (std::filesystem::exists(RunFile(name), error)) AddListed(name, &results);
  }
  out.Print("results in " + task_.options.run_dir + ": " + results);
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
  POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task.options));
  POSEIDON_ASSIGN_OR_RETURN(options.node, NodeOptionsOf(task, wanted.planning));
  options.log = &environment.output;
  options.interrupted = environment.interrupted;
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
