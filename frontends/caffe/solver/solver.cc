// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/solver.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/forks.h"
#include "frontends/caffe/solver/gradient_norm.h"
#include "frontends/caffe/solver/learning_rate.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/test_run.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

Status CheckCounts(const SolverParameter& parameters) {
  const auto at_least = [](const char* field, std::int64_t value, std::int64_t least) {
    if (value >= least) return OkStatus();
    return InvalidArgument(std::string("the solver's ") + field + " is " + std::to_string(value) +
                           ", expected at least " + std::to_string(least));
  };
  POSEIDON_RETURN_IF_ERROR(at_least("iter_size", parameters.iter_size(), 1));
  POSEIDON_RETURN_IF_ERROR(at_least("average_loss", parameters.average_loss(), 1));
  POSEIDON_RETURN_IF_ERROR(at_least("max_iter", parameters.max_iter(), 0));
  POSEIDON_RETURN_IF_ERROR(at_least("display", parameters.display(), 0));
  POSEIDON_RETURN_IF_ERROR(at_least("snapshot", parameters.snapshot(), 0));
  return at_least("test_interval", parameters.test_interval(), 0);
}

// The evaluations of a test: means of what the net's outputs hold, or the average precision of its detections (SSD).
constexpr char kClassification[] = "classification";
constexpr char kDetection[] = "detection";

Status CheckEvaluation(const SolverParameter& parameters) {
  const std::string& type = parameters.eval_type();
  if (type == kDetection) return ParseApVersion(parameters.ap_version()).status();
  if (type == kClassification) return OkStatus();
  return InvalidArgument("the solver's eval_type is '" + type + "', expected classification or detection");
}

// One sentence for each output, whose classes are by number.
void NotePrecisions(const std::vector<std::map<int, double>>& outputs, SolverObserver* observer) {
  for (const std::map<int, double>& classes : outputs) {
    std::string text;
    for (const auto& [label, value] : classes) text += (text.empty() ? "" : ", ") + std::to_string(label) + ": " + std::to_string(value);
    observer->OnNote("average precision by class: " + text);
  }
}

Status CheckSnapshots(const SolverParameter& parameters, bool writes) {
  if (parameters.snapshot_format() == SolverParameter::HDF5 && parameters.snapshot_diff()) {
    return Unimplemented("snapshot_diff is not supported with snapshot_format: HDF5, expected BINARYPROTO");
  }
  if (!writes) return OkStatus();
  if (!parameters.has_snapshot_prefix()) {
    if (parameters.snapshot() == 0) return OkStatus();
    return InvalidArgument("the solver has snapshot: " + std::to_string(parameters.snapshot()) +
                           " but no snapshot_prefix");
  }
  const bool wanted = parameters.snapshot() > 0 || parameters.snapshot_after_train();
  return wanted ? CheckSnapshotPrefix(parameters.snapshot_prefix()) : OkStatus();
}

// In an HDF5 file a layer is found by its name alone.
Status CheckNamesDiffer(const Net& net) {
  std::set<std::string> names;
  for (int i = 0; i < net.layer_count(); ++i) {
    if (net.layer(i).blobs().empty() || names.insert(net.layer(i).name()).second) continue;
    return InvalidArgument("two layers with weights are named '" + net.layer(i).name() +
                           "', which snapshot_format: HDF5 cannot hold, expected BINARYPROTO");
  }
  return OkStatus();
}

// What the files ask for and nobody looks at.
void TellNotes(const SolverParameter& parameters, const SolverNets& nets, SolverObserver* observer) {
  std::vector<const google::protobuf::Message*> messages = {&parameters, &nets.train.net};
  for (const SolverNets::Part& test : nets.tests) messages.push_back(&test.net);
  for (const std::string& note : NotesOn(messages)) observer->OnNote(note);
}

const char* LabelOf(Work work) {
  switch (work) {
    case Work::kForward: return "forward";
    case Work::kBackward: return "backward";
    case Work::kUpdate: return "update";
  }
  return "?";
}

}  // namespace

