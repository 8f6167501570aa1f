// SPDX-License-Identifier: Apache-2.0
// One worker of a replayed training job: the product's own session, scheduler and transport under a
// model whose computing is slept. Prints one JSON object per measured step and one at the end; the
// driver benchmarks/cluster starts one per network namespace.
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/replay/member.h"
#include "benchmarks/replay/program.h"
#include "benchmarks/replay/rules.h"
#include "benchmarks/replay/scaled_model.h"
#include "benchmarks/replay/stream.h"
#include "poseidon/base/lesser.h"
#include "poseidon/base/quantities.h"
#include "poseidon/base/trace.h"
#include "poseidon/messaging/budget.h"
#include "poseidon/session/session.h"
#include "poseidon/factors/rebuild.h"

namespace poseidon::replay {
namespace {

using nlohmann::json;

struct Options {
  Member member;
  std::string profile;
  double scale = 1;
  std::string policy;  // empty: the mode's
  std::string scheme;  // its name: forced for all layers that can
  std::string mode = "poseidon";
  std::string levels = "flat";
  std::string machine;
  std::string rate;  // of a port, for T*; empty: as the link was measured
  std::uint64_t steps = 20;
  std::uint64_t warm_up = 5;
  std::string compute = "sleep";
  double jitter = 0;     // relative standard deviation of every layer's time
  double straggler = 1;  // factor on the last rank's times
  double pair_mib = kPairMib;  // of a key-value pair before scaling, where the mode has pairs
  std::string trace;  // file for the spans of the last two steps; empty: none
};

// Charges products to the stream that also plays forward and backward. While the members compare test
// products it writes zeros, so that all bits are equal; afterwards nobody reads what it would write.
class ChargedEngine final : public factors::ProductEngine {
 public:
  ChargedEngine(Stream& stream, double flops) : stream_(stream), flops_(flops) {}
  void EndTests() { testing_ = false; }

  Status Multiply(const Product& product) override {
    const double elements = static_cast<double>(product.outputs * product.inputs);
    if (testing_) std::memset(product.out, 0, product.outputs * product.inputs * SizeOf(product.dtype));
    if (flops_ > 0) {
      stream_.Run(2.0 * static_cast<double>(product.rows) * elements / flops_, /*idle=*/true);
    }
    return OkStatus();
  }
  std::string description() const override { return "replay"; }

 private:
  Stream& stream_;
  const double flops_;
  bool testing_ = true;
};

class Worker {
 public:
  Worker(const Options& options, const Mode& mode, ScaledModel model)
      : options_(options),
        mode_(mode),
        model_(std::move(model)),
        times_(model_, {options_.member.workers, options_.jitter, options_.straggler}),
        stream_(options_.compute == "spin" ? Stream::Kind::kSpins : Stream::Kind::kSleeps),
        engine_(stream_, model_.product_flops) {}

  Status Run() {
    POSEIDON_RETURN_IF_ERROR(Join());
    const std::vector<plan::LayerSpec> specs = model_.specs();
    POSEIDON_ASSIGN_OR_RETURN(synced_, session_->NewModel());
    Result<plan::Plan> provisional = synced_->Commit(specs);
    POSEIDON_RETURN_IF_ERROR(provisional.status());
    engine_.EndTests();
    synced_->Report(times_.MeasuredBy(static_cast<std::uint16_t>(options_.member.rank), *provisional).layers);
    MakeBuffers();
    POSEIDON_RETURN_IF_ERROR(session_->Barrier());
    for (std::uint64_t step = 0; step < options_.warm_up + options_.steps; ++step) {
      POSEIDON_RETURN_IF_ERROR(PlayStep(step));
    }
    POSEIDON_RETURN_IF_ERROR(AwaitAll());
    EndStep();
    PrintSteps();
    PrintSummary();
    POSEIDON_RETURN_IF_ERROR(WriteTrace());
    return session_->Leave();
  }

 private:
  Status Join() {
    session::SessionOptions options;
    options.engine = &engine_;
    if (!options_.trace.empty()) options.trace = &trace_;
    session::NodeOptions& node = options.node;
    node.strategy = mode_.strategy;
    // Factors are zeros here, and stand for numbers that are not.
    node.strategy.zero_compression = plan::ZeroCompression::kOff;
    node.levels = plan::ParseLevels(options_.levels).value();
    node.machine = options_.machine;
    node.final_plan_step = 2;
    POSEIDON_ASSIGN_OR_RETURN(node.planning,
                              PlanningOf({options_.policy, options_.scheme}, mode_, model_));
    POSEIDON_ASSIGN_OR_RETURN(session_,
                              Open(options_.member, options, /*system_buffers=*/mode_.pairs));
    return OkStatus();
  }

