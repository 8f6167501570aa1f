// SPDX-License-Identifier: Apache-2.0
#include "poseidon/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "poseidon/sim/resident.h"
#include "poseidon/sync/test_contribution.h"

namespace poseidon::schedule {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// One layer's step, kept until the test says that it has landed.
struct HeldLayer {
  void Land(Executor& io, Status status = {}) {
    io.Post([done = std::move(held->done), status] { done(status); });
    held.reset();
  }
  std::optional<sync::SyncRequest> held;
  int started = 0;
  std::vector<std::uint64_t> arrived;
};

class HeldExchange final : public sync::Exchange {
 public:
  HeldExchange(plan::Scheme scheme, std::size_t count) : layers(count), scheme_(scheme) {}
  plan::Scheme scheme() const override { return scheme_; }
  void Declare(ModelId, std::span<const plan::LayerSpec>) override {}
  void UsePlan(ModelId, const plan::Plan&) override {}
  bool takes_parts() const override { return does_take_parts; }
  void Arrived(const wire::Key& key, std::uint64_t elements) override {
    layers.at(key.layer.value()).arrived.push_back(elements);
  }
  void Start(const wire::Key& key, sync::SyncRequest request) override {
    HeldLayer& layer = layers.at(key.layer.value());
    EXPECT_EQ(key.model, ModelId(4));
    EXPECT_FALSE(layer.held.has_value()) << "one step at a time";
    ++layer.started;
    layer.held = std::move(request);
  }
  messaging::FrameSink* SinkOf(wire::FrameType) override { return nullptr; }
  void AddWaits(std::vector<wire::Wait>*) const override {}
  void Abandon(const Status&) override {}
  std::uint64_t allocated_bytes() const override { return 0; }

  std::vector<HeldLayer> layers;
  bool does_take_parts = false;

 private:
  const plan::Scheme scheme_;
};

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest()
      : process_(simulation_.AddProcess("worker")),
        completions_(simulation_.MakeExecutor(process_)),
        io_(simulation_.MakeExecutor(process_)) {
    for (const plan::Scheme scheme : {plan::Scheme::kKeyValue, plan::Scheme::kFactorBroadcast}) {
      auto exchange = std::make_unique<HeldExchange>(scheme, 3);
      if (scheme == plan::Scheme::kKeyValue) dense_exchange_ = exchange.get();
      for (HeldLayer& layer : exchange->layers) {
        if (scheme == plan::Scheme::kKeyValue) dense_.push_back(&layer);
      }
      factors_ = &exchange->layers[1];
      exchanges_.Add(std::move(exchange));
    }
    scheduler_.emplace(simulation_, *io_, *io_, *completions_, exchanges_, ModelId(4), 3u);
  }

  struct Landed {
    int fired = 0;
    Status status;
  };
  void Push(std::uint32_t layer, std::uint64_t step, Landed& landed,
            std::optional<Factors> factors = std::nullopt, bool absent = false, bool in_parts = false) {
    io_->Post([this, layer, step, &landed, factors, absent, in_parts] {
      sync::SyncRequest request;
      request.step = Step(step);
      request.factors = factors;
      request.absent = absent;
      request.gradient = ViewOf(std::span(gradient_));
      request.in_parts = in_parts;
      auto inside = std::make_shared<bool>(true);
      request.done = [this, &landed, inside](Status status) {
        EXPECT_FALSE(*inside && io_->OnExecutor());
        EXPECT_TRUE(completions_->OnExecutor());
        ++landed.fired;
        landed.status = std::move(status);
      };
      (*scheduler_)->Push(LayerId(layer), std::move(request));
      *inside = false;
      EXPECT_EQ(landed.fired, 0) << "never inside the call";
    });
    simulation_.Run();
  }
  plan::Plan PlanFrom(std::uint64_t step, std::uint32_t number, plan::Scheme of_layer_1) {
    plan::Plan plan;
    plan.switch_step = Step(step);
    plan.layers.resize(3);
    plan.layers[1].scheme = of_layer_1;
    plan.layers[1].send_position = 20 + number;
    return plan;
  }