Result<std::unique_ptr<Solver>> Solver::Create(const SolverParameter& parameters,
                                               SolverOptions options) {
  POSEIDON_RETURN_IF_ERROR(CheckCounts(parameters));
  POSEIDON_RETURN_IF_ERROR(CheckEvaluation(parameters));
  POSEIDON_RETURN_IF_ERROR(CheckLearningRate(parameters));
  POSEIDON_ASSIGN_OR_RETURN(auto rule, MakeUpdateRule(parameters));
  POSEIDON_RETURN_IF_ERROR(CheckSnapshots(parameters, options.writes_snapshots));
  POSEIDON_ASSIGN_OR_RETURN(const SolverNets nets, ReadSolverNets(parameters, options.folder));

  NetOptions net_options;
  net_options.fuse = options.fuse && !parameters.debug_info();
  net_options.dtype = options.dtype;
  net_options.placement = options.placement;
  net_options.seed = options.seed;
  net_options.share = options.share;
  POSEIDON_ASSIGN_OR_RETURN(auto net, Net::Create(nets.train.net, nets.train.state, MakeLayer, net_options));
  if (parameters.snapshot_format() == SolverParameter::HDF5) POSEIDON_RETURN_IF_ERROR(CheckNamesDiffer(*net));
  net->EnsureParamDiffs();
  if (parameters.snapshot_diff()) {
    for (const LearnableParam& param : net->learnable_params()) param.blob.diff.zero_();
  }
  net_options.parameters_from = net.get();
  std::vector<std::unique_ptr<Net>> test_nets;
  for (const SolverNets::Part& test : nets.tests) {
    POSEIDON_ASSIGN_OR_RETURN(auto test_net, Net::Create(test.net, test.state, MakeLayer, net_options));
    test_nets.push_back(std::move(test_net));
  }
  std::unique_ptr<Solver> solver(new Solver(parameters, std::move(options), std::move(net),
                                            std::move(test_nets), std::move(rule)));
  for (const std::string& weights : parameters.weights()) {
    POSEIDON_RETURN_IF_ERROR(solver->LoadWeightFiles(weights));
  }
  if (solver->options_.observer != nullptr) TellNotes(parameters, nets, solver->options_.observer);
  return solver;
}

Solver::Solver(const SolverParameter& parameters, SolverOptions options, std::unique_ptr<Net> net,
               std::vector<std::unique_ptr<Net>> test_nets, std::unique_ptr<UpdateRule> rule)
    : parameters_(parameters),
      options_(std::move(options)),
      net_(std::move(net)),
      test_nets_(std::move(test_nets)),
      rule_(std::move(rule)),
      history_(*net_, rule_->slots(), parameters_.type()),
      clock_(net_->layer_count()),
      work_(options_.placement, [this](const LayerWork& work) { NoteWork(work); }),
      loss_counts_(*net_, parameters_.iter_size()) {
  ListLayers();
  MakeHooks();
}

Solver::~Solver() = default;

void Solver::ListLayers() {
  layers_.resize(static_cast<std::size_t>(net_->layer_count()));
  const std::vector<LearnableParam>& params = net_->learnable_params();
  // A blob that is not learned may have a gradient all the same, and count in the norm that clips those that are.
  const bool all = net_->force_backward() && parameters_.clip_gradients() >= 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    LayerState& layer = At(layers_, params[i].layer);
    layer.params.push_back(i);
    if ((all || params[i].lr_mult != 0) && !params[i].statistics) layer.synced = true;
  }
  for (int layer = 0; layer < net_->layer_count(); ++layer) {
    if (At(layers_, layer).synced) synced_layers_.push_back(layer);
  }
}

void Solver::MakeHooks() {
  hooks_.before_forward = [this](int layer) { return BeforeForward(layer); };
  hooks_.after_forward = [this](int layer) { return AfterForward(layer); };
  hooks_.before_backward = [this](int layer) { return BeforeBackward(layer); };
  hooks_.after_backward = [this](int layer) { return AfterBackward(layer); };
}

void Solver::Connect(GradientSync* sync, Collectives* collectives) {
  POSEIDON_CHECK(position_.iteration == 0 || sync_ == nullptr, "a solver is connected once");
  sync_ = sync;
  collectives_ = collectives;
}

