// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "poseidon/base/random.h"
#include "tests/shared/fake_device.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/slices.h"
#include "poseidon/factors/blas_engine.h"

namespace poseidon::integration {
namespace {

constexpr ModelId kModel{0};

class LinesLog final : public LogSink {
 public:
  void Log(LogLevel, std::string_view line) override {
    std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace

// One process of the job. Its node lives on the site's I/O executor; everything else of it on the
// completions executor, "home", where the completions fire.
class Job::Member {
 public:
  Member(Job& job, MemberId id, const std::string& name)
      : job_(job), site_(job.world_.MakeSite(name)), id_(id), random_(Mix64(id.value() + 1000)) {}
  virtual ~Member() = default;

  void Start(const session::NodeOptions& options) {
    options_ = options;
    options_.listen = site_->listen();
    io().Post([this] {
      MakeDevice();
      session::Runtime& runtime = site_->runtime();
      node_ = std::make_unique<session::Node>(
          session::NodeEnvironment{.io = runtime.io(),
                                   .compute = runtime.compute(),
                                   .completions = runtime.completions(),
                                   .context = runtime.context(),
                                   .log = log_,
                                   .lane = [&runtime](std::uint16_t number) { return runtime.lane(number); },
                                   .engine = engine(),
                                   .device = device(),
                                   .front_end = strays() ? &front_end_ : nullptr,
                                   .processor_time = strays() ? [] { return Duration{0}; }
                                                              : std::function<Duration()>()},
          options_,
          [this](const Status& failure) { home().Post([this, failure] { OnFailure(failure); }); });
      const Status listened = node_->Listen();
      POSEIDON_CHECK(listened.ok(), listened.message().c_str());
      address_ = node_->address();
      job_.listening_.Add();
      Expect(
          "ready", [this](Status status) { OnReady(std::move(status)); },
          [this](Completion done) { node_->Start(std::move(done)); });
    });
  }
  // Sends nothing more, as a process that is killed.
  void Die() {
    dead_ = true;
    // In other worlds nobody is killed that may have ended.
    over_when_it_died_ = job_.world_.is_virtual() && over_;
    if (job_.world_.is_virtual()) {
      auto& world = dynamic_cast<VirtualWorld&>(job_.world_);
      world.simulation().Kill(VirtualWorld::ProcessOf(*site_));
    } else {
      job_.world_.RunOn(io(), [this] { node_->Vanish(); });
    }
  }
  // Ends the member's threads, so that nothing of it runs any more.
  void Stop() {
    if (dead_ && job_.world_.is_virtual()) {  // its executors run nothing any more
      const sim::Visit visit(dynamic_cast<VirtualWorld&>(job_.world_).simulation(), io());
      node_.reset();
      DropDevice();
    } else {
      job_.world_.RunOn(io(), [this] {
        if (node_) node_->Vanish();
      });
      job_.world_.RunOn(site_->runtime().compute(), [] {});  // no product is under way any more
      job_.world_.RunOn(io(), [this] {
        node_.reset();
        DropDevice();
      });
      StopLanes();
      // Completions that the node's end posted may still run, and use the site.
      job_.world_.RunOn(home(), [] {});
      job_.world_.RunOn(io(), [] {});
      job_.world_.RunOn(home(), [] {});
    }
    site_.reset();
  }
  // Until the lanes, which the node leaves to their own executors, have ended there.
  void StopLanes() {
    for (std::uint16_t number = 1; number < job_.options_.node.lanes; ++number) {
      Executor* executor = nullptr;
      job_.world_.RunOn(io(), [&] { executor = &site_->runtime().lane(number)->executor; });
      job_.world_.RunOn(*executor, [] {});
      job_.world_.RunOn(io(), [] {});
    }
  }
  void Abort(const Status& reason) {
    OnNode([this, reason] { node_->Abort(reason); });
  }

  bool dead() const { return dead_; }
  bool over_when_it_died() const { return over_when_it_died_; }
  Site& site() { return *site_; }
  const transport::Address& address() const { return address_; }
  const Outcome& outcome() const { return outcome_; }
  std::string pending() const {
    std::string names;
    for (const std::string& name : pending_) names += name + "; ";
    return names;
  }

 protected:
  virtual factors::ProductEngine* engine() { return job_.engine_.get(); }
  virtual void MakeDevice() {}  // on the I/O executor
  virtual device::Device* device() { return nullptr; }
  virtual void DropDevice() {}
  virtual void Begin() = 0;

  bool strays() const { return static_cast<bool>(job_.options_.strays); }
  // Its program waits for what is outstanding, or goes on.
  void Block(bool waits) {
    if (strays()) waits ? static_cast<void>(blocked_.emplace(front_end_)) : blocked_.reset();
  }

  Executor& io() { return site_->runtime().io(); }
  Executor& home() { return site_->runtime().completions(); }
  session::Node& node() { return *node_; }

  // A completion that must fire exactly once, on home, never inside the call that takes it, which
  // `call` makes on the I/O executor.
  void Expect(std::string what, UniqueFunction<void(Status)> then,
              UniqueFunction<void(Completion)> call) {
    auto fired = std::make_shared<bool>(false);
    auto returned = std::make_shared<bool>(false);
    auto name = std::make_shared<std::string>(std::move(what));
    if (home().OnExecutor()) {
      pending_.push_back(*name);
    } else {  // posted ahead of the completion
      home().Post([this, name] { pending_.push_back(*name); });
    }
    Completion done = [this, fired, name, then = std::move(then)](Status status) {
      EXPECT_TRUE(home().OnExecutor()) << *name;
      EXPECT_FALSE(*fired) << *name << " completed twice at member " << id_.value();
      *fired = true;
      const auto found = std::find(pending_.begin(), pending_.end(), *name);
      ASSERT_NE(found, pending_.end());
      pending_.erase(found);
      then(std::move(status));
      EndIfOver();
    };
    if (io().OnExecutor()) {
      call(std::move(done));
    } else {
      OnNode([call = std::move(call), done = std::move(done)]() mutable { call(std::move(done)); });
    }
  }
  // Runs `task` on the I/O executor, unless the node is gone by then.
  void OnNode(Task task) {
    io().Post([this, task = std::move(task)] {
      if (node_ != nullptr) task();
    });
  }
  void OnReady(Status status) {
    if (!status.ok()) return Fail(status);
    OnNode([this] {
      const MemberId member = node_->member();
      const Rank rank = node_->rank();
      home().Post([this, member, rank] {
        outcome_.member = member;
        outcome_.rank = rank;
        job_.ready_.Add();
        Begin();
      });
    });
  }
  void OnFailure(const Status& failure) {
    outcome_.failure = failure;
    ++outcome_.failures_told;
    told_ = true;
    EndIfOver();
  }
  // The first failure stays.
  void Fail(const Status& failure) {
    if (!result_) result_ = failure;
  }
  void Succeed() {
    if (!result_) result_ = OkStatus();
  }
  bool failed() const { return result_.has_value() && !result_->ok(); }
  // Over when there is a result, nothing is outstanding, and on_failure has been called with a failure.
  void EndIfOver() {
    if (over_ || !result_ || !pending_.empty() || (!result_->ok() && !told_)) return;
    over_ = true;
    outcome_.ended = *result_;
    outcome_.ended_at = home().now();
    outcome_.log = log_.lines();
    job_.ended_.Add();
  }

  Job& job_;
  std::unique_ptr<Site> site_;
  const MemberId id_;
  Random random_;
  LinesLog log_;
  std::unique_ptr<session::Node> node_;
  session::NodeOptions options_;
  transport::Address address_;
  Outcome outcome_;
  session::FrontEnd front_end_;
  std::optional<session::FrontEnd::Blocked> blocked_;

 private:
  std::vector<std::string> pending_;
  std::optional<Status> result_;
  bool told_ = false;
  bool over_ = false;
  bool dead_ = false;
  bool over_when_it_died_ = false;
};

class Job::Server final : public Member {
 public:
  using Member::Member;

 private:
  void Begin() override {
    Expect(
        "end", [this](Status status) { status.ok() ? Succeed() : Fail(status); },
        [this](Completion done) {
          node().AwaitEnd([this, done = std::move(done)](Status status) mutable {
            // The counters are read while the node still lives on its executor.
            OnNode([this, done = std::move(done), status]() mutable {
              node().Collect([this, done = std::move(done), status](const session::LaneTotals& totals) mutable {
                CountTraffic(totals);
                home().Post([done = std::move(done), status]() mutable { done(status); });
              });
            });
          });
        });
  }
  void CountTraffic(const session::LaneTotals& totals) {
    outcome_.allocated_bytes = totals.allocated_bytes;
    for (std::uint32_t i = 0; i < job_.options_.layers.size(); ++i) {
      outcome_.gradients.push_back(totals.traffic.layer(ModelId(0), LayerId(i), false));
      outcome_.factors.push_back(totals.traffic.layer(ModelId(0), LayerId(i), true));
    }
  }
};

class Job::Worker final : public Member {
 public:
  using Member::Member;

 private:
  struct LayerRun {
    std::uint64_t next_step = 0;
    factors::AlignedBytes gradient;
    factors::AlignedBytes made;  // where gradients come in parts: all of this step's
    factors::AlignedBytes u[2];
    factors::AlignedBytes v[2];
    factors::GatheredRows gathered;  // of a table
    // Where the worker has a device: the same there.
    device::DeviceSpan on_device;
  };

  void MakeDevice() override {
    if (!options().on_device) return;
    device_ = std::make_unique<device::FakeDevice>(
        io(), device::FakeDeviceOptions{.copy_bytes_per_second = 1e9, .registers = options().device_registers});
  }
  device::Device* device() override { return device_.get(); }
  void DropDevice() override { device_.reset(); }

  factors::ProductEngine* engine() override {
    return job_.options_.engine ? job_.options_.engine(Rank(id_.value())) : job_.engine_.get();
  }
  const JobOptions& options() const { return job_.options_; }

  void Begin() override {
    const std::vector<plan::LayerSpec> layers =
        options().declared ? options().declared(outcome_.rank) : options().layers;
    auto plan = std::make_shared<std::optional<plan::Plan>>();
    Expect(
        "commit",
        [this, plan](Status status) {
          if (!status.ok()) return Fail(status);
          outcome_.provisional = **plan;
          BeginTraining();
        },
        [this, layers, plan](Completion done) {
          node().Commit(ModelId(0), layers, [plan, done = std::move(done)](Result<plan::Plan> result) {
            if (result.ok()) *plan = *result;
            done(result.status());
          });
        });
  }

  void BeginTraining() {
    runs_.resize(options().layers.size());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      runs_[i].gradient = factors::AllocateAligned(options().layers[i].bytes());
    }
    if (options_.final_plan_step == 0) Report();
    if (options().steps == 0) return BeginCollective();
    BeginStep(0);
  }
  // The first forward pass of a step asks for its layers in order; backward pushes them in reverse.
  void BeginStep(std::uint64_t step) {
    Block(false);
    using Stray = JobOptions::Stray;
    const Stray stray = strays() ? options().strays(outcome_.rank, step) : Stray::kNo;
    if (stray == Stray::kBeforeThePushes) return CallACollective();
    if (step + 1 == options_.final_plan_step) Report();
    strays_between_ = stray == Stray::kBetweenThePushes;
    pushes_left_ = runs_.size();
    for (std::size_t i = runs_.size(); i-- > 0;) BeginLayer(LayerId(static_cast<std::uint32_t>(i)));
  }
  void Report() {
    if (std::exchange(reported_, true)) return;
    wire::Measured measured;
    measured.model = kModel;
    for (std::uint32_t i = 0; i < options().layers.size(); ++i) {
      const std::uint32_t rows = options().layers[i].factors
                                     ? job_.gradients_.Rows(outcome_.rank, LayerId(i), Step(0))
                                     : 0;
      measured.layers.push_back({1e-3, 2e-3, rows});
    }
    OnNode([this, measured] { node().Report(measured); });
  }

  // The layer's next step, once the plan that holds for it is known and its gradient "computed".
  void BeginLayer(LayerId layer) {
    if (failed()) return;
    LayerRun& run = runs_[layer.value()];
    if (run.next_step >= options_.final_plan_step && !outcome_.final_plan) {
      Block(true);
      waiting_for_plan_.push_back(layer);
      if (waiting_for_plan_.size() == 1) AwaitPlan();
      return;
    }
    if (options().max_compute > Duration::zero()) {
      const Duration compute(static_cast<std::int64_t>(
          random_.Below(static_cast<std::uint64_t>(options().max_compute.count()))));
      home().PostAfter(compute, [this, layer] { Push(layer); });
    } else {
      Push(layer);
    }
  }
  void AwaitPlan() {
    auto plan = std::make_shared<std::optional<plan::Plan>>();
    Expect(
        "final plan",
        [this, plan](Status status) {
          if (!status.ok()) return Fail(status);
          outcome_.final_plan = **plan;
          Block(false);
          for (const LayerId layer : std::exchange(waiting_for_plan_, {})) BeginLayer(layer);
        },
        [this, plan](Completion done) {
          node().AwaitFinalPlan(ModelId(0), [plan, done = std::move(done)](Result<plan::Plan> result) {
            if (result.ok()) *plan = *result;
            done(result.status());
          });
        });
  }

  plan::Scheme SchemeOf(LayerId layer, std::uint64_t step) const {
    const plan::Plan& plan =
        step >= options_.final_plan_step ? *outcome_.final_plan : *outcome_.provisional;
    return plan.layers[layer.value()].scheme;
  }

  // Where the others push, or go on pushing.
  void CallACollective() {
    values_.assign(1, 0);
    Expect(
        "collective of its own", [this](Status status) { Fail(status.ok() ? Internal("it was whole") : status); },
        [this](Completion done) { node().Collective(ViewOf(std::span(values_)), true, std::move(done)); });
    Block(true);
  }

  void Push(LayerId layer) {
    if (failed()) return;
    const bool first = layer.value() + 1 == runs_.size();
    if (strays_between_ && !first) return;
    if (--pushes_left_ == 0) Block(true);
    LayerRun& run = runs_[layer.value()];
    const Step step(run.next_step);
    const plan::LayerSpec& spec = options().layers[layer.value()];
    const plan::Scheme scheme = SchemeOf(layer, step.value());
    const Gradients& gradients = job_.gradients_;
    auto request = std::make_shared<sync::SyncRequest>();
    request->step = step;
    request->gradient = {run.gradient.get(), spec.elements, spec.dtype};
    request->absent = gradients.Absent(outcome_.rank, layer, step);
    request->weight = gradients.Weight(outcome_.rank, layer, step);
    if (!plan::TakesFactors(scheme)) {
      request->in_parts = options().in_parts && !request->absent;
      if (request->in_parts) {
        run.made = factors::AllocateAligned(spec.bytes());
        std::memset(run.gradient.get(), 0xee, spec.bytes());
      }
      gradients.FillDense(outcome_.rank, layer, step, request->in_parts ? run.made.get() : run.gradient.get());
    } else {
      const std::uint64_t rows = gradients.Rows(outcome_.rank, layer, step);
      const std::size_t parity = step.value() % 2;
      run.u[parity] = factors::AllocateAligned(rows * spec.factors->u_bytes_per_row(spec.dtype));
      run.v[parity] = factors::AllocateAligned(rows * spec.factors->v_bytes_per_row(spec.dtype));
      gradients.FillFactors(outcome_.rank, layer, step, run.u[parity].get(), run.v[parity].get());
      std::memset(run.gradient.get(), 0xee, spec.bytes());
      request->factors =
          Factors{run.u[parity].get(), run.v[parity].get(), static_cast<std::uint32_t>(rows)};
    }
    if (spec.is_table()) {
      request->gradient = {};
      request->gathered = &run.gathered;
    }
    ++run.next_step;
    const bool in_parts = request->in_parts;
    Expect(
        "push of layer " + std::to_string(layer.value()),
        [this, layer, step, scheme](Status status) { OnLanded(layer, step, scheme, status); },
        [this, layer, request](Completion done) {
          request->done = std::move(done);
          const bool table = options().layers[layer.value()].is_table();  // whose rows are on the host
          if (device_ && !table) MoveToDevice(runs_[layer.value()], *request);
          node().Push(kModel, layer, std::move(*request));
        });
    if (in_parts) BringPart(layer, 0);
    if (strays_between_) CallACollective();
  }

  // The next part of a gradient, whose first `arrived` numbers have been brought. It is written while what is made of
  // those may land beside it.
  void BringPart(LayerId layer, std::uint64_t arrived) {
    if (failed()) return;
    const LayerRun& run = runs_[layer.value()];
    const plan::LayerSpec& spec = options().layers[layer.value()];
    const std::uint64_t next = std::min(spec.elements, arrived + 1 + random_.Below(1 + spec.elements / 2));
    const std::size_t size = SizeOf(spec.dtype);
    std::memcpy(run.gradient.get() + arrived * size, run.made.get() + arrived * size, (next - arrived) * size);
    OnNode([this, layer, next] { node().Arrived(kModel, layer, next); });
    if (next == spec.elements) return;
    home().PostAfter(std::chrono::microseconds(random_.Below(200)), [this, layer, next] { BringPart(layer, next); });
  }

  // Acts as a kernel that ends after the push was made: the numbers are on the device when
  // its event has happened, not before. On the I/O executor, where the device lives.
  void MoveToDevice(LayerRun& run, sync::SyncRequest& request) {
    if (run.on_device.address == nullptr) {
      run.on_device = Allocated(request.gradient.bytes());
    }
    struct Move {
      const std::byte* from;
      device::DeviceSpan to;
    };
    // Who contributes nothing computes nothing: a kernel would write over the mean.
    std::vector<Move> moves;
    if (!request.absent) moves.push_back({request.gradient.memory, run.on_device});
    request.gradient.memory = run.on_device.address;
    if (request.factors) {
      const plan::LayerSpec& spec = options().layers[LayerOf(run)];
      const std::size_t size = SizeOf(spec.dtype);
      moves.clear();
      for (const auto& [memory, width] : {std::pair(&request.factors->u, spec.factors->outputs),
                                          std::pair(&request.factors->v, spec.factors->inputs)}) {
        const std::size_t bytes = request.factors->rows * width * size;
        if (bytes == 0) continue;
        moves.push_back({*memory, Allocated(bytes)});
        *memory = moves.back().to.address;
        borrowed_.push_back(moves.back().to);
      }
    }
    request.on_device = true;
    if (!moves.empty()) {
      request.ready = device_->Launch(std::chrono::microseconds(20), [this, moves] {
        for (const Move& move : moves) {
          std::memcpy(device_->InKernel(move.to).data(), move.from, move.to.size);
        }
      });
    }
    // The layer's result, as a kernel sees it, in the memory that the test compares; then the
    // device memory of the factors is free again.
    request.done = [this, layer = LayerOf(run), borrowed = std::exchange(borrowed_, {}),
                    done = std::move(request.done)](Status status) mutable {
      OnNode([this, layer, borrowed, done = std::move(done), status]() mutable {
        LayerRun& landed = runs_[layer];
        const MutableBytes seen = device_->InKernel(landed.on_device);
        std::memcpy(landed.gradient.get(), seen.data(), seen.size());
        for (const device::DeviceSpan& span : borrowed) device_->Free(span);
        home().Post([done = std::move(done), status]() mutable { done(status); });
      });
    };
  }
  device::DeviceSpan Allocated(std::size_t bytes) {
    Result<device::DeviceSpan> span = device_->Allocate(bytes);
    POSEIDON_CHECK(span.ok(), span.status().message().c_str());
    return *span;
  }
  std::size_t LayerOf(const LayerRun& run) const {
    return static_cast<std::size_t>(&run - runs_.data());
  }

  void OnLanded(LayerId layer, Step step, plan::Scheme scheme, const Status& status) {
    if (!status.ok()) return Fail(status);
    LayerRun& run = runs_[layer.value()];
    const plan::LayerSpec& spec = options().layers[layer.value()];
    const ByteBuffer& mean = job_.gradients_.Mean(layer, step, scheme, *job_.engine_);
    const ByteBuffer gathered = spec.is_table() ? BytesOf(run.gathered, spec) : ByteBuffer();
    const ConstBytes found = spec.is_table() ? ConstBytes(gathered) : ConstBytes(run.gradient.get(), spec.bytes());
    // At once: ThreadSanitizer takes its time for every byte of a loop.
    const bool equal = found.size() == mean.size() &&
                       (found.empty() || std::memcmp(found.data(), mean.data(), found.size()) == 0);
    EXPECT_TRUE(equal) << "rank " << outcome_.rank.value() << " has another mean of layer "
                       << layer.value() << " (" << spec.name << ") in step " << step.value() << ", "
                       << plan::NameOf(scheme) << job_.gradients_.Explain(layer, step, found);
    if (!equal) return GiveUp();
    ++outcome_.means;
    job_.landed_.Add();
    if (options().lockstep) {
      if (++layers_landed_ < runs_.size()) return;
      layers_landed_ = 0;
      if (run.next_step == options().steps) return BeginCollective();
      return BeginStep(run.next_step);
    }
    if (run.next_step + 1 == options_.final_plan_step) Report();
    if (run.next_step < options().steps) return BeginLayer(layer);
    if (++layers_done_ == runs_.size()) BeginCollective();
  }
  // Indices, then values.
  static ByteBuffer BytesOf(const factors::GatheredRows& gathered, const plan::LayerSpec& spec) {
    const std::uint64_t u_bytes = gathered.rows() * spec.factors->u_bytes_per_row(spec.dtype);
    const std::uint64_t v_bytes = gathered.rows() * spec.factors->v_bytes_per_row(spec.dtype);
    ByteBuffer bytes(u_bytes + v_bytes);
    if (!bytes.empty()) {
      std::memcpy(bytes.data(), gathered.indices(), u_bytes);
      std::memcpy(bytes.data() + u_bytes, gathered.v(), v_bytes);
    }
    return bytes;
  }
  void GiveUp() {
    const Status wrong = Internal("a result is wrong");
    Fail(wrong);
    OnNode([this, wrong] { node().Abort(wrong); });
  }

  // ---- a few one-off keys at the end: a sum, a broadcast of each rank's own, a barrier, odd sizes

  void BeginCollective() {
    if (failed()) return;
    const std::uint64_t index = outcome_.collectives;
    const std::uint64_t ranks = options().workers;
    if (!options().collectives || index == ranks + 3) return Leave();
    const std::uint64_t elements = index == ranks + 1   ? 1
                                   : index == ranks + 2 ? 0
                                                        : options().collective_elements + index;
    const bool contribute = index >= ranks || outcome_.rank.value() == index;
    values_.assign(elements, 0);
    for (std::uint64_t i = 0; i < elements; ++i)
      values_[i] = ValueAt(index, outcome_.rank.value(), i);
    Expect(
        "collective", [this, index](Status status) { OnCollective(index, status); },
        [this, contribute](Completion done) {
          node().Collective(ViewOf(std::span(values_)), contribute, std::move(done));
        });
  }
  static double ValueAt(std::uint64_t index, std::uint64_t rank, std::uint64_t i) {
    return static_cast<double>(Mix64(index * 1000003 + rank * 7919 + i) >> 12) * 0x1p-40;
  }
  void OnCollective(std::uint64_t index, const Status& status) {
    if (!status.ok()) return Fail(status);
    const std::uint64_t ranks = options().workers;
    for (std::uint64_t i = 0; i < values_.size(); ++i) {
      double expected = index < ranks ? ValueAt(index, index, i) : ValueAt(index, 0, i);
      for (std::uint64_t r = 1; index >= ranks && r < ranks; ++r) expected += ValueAt(index, r, i);
      if (values_[i] != expected) {
        ADD_FAILURE() << "collective " << index << " differs at rank " << outcome_.rank.value()
                      << ", element " << i;
        return GiveUp();
      }
    }
    ++outcome_.collectives;
    BeginCollective();
  }

  void Leave() {
    job_.leaving_.Add();
    OnNode([this] {
      // Everybody has everything, so that nothing is counted after this but the end.
      node().Collect([this](const session::LaneTotals& totals) {
        outcome_.allocated_bytes = totals.allocated_bytes;
        for (std::uint32_t i = 0; i < options().layers.size(); ++i) {
          outcome_.gradients.push_back(totals.traffic.layer(ModelId(0), LayerId(i), false));
          outcome_.factors.push_back(totals.traffic.layer(ModelId(0), LayerId(i), true));
          outcome_.local_bytes.push_back(node().local_bytes(ModelId(0), LayerId(i)));
        }
        outcome_.collective_traffic = totals.traffic.collectives();
        home().Post([this] {
          Expect(
              "leave", [this](Status status) { status.ok() ? Succeed() : Fail(status); },
              [this](Completion done) { node().Leave(std::move(done)); });
        });
      });
    });
  }

  std::unique_ptr<device::FakeDevice> device_;
  std::vector<device::DeviceSpan> borrowed_;
  std::vector<LayerRun> runs_;
  std::vector<LayerId> waiting_for_plan_;
  std::size_t layers_landed_ = 0;  // of the step under way
  std::size_t pushes_left_ = 0;
  bool strays_between_ = false;
  std::size_t layers_done_ = 0;
  bool reported_ = false;
  std::vector<double> values_;
};

Job::Job(World& world, const JobOptions& options)
    : world_(world),
      options_(options),
      gradients_(
          [&] {
            GradientOptions gradients = options.gradients;
            gradients.ranks = options.workers;
            gradients.host_of_rank = plan::HostOfRank(options.machines, options.node.levels);
            const std::uint32_t hosts = plan::HostCount(gradients.host_of_rank);
            gradients.factors_are_flat = plan::FactorsAreFlat(gradients.host_of_rank, options.servers);
            const bool of_hosts = hosts != 0 && !gradients.factors_are_flat;
            gradients.shards = options.servers != 0 ? options.servers
                               : of_hosts           ? static_cast<std::uint16_t>(hosts)
                                                    : options.workers;
            return gradients;
          }(),
          options.layers),
      engine_(factors::MakeBlasEngine(1)) {
  for (std::uint16_t m = 0; m < members(); ++m) {
    const bool worker = m < options_.workers;
    const std::string name =
        (worker ? "w" : "s") + std::to_string(worker ? m : m - options_.workers);
    if (worker) {
      members_.push_back(std::make_unique<Worker>(*this, MemberId(m), name));
    } else {
      members_.push_back(std::make_unique<Server>(*this, MemberId(m), name));
    }
  }
}

Job::~Job() {
  for (const auto& member : members_) member->Stop();
}

std::uint16_t Job::members() const {
  return static_cast<std::uint16_t>(options_.workers + options_.servers);
}

void Job::Start() {
  for (std::uint16_t m = 0; m < members(); ++m) {
    session::NodeOptions node = options_.node;
    node.workers = options_.workers;
    node.servers = options_.servers;
    const bool worker = m < options_.workers;
    node.role = worker ? wire::Role::kWorker : wire::Role::kServer;
    node.requested_rank = worker ? m : -1;
    node.hosts_coordinator = m == 0;
    node.host = members_[m]->site().listen().host;
    if (m < options_.machines.size()) node.machine = options_.machines[m];
    if (m > 0) node.coordinator = members_[0]->address();
    members_[m]->Start(node);
    if (m == 0) {
      ASSERT_TRUE(world_.Await(listening_, 1));
    }
  }
}

bool Job::AwaitReady() { return world_.Await(ready_, members()); }

bool Job::AwaitEnd() {
  // Those who died may have ended before.
  const auto awaited =
      static_cast<std::uint64_t>(std::count_if(members_.begin(), members_.end(), [](const auto& m) {
        return !m->dead() || m->over_when_it_died();
      }));
  const bool ended = world_.Await(ended_, awaited);
  if (!ended && world_.is_virtual()) {
    for (const auto& member : members_) {
      ADD_FAILURE() << "member " << (&member - members_.data()) << " waits for "
                    << member->pending();
    }
  }
  return ended;
}

void Job::Kill(MemberId member) { members_[member.value()]->Die(); }
void Job::Abort(MemberId member, const Status& reason) { members_[member.value()]->Abort(reason); }
const Outcome& Job::outcome(MemberId member) const { return members_[member.value()]->outcome(); }
Site& Job::site(MemberId member) { return members_[member.value()]->site(); }

void Job::ExpectAllWell() const {
  for (std::uint16_t m = 0; m < members(); ++m) {
    const Outcome& outcome = members_[m]->outcome();
    EXPECT_TRUE(outcome.ended.ok()) << "member " << m << ": " << outcome.ended.ToString();
    EXPECT_EQ(outcome.failures_told, 0) << outcome.failure.ToString();
    if (m >= options_.workers) continue;
    EXPECT_EQ(outcome.member, MemberId(m));
    EXPECT_EQ(outcome.rank, Rank(m));
    EXPECT_EQ(outcome.means, options_.steps * options_.layers.size());
    EXPECT_EQ(outcome.provisional, members_[0]->outcome().provisional) << "member " << m;
    EXPECT_EQ(outcome.final_plan, members_[0]->outcome().final_plan) << "member " << m;
    if (options_.collectives) {
      EXPECT_EQ(outcome.collectives, options_.workers + 3u);
    }
  }
}

void Job::ExpectExactPayload() const {
  const Outcome& first = members_[0]->outcome();
  ASSERT_TRUE(first.provisional.has_value());
  const plan::ClusterSpec& cluster = first.provisional->cluster;
  ASSERT_EQ(cluster.host_of_rank, plan::HostOfRank(options_.machines, options_.node.levels));
  const auto slices = plan::AssignSlices(options_.layers, cluster.shards(), options_.node.strategy.placement);
  using Sums = std::vector<plan::NodeBytes>;  // by member
  std::vector<Sums> gradient_sums(options_.layers.size(), Sums(members()));
  std::vector<Sums> factor_sums = gradient_sums;
  for (std::uint64_t step = 0; step < options_.steps; ++step) {
    const plan::Plan& plan = step >= options_.node.final_plan_step ? *first.final_plan : *first.provisional;
    std::vector<plan::LayerPlan> layer_plans(options_.layers.size());
    for (std::uint32_t i = 0; i < options_.layers.size(); ++i) {
      layer_plans[i].scheme = plan.layers[i].scheme;
      for (std::uint16_t r = 0; options_.layers[i].factors && r < options_.workers; ++r) {
        layer_plans[i].measured.rows.push_back(gradients_.RowsSent(Rank(r), LayerId(i), Step(step)));
      }
    }
    const std::vector<plan::LayerPayload> payloads = plan::PayloadsOf(options_.layers, slices, layer_plans, cluster, options_.node.strategy.placement);
    for (std::uint32_t i = 0; i < options_.layers.size(); ++i) {
      Sums& sums = (plan::TakesFactors(plan.layers[i].scheme) ? factor_sums : gradient_sums)[i];
      for (std::uint16_t m = 0; m < members(); ++m) {
        sums[m] = sums[m] + (m < options_.workers ? payloads[i].workers[m] : payloads[i].servers[m - options_.workers]);
      }
    }
  }
  for (std::uint32_t i = 0; i < options_.layers.size(); ++i) {
    const plan::LayerSpec& spec = options_.layers[i];
    const Sums& gradients = gradient_sums[i];
    const Sums& factors = factor_sums[i];
    for (std::uint16_t m = 0; m < members(); ++m) {
      const Outcome& outcome = members_[m]->outcome();
      ASSERT_GT(outcome.gradients.size(), i);
      const std::string where = "layer " + spec.name + ", member " + std::to_string(m);
      const std::size_t id = outcome.member.value();  // servers are numbered as they arrive
      EXPECT_EQ(outcome.gradients[i].sent.payload_bytes, gradients[id].sent) << where;
      EXPECT_EQ(outcome.gradients[i].received.payload_bytes, gradients[id].received) << where;
      EXPECT_EQ(outcome.factors[i].sent.whole_bytes, factors[id].sent) << where;
      EXPECT_EQ(outcome.factors[i].received.whole_bytes, factors[id].received) << where;
      const bool has_zeros = options_.gradients.zeros > 0 || options_.gradients.powers_of_two;
      if (options_.node.strategy.zero_compression != plan::ZeroCompression::kAlways && !has_zeros) {
        EXPECT_EQ(outcome.factors[i].sent.payload_bytes, factors[id].sent) << where;
        EXPECT_EQ(outcome.factors[i].received.payload_bytes, factors[id].received) << where;
      }
      EXPECT_EQ(outcome.gradients[i].sent.header_bytes,
                outcome.gradients[i].sent.frames * wire::kHeaderBytes);
    }
  }
}

void Job::ExpectAllBlame(std::int32_t culprit) const {
  for (std::uint16_t m = 0; m < members(); ++m) {
    if (members_[m]->dead()) continue;
    const Outcome& outcome = members_[m]->outcome();
    EXPECT_FALSE(outcome.ended.ok()) << "member " << m;
    EXPECT_EQ(outcome.failures_told, 1) << "member " << m;
    EXPECT_EQ(outcome.failure.culprit(), culprit)
        << "member " << m << ": " << outcome.failure.ToString();
  }
}

plan::LayerSpec Dense(std::string name, std::uint64_t elements, DType dtype) {
  return {.name = std::move(name),
          .shape = std::to_string(elements),
          .dtype = dtype,
          .elements = elements};
}

plan::LayerSpec FullyConnected(std::string name, std::uint64_t outputs, std::uint64_t inputs,
                               bool bias, DType dtype) {
  return {.name = std::move(name),
          .shape = std::to_string(outputs) + "x" + std::to_string(inputs) + (bias ? "+b" : ""),
          .dtype = dtype,
          .elements = outputs * inputs + (bias ? outputs : 0),
          .factors = plan::FactorShape{outputs, inputs, bias}};
}

plan::LayerSpec Table(std::string name, std::uint64_t entries, std::uint64_t width, DType dtype) {
  plan::LayerSpec table = FullyConnected(std::move(name), entries, width, false, dtype);
  table.factors->table = true;
  return table;
}

std::vector<plan::LayerSpec> InForwardOrder(std::vector<plan::LayerSpec> layers) {
  for (std::uint32_t i = 0; i < layers.size(); ++i) layers[i].forward_position = i;
  return layers;
}

}  // namespace poseidon::integration