  sim::Simulation simulation_;
  const sim::ProcessId process_;
  const std::unique_ptr<Executor> completions_;
  const std::unique_ptr<Executor> io_;
  sync::Exchanges exchanges_;
  HeldExchange* dense_exchange_ = nullptr;
  std::vector<HeldLayer*> dense_;
  std::vector<float> gradient_ = std::vector<float>(10);
  HeldLayer* factors_ = nullptr;  // layer 1's
  std::optional<sim::Resident<Scheduler>> scheduler_;
};

TEST_F(SchedulerTest, TheExchangeGetsTheWholeContribution) {
  dense_exchange_->does_take_parts = true;
  const sync::Contribution full = sync::testing::FullContribution(gradient_);
  (*scheduler_)->Push(LayerId(0), {full});
  ASSERT_TRUE(dense_[0]->held.has_value());
  EXPECT_TRUE(*dense_[0]->held == full);
}

TEST_F(SchedulerTest, APushLeavesAtOnceAndCompletesOnceItHasLanded) {
  Landed landed;
  Push(0, 3, landed);
  EXPECT_EQ((*scheduler_)->state(LayerId(0)), LayerState::kInFlight);
  ASSERT_TRUE(dense_[0]->held.has_value());
  EXPECT_EQ(dense_[0]->held->priority,
            messaging::PriorityOf(messaging::Order::kNextForward, messaging::Leg::kContribution,
                                  Step(3), 0));
  EXPECT_EQ(dense_[0]->held->step, Step(3));
  EXPECT_EQ(landed.fired, 0);
  simulation_.RunFor(milliseconds(30));
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(landed.fired, 1);
  EXPECT_TRUE(landed.status.ok());
  EXPECT_EQ((*scheduler_)->state(LayerId(0)), LayerState::kIdle);
  EXPECT_EQ((*scheduler_)->timing(LayerId(0)).steps, 1u);
  EXPECT_DOUBLE_EQ((*scheduler_)->timing(LayerId(0)).seconds, 0.03);
}

TEST_F(SchedulerTest, LayersDoNotWaitForOneAnother) {
  Landed first;
  Landed second;
  Landed next;
  Push(2, 0, first);
  Push(0, 0, second);
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(second.fired, 1);
  Push(0, 1, next);
  EXPECT_EQ(dense_[0]->held->step, Step(1));
  EXPECT_EQ(first.fired, 0);
  dense_[2]->Land(*io_);
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(first.fired + next.fired, 2);
}

TEST_F(SchedulerTest, ASecondPushInFlightIsRefused) {
  Landed first;
  Landed second;
  Push(0, 3, first);
  Push(0, 4, second);
  EXPECT_EQ(second.fired, 1);
  EXPECT_EQ(second.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status.message(), HasSubstr("layer 0 was pushed while it is in flight"));
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(first.fired, 1);
  EXPECT_EQ(dense_[0]->started, 1);
}

TEST_F(SchedulerTest, StepsOnlyGoForward) {
  Landed landed;
  Push(0, 3, landed);
  dense_[0]->Land(*io_);
  simulation_.Run();
  for (const std::uint64_t step : {0u, 3u}) {
    Landed refused;
    Push(0, step, refused);
    EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.status.message(), HasSubstr("after step 3"));
  }
  Landed later;
  Push(0, 7, later);
  EXPECT_EQ(dense_[0]->started, 2);
}

