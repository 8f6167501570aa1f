// SPDX-License-Identifier: Apache-2.0
// The blocking door: every worker a thread of its own that knows nothing but a Session.
#include "poseidon/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/plan/payload.h"
#include "poseidon/factors/blas_engine.h"
#include "tests/integration/gradients.h"
#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using session::Model;
using session::Runtime;
using session::Session;
using session::SessionOptions;
using ::testing::HasSubstr;
using transport::tcp::Security;

// Where the runtimes of one job come from.
class Door {
 public:
  virtual ~Door() = default;
  virtual std::unique_ptr<Runtime> Open(const std::string& name) = 0;
  virtual std::string HostOf(const std::string& name) const = 0;
};

class InprocDoor final : public Door {
 public:
  std::unique_ptr<Runtime> Open(const std::string& name) override {
    return session::MakeInprocRuntime(network_, name);
  }
  std::string HostOf(const std::string& name) const override { return name; }

 private:
  transport::InprocNetwork network_;
};

class TcpDoor final : public Door {
 public:
  explicit TcpDoor(Security::Mode mode)
      : security_{mode, transport::tcp::Token::Generate().value()} {}
  std::unique_ptr<Runtime> Open(const std::string&) override {
    return session::MakeTcpRuntime({.security = security_}).value();
  }
  std::string HostOf(const std::string&) const override { return "127.0.0.1"; }

 private:
  const Security security_;
};

struct DoorCase {
  const char* name;
  std::unique_ptr<Door> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const DoorCase& c) { return out << c.name; }
};

// Starts `workers` + `servers` threads, each with a session of its own, and joins them.
class SessionTest : public ::testing::TestWithParam<DoorCase> {
 protected:
  using Body = std::function<void(std::unique_ptr<Session>)>;