  void MakeBuffers() {
    for (const ScaledLayer& layer : model_.layers) {
      gradients_.push_back(factors::AllocateAligned(layer.spec.bytes()));
      std::memset(gradients_.back().get(), 0, layer.spec.bytes());
      std::uint64_t bytes = 0;
      if (layer.spec.factors) {
        bytes = layer.rows * std::max(layer.spec.factors->outputs, layer.spec.factors->inputs) *
                SizeOf(layer.spec.dtype);
      }
      factors_.push_back(factors::AllocateAligned(std::max<std::uint64_t>(bytes, 64)));
      std::memset(factors_.back().get(), 0, std::max<std::uint64_t>(bytes, 64));
    }
    pushed_.assign(model_.layers.size(), false);
  }

  Status Await(std::size_t layer) {
    if (!pushed_[layer]) return OkStatus();
    pushed_[layer] = false;
    const LayerId id(static_cast<std::uint32_t>(layer));
    idle_ = idle_ || !synced_->Landed(id);
    return synced_->Wait(id);
  }
  Status AwaitAll() {
    for (std::size_t i = 0; i < model_.layers.size(); ++i) POSEIDON_RETURN_IF_ERROR(Await(i));
    return OkStatus();
  }

  // Begins at the moment the last backward pass ended, and so does the measured step.
  void EndStep() {
    const double now = Now();
    const double cpu = CpuSeconds();
    const double core_wait = CoreWaitSeconds();
    if (step_begin_ > 0) {
      seconds_.push_back(now - step_begin_);
      ended_.push_back(now);
      cpu_.push_back(cpu - cpu_begin_);
      core_wait_.push_back(core_wait - core_wait_begin_);
    }
    step_begin_ = now;
    cpu_begin_ = cpu;
    core_wait_begin_ = core_wait;
  }

  Status PlayStep(std::uint64_t step) {
    EndStep();
    if (step == options_.warm_up) before_ = session_->Collect();
    Result<const plan::Plan*> plan = synced_->BeginStep(Step(step));
    POSEIDON_RETURN_IF_ERROR(plan.status());
    for (const Action& action : StepOf(mode_, model_.layers.size())) {
      const std::size_t i = action.layer;
      const bool factors = plan::TakesFactors((*plan)->layers[i].scheme);
      switch (action.kind) {
        case Action::Kind::kAwait:
          POSEIDON_RETURN_IF_ERROR(Await(i));
          break;
        case Action::Kind::kForward:
          Compute(step, i, "forward", times_.forward(options_.member.rank, step, i));
          break;
        case Action::Kind::kBackward:
          Compute(step, i, "backward", times_.backward(options_.member.rank, step, i, factors));
          break;
        case Action::Kind::kPush:
          POSEIDON_RETURN_IF_ERROR(Push(step, i, factors));
          break;
      }
    }
    return OkStatus();
  }

  void Compute(std::uint64_t step, std::size_t i, const char* pass, double seconds) {
    stream_.Run(seconds, std::exchange(idle_, false));
    if (options_.trace.empty()) return;
    const Duration end = FromSeconds(Now());
    trace_.Record({TraceLane::kCompute, static_cast<std::int32_t>(i), step,
                   {end - FromSeconds(seconds)}, {end}, 0, pass});
  }

  Status Push(std::uint64_t step, std::size_t i, bool factors) {
    const ScaledLayer& layer = model_.layers[i];
    const LayerId id(static_cast<std::uint32_t>(i));
    const TensorView gradient{gradients_[i].get(), layer.spec.elements, layer.spec.dtype};
    pushed_[i] = true;
    session::Push push{{.step = Step(step), .gradient = gradient}};
    if (factors) push.factors = Factors{factors_[i].get(), factors_[i].get(), layer.rows};
    return synced_->Push(id, std::move(push));
  }