TEST_F(SchedulerTest, ThePlanDecidesFromItsSwitchStepOn) {
  (*scheduler_)->UsePlan(PlanFrom(0, 0, plan::Scheme::kKeyValue));
  (*scheduler_)->UsePlan(PlanFrom(10, 1, plan::Scheme::kFactorBroadcast));
  Landed before;
  Push(1, 9, before);
  ASSERT_TRUE(dense_[1]->held.has_value());
  EXPECT_EQ(dense_[1]->held->priority.position, 20u);
  dense_[1]->Land(*io_);
  simulation_.Run();
  Landed dense;
  Push(1, 10, dense);
  EXPECT_EQ(dense.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(dense.status.message(), HasSubstr("pushed dense, but the plan's scheme"));
  Landed after;
  Push(1, 10, after, Factors{});
  ASSERT_TRUE(factors_->held.has_value());
  EXPECT_EQ(factors_->held->priority.position, 21u);
  factors_->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(after.fired, 1);
}

TEST_F(SchedulerTest, FactorsNeedAFactorScheme) {
  Landed landed;
  Push(1, 0, landed, Factors{});
  EXPECT_EQ(landed.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(landed.status.message(), HasSubstr("pushed as factors"));
}

TEST_F(SchedulerTest, TheAbsentMayComeEitherWay) {
  (*scheduler_)->UsePlan(PlanFrom(0, 0, plan::Scheme::kFactorBroadcast));
  Landed landed;
  Push(1, 0, landed, std::nullopt, true);
  ASSERT_TRUE(factors_->held.has_value());
  EXPECT_TRUE(factors_->held->absent);
  factors_->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(landed.fired, 1);
}

// A plan made again for a step that has not come replaces the one before.
TEST_F(SchedulerTest, ALaterPlanForTheSameStepReplaces) {
  (*scheduler_)->UsePlan(PlanFrom(5, 1, plan::Scheme::kFactorBroadcast));
  (*scheduler_)->UsePlan(PlanFrom(5, 2, plan::Scheme::kKeyValue));
  Landed landed;
  Push(1, 5, landed);
  ASSERT_TRUE(dense_[1]->held.has_value());
  EXPECT_EQ(dense_[1]->held->priority.position, 22u);
  dense_[1]->Land(*io_);
  simulation_.Run();
}

class SchedulerLastTest : public SchedulerTest {
 protected:
  // Layers 0 and 1 end the backward pass.
  SchedulerLastTest() {
    (*scheduler_)->WatchLast({true, true, false}, [this](bool ends) { told_.push_back(ends); });
  }
  void Land(std::uint32_t layer) {
    dense_[layer]->Land(*io_);
    simulation_.Run();
  }
  std::vector<bool> told_;
};

TEST_F(SchedulerLastTest, TheEndOfBackwardIsToldFromItsFirstPushToItsLastMean) {
  for (std::uint64_t step = 0; step < 2; ++step) {
    told_.clear();
    Landed landed[3];
    Push(2, step, landed[2]);
    EXPECT_THAT(told_, testing::IsEmpty());
    Push(1, step, landed[1]);
    EXPECT_THAT(told_, testing::ElementsAre(true));
    Land(1);  // before layer 0 is even pushed
    Push(0, step, landed[0]);
    EXPECT_THAT(told_, testing::ElementsAre(true));
    Land(0);
    EXPECT_THAT(told_, testing::ElementsAre(true, false));
    Land(2);
    EXPECT_THAT(told_, testing::ElementsAre(true, false));
  }
}

TEST_F(SchedulerLastTest, ALayerThatStaysAwayDoesNotKeepItGoing) {
  Landed landed[4];
  Push(2, 0, landed[0]);
  Land(2);
  Push(1, 0, landed[1]);
  Land(1);
  EXPECT_THAT(told_, testing::ElementsAre(true));
  Push(2, 1, landed[2]);  // the next step, without layer 0
  EXPECT_THAT(told_, testing::ElementsAre(true, false));
  Push(1, 1, landed[3]);
  EXPECT_THAT(told_, testing::ElementsAre(true, false, true));
  Land(1);
  Land(2);
}

TEST_F(SchedulerLastTest, AFailedLayerIsNotWaitedFor) {
  Landed landed[2];
  Push(1, 0, landed[0]);
  Push(0, 0, landed[1]);
  dense_[1]->Land(*io_, Unavailable("gone"));
  simulation_.Run();
  EXPECT_THAT(told_, testing::ElementsAre(true));
  Land(0);
  EXPECT_THAT(told_, testing::ElementsAre(true, false));
}

TEST_F(SchedulerLastTest, WhatLandedBeforeItWasWatchedCounts) {
  Landed landed[2];
  (*scheduler_)->WatchLast({false, false, false}, [](bool) {});
  Push(1, 0, landed[0]);
  Land(1);
  (*scheduler_)->WatchLast({true, true, false}, [this](bool ends) { told_.push_back(ends); });
  Push(0, 0, landed[1]);
  EXPECT_THAT(told_, testing::ElementsAre(true));
  Land(0);
  EXPECT_THAT(told_, testing::ElementsAre(true, false));
}

TEST_F(SchedulerLastTest, AllLayersMayBeLast) {
  (*scheduler_)->WatchLast({true, true, true}, [this](bool ends) { told_.push_back(ends); });
  Landed landed[6];
  for (std::uint64_t step = 0; step < 2; ++step) {
    told_.clear();
    for (std::uint32_t layer : {2u, 1u, 0u}) Push(layer, step, landed[3 * step + layer]);
    for (std::uint32_t layer : {2u, 0u}) Land(layer);
    EXPECT_THAT(told_, testing::ElementsAre(true));
    Land(1);
    EXPECT_THAT(told_, testing::ElementsAre(true, false));
  }
}

TEST_F(SchedulerTest, AFailedLayerStaysFailed) {
  Landed landed;
  Push(0, 0, landed);
  dense_[0]->Land(*io_, Status(StatusCode::kUnavailable, "gone", StatusScope::kJob, 2));
  simulation_.Run();
  EXPECT_EQ(landed.status.culprit(), 2);
  EXPECT_EQ((*scheduler_)->state(LayerId(0)), LayerState::kFailed);
  Landed again;
  Push(0, 1, again);
  EXPECT_THAT(again.status.message(), HasSubstr("while it is failed"));
}

TEST_F(SchedulerTest, BusyIsTheTimeWithAnythingInFlight) {
  Landed a;
  Landed b;
  simulation_.RunFor(milliseconds(5));
  Push(0, 0, a);
  simulation_.RunFor(milliseconds(10));
  Push(1, 0, b);
  simulation_.RunFor(milliseconds(10));
  dense_[0]->Land(*io_);
  simulation_.RunFor(milliseconds(10));
  EXPECT_EQ((*scheduler_)->busy(), milliseconds(30));
  dense_[1]->Land(*io_);
  simulation_.RunFor(milliseconds(50));
  EXPECT_EQ((*scheduler_)->busy(), milliseconds(30));
  (*scheduler_)->ResetTimings();
  EXPECT_EQ((*scheduler_)->busy(), milliseconds(0));
  EXPECT_EQ((*scheduler_)->timing(LayerId(0)).steps, 0u);
}

TEST_F(SchedulerTest, PartsGoToAnExchangeThatTakesThem) {
  dense_exchange_->does_take_parts = true;
  Landed landed;
  Push(0, 0, landed, std::nullopt, false, true);
  ASSERT_TRUE(dense_[0]->held.has_value());
  EXPECT_TRUE(dense_[0]->held->in_parts);
  (*scheduler_)->Arrived(LayerId(1), 3);  // nothing is under way
  for (const std::uint64_t elements : {3u, 7u, 10u}) (*scheduler_)->Arrived(LayerId(0), elements);
  EXPECT_EQ(dense_[0]->arrived, (std::vector<std::uint64_t>{3, 7, 10}));
  EXPECT_TRUE(dense_[1]->arrived.empty());
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(landed.fired, 1);
  (*scheduler_)->Arrived(LayerId(0), 10);
  Landed whole;
  Push(0, 1, whole);
  EXPECT_FALSE(dense_[0]->held->in_parts);
  (*scheduler_)->Arrived(LayerId(0), 10);
  EXPECT_EQ(dense_[0]->arrived.size(), 3u) << "a push that is not in parts has none";
}

TEST_F(SchedulerTest, PartsAreHeldUntilTheyAreWholeWhereTheExchangeTakesNone) {
  Landed landed;
  Push(0, 0, landed, std::nullopt, false, true);
  EXPECT_EQ((*scheduler_)->state(LayerId(0)), LayerState::kInFlight);
  simulation_.RunFor(milliseconds(10));
  (*scheduler_)->Arrived(LayerId(0), 9);
  EXPECT_EQ(dense_[0]->started, 0);
  (*scheduler_)->Arrived(LayerId(0), 10);
  ASSERT_TRUE(dense_[0]->held.has_value());
  EXPECT_FALSE(dense_[0]->held->in_parts);
  EXPECT_TRUE(dense_[0]->arrived.empty());
  dense_[0]->Land(*io_);
  simulation_.Run();
  EXPECT_EQ(landed.fired, 1);
  EXPECT_TRUE(landed.status.ok());
  EXPECT_DOUBLE_EQ((*scheduler_)->timing(LayerId(0)).seconds, 0.01);
}

TEST_F(SchedulerTest, WhatIsHeldFailsOnceWhenTheJobEnds) {
  Landed held;
  Landed started;
  Push(0, 0, held, std::nullopt, false, true);
  Push(1, 0, started);
  (*scheduler_)->Abandon(Status(StatusCode::kAborted, "over"));
  EXPECT_EQ(held.fired, 0) << "never inside the call";
  simulation_.Run();
  EXPECT_EQ(held.fired, 1);
  EXPECT_EQ(held.status.code(), StatusCode::kAborted);
  (*scheduler_)->Arrived(LayerId(0), 10);
  (*scheduler_)->Abandon(Status(StatusCode::kAborted, "over"));
  simulation_.Run();
  EXPECT_EQ(held.fired, 1);
  EXPECT_EQ(dense_[0]->started, 0);
  EXPECT_EQ(started.fired, 0) << "its exchange completes it";
  dense_[1]->Land(*io_);
  simulation_.Run();
}

// A waiter is woken without a thread between; a failure keeps its order behind what tells the job's.
TEST_F(SchedulerTest, WhatOnlyWakesLandsOnTheIoExecutor) {
  for (const Status& end : {OkStatus(), Unavailable("a peer is gone")}) {
    std::vector<Status> landed;
    io_->Post([&] {
      sync::SyncRequest request;
      request.step = Step(end.ok() ? 1 : 2);
      request.gradient = ViewOf(std::span(gradient_));
      request.only_wakes = true;
      request.done = [&](const Status& status) {
        EXPECT_EQ(io_->OnExecutor(), status.ok());
        EXPECT_EQ(completions_->OnExecutor(), !status.ok());
        landed.push_back(status);
      };
      (*scheduler_)->Push(LayerId(0), std::move(request));
    });
    simulation_.Run();
    EXPECT_TRUE(landed.empty());
    dense_[0]->Land(*io_, end);
    simulation_.Run();
    EXPECT_EQ(landed, std::vector<Status>{end});
  }
}

// A push in flight completes although the scheduler is gone by then.
TEST_F(SchedulerTest, ACompletionOutlivesTheScheduler) {
  Landed landed;
  Push(0, 0, landed);
  Completion done = std::move(dense_[0]->held->done);
  scheduler_.reset();
  io_->Post([&] { done(Status(StatusCode::kAborted, "over")); });
  simulation_.Run();
  EXPECT_EQ(landed.fired, 1);
  EXPECT_EQ(landed.status.code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace poseidon::schedule