  SessionOptions Options(std::uint16_t workers, std::uint16_t servers) {
    SessionOptions options;
    options.node.workers = workers;
    options.node.servers = servers;
    options.node.probe_bytes = 100'000;
    options.engine = engine_.get();
    return options;
  }
  // `worker` gets the session of each rank in a thread of its own; servers wait for the end.
  void Run(const SessionOptions& options, const Body& worker) {
    std::promise<transport::Address> listening;
    std::shared_future<transport::Address> coordinator = listening.get_future().share();
    std::vector<std::thread> threads;
    const std::uint16_t members =
        static_cast<std::uint16_t>(options.node.workers + options.node.servers);
    all_open_.emplace(members);
    for (std::uint16_t m = 0; m < members; ++m) {
      threads.emplace_back([&, m] {
        const bool is_worker = m < options.node.workers;
        const std::string name = (is_worker ? "w" : "s") + std::to_string(m);
        SessionOptions own = options;
        own.node.role = is_worker ? wire::Role::kWorker : wire::Role::kServer;
        own.node.hosts_coordinator = m == 0;
        own.node.requested_rank = is_worker ? m : -1;
        own.node.host = name;
        own.node.listen = {door_->HostOf(name), 0};
        UniqueFunction<void(const transport::Address&)> tell;
        if (m == 0) {
          tell = [&](const transport::Address& address) { listening.set_value(address); };
        } else {
          own.node.coordinator = coordinator.get();
        }
        auto session = Session::Open(door_->Open(name), own, std::move(tell));
        all_open_->count_down();
        ASSERT_TRUE(session.ok()) << session.status().ToString();
        if (is_worker) {
          EXPECT_EQ((*session)->rank(), Rank(m));
          worker(*std::move(session));
        } else {
          const Status ended = (*session)->AwaitEnd();
          std::lock_guard lock(mutex_);
          servers_ended_.push_back(ended);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::unique_ptr<Door> door_ = GetParam().make();
  const std::unique_ptr<factors::ProductEngine> engine_ = factors::MakeBlasEngine(1);
  std::optional<std::latch> all_open_;
  std::mutex mutex_;
  std::vector<Status> servers_ended_;
};

// One worker's training loop as a front end writes it: layers pushed in backward order and waited for in forward order.
class TrainingLoop {
 public:
  static constexpr std::uint64_t kSteps = 20;
  static constexpr std::uint64_t kFinalPlanStep = 4;
  static constexpr std::uint16_t kWorkers = 3;

  static std::vector<plan::LayerSpec> Layers() {
    return InForwardOrder(
        {Dense("conv", 3001), FullyConnected("fc", 40, 50), Dense("scale", 7, DType::kF64)});
  }

  TrainingLoop(Session& session, Gradients& gradients, factors::ProductEngine& engine)
      : session_(session), gradients_(gradients), engine_(engine), model_(**session.NewModel()) {
    for (const plan::LayerSpec& layer : layers_) memory_.emplace_back(layer.bytes());
  }

  void Train() {
    const auto committed = model_.Commit(layers_);
    ASSERT_TRUE(committed.ok()) << committed.status().ToString();
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      const Step step(s);
      const auto plan = model_.BeginStep(step);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(model_.plan_is_final(), s >= kFinalPlanStep);
      for (std::uint32_t i = 3; i-- > 0;) ASSERT_NO_FATAL_FAILURE(Push(i, step, (*plan)->layers[i].scheme));
      if (s == 1) Report(step);
      for (std::uint32_t i = 0; i < 3; ++i) {
        ASSERT_NO_FATAL_FAILURE(ExpectMean(i, step, (*plan)->layers[i].scheme));
      }
      double loss = 1.5 * (rank_.value() + 1);
      ASSERT_TRUE(session_.Sum(ViewOf(std::span(&loss, 1))).ok());
      EXPECT_EQ(loss, 1.5 * 6);
    }
  }

  void ExpectStatistics() {
    const session::ModelStatistics statistics = model_.Collect();
    ASSERT_EQ(statistics.layers.size(), 3u);
    EXPECT_EQ(landed_calls_, static_cast<int>(3 * kSteps));
    EXPECT_EQ(statistics.layers[0].steps, kSteps);
    EXPECT_EQ(statistics.layers[0].gradients.sent.payload_bytes, kSteps * layers_[0].bytes());
    EXPECT_EQ(statistics.layers[0].gradients.received.payload_bytes, kSteps * layers_[0].bytes());
    std::uint64_t rows_out = 0;
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      rows_out += gradients_.Rows(rank_, LayerId(1), Step(s)) * (kWorkers - 1u);
    }
    EXPECT_EQ(statistics.layers[1].factors.sent.payload_bytes, rows_out * (40 + 50) * 4);
    EXPECT_EQ(statistics.layers[1].gradients.sent.payload_bytes, 0u);
    EXPECT_GE(statistics.hidden_share(), 0);
    EXPECT_LE(statistics.hidden_share(), 1);
    const session::Statistics all = session_.Collect();
    EXPECT_GE(all.wire.wire_bytes_out, all.wire.bytes_written);
    model_.ResetTimings();
    EXPECT_EQ(model_.Collect().layers[0].steps, 0u);
  }

 private:
  void Push(std::uint32_t i, Step step, plan::Scheme scheme) {
    const LayerId layer(i);
    session::Push push{{.step = step, .gradient = {memory_[i].data(), layers_[i].elements, layers_[i].dtype}},
                       [this](Status) { ++landed_calls_; }};
    if (scheme == plan::Scheme::kKeyValue) {
      gradients_.FillDense(rank_, layer, step, memory_[i].data());
    } else {
      push.factors = FactorsOf(layer, step);
    }
    ASSERT_TRUE(model_.Push(layer, std::move(push)).ok());
  }

  // Of a step in memory that the next one leaves alone.
  Factors FactorsOf(LayerId layer, Step step) {
    const std::uint32_t rows = gradients_.Rows(rank_, layer, step);
    std::vector<float>& u = u_[step.value() % 2];
    std::vector<float>& v = v_[step.value() % 2];
    u.resize(rows * 40u);
    v.resize(rows * 50u);
    std::byte* const u_memory = reinterpret_cast<std::byte*>(u.data());
    std::byte* const v_memory = reinterpret_cast<std::byte*>(v.data());
    gradients_.FillFactors(rank_, layer, step, u_memory, v_memory);
    return {u_memory, v_memory, rows};
  }

  void Report(Step step) {
    std::vector<wire::Measured::Layer> measured(3, {1e-3, 1e-3, 0});
    measured[1].rows = gradients_.Rows(rank_, LayerId(1), step);
    model_.Report(measured);
  }

  void ExpectMean(std::uint32_t i, Step step, plan::Scheme scheme) {
    const Status status = model_.Wait(LayerId(i));
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(model_.Landed(LayerId(i)));
    EXPECT_EQ(memory_[i], gradients_.Mean(LayerId(i), step, scheme, engine_))
        << "rank " << rank_.value() << ", layer " << i << ", step " << step.value();
  }

  Session& session_;
  Gradients& gradients_;
  factors::ProductEngine& engine_;
  Model& model_;
  const Rank rank_ = session_.rank();
  const std::vector<plan::LayerSpec> layers_ = Layers();
  std::vector<ByteBuffer> memory_;
  std::array<std::vector<float>, 2> u_;
  std::array<std::vector<float>, 2> v_;
  std::atomic<int> landed_calls_{0};
};

// Settings broadcast, odds and ends gathered, metrics summed while something else happens.
void ExpectCollectives(Session& session) {
  const Rank rank = session.rank();
  std::vector<float> weights(1000, rank == Rank(1) ? 4.25f : -1.0f);
  ASSERT_TRUE(session.Broadcast(ViewOf(std::span(weights)), Rank(1)).ok());
  EXPECT_EQ(weights, std::vector<float>(1000, 4.25f));
  ASSERT_TRUE(session.Barrier().ok());
  // Everybody's bytes, of lengths that differ, one of them none.
  const std::string own(rank.value() * 13u, static_cast<char>('a' + rank.value()));
  const auto gathered = session.Gather(AsBytes(own));
  ASSERT_TRUE(gathered.ok());
  ASSERT_EQ(gathered->size(), session.workers());
  for (std::uint16_t r = 0; r < session.workers(); ++r) {
    EXPECT_EQ(AsString((*gathered)[r]), std::string(r * 13u, static_cast<char>('a' + r)));
  }
  std::vector<double> metrics(3, 0.5);
  std::future<Status> summed = session.StartSum(ViewOf(std::span(metrics)));
  ASSERT_TRUE(summed.get().ok());
  EXPECT_EQ(metrics, std::vector<double>(3, 1.5));
}

TEST_P(SessionTest, ATrainingLoop) {
  constexpr std::uint16_t kWorkers = TrainingLoop::kWorkers;
  Gradients gradients({.seed = 3, .ranks = kWorkers, .min_rows = 1, .max_rows = 6}, TrainingLoop::Layers());
  SessionOptions options = Options(kWorkers, 1);
  options.node.planning.forced = {{"fc", plan::Scheme::kFactorBroadcast}};
  options.node.final_plan_step = TrainingLoop::kFinalPlanStep;
  Run(options, [&](std::unique_ptr<Session> session) {
    EXPECT_EQ(session->roster().size(), kWorkers + 1u);
    EXPECT_THAT(session->NameOf(kWorkers), HasSubstr("server 0 on host s3"));
    TrainingLoop loop(*session, gradients, *engine_);
    ASSERT_NO_FATAL_FAILURE(loop.Train());
    ASSERT_NO_FATAL_FAILURE(ExpectCollectives(*session));
    ASSERT_NO_FATAL_FAILURE(loop.ExpectStatistics());
    EXPECT_TRUE(session->Leave().ok());
    EXPECT_TRUE(session->failure().ok());
    // The job is over: what comes afterwards fails, and does not hang.
    EXPECT_FALSE(session->Barrier().ok());
  });
  ASSERT_EQ(servers_ended_.size(), 1u);
  EXPECT_TRUE(servers_ended_[0].ok()) << servers_ended_[0].ToString();
}

// A worker that kept the others waiting before it says nothing of the steps after it.
TEST_P(SessionTest, WhatIsMeteredBeginsAnewWithTheTimings) {
  const auto layers = InForwardOrder({Dense("a", 100)});
  Run(Options(2, 0), [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    std::vector<float> gradient(100, 1.0f);
    const auto train = [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t s = begin; s < end; ++s) {
        ASSERT_TRUE(model.BeginStep(Step(s)).ok());
        ASSERT_TRUE(model.Agreed().ok());  // how long all computed is known
        ASSERT_TRUE(model.Push(LayerId(0), {{.step = Step(s), .gradient = ViewOf(std::span(gradient))}}).ok());
        ASSERT_TRUE(model.Wait(LayerId(0)).ok());
      }
    };
    train(0, 4);
    model.ResetTimings();
    EXPECT_EQ(model.Collect().overlap.steps(), 0u);
    train(4, 8);
    const session::ModelStatistics statistics = model.Collect();
    EXPECT_EQ(statistics.overlap.steps(), 2u);  // 4 and 5: at the begin of 7 all know of them
    EXPECT_GT(statistics.overlap.busy(), 0);
    EXPECT_LT(statistics.overlap.busy(), statistics.busy_seconds);
    EXPECT_TRUE(session->Leave().ok());
  });
}

// What a launcher is told while worker 1 is late: for whom worker 0 waits, and what for.
TEST_P(SessionTest, TellsItsFigures) {
  const auto layers = InForwardOrder({Dense("a", 100)});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<place::Figures> told;  // of both
  const auto waits = [](const place::Figures& one) { return one.blocked && one.steps == 3 && one.waits_on == std::vector<std::uint16_t>{1}; };
  SessionOptions options = Options(2, 0);
  options.figures = [&](const place::Figures& figures) {
    std::lock_guard lock(mutex);
    told.push_back(figures);
    changed.notify_all();
  };
  Run(options, [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    std::vector<float> gradient(100, 1.0f);
    for (std::uint64_t s = 0; s < 5; ++s) {
      ASSERT_TRUE(model.BeginStep(Step(s)).ok());
      ASSERT_TRUE(model.Agreed().ok());
      if (s == 2 && session->rank() == Rank(1)) {
        std::unique_lock lock(mutex);
        EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return std::any_of(told.begin(), told.end(), waits); }));
      }
      ASSERT_TRUE(model.Push(LayerId(0), {{.step = Step(s), .gradient = ViewOf(std::span(gradient))}}).ok());
      ASSERT_TRUE(model.Wait(LayerId(0)).ok());
      if (s == 3) model.ResetTimings();
    }
    EXPECT_TRUE(session->Leave().ok());
  });
  const auto found = std::find_if(told.begin(), told.end(), waits);
  ASSERT_NE(found, told.end());
  EXPECT_EQ(found->waits_for, "the gradient of layer 'a' in step 2");
  EXPECT_GT(found->sent, 0u);
  // Each says it once more at the end, however its timings began anew meanwhile; its second may have ended there too.
  EXPECT_GE(std::count_if(told.begin(), told.end(), [](const place::Figures& one) { return one.steps == 5; }), 2);
  EXPECT_GE(told.back().measured, 2u);
  EXPECT_GT(told.back().slower_workers + told.back().computing(), 0);
}