  void Print(const json& line) {
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  void PrintSteps() {
    for (std::size_t i = options_.warm_up; i < seconds_.size(); ++i) {
      Print({{"rank", options_.member.rank},
             {"step", i - options_.warm_up},
             {"ended", ended_[i]},
             {"seconds", seconds_[i]},
             {"cpu_seconds", cpu_[i]},
             {"core_wait_seconds", core_wait_[i]}});
    }
  }

  // One array per span: lane, label, layer, step, begin, end, bytes.
  Status WriteTrace() {
    if (options_.trace.empty()) return OkStatus();
    json spans = json::array();
    for (const TraceSpan& span : trace_.Take()) {
      spans.push_back({NameOf(span.lane), span.label, span.layer, span.step,
                       ToSeconds(span.begin.since_origin), ToSeconds(span.end.since_origin),
                       span.bytes});
    }
    std::ofstream file(options_.trace);
    file << spans.dump() << '\n';
    if (!file.flush()) return Unavailable("the trace '" + options_.trace + "' cannot be written");
    return OkStatus();
  }

  double MedianOf(const std::vector<double>& all) const {
    std::vector<double> sorted(all.begin() + static_cast<std::ptrdiff_t>(options_.warm_up), all.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

  void PrintSummary() {
    const session::Statistics after = session_->Collect();
    const plan::Plan& plan = synced_->plan();
    double rate = after.link.bytes_per_second;
    if (!options_.rate.empty()) {
      rate = LesserRate(PayloadRate(ParseRate(options_.rate).value()), messaging::PayloadWithin(after.bandwidth));
    }
    const Bounds bounds = BoundsOf(model_, times_, plan, options_.member.workers, rate, options_.warm_up,
                                   options_.steps);
    json schemes = json::object();
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      if (model_.layers[i].spec.factors) {
        schemes[model_.layers[i].spec.name] = plan::NameOf(plan.layers[i].scheme);
      }
    }
    const auto traffic = TrafficOf(model_, plan, options_.member.workers);
    const double steps = static_cast<double>(options_.steps);
    Print({{"rank", options_.member.rank},
           {"summary",
            {{"mode", mode_.strategy.name},
             {"median_seconds", MedianOf(seconds_)},
             {"median_cpu_seconds", MedianOf(cpu_)},
             {"t_star", bounds.least},
             {"t_wfbp", bounds.wait_free},
             {"predicted_seconds", plan.step_seconds},
             {"compute_seconds", plan.compute_seconds},
             {"single_worker_seconds", model_.step_seconds()},
             {"link_bytes_per_second", after.link.bytes_per_second},
             {"link_latency_seconds", after.link.latency_seconds},
             {"payload_bytes_per_step", SentOf(traffic[options_.member.rank])},
             {"wire_bytes_out_per_step",
              static_cast<double>(after.wire.wire_bytes_out - before_.wire.wire_bytes_out) / steps},
             {"schemes", schemes}}}});
  }

  const Options& options_;
  const Mode& mode_;
  const ScaledModel model_;
  const ComputeTimes times_;
  Stream stream_;
  ChargedEngine engine_;
  TraceRecorder trace_{{.first_steps = 0, .last_steps = 2}};  // before the session, which records into it
  std::unique_ptr<session::Session> session_;
  session::Model* synced_ = nullptr;  // what the session synchronises of model_
  std::vector<factors::AlignedBytes> gradients_;
  std::vector<factors::AlignedBytes> factors_;
  std::vector<bool> pushed_;
  bool idle_ = true;  // has waited since it last computed
  double step_begin_ = 0;
  double cpu_begin_ = 0;
  double core_wait_begin_ = 0;
  std::vector<double> seconds_;
  std::vector<double> ended_;
  std::vector<double> cpu_;
  std::vector<double> core_wait_;
  session::Statistics before_;
};

Status Play(const Options& options) {
  POSEIDON_ASSIGN_OR_RETURN(const Mode mode, ModeNamed(options.mode));
  POSEIDON_ASSIGN_OR_RETURN(profile::Profile profile, profile::ReadProfile(options.profile));
  if (!options.rate.empty()) POSEIDON_RETURN_IF_ERROR(ParseRate(options.rate).status());
  prctl(PR_SET_TIMERSLACK, 1000);
  POSEIDON_ASSIGN_OR_RETURN(ScaledModel model,
                            AsModeSeesIt({options.policy, options.scheme}, mode,
                                         Scale(profile, options.scale), options.member.workers,
                                         PairElements(options.pair_mib, options.scale)));
  Worker worker(options, mode, std::move(model));
  return worker.Run();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Replays one worker's training steps through the Poseidon core", "poseidon_replay");
  app.add_option("--profile", options.profile, "JSON profile, - for standard input")->required();
  app.add_option("--scale", options.scale, "sizes divided by this")->check(CLI::Range(1.0, 1e6));
  AddFlags(app, options.member);
  app.add_option("--policy", options.policy, "instead of the mode's")->check(CLI::IsMember({"time", "bytes"}));
  app.add_option("--scheme", options.scheme, "for every fully connected layer")
      ->check(SchemeFlag());
  app.add_option("--mode", options.mode, "poseidon, wfbp, p3, dear, ps-2017 or dense");
  app.add_option("--pair-mib", options.pair_mib, "of a key-value pair before scaling, in ps-2017")
      ->check(CLI::Range(0.001, 1024.0));
  app.add_option("--levels", options.levels)->check(CLI::IsMember({"flat", "host", "auto"}));
  app.add_option("--machine", options.machine, "workers that name the same one can share memory");
  app.add_option("--rate", options.rate, "a port's set rate, for T*: 1Gbit");
  app.add_option("--steps", options.steps)->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", options.warm_up)->check(CLI::Range(3, 1000));
  app.add_option("--compute", options.compute, "sleep, or spin: burn this machine's CPU time")
      ->check(CLI::IsMember({"sleep", "spin"}));
  app.add_option("--jitter", options.jitter, "relative standard deviation of computing")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--straggler", options.straggler, "factor on the last rank's computing")
      ->check(CLI::Range(0.1, 10.0));
  app.add_option("--trace", options.trace, "write the spans of the last two steps to this file");
  return RunProgram(app, argc, argv, [&] { return Play(options); });
}

}  // namespace
}  // namespace poseidon::replay

int main(int argc, char** argv) { return poseidon::replay::Main(argc, argv); }
