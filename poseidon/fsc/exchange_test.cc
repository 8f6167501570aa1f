// SPDX-License-Identifier: Apache-2.0
// What frames may say, and how a step ends when the job does. That it sums rightly is shown by whole jobs:
// tests/integration/core_test.cc.
#include "poseidon/fsc/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "poseidon/factors/blas_engine.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::fsc {
namespace {

using messaging::testing::Nobody;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr wire::Key kKey{ModelId(0), LayerId(0)};

class FailingEngine final : public factors::ProductEngine {
 public:
  Status Multiply(const Product&) override { return Unimplemented("no products today"); }
  std::string description() const override { return "fails"; }
};

// Whatever is posted to it begins a millisecond later.
class LateExecutor final : public Executor {
 public:
  explicit LateExecutor(Executor& executor) : executor_(executor) {}
  void Post(Task task) override { executor_.PostAfter(std::chrono::milliseconds(1), std::move(task)); }
  TimerId PostAfter(Duration delay, Task task) override { return executor_.PostAfter(delay, std::move(task)); }
  bool Cancel(TimerId timer) override { return executor_.Cancel(timer); }
  TimePoint now() const override { return executor_.now(); }
  bool OnExecutor() const override { return executor_.OnExecutor(); }

 private:
  Executor& executor_;
};

// Member 0 of two workers that own a shard each, or a dedicated server between them, with a layer of 4 outputs and 3
// inputs with a bias. There is no connection: frames to the others fail to leave, a moment after they were sent; the
// tests say what came from them.
class ExchangeTest : public testing::Test {
 protected:
  void Make(bool server = false, factors::ProductEngine* engine = nullptr, std::uint16_t more_workers = 0) {
    sync::Topology topology{.self = MemberId(0),
                            .self_rank = server ? std::nullopt : std::optional(Rank(0)),
                            .worker_of_rank = {MemberId(server ? 1 : 0), MemberId(server ? 2 : 1)},
                            .owner_of_shard = {MemberId(0), MemberId(1)}};
    if (server) topology.owner_of_shard = {MemberId(0)};
    for (std::uint16_t i = 0; i < more_workers; ++i) {
      topology.worker_of_rank.push_back(MemberId(static_cast<std::uint16_t>(2 + i)));
      topology.owner_of_shard.push_back(topology.worker_of_rank.back());
    }
    exchange_.emplace(simulation_, *io_, sync::ExchangeEnvironment{.io = *io_,
                                                .compute = compute_,
                                                .mesh = mesh_,
                                                .among = topology,
                                                .flat = topology,
                                                .engine = engine != nullptr ? engine : engine_.get(),
                                                .fail = [this](const Status& why) { failures_.push_back(why.message()); }});
    const plan::LayerSpec layer{.name = "fc", .elements = 16, .factors = plan::FactorShape{4, 3, true}};
    (*exchange_)->Declare(ModelId(0), {&layer, 1});
    plan::Plan plan;
    plan.layers.resize(1);
    plan.layers[0].scheme = plan::Scheme::kFactorScatter;
    (*exchange_)->UsePlan(ModelId(0), plan);
  }
  // Rank 1's factors of the units of this shard, `units` of them: one row of twos, or none.
  Status Bring(MemberId from, Rank rank, std::uint64_t units, std::uint64_t step, bool rows = true) {
    const std::vector<float> row(8, 2);
    for (const bool v : {false, true}) {
      wire::FrameHeader frame;
      frame.type = wire::FrameType::kFactor;
      frame.scheme = plan::Scheme::kFactorScatter;
      frame.step = Step(step);
      frame.rank = rank;
      frame.total = rows ? (v ? 3 : units) * sizeof(float) : 0;
      frame.length = static_cast<std::uint32_t>(frame.total);
      frame.flags = v ? wire::kFlagFactorV : std::uint16_t{0};
    const sim::Visit visit(simulation_, *io_);
    messaging::FrameSink& sink = *(*exchange_)->SinkOf(wire::FrameType::kFactor);
      MutableBytes place;
      if (rows) {
        POSEIDON_ASSIGN_OR_RETURN(place, sink.PlaceFor(from, frame));
        std::memcpy(place.data(), row.data(), place.size());
      }
      POSEIDON_RETURN_IF_ERROR(sink.OnFrame(from, frame, place));
      if (!rows) return OkStatus();
    }
    return OkStatus();
  }
  // The own row of ones.
  void Start(std::uint64_t step = 0, bool absent = false) {
    sync::SyncRequest request;
    request.step = Step(step);
    request.gradient = ViewOf(std::span(gradient_));
    request.factors = {reinterpret_cast<const std::byte*>(ones_.data()),
                       reinterpret_cast<const std::byte*>(ones_.data()), 1};
    request.absent = absent;
    request.done = [&](const Status& status) { done_.push_back(status.code()); };
    (*exchange_)->Start(kKey, std::move(request));
  }
  wire::FrameHeader Mean(std::uint64_t offset, std::uint64_t count) {
    wire::FrameHeader frame;
    frame.type = wire::FrameType::kResult;
    frame.scheme = plan::Scheme::kFactorScatter;
    frame.offset = offset * sizeof(float);
    frame.length = static_cast<std::uint32_t>(count * sizeof(float));
    frame.total = 16 * sizeof(float);
    return frame;
  }
  Status Land(const wire::FrameHeader& frame, float value, MemberId from = MemberId(1)) {
    const sim::Visit visit(simulation_, *io_);
    messaging::FrameSink& sink = *(*exchange_)->SinkOf(wire::FrameType::kResult);
    POSEIDON_ASSIGN_OR_RETURN(const MutableBytes place, sink.PlaceFor(from, frame));
    std::fill_n(reinterpret_cast<float*>(place.data()), place.size() / sizeof(float), value);
    return sink.OnFrame(from, frame, place);
  }
  void Run() { simulation_.RunFor(std::chrono::seconds(1)); }

