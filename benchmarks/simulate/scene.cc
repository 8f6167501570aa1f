// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/simulate/scene.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "benchmarks/replay/stream.h"
#include "poseidon/base/check.h"
#include "poseidon/base/log.h"
#include "poseidon/session/node.h"
#include "poseidon/factors/engine.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/sim/simulation.h"
#include "poseidon/sim/virtual_network.h"

namespace poseidon::simulate {
namespace {

using replay::Action;

constexpr std::uint16_t kPort = 1;
constexpr std::uint64_t kFinalPlanStep = 2;
constexpr Duration kSampled = std::chrono::milliseconds(10);
// The sizes to which Linux lets buffers grow whose size nobody sets (the defaults of net.ipv4.tcp_wmem and tcp_rmem).
constexpr std::size_t kSendBuffer = std::size_t{4} << 20;
constexpr std::size_t kReceiveBuffer = std::size_t{6} << 20;

std::string NameOf(std::uint16_t rank) { return "worker" + std::to_string(rank); }

// Zeros for as many gradients as are asked for; untouched pages cost nothing.
class Zeros {
 public:
  explicit Zeros(std::size_t size) : size_(std::max<std::size_t>(size, 1)) {
    void* const memory =
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    POSEIDON_CHECK(memory != MAP_FAILED, "there is address space for one layer");
    memory_ = static_cast<std::byte*>(memory);
  }
  ~Zeros() { munmap(memory_, size_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  std::byte* memory() const { return memory_; }
  ConstBytes span() const { return {memory_, size_}; }

 private:
  const std::size_t size_;
  std::byte* memory_ = nullptr;
};

// Products take their time, on the timeline that forward and backward use once these run. While the members
// compare test products it writes zeros, so that all bits are equal; afterwards nobody reads what it would
// write.
class TimedEngine final : public factors::ProductEngine {
 public:
  TimedEngine(sim::Simulation& simulation, replay::Timeline& timeline, double flops)
      : simulation_(simulation), timeline_(timeline), flops_(flops) {}
  void EndTests() { testing_ = false; }

  Status Multiply(const Product& product) override {
    if (testing_) {
      std::memset(product.out, 0, product.outputs * product.inputs * SizeOf(product.dtype));
    }
    if (flops_ <= 0) return OkStatus();
    const plan::FactorShape shape{product.outputs, product.inputs};
    const double seconds = shape.product_flops(product.rows) / flops_;
    if (testing_) {
      simulation_.Spend(FromSeconds(seconds));
      return OkStatus();
    }
    const Duration now = simulation_.now().since_origin;
    const Duration due = FromSeconds(timeline_.Queue(seconds, /*idle=*/true, ToSeconds(now)));
    simulation_.Spend(std::max(Duration{0}, due - now));
    return OkStatus();
  }
  std::string description() const override { return "simulated"; }

 private:
  sim::Simulation& simulation_;
  replay::Timeline& timeline_;
  const double flops_;
  bool testing_ = true;
};

// The scene's flow goes before that of its mode.
std::optional<messaging::Flow> FixedFlow(const Scene& scene) {
  if (scene.flow || !scene.mode.strategy.flow_is_fixed) return scene.flow;
  return scene.mode.strategy.flow;
}

// Counts the bytes that pass the ports from the moment the first worker begins its measured steps until the last one
// has ended them, and those of their busiest 10 ms.
class Sampler {
 public:
  Sampler(sim::Simulation& simulation, const sim::VirtualNetwork& network)
      : network_(network),
        executor_(simulation.MakeExecutor(simulation.AddProcess("sampler"), /*jitter=*/false)) {}

  void Watch(sim::HostId host) { ports_.push_back({.host = host}); }
  // Each is called by every worker.
  void Begin() {
    if (begun_) return;
    begun_ = executor_->now();
    for (Port& port : ports_) {
      port.begin = port.last = network_.traffic(port.host);
      port.work_before = network_.work(port.host);
    }
    executor_->PostAfter(kSampled, [this] { Sample(); });
  }
  void End() {
    if (++ended_ < ports_.size()) return;
    seconds_ = ToSeconds(executor_->now() - *begun_);
    for (Port& port : ports_) {
      port.last = network_.traffic(port.host);
      port.work = network_.work(port.host);
    }
    Stop();
  }
  void Stop() { stopped_ = true; }

  void Sum(std::uint64_t steps, Findings& findings) const {
    double total = 0;
    double most = 0;
    for (const Port& port : ports_) {
      for (const auto direction : {&sim::HostTraffic::out, &sim::HostTraffic::in}) {
        const auto bytes = static_cast<double>(port.last.*direction - port.begin.*direction);
        total += bytes;
        most = std::max(most, bytes);
        if (bytes == 0) continue;
        const double mean = bytes * ToSeconds(kSampled) / seconds_;
        findings.peak_to_mean =
            std::max({findings.peak_to_mean, 1.0, static_cast<double>(port.peak.*direction) / mean});
      }
    }
    const double worker_steps = static_cast<double>(ports_.size()) * static_cast<double>(steps);
    for (const Port& port : ports_) {
      findings.io_seconds += ToSeconds(port.work.busy - port.work_before.busy) / worker_steps;
      findings.io_wakes += static_cast<double>(port.work.wakes - port.work_before.wakes) / worker_steps;
    }
    if (total == 0) return;
    const double mean = total / (2.0 * static_cast<double>(ports_.size()));
    findings.mean_bytes = mean / static_cast<double>(steps);
    findings.max_to_mean = most / mean;
  }

 private:
  struct Port {
    sim::HostId host;
    sim::HostTraffic begin;
    sim::HostTraffic last;
    sim::HostTraffic peak;
    sim::HostWork work_before;
    sim::HostWork work;
  };
  void Sample() {
    if (stopped_) return;
    for (Port& port : ports_) {
      const sim::HostTraffic now = network_.traffic(port.host);
      port.peak.out = std::max(port.peak.out, now.out - port.last.out);
      port.peak.in = std::max(port.peak.in, now.in - port.last.in);
      port.last = now;
    }
    executor_->PostAfter(kSampled, [this] { Sample(); });
  }

  const sim::VirtualNetwork& network_;
  const std::unique_ptr<Executor> executor_;
  std::vector<Port> ports_;
  std::optional<TimePoint> begun_;
  std::size_t ended_ = 0;
  double seconds_ = 0;
  bool stopped_ = false;
};

// What every worker's machine is, as it says itself. Without costs a core is all that it needs.
struct Processors {
  double cores = 1;
  std::uint32_t computing = 1;
  double seconds_per_wire_byte = 0;
};
Processors ProcessorsOf(const Scene& scene) {
  Processors processors{.seconds_per_wire_byte = scene.costs.seconds_per_byte_out + scene.costs.seconds_per_byte_in};
  if (processors.seconds_per_wire_byte == 0) return processors;
  processors.computing = static_cast<std::uint32_t>(std::max<std::size_t>(scene.computing_cores, 1));
  // With cores of their own for as many lanes as there may be.
  processors.cores = processors.computing + (scene.computing_cores > 0 ? 0 : std::max(scene.lanes, plan::kMostChosenLanes));
  if (scene.shared_cores > 0) processors.cores = static_cast<double>(scene.shared_cores) / scene.unevenness.workers;
  return processors;
}

// State that all workers share.
struct Stage {
  const Scene& scene;
  const plan::Plan& plan;
  const std::vector<plan::LayerSpec>& declared;
  const replay::ComputeTimes& times;
  const std::vector<Action>& step;
  const Zeros& zeros;
  sim::Simulation& simulation;
  sim::VirtualNetwork& network;
  Sampler& sampler;
  sim::Cores* cores;       // that all share; null: none are
  const Processors processors;
  std::uint64_t left = 0;  // workers that are through
  Status failure;

  std::uint64_t last_step() const { return scene.warm_up + scene.steps; }
};

// One worker: a process on a host of its own. Its front end lives on the executor on which completions
// fire, its node on the I/O executor.
class Worker {
 public:
  Worker(Stage& stage, std::uint16_t rank)
      : stage_(stage),
        rank_(rank),
        host_(stage.network.AddHost({.name = NameOf(rank),
                                     .rate_out = stage.scene.bytes_per_second,
                                     .rate_in = stage.scene.bytes_per_second,
                                     .costs = stage.scene.costs,
                                     .cores = stage.cores})),
        process_(stage.simulation.AddProcess(NameOf(rank))),
        front_(stage.simulation.MakeExecutor(process_)),
        compute_(stage.simulation.MakeExecutor(process_)),
        io_(stage.simulation.MakeExecutor(process_)),
        context_(stage.network.MakeContext(host_, process_, *io_)),
        engine_(stage.simulation, timeline_, stage.scene.model.product_flops),
        in_flight_(stage.declared.size(), false),
        waited_(stage.declared.size(), 0) {
    stage.sampler.Watch(host_);
  }

  void Start() {
    OnIo([this] {
      const bool factors =
          std::any_of(stage_.declared.begin(), stage_.declared.end(),
                      [](const plan::LayerSpec& layer) { return layer.factors.has_value(); });
      node_ = std::make_unique<session::Node>(
          session::NodeEnvironment{.io = *io_,
                                   .compute = *compute_,
                                   .completions = *front_,
                                   .context = *context_,
                                   .log = log_,
                                   .lane = [this](std::uint16_t number) { return MakeLane(number); },
                                   .engine = factors ? &engine_ : nullptr},
          Options(), [this](const Status& failure) { Fail(failure); });
      if (const Status listened = node_->Listen(); !listened.ok()) return Fail(listened);
      node_->Start([this](const Status& status) { Then(status, &Worker::Commit); });
    });
  }

  // The node is destroyed where it lives, when no product reads its memory any more.
  void End() {
    OnNode([this] {
      node_->Vanish();
      node_->AwaitEnd([this](const Status&) { OnIo([this] { node_.reset(); }); });
    });
  }

  const std::vector<TimePoint>& ends() const { return ends_; }
  const std::vector<double>& waited() const { return waited_; }
  const session::LinkMeasurement& link() const { return node_->link(); }

 private:
  session::NodeOptions Options() const {
    session::NodeOptions options;
    options.join_timeout = std::chrono::hours(1);  // the slowest links of scenes are measured for minutes
    options.workers = stage_.scene.unevenness.workers;
    options.requested_rank = rank_;
    options.hosts_coordinator = rank_ == 0;
    options.host = NameOf(rank_);
    options.listen = {NameOf(rank_), kPort};
    options.coordinator = {NameOf(0), kPort};
    options.lanes = stage_.scene.lanes;
    options.cores = stage_.processors.cores;
    options.compute_threads = stage_.processors.computing;
    options.cpu_seconds_per_wire_byte = stage_.processors.seconds_per_wire_byte;
    options.strategy = stage_.scene.mode.strategy;
    // Factors are zeros here, and stand for numbers that are not.
    options.strategy.zero_compression = plan::ZeroCompression::kOff;
    options.final_plan_step = kFinalPlanStep;
    // Layers that hand over whole gradients are declared without factors: the members follow this plan.
    for (std::size_t i = 0; i < stage_.declared.size(); ++i) {
      options.planning.forced[stage_.declared[i].name] = stage_.plan.layers[i].scheme;
    }
    if (const std::optional<messaging::Flow> flow = FixedFlow(stage_.scene)) {
      options.strategy.flow = *flow;
      options.strategy.flow_is_fixed = true;
    }
    return options;
  }

  Result<session::LaneServices> MakeLane(std::uint16_t number) {
    Lane& lane = lanes_[number];
    lane.executor = stage_.simulation.MakeExecutor(process_);
    lane.context = stage_.network.MakeContext(host_, process_, *lane.executor);
    return session::LaneServices{*lane.executor, *lane.context};
  }

  void OnIo(Task task) { io_->Post(std::move(task)); }
  // With the node, where it lives: a job that fails takes it away while its step still computes.
  void OnNode(Task task) {
    OnIo([this, task = std::move(task)]() mutable {
      if (node_ != nullptr) task();
    });
  }
  void Fail(const Status& failure) {
    if (stage_.failure.ok()) stage_.failure = failure;
  }
  void Then(const Status& status, void (Worker::*next)()) {
    if (!status.ok()) return Fail(status);
    (this->*next)();
  }

  void Commit() {
    OnNode([this] {
      node_->Commit(ModelId(0), stage_.declared, [this](const Result<plan::Plan>& plan) {
        if (plan.ok()) provisional_ = *plan;
        Then(plan.status(), &Worker::Report);
      });
    });
  }
  void Report() {
    engine_.EndTests();
    OnNode([this] {
      node_->Report(stage_.times.MeasuredBy(rank_, provisional_));
      node_->Collective(ViewOf(std::span(&barrier_, 1)), true, [this](const Status& status) {
        Then(status, &Worker::BeginStep);
      });
    });
  }

  // A step begins at the moment the one before has ended.
  void BeginStep() {
    ends_.push_back(stage_.simulation.now());
    if (step_ == stage_.scene.warm_up) stage_.sampler.Begin();
    if (step_ == stage_.last_step()) stage_.sampler.End();
    at_ = 0;
    if (step_ > stage_.last_step()) return AwaitAll();
    if (step_ != kFinalPlanStep) return Continue();
    OnNode([this] {
      node_->AwaitFinalPlan(ModelId(0), [this](const Result<plan::Plan>& plan) {
        Then(plan.status(), &Worker::Continue);
      });
    });
  }

  // Goes through the step until it has to wait.
  void Continue() {
    for (; at_ < stage_.step.size(); ++at_) {
      const Action& action = stage_.step[at_];
      const std::size_t layer = action.layer;
      switch (action.kind) {
        case Action::Kind::kAwait:
          if (in_flight_[layer]) {
            awaited_ = layer;
            awaited_since_ = front_->now();
            idle_ = true;
            return;
          }
          break;
        case Action::Kind::kForward:
          return Compute(stage_.times.forward(rank_, step_, layer));
        case Action::Kind::kBackward:
          return Compute(stage_.times.backward(rank_, step_, layer, ByFactors(layer)));
        case Action::Kind::kPush:
          Push(layer);
          break;
      }
    }
    ++step_;
    BeginStep();
  }

  // What the I/O thread has taken of the computing cores since the last call.
  double Taken() {
    if (stage_.scene.computing_cores == 0) return 0;
    const Duration busy = stage_.network.work(host_).busy;
    return ToSeconds(busy - std::exchange(io_busy_, busy)) / static_cast<double>(stage_.scene.computing_cores);
  }

  void Compute(double seconds) {
    ++at_;
    seconds += Taken();
    const Duration now = front_->now().since_origin;
    const Duration due =
        FromSeconds(timeline_.Queue(seconds, std::exchange(idle_, false), ToSeconds(now)));
    front_->PostAfter(std::max(Duration{0}, due - now), [this] { Continue(); });
  }

  bool ByFactors(std::size_t layer) const {
    return step_ >= kFinalPlanStep
               ? plan::TakesFactors(stage_.plan.layers[layer].scheme)
               : stage_.declared[layer].factors.has_value();
  }

  void Push(std::size_t layer) {
    in_flight_[layer] = true;
    const plan::LayerSpec& spec = stage_.declared[layer];
    sync::SyncRequest request;
    request.step = Step(step_);
    request.gradient = {stage_.zeros.memory(), spec.elements, spec.dtype};
    if (ByFactors(layer)) {
      request.factors = Factors{stage_.zeros.memory(), stage_.zeros.memory(),
                                stage_.scene.model.layers[layer].rows};
    }
    request.done = [this, layer](const Status& status) { OnLanded(layer, status); };
    OnNode([this, layer, request = std::move(request)]() mutable {
      node_->Push(ModelId(0), LayerId(static_cast<std::uint32_t>(layer)), std::move(request));
    });
  }

  void OnLanded(std::size_t layer, const Status& status) {
    if (!status.ok()) return Fail(status);
    in_flight_[layer] = false;
    if (leaving_) return AwaitAll();
    if (awaited_ == layer) {
      awaited_.reset();
      if (step_ >= stage_.scene.warm_up && step_ < stage_.last_step()) {
        waited_[layer] += ToSeconds(front_->now() - awaited_since_);
      }
      Continue();
    }
  }

  void AwaitAll() {
    leaving_ = true;
    if (std::find(in_flight_.begin(), in_flight_.end(), true) != in_flight_.end()) return;
    OnNode([this] {
      node_->Leave([this](const Status& status) {
        if (!status.ok()) return Fail(status);
        ++stage_.left;
      });
    });
  }

  Stage& stage_;
  const std::uint16_t rank_;
  const sim::HostId host_;
  const sim::ProcessId process_;
  const std::unique_ptr<Executor> front_;
  const std::unique_ptr<Executor> compute_;
  const std::unique_ptr<Executor> io_;
  const std::unique_ptr<transport::Context> context_;
  struct Lane {
    std::unique_ptr<Executor> executor;
    std::unique_ptr<transport::Context> context;
  };
  std::map<std::uint16_t, Lane> lanes_;  // beside the first
  NullLogSink log_;
  replay::Timeline timeline_;
  TimedEngine engine_;
  std::unique_ptr<session::Node> node_;
  plan::Plan provisional_;

  std::int64_t barrier_ = 1;
  std::vector<bool> in_flight_;
  std::optional<std::size_t> awaited_;
  TimePoint awaited_since_;
  std::vector<double> waited_;  // in the measured steps, by layer
  bool idle_ = true;  // has waited since it last computed
  Duration io_busy_{0};  // that Taken has seen
  bool leaving_ = false;
  std::uint64_t step_ = 0;
  std::size_t at_ = 0;  // in the step
  std::vector<TimePoint> ends_;
};

// All workers of the stage; their nodes end before they do.
class Cast {
 public:
  explicit Cast(Stage& stage) : simulation_(stage.simulation) {
    for (std::uint16_t rank = 0; rank < stage.scene.unevenness.workers; ++rank) {
      workers_.push_back(std::make_unique<Worker>(stage, rank));
    }
  }
  ~Cast() {
    for (const auto& worker : workers_) worker->End();
    simulation_.Run();
  }
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  sim::Simulation& simulation_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

Result<plan::Plan> PlanOf(const Scene& scene, const replay::ComputeTimes& times) {
  plan::ClusterSpec cluster;
  cluster.workers = scene.unevenness.workers;
  cluster.bandwidth = scene.bytes_per_second;
  cluster.latency = ToSeconds(scene.latency);
  cluster.rebuild_flops = scene.model.product_flops;
  const Processors processors = ProcessorsOf(scene);
  cluster.cpu_seconds_per_wire_byte = processors.seconds_per_wire_byte;
  cluster.cores_per_worker = processors.cores;
  cluster.compute_threads = processors.computing;
  cluster.lanes = scene.lanes > 0 ? scene.lanes : plan::LanesFor(cluster);
  return plan::MakePlan(scene.model.specs(), cluster, times.MeasuredBySlowest(), scene.planning);
}

// Longer than any job takes. A job that no longer moves goes on with its heartbeats, and would for ever.
Duration PatienceFor(const Scene& scene, const plan::Plan& plan) {
  constexpr double kStart = 3600;            // seconds, and what probes of a link take
  constexpr double kProbes = 64.0 * (1 << 20);  // bytes to every other
  constexpr double kSlow = 100;              // times what the plan predicts of a step
  const double steps = static_cast<double>(scene.warm_up + scene.steps + 1);
  return FromSeconds(kStart + kProbes * scene.unevenness.workers / scene.bytes_per_second +
                     kSlow * steps * plan.step_seconds);
}

std::size_t BytesOfLargest(const Scene& scene) {
  std::uint64_t most = 0;
  for (const replay::ScaledLayer& layer : scene.model.layers) {
    most = std::max(most, layer.spec.bytes());
    if (!layer.spec.factors) continue;
    const std::uint64_t width = std::max(layer.spec.factors->outputs, layer.spec.factors->inputs);
    most = std::max(most, layer.rows * width * SizeOf(layer.spec.dtype));
  }
  return most;
}

}  // namespace

double Findings::median_seconds() const {
  std::vector<double> sorted = step_seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

Result<Findings> Play(const Scene& scene) {
  const std::uint16_t workers = scene.unevenness.workers;
  const replay::ComputeTimes times(scene.model, scene.unevenness);
  POSEIDON_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(scene, times));
  // Layers that hand over whole gradients are declared without factors, so that no test product is made.
  std::vector<plan::LayerSpec> declared = scene.model.specs();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (!plan::TakesFactors(plan.layers[i].scheme)) declared[i].factors.reset();
  }
  const std::vector<Action> step = replay::StepOf(scene.mode, declared.size());
  const Zeros zeros(BytesOfLargest(scene));
  sim::Simulation simulation;
  std::optional<sim::Cores> cores;
  if (scene.shared_cores > 0) cores.emplace(scene.shared_cores);
  sim::VirtualNetwork network(simulation, {.latency = scene.latency,
                                           .send_buffer_bytes = kSendBuffer,
                                           .receive_buffer_bytes = kReceiveBuffer,
                                           .segment_bytes = scene.segment_bytes,
                                           .hollow = zeros.span()});
  Sampler sampler(simulation, network);
  Stage stage{scene, plan, declared, times, step, zeros, simulation, network, sampler, cores ? &*cores : nullptr, ProcessorsOf(scene)};
  const Cast all(stage);
  const std::vector<std::unique_ptr<Worker>>& cast = all.workers();
  for (const auto& worker : cast) worker->Start();
  const bool ended = simulation.RunUntil([&] { return stage.left == workers || !stage.failure.ok(); },
                                         PatienceFor(scene, plan));
  if (!ended) stage.failure = Internal("nothing moves any more in the simulated job");
  sampler.Stop();
  POSEIDON_RETURN_IF_ERROR(stage.failure);

  Findings findings;
  findings.plan = plan;
  findings.events = simulation.events();
  const session::LinkMeasurement& link = cast[0]->link();
  findings.link = {link.bytes_per_second, link.latency_seconds};
  findings.flow = FixedFlow(scene).value_or(messaging::FlowFor(findings.link, workers - 1u));
  findings.bounds = replay::BoundsOf(scene.model, times, plan, workers, scene.bytes_per_second,
                                     scene.warm_up, scene.steps);
  sampler.Sum(scene.steps, findings);
  findings.waited_seconds.assign(declared.size(), 0);
  for (const auto& worker : cast) {
    for (std::size_t i = 0; i < declared.size(); ++i) {
      findings.waited_seconds[i] +=
          worker->waited()[i] / (static_cast<double>(workers) * static_cast<double>(scene.steps));
    }
  }
  for (std::uint64_t i = scene.warm_up; i < stage.last_step(); ++i) {
    double sum = 0;
    for (const auto& worker : cast) sum += ToSeconds(worker->ends()[i + 1] - worker->ends()[i]);
    findings.step_seconds.push_back(sum / workers);
  }
  return findings;
}

}  // namespace poseidon::simulate