TEST_P(SessionTest, OneWorkerNeedsNoNetwork) {
  const auto layers = InForwardOrder({Dense("a", 100)});
  Run(Options(1, 0), [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    std::vector<float> gradient(100, 2.5f);
    ASSERT_TRUE(model.Push(LayerId(0), {{.step = Step(0), .gradient = ViewOf(std::span(gradient))}}).ok());
    ASSERT_TRUE(model.Wait(LayerId(0)).ok());
    EXPECT_EQ(gradient, std::vector<float>(100, 2.5f));
    EXPECT_EQ(session->Collect().wire.wire_bytes_out, 0u);
    EXPECT_TRUE(session->Leave().ok());
  });
}

// A session that goes away without Leave is a death, and everybody's next wait says whose.
TEST_P(SessionTest, WhoGoesWithoutLeavingIsBlamed) {
  const auto layers = InForwardOrder({Dense("a", 5000)});
  Run(Options(3, 1), [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    if (session->rank() == Rank(1)) {
      all_open_->wait();  // the server may still be joining, and a job that ends then opens no session
      return;
    }
    std::vector<float> gradient(5000, 1.0f);
    Status status = model.Push(LayerId(0), {{.step = Step(0), .gradient = ViewOf(std::span(gradient))}});
    if (status.ok()) status = model.Wait(LayerId(0));  // else it was known already
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), HasSubstr("worker 1 on host w1"));
    EXPECT_EQ(session->failure(), status);
    EXPECT_EQ(session->Barrier().culprit(), 1);
    EXPECT_EQ(model.BeginStep(Step(1)).status().culprit(), 1);
    EXPECT_EQ(session->AwaitEnd().culprit(), 1);
  });
  ASSERT_EQ(servers_ended_.size(), 1u);
  EXPECT_EQ(servers_ended_[0].culprit(), 1);
}