  sim::Simulation simulation_{sim::SimulationOptions{}};
  const sim::ProcessId process_ = simulation_.AddProcess("member");
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(process_);
  const std::unique_ptr<Executor> products_ = simulation_.MakeExecutor(process_);
  LateExecutor compute_{*products_};
  Nobody nobody_;
  messaging::Mesh mesh_{*io_, {}, nobody_};
  const std::unique_ptr<factors::ProductEngine> engine_ = factors::MakeBlasEngine(1);
  std::optional<sim::Resident<Exchange>> exchange_;
  std::vector<float> ones_ = std::vector<float>(4, 1.0f);
  std::vector<float> gradient_ = std::vector<float>(16, -1.0f);
  std::vector<StatusCode> done_;
  std::vector<std::string> failures_;
};

// Units 0 and 1 are this member's: (1 * 1 + 2 * 2) / 2; units 2 and 3 come from the other.
TEST_F(ExchangeTest, EachOwnersPartLandsInItsStretchesOfTheGradient) {
  Make();
  ASSERT_TRUE(Bring(MemberId(1), Rank(1), 2, 0).ok());
  Start();
  EXPECT_FALSE(Land(Mean(0, 6), 9).ok()) << "not the sender's units";
  EXPECT_FALSE(Land(Mean(7, 2), 9).ok()) << "not the bytes that come next";
  ASSERT_TRUE(Land(Mean(6, 4), 7).ok());
  ASSERT_TRUE(Land(Mean(10, 2), 7).ok());
  ASSERT_TRUE(Land(Mean(14, 2), 8).ok());
  EXPECT_FALSE(Land(Mean(14, 2), 8).ok()) << "twice";
  Run();
  EXPECT_THAT(gradient_, ElementsAre(2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 7, 7, 7, 7, 7, 7, 1.5, 1.5, 8, 8));
  ASSERT_EQ(done_.size(), 1u);
}

// Of three workers' 1, 1 and 2 units.
TEST_F(ExchangeTest, APartIsTakenFromItsOwnerOnly) {
  Make(false, nullptr, 1);
  Start();
  EXPECT_FALSE(Land(Mean(3, 3), 9, MemberId(2)).ok());
  EXPECT_TRUE(Land(Mean(3, 3), 9, MemberId(1)).ok());
}

TEST_F(ExchangeTest, FactorsThatAreNoWholeRowsOrNotTheSendersAreRefused) {
  Make();
  EXPECT_THAT(Bring(MemberId(1), Rank(1), 3, 0).message(), HasSubstr("expected whole rows of 8"));
  EXPECT_THAT(Bring(MemberId(1), Rank(0), 2, 0).message(), HasSubstr("which is not its own"));
  wire::FrameHeader nothing = Mean(6, 6);
  EXPECT_THAT((*exchange_)->SinkOf(wire::FrameType::kResult)->PlaceFor(MemberId(1), nothing).status().message(),
              HasSubstr("for which nothing was pushed"));
}

TEST_F(ExchangeTest, AnAbsentWorkerStillOwnsItsPart) {
  Make();
  Start(0, true);
  ASSERT_TRUE(Bring(MemberId(1), Rank(1), 2, 0).ok());
  Run();
  EXPECT_EQ(gradient_[0], 2.0f) << "the other's 2 * 2, divided by two workers";
  EXPECT_EQ(gradient_[12], 1.0f);
}

TEST_F(ExchangeTest, AProductUnderWayCompletesItsRequestOnceTheJobIsOver) {
  Make();
  ASSERT_TRUE(Bring(MemberId(1), Rank(1), 2, 0).ok());
  Start();
  (*exchange_)->Abandon(Unavailable("over"));
  simulation_.RunFor(std::chrono::microseconds(900));
  EXPECT_TRUE(done_.empty()) << "the product still writes";
  Run();
  EXPECT_THAT(done_, ElementsAre(StatusCode::kUnavailable));
  Start(1);
  Run();
  EXPECT_THAT(done_, ElementsAre(StatusCode::kUnavailable, StatusCode::kUnavailable));
}

TEST_F(ExchangeTest, AServerMultipliesTheEarliestStepAndKeepsOneBuffer) {
  Make(true);
  EXPECT_EQ((*exchange_)->SinkOf(wire::FrameType::kResult), nullptr);
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(Bring(MemberId(1), Rank(0), 4, step).ok());
    ASSERT_TRUE(Bring(MemberId(2), Rank(1), 4, step, step != 1).ok());
    Run();
  }
  EXPECT_GE((*exchange_)->allocated_bytes(), 16 * sizeof(float));
  EXPECT_TRUE(failures_.empty());
  std::vector<wire::Wait> waits;
  (*exchange_)->AddWaits(&waits);
  EXPECT_TRUE(waits.empty());
  ASSERT_TRUE(Bring(MemberId(2), Rank(1), 4, 3).ok());
  (*exchange_)->AddWaits(&waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits[0].on, ElementsAre(MemberId(1)));
}

TEST_F(ExchangeTest, AProductThatFailsEndsTheJob) {
  FailingEngine engine;
  Make(false, &engine);
  ASSERT_TRUE(Bring(MemberId(1), Rank(1), 2, 0).ok());
  Start();
  Run();
  EXPECT_THAT(failures_, ElementsAre("layer 'fc': no products today"));
}

}  // namespace
}  // namespace poseidon::fsc