Status Solver::Restore(const std::string& state_path) {
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  POSEIDON_ASSIGN_OR_RETURN(RestoredSnapshot restored, ReadSnapshot(state_path, net_.get(), &history_));
  if (!restored.note.empty() && options_.observer != nullptr) options_.observer->OnNote(restored.note);
  position_ = restored.position;
  restored_plan_ = std::move(restored.plan);
  return OkStatus();
}

Status Solver::LoadWeightFiles(const std::string& model_paths) {
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  std::size_t begin = 0;
  while (begin <= model_paths.size()) {
    const std::size_t end = std::min(model_paths.find(',', begin), model_paths.size());
    std::string path = model_paths.substr(begin, end - begin);
    path.erase(0, path.find_first_not_of(" \t\r\n"));
    path.erase(path.find_last_not_of(" \t\r\n") + 1);
    if (!path.empty()) {
      const std::string found = FindBeside(path, options_.folder);
      std::vector<Net*> nets = {net_.get()};
      for (const auto& test_net : test_nets_) nets.push_back(test_net.get());  // which may have layers of their own
      POSEIDON_ASSIGN_OR_RETURN(const WeightsReport report, LoadWeights(found, nets));
      if (options_.observer != nullptr) options_.observer->OnWeights(report);
    }
    begin = end + 1;
  }
  return OkStatus();
}

Status Solver::Solve() {
  const auto last = static_cast<std::uint64_t>(parameters_.max_iter());
  if (position_.iteration < last) POSEIDON_RETURN_IF_ERROR(Step(last - position_.iteration));
  POSEIDON_RETURN_IF_ERROR(AgreeOnNotFinite(/*with_weights=*/false));
  if (Broken()) {
    stopped_ = true;
    return OkStatus();
  }
  const bool written =
      parameters_.snapshot() > 0 &&
      position_.iteration % static_cast<std::uint64_t>(parameters_.snapshot()) == 0;
  if (parameters_.snapshot_after_train() && !written) POSEIDON_RETURN_IF_ERROR(Snapshot());
  if (stopped_ || Broken()) return OkStatus();
  if (parameters_.display() > 0 &&
      position_.iteration % static_cast<std::uint64_t>(parameters_.display()) == 0) {
    POSEIDON_RETURN_IF_ERROR(ClosingPass());
  }
  const bool test_due =
      parameters_.test_interval() > 0 &&
      position_.iteration % static_cast<std::uint64_t>(parameters_.test_interval()) == 0;
  return test_due ? TestAll() : OkStatus();
}

Status Solver::Step(std::uint64_t iterations) {
  first_iteration_ = position_.iteration;
  recent_losses_.clear();
  smoothed_loss_ = 0;
  stopped_ = false;
  const auto snapshot_every = static_cast<std::uint64_t>(parameters_.snapshot());
  const auto display_every = static_cast<std::uint64_t>(parameters_.display());
  while (position_.iteration < first_iteration_ + iterations && !stopped_) {
    if (TestDue()) POSEIDON_RETURN_IF_ERROR(TestAll());
    const bool display = display_every > 0 && position_.iteration % display_every == 0;
    if (const Status status = Iterate(display); !status.ok()) {
      GiveUpIteration();
      return status;
    }
    if (Broken() && collectives_ == nullptr) break;
    const SolverAction action =
        options_.poll ? options_.poll(position_.iteration) : SolverAction::kNone;
    const bool due = snapshot_every > 0 && position_.iteration % snapshot_every == 0;
    // A stop that will write its snapshot at the end of Solve does not write it twice.
    const bool asked =
        action == SolverAction::kSnapshot ||
        (action == SolverAction::kSnapshotAndStop && !parameters_.snapshot_after_train());
    if (due || asked) {
      POSEIDON_RETURN_IF_ERROR(Snapshot());
      if (Broken()) break;  // here all workers know it
    }
    stopped_ = action == SolverAction::kStop || action == SolverAction::kSnapshotAndStop;
  }
  stopped_ |= Broken();
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  work_.Mark();
  work_.Tell();
  return OkStatus();
}