TEST_P(SessionTest, AnAbortGoesOutWithItsReason) {
  const auto layers = InForwardOrder({Dense("a", 5000)});
  Run(Options(3, 0), [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    if (session->rank() == Rank(2)) {
      session->Abort(Status(StatusCode::kAborted, "interrupted by the user", StatusScope::kJob));
      EXPECT_EQ(session->AwaitEnd().code(), StatusCode::kAborted);
      return;
    }
    std::vector<float> gradient(5000, 1.0f);
    Status status = model.Push(LayerId(0), {{.step = Step(0), .gradient = ViewOf(std::span(gradient))}});
    if (status.ok()) status = model.Wait(LayerId(0));  // else it was known already
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_EQ(status.culprit(), kNoCulprit);
    EXPECT_THAT(status.message(), HasSubstr("interrupted by the user"));
  });
}

// An engine whose products wait until the test lets them go on.
class GatedEngine final : public factors::ProductEngine {
 public:
  explicit GatedEngine(factors::ProductEngine& engine) : engine_(engine) {}
  Status Multiply(const Product& product) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return engine_.Multiply(product);
  }
  std::string description() const override { return "gated"; }
  void Close() { Set(false); }
  void Open() { Set(true); }
  void AwaitProducts(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  void Set(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    waiting_ = 0;
    changed_.notify_all();
  }
  factors::ProductEngine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int waiting_ = 0;
};