void Solver::NoteLossCounts() {
  if (options_.share.world == 1 || options_.observer == nullptr) return;
  if (const std::string note = loss_counts_.Take(); !note.empty()) options_.observer->OnNote(note);
}

// The loss is on the host already: what this costs is paid once, and only where it is not finite.
void Solver::NoteNotFinite(const NotFinite& found) {
  if (not_finite_) return;
  not_finite_ = found;
  not_finite_->worker = options_.share.rank;
  if (options_.stops_when_not_finite || options_.observer == nullptr) return;
  options_.observer->OnNotFinite(InWords(*not_finite_, *net_, options_.share.world));
}

// Brings together what every worker has found; all then hold the first of it. Weights are looked at where they are
// about to be written: a gradient can break them behind a loss that is finite.
Status Solver::AgreeOnNotFinite(bool with_weights) {
  if (!options_.stops_when_not_finite) return OkStatus();
  if (with_weights && !not_finite_) {
    const int layer = LayerWithBrokenWeights(*net_);
    if (layer >= 0) {
      NoteNotFinite({.iteration = pending_iteration_, .loss = last_loss_, .layer = layer, .weights = true});
    }
  }
  if (collectives_ == nullptr) return OkStatus();
  const auto world = static_cast<std::size_t>(options_.share.world);
  std::vector<double> table(world * NotFinite::kNumbers);
  const auto of_worker = [&](std::size_t worker) {
    return std::span(table).subspan(worker * NotFinite::kNumbers, NotFinite::kNumbers);
  };
  if (not_finite_ && not_finite_->worker == options_.share.rank) {  // another worker's is known to all already
    const auto numbers = not_finite_->ToNumbers();
    std::copy(numbers.begin(), numbers.end(), of_worker(static_cast<std::size_t>(options_.share.rank)).begin());
  }
  POSEIDON_RETURN_IF_ERROR(collectives_->SumDoubles(table));
  not_finite_.reset();
  for (std::size_t worker = 0; worker < world; ++worker) {
    const std::optional<NotFinite> found = NotFinite::FromNumbers(of_worker(worker), static_cast<int>(worker));
    if (found && (!not_finite_ || IsBefore(*found, *not_finite_))) not_finite_ = found;
  }
  return OkStatus();
}

bool Solver::ByFactors(int layer) const {
  return sync_ != nullptr && At(layers_, layer).synced && sync_->WantsFactors(layer);
}

// One worker shows it, as Caffe's root solver does. (The one that writes the snapshots.)
DebugSink Solver::Debug() const {
  if (!debugs_) return {};
  return [this](const std::string& line) { options_.observer->OnDebugLine(line); };
}

Status Solver::Iterate(bool display) {
  const TimePoint begin = SteadyNow();
  wait_seconds_ = 0;
  debugs_ = display && parameters_.debug_info() && options_.observer != nullptr && options_.share.rank == 0;
  updated_ = false;
  POSEIDON_RETURN_IF_ERROR(Begin());
  if (sync_ != nullptr) POSEIDON_RETURN_IF_ERROR(BeginSync());
  POSEIDON_ASSIGN_OR_RETURN(const double loss, RunPasses());
  if (calls_.gradients_ready) POSEIDON_RETURN_IF_ERROR(calls_.gradients_ready());
  CompleteGradients();
  Advance();
  if (parameters_.clip_gradients() >= 0 || debugs_) POSEIDON_RETURN_IF_ERROR(FinishPending());
  debugs_ = false;
  clock_.EndIteration();
  last_loss_ = loss;
  last_rate_ = pending_rate_;
  Smooth(last_loss_, pending_iteration_);
  if (options_.observer != nullptr) ReportIteration(SteadyNow() - begin, display);
  return OkStatus();
}

// Without somebody who looks, updates wait for the layers' turns.
Status Solver::Begin() {
  if (!calls_.begins) {
    net_->ClearParamDiffs();
    return OkStatus();
  }
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  net_->ZeroParamDiffs();
  return calls_.begins();
}

// Some layers may have had the update of the iteration before it: the others get theirs. What this one has computed is dropped, though
// what is lent of it is read until the caller ends the job. Where waiting fails, the job has, which is no news to the caller.
void Solver::GiveUpIteration() {
  debugs_ = false;
  if (!updated_) {
    gives_up_ = true;
    static_cast<void>(FinishPending());
    gives_up_ = false;
    return;
  }
  for (LayerState& layer : layers_) layer.gradient = Gradient::kApplied;
}

Status Solver::BeginSync() {
  POSEIDON_RETURN_IF_ERROR(sync_->BeginStep(position_.iteration));
  for (const int layer : synced_layers_) {
    FactorSource* factors = net_->layer(layer).factors();
    if (factors != nullptr && factors->FactorCapable()) {
      factors->CaptureFactors(sync_->WantsFactors(layer));
    }
  }
  return OkStatus();
}

Result<double> Solver::RunPasses() {
  const int passes = parameters_.iter_size();
  double loss = 0;
  for (int pass = 0; pass < passes; ++pass) {
    last_pass_ = pass + 1 == passes;
    double pass_loss = 0;
    POSEIDON_RETURN_IF_ERROR(ForwardBackward(pass, &pass_loss));
    loss += pass_loss;
  }
  return loss / passes;
}

// A gradient that is not exchanged is whole as it is.
void Solver::CompleteGradients() {
  for (LayerState& layer : layers_) {
    const bool exchanged = layer.gradient == Gradient::kExchanged;
    POSEIDON_CHECK(exchanged || sync_ == nullptr || !layer.synced, "backward left out a layer that is trained");
    if (!exchanged && !layer.params.empty()) layer.gradient = Gradient::kComplete;
  }
}

void Solver::Advance() {
  const LearningRate rate =
      LearningRateAt(parameters_, position_.iteration, position_.current_step);
  pending_iteration_ = position_.iteration;
  pending_rate_ = rate.rate;
  ++position_.iteration;
  position_.current_step = rate.current_step;
  updated_ = false;
}

void Solver::ReportIteration(Duration took, bool display) {
  IterationReport report;
  report.iteration = pending_iteration_;
  report.loss = last_loss_;
  report.smoothed_loss = smoothed_loss_;
  report.rate = last_rate_;
  report.seconds = ToSeconds(took);
  report.wait_seconds = wait_seconds_;
  report.device_seconds = std::exchange(device_seconds_, 0);
  report.display = display;
  if (display) report.outputs = OutputsOf(*net_);
  options_.observer->OnIteration(report);
}

PassContext Solver::PassAt(std::uint64_t iteration, int pass) const {
  const auto passes = static_cast<std::uint64_t>(parameters_.iter_size());
  return {.step = iteration,
          .pass = static_cast<std::uint32_t>(pass),
          .batch = iteration * passes + static_cast<std::uint64_t>(pass)};
}

Status Solver::ForwardBackward(int pass, double* loss) {
  net_->BeginPass(PassAt(position_.iteration, pass));
  if (options_.feed) POSEIDON_RETURN_IF_ERROR(options_.feed(*net_, net_->pass()));
  POSEIDON_ASSIGN_OR_RETURN(*loss, net_->Forward(hooks_));
  updated_ = true;
  work_.Mark();  // the loss is here, and so all that it came from is done
  NoteLossCounts();
  if (!std::isfinite(*loss) && !not_finite_) NoteNotFinite(FindNotFinite(*net_, position_.iteration, *loss));
  POSEIDON_RETURN_IF_ERROR(net_->Backward(hooks_));
  work_.Tell();  // while the device has that to do
  if (debugs_) DebugAllParams(*net_, Debug());
  return OkStatus();
}

Status Solver::BeforeForward(int layer) {
  POSEIDON_RETURN_IF_ERROR(FinishLayer(layer));
  work_.Begin();
  return OkStatus();
}

Status Solver::AfterForward(int layer) {
  work_.End(Work::kForward, layer, position_.iteration);
  if (debugs_) DebugForward(*net_, layer, Debug());
  return OkStatus();
}