// A session may be destroyed while a product is under way: it ends the product first, whose memory
// and engine are the caller's.
TEST_P(SessionTest, AProductUnderWayIsOutlived) {
  const auto layers = InForwardOrder({FullyConnected("fc", 10, 20)});
  GatedEngine gated(*engine_);
  SessionOptions options = Options(2, 0);
  options.node.planning.forced = {{"fc", plan::Scheme::kFactorBroadcast}};
  options.engine = &gated;
  std::promise<Status> seen;
  Run(options, [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    ASSERT_TRUE(model.Commit(layers).ok());
    ASSERT_TRUE(session->Barrier().ok());
    if (session->rank() == Rank(0)) gated.Close();
    ASSERT_TRUE(session->Barrier().ok());
    std::vector<float> u(10, 1.0f);
    std::vector<float> v(20, 1.0f);
    std::vector<float> gradient(210);
    ASSERT_TRUE(model.Push(LayerId(0), {{.step = Step(0),
                                        .gradient = ViewOf(std::span(gradient)),
                                        .factors = Factors{reinterpret_cast<std::byte*>(u.data()),
                                                           reinterpret_cast<std::byte*>(v.data()), 1}}})
                    .ok());
    // Both ranks' products, which share the engine: a rank whose own has not begun when the other
    // goes never begins it.
    gated.AwaitProducts(2);
    if (session->rank() == Rank(1)) {
      // The gate opens only after rank 0 has seen this one's end, that is, after its node is gone.
      std::thread opener([&] {
        seen.get_future().wait();
        gated.Open();
      });
      session.reset();
      opener.join();
      return;
    }
    // This one's product is under way as well: its memory is free when the product has ended.
    EXPECT_EQ(session->Barrier().culprit(), 1);
    EXPECT_FALSE(model.Landed(LayerId(0)));
    seen.set_value({});
    EXPECT_EQ(session->AwaitEnd().culprit(), 1);
    EXPECT_TRUE(model.Landed(LayerId(0)));
    EXPECT_EQ(model.Wait(LayerId(0)).culprit(), 1);
  });
}