Status Solver::BeforeBackward(int /*layer*/) {
  work_.Begin();
  return OkStatus();
}

Status Solver::AfterBackward(int layer) {
  work_.End(Work::kBackward, layer, position_.iteration);
  if (debugs_) DebugBackward(*net_, layer, ByFactors(layer), Debug());
  return last_pass_ ? Announce(layer) : OkStatus();
}

Status Solver::Announce(int layer) {
  LayerState& state = At(layers_, layer);
  if (sync_ == nullptr || !state.synced) return OkStatus();
  state.gradient = Gradient::kExchanged;
  return sync_->GradientReady(layer, loss_counts_.weight());
}

Status Solver::Await(int layer) {
  POSEIDON_RETURN_IF_ERROR(sync_->Await(layer));
  At(layers_, layer).gradient = Gradient::kComplete;
  return OkStatus();
}

// The time that one layer is waited for goes into updates of others whose means are there already.
Status Solver::FinishLayer(int layer) {
  const Gradient& gradient = At(layers_, layer).gradient;
  while (gradient == Gradient::kExchanged) {
    const TimePoint begin = SteadyNow();
    const int landed = sync_->AwaitAny(ExchangedFrom(layer));
    POSEIDON_RETURN_IF_ERROR(Await(landed));
    wait_seconds_ += ToSeconds(SteadyNow() - begin);
    if (landed != layer) Update(landed);
  }
  if (gradient == Gradient::kComplete) Update(layer);
  return OkStatus();
}

std::vector<int> Solver::ExchangedFrom(int first) const {
  std::vector<int> exchanged = {first};
  for (const int layer : synced_layers_) {
    if (layer != first && At(layers_, layer).gradient == Gradient::kExchanged) exchanged.push_back(layer);
  }
  return exchanged;
}

void Solver::Update(int layer) {
  work_.Begin();
  for (const std::size_t index : At(layers_, layer).params) {
    UpdateParam(index);
  }
  At(layers_, layer).gradient = Gradient::kApplied;
  work_.End(Work::kUpdate, layer, pending_iteration_);
}

Status Solver::FinishPending() {
  const bool pending = std::any_of(layers_.begin(), layers_.end(),
                                   [](const LayerState& layer) { return layer.gradient != Gradient::kApplied; });
  if (!pending) return OkStatus();
  if (parameters_.clip_gradients() >= 0) {
    POSEIDON_RETURN_IF_ERROR(AwaitPending());
    pending_clip_ = ClipFactor();
  }
  for (int layer = 0; layer < net_->layer_count(); ++layer) {
    POSEIDON_RETURN_IF_ERROR(FinishLayer(layer));
  }
  return OkStatus();
}

// Waits for all before anything is updated, because the norm needs them all.
Status Solver::AwaitPending() {
  const TimePoint begin = SteadyNow();
  for (const int layer : synced_layers_) {
    if (At(layers_, layer).gradient == Gradient::kExchanged) POSEIDON_RETURN_IF_ERROR(Await(layer));
  }
  wait_seconds_ += ToSeconds(SteadyNow() - begin);
  return OkStatus();
}

// The norm is that of the sum over iter_size, before weight decay.
double Solver::ClipFactor() const {
  std::vector<at::Tensor> gradients;
  for (const LearnableParam& param : net_->learnable_params()) gradients.push_back(param.blob.diff);
  const double norm = std::sqrt(SumOfSquares(gradients));
  const double bound = parameters_.clip_gradients();
  return norm > bound ? bound / norm : 1;
}