TEST_P(SessionTest, WhoComesTooManyIsRefusedWithAReason) {
  std::promise<transport::Address> listening;
  SessionOptions options = Options(1, 0);
  options.node.hosts_coordinator = true;
  options.node.listen = {door_->HostOf("w0"), 0};
  auto first = Session::Open(door_->Open("w0"), options,
                             [&](const transport::Address& a) { listening.set_value(a); });
  ASSERT_TRUE(first.ok());
  SessionOptions late = Options(1, 0);
  late.node.listen = {door_->HostOf("w1"), 0};
  late.node.coordinator = listening.get_future().get();
  const auto second = Session::Open(door_->Open("w1"), late);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("the coordinator refused: the job has started"));
  EXPECT_TRUE((*first)->Barrier().ok()) << "the job did not notice";
  EXPECT_TRUE((*first)->Leave().ok());
}

TEST_P(SessionTest, NobodyAtTheCoordinatorsAddressIsAnErrorWithTheAddress) {
  SessionOptions options = Options(2, 0);
  options.node.listen = {door_->HostOf("w1"), 0};
  options.node.coordinator = {door_->HostOf("w0"), 1};
  options.node.join_timeout = std::chrono::milliseconds(50);
  const auto session = Session::Open(door_->Open("w1"), options);
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.status().message(), HasSubstr(":1"));
}

TEST_P(SessionTest, ALongCollectiveGoesInPieces) {
  SessionOptions options = Options(3, 0);
  options.collective_bytes = 1000;
  Run(options, [&](std::unique_ptr<Session> session) {
    const float own = static_cast<float>(session->rank().value());
    std::vector<float> numbers(777);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = own + static_cast<float>(i);
    ASSERT_TRUE(session->Sum(ViewOf(std::span(numbers))).ok());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(numbers[i], 3 + 3 * static_cast<float>(i));
    }
    std::fill(numbers.begin(), numbers.end(), own);
    ASSERT_TRUE(session->Broadcast(ViewOf(std::span(numbers)), Rank(2)).ok());
    EXPECT_EQ(numbers, std::vector<float>(777, 2.0f));
    // More than anybody takes at once is refused here, not by a peer that closes the connection.
    const TensorView endless{reinterpret_cast<std::byte*>(numbers.data()), 1ull << 40, DType::kF32};
    EXPECT_EQ(session->StartSum(endless).get().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(session->Leave().ok());
  });
}

TEST_P(SessionTest, MisuseIsAnErrorNotACrash) {
  const auto layers = InForwardOrder({Dense("a", 100), FullyConnected("fc", 2, 3)});
  Run(Options(1, 0), [&](std::unique_ptr<Session> session) {
    Model& model = **session->NewModel();
    EXPECT_EQ(model.BeginStep(Step(0)).status().code(), StatusCode::kFailedPrecondition);
    ASSERT_TRUE(model.Commit(layers).ok());
    std::vector<float> gradient(9);
    std::vector<float> rows(3);
    // Factors where the plan says dense.
    const Status status =
        model.Push(LayerId(1), {{.step = Step(0),
                                .gradient = ViewOf(std::span(gradient).first(8)),
                                .factors = Factors{reinterpret_cast<std::byte*>(rows.data()),
                                                   reinterpret_cast<std::byte*>(rows.data()), 1}}});
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("but the plan's scheme for step 0 is kv"));
    EXPECT_TRUE(session->Leave().ok());
  });
}

std::string NameOfDoor(const ::testing::TestParamInfo<DoorCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Doors, SessionTest,
    ::testing::Values(
        DoorCase{"Inproc", [] { return std::unique_ptr<Door>(new InprocDoor); }},
        DoorCase{"Tls", [] { return std::unique_ptr<Door>(new TcpDoor(Security::Mode::kTls)); }},
        DoorCase{"Plain", [] { return std::unique_ptr<Door>(new TcpDoor(Security::Mode::kPlain)); }}),
    NameOfDoor);

}  // namespace
}  // namespace poseidon::integration