void Solver::UpdateParam(std::size_t index) {
  const LearnableParam& param = net_->learnable_params()[index];
  BlobUpdate update;
  update.weights = param.blob.data;
  update.gradient = param.blob.diff;
  for (int slot = 0; slot < rule_->slots(); ++slot) {
    At(update.history, slot) = history_.at(index, slot);
  }
  update.iteration = pending_iteration_;
  update.rate = pending_rate_ * static_cast<double>(param.lr_mult);
  update.decay =
      static_cast<double>(parameters_.weight_decay()) * static_cast<double>(param.decay_mult);
  update.clip = pending_clip_;
  update.average = 1.0 / parameters_.iter_size();
  if (!debugs_ && !parameters_.snapshot_diff() && !options_.diffs_are_updates) return rule_->Apply(update);
  // As in Caffe, the diff of an updated blob is what was taken off it.
  const EngineGuard guard;
  const at::Tensor before = param.blob.data.clone();
  rule_->Apply(update);
  at::sub_out(update.gradient, before, param.blob.data);
  if (debugs_) DebugUpdate(*net_, param, before, update.gradient, Debug());
}

// Caffe's running mean: exact once average_loss values are in, a mean of fewer before.
void Solver::Smooth(double loss, std::uint64_t iteration) {
  const auto window = static_cast<std::size_t>(parameters_.average_loss());
  if (recent_losses_.size() < window) {
    recent_losses_.push_back(loss);
    const auto count = static_cast<double>(recent_losses_.size());
    smoothed_loss_ = (smoothed_loss_ * (count - 1) + loss) / count;
    return;
  }
  double& oldest = recent_losses_[(iteration - first_iteration_) % window];
  smoothed_loss_ += (loss - oldest) / static_cast<double>(window);
  oldest = loss;
}

bool Solver::TestDue() const {
  const auto every = static_cast<std::uint64_t>(parameters_.test_interval());
  if (every == 0 || position_.iteration % every != 0) return false;
  return position_.iteration > 0 || parameters_.test_initialization();
}

// Test runs before the one at `iteration`, counted from iteration 0: where the test data go on is a
// function of the iteration too.
std::uint64_t Solver::TestsBefore(std::uint64_t iteration) const {
  const auto every = static_cast<std::uint64_t>(parameters_.test_interval());
  if (every == 0 || iteration == 0) return 0;
  return (iteration - 1) / every + (parameters_.test_initialization() ? 1 : 0);
}

// Running statistics (of BatchNorm) are each worker's own. All test with worker 0's, those that its snapshots hold: a model is
// scored as it is saved, and as a run that is resumed from there scores it.
Status Solver::ShareStatistics() {
  if (collectives_ == nullptr || options_.share.world == 1) return OkStatus();
  std::vector<at::Tensor> statistics;
  for (const LearnableParam& param : net_->learnable_params()) {
    if (param.statistics) statistics.push_back(param.blob.data.view({-1}));
  }
  if (statistics.empty()) return OkStatus();
  const EngineGuard guard;
  const at::Tensor own = at::cat(statistics);
  at::Tensor numbers = OnHost(own.to(at::kDouble));
  if (options_.share.rank != 0) numbers = at::zeros_like(numbers);
  POSEIDON_RETURN_IF_ERROR(collectives_->SumDoubles(
      {numbers.mutable_data_ptr<double>(), static_cast<std::size_t>(numbers.numel())}));
  if (options_.share.rank == 0) return OkStatus();
  std::int64_t offset = 0;
  for (const at::Tensor& blob : statistics) {
    blob.copy_(numbers.narrow(0, offset, blob.numel()));
    offset += blob.numel();
  }
  return OkStatus();
}

Status Solver::TestAll() {
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  if (!test_nets_.empty()) POSEIDON_RETURN_IF_ERROR(ShareStatistics());
  for (std::size_t i = 0; i < test_nets_.size(); ++i) {
    const TimePoint begin = SteadyNow();
    if (options_.observer != nullptr) options_.observer->OnTestBegin(position_.iteration, static_cast<int>(i));
    const int batches = parameters_.test_iter(static_cast<int>(i));
    const std::uint64_t first =
        TestsBefore(position_.iteration) * static_cast<std::uint64_t>(batches);
    TestRun run{.first_batch = first, .batches = batches, .share = options_.share, .collectives = collectives_};
    run.stop_wanted = options_.stop_wanted;
    if (test_nets_[i]->debug_info() && options_.observer != nullptr && options_.share.rank == 0) {
      run.hooks.after_forward = [this, &net = *test_nets_[i]](int layer) {
        DebugForward(net, layer, [this](const std::string& line) { options_.observer->OnDebugLine(line); });
        return OkStatus();
      };
    }
    TestReport report;
    report.iteration = position_.iteration;
    report.net = static_cast<int>(i);
    std::vector<std::map<int, double>> classes;
    if (parameters_.eval_type() == kDetection) {
      POSEIDON_ASSIGN_OR_RETURN(const ApVersion version, ParseApVersion(parameters_.ap_version()));
      POSEIDON_ASSIGN_OR_RETURN(TestPrecision precision, RunDetectionTest(test_nets_[i].get(), run, version));
      if (precision.stopped) return OkStatus();
      report.outputs = std::move(precision.outputs);
      classes = std::move(precision.classes);
    } else {
      POSEIDON_ASSIGN_OR_RETURN(TestMeans means, RunTest(test_nets_[i].get(), run));
      if (means.stopped) return OkStatus();
      report.outputs = std::move(means.outputs);
      report.has_loss = parameters_.test_compute_loss();
      report.loss = means.loss;
    }
    if (options_.observer == nullptr) continue;
    report.seconds = ToSeconds(SteadyNow() - begin);
    if (parameters_.show_per_class_result() && options_.share.rank == 0) NotePrecisions(classes, options_.observer);
    options_.observer->OnTest(report);
  }
  return OkStatus();
}

Status Solver::Snapshot() {
  POSEIDON_RETURN_IF_ERROR(FinishPending());
  POSEIDON_RETURN_IF_ERROR(AgreeOnNotFinite(/*with_weights=*/true));
  if (!options_.writes_snapshots || Broken()) return OkStatus();
  const TimePoint begin = SteadyNow();
  const SnapshotPaths paths = SnapshotPathsAt(parameters_.snapshot_prefix(), position_.iteration,
                                               parameters_.snapshot_format());
  SnapshotReport report;
  report.iteration = position_.iteration;
  report.model = paths.model;
  report.state = paths.state;
  if (options_.observer != nullptr) options_.observer->OnSnapshotBegin();
  report.status = WriteSnapshot(*net_, history_, position_, options_.plan_text ? options_.plan_text() : "", paths,
                                parameters_.snapshot_diff());
  report.seconds = ToSeconds(SteadyNow() - begin);
  if (options_.observer != nullptr) options_.observer->OnSnapshot(report);
  return OkStatus();
}

// One forward pass more, for the loss of the final weights.
Status Solver::ClosingPass() {
  const TimePoint begin = SteadyNow();
  net_->BeginPass(PassAt(position_.iteration, 0));
  if (options_.feed) POSEIDON_RETURN_IF_ERROR(options_.feed(*net_, net_->pass()));
  POSEIDON_ASSIGN_OR_RETURN(const double loss, net_->Forward());
  last_loss_ = loss;
  Smooth(loss, position_.iteration);
  if (options_.observer == nullptr) return OkStatus();
  IterationReport report;
  report.iteration = position_.iteration;
  report.loss = loss;
  report.smoothed_loss = smoothed_loss_;
  report.seconds = ToSeconds(SteadyNow() - begin);
  report.display = true;
  report.closing = true;
  report.outputs = OutputsOf(*net_);
  options_.observer->OnIteration(report);
  return OkStatus();
}

// An update counts with the forward pass that it comes before.
void Solver::NoteWork(const LayerWork& work) {
  const Duration took = work.end - work.begin;
  work.work == Work::kBackward ? clock_.AddBackward(work.layer, took) : clock_.AddForward(work.layer, took);
  // A layer that computes on the host keeps the device waiting for as long.
  const bool by_device = work.work == Work::kUpdate || net_->layer(work.layer).computes_on_device();
  if (!options_.placement.on_host() && by_device) device_seconds_ += ToSeconds(took);
  if (!options_.trace) return;
  options_.trace({.lane = TraceLane::kCompute,
                  .layer = work.layer,
                  .step = work.iteration,
                  .begin = work.begin,
                  .end = work.end,
                  .label = LabelOf(work.work)});
}

}  // namespace poseidon::caffe
