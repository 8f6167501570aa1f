// SPDX-License-Identifier: Apache-2.0
// What leader and follower refuse, and how they end. That they combine rightly is shown by whole jobs:
// tests/integration/levels_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "poseidon/local/follower.h"
#include "poseidon/local/host_exchange.h"
#include "poseidon/local/host_level.h"
#include "poseidon/local/leader.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"
#include "poseidon/sync/test_contribution.h"

namespace poseidon::local {
namespace {

// Layer 0 dense, layer 1 with factors; no connection, so that messages go nowhere. The first worker leads all of both.
class LocalTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRowBytes = (10 + 5) * sizeof(float);
  static std::vector<plan::LayerSpec> Layers() {
    return {{.name = "dense", .elements = 100},
            {.name = "fc", .elements = 10 * 5, .factors = plan::FactorShape{10, 5, false}}};
  }
  static wire::FrameHeader Word(std::uint32_t layer, std::uint64_t step, std::uint64_t rows = 0) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kLocal;
    header.layer = LayerId(layer);
    header.step = Step(step);
    header.total = rows * kRowBytes;
    header.scheme = layer == 1 ? plan::Scheme::kFactorBroadcast : plan::Scheme::kKeyValue;
    return header;
  }
  static std::shared_ptr<const Parts> TheFirstLeads(std::uint64_t bytes) {
    return std::make_shared<const Parts>(Parts{{{0, bytes}}, {}, {}});
  }
  Share ShareOf(std::uint32_t layer, std::uint64_t step) {
    Share share;
    share.layer = LayerId(layer);
    share.step = Step(step);
    share.scheme = layer == 1 ? plan::Scheme::kFactorBroadcast : plan::Scheme::kKeyValue;
    share.gradient = ViewOf(std::span(gradient_).first(layer == 1 ? 50 : 100));
    share.parts = TheFirstLeads(share.gradient.bytes());
    share.factors = Factors{reinterpret_cast<const std::byte*>(factor_.data()),
                     reinterpret_cast<const std::byte*>(factor_.data()), 2};
    return share;
  }

  static void LeadAll(sim::Resident<Leader>& leader, std::size_t layers) {
    for (const plan::Scheme scheme : {plan::Scheme::kKeyValue, plan::Scheme::kFactorBroadcast}) {
      leader->Lead(scheme, std::vector<bool>(layers, true));
    }
  }

  sim::Simulation simulation_{sim::SimulationOptions{}};
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(simulation_.AddProcess("worker"));
  messaging::testing::Nobody nobody_;
  messaging::Mesh mesh_{*io_, {}, nobody_};
  std::vector<float> gradient_ = std::vector<float>(100, 1);
  std::vector<float> factor_ = std::vector<float>(20, 1);
};

class LeaderTest : public LocalTest {
 protected:
  LeaderTest() {
    EXPECT_TRUE(memory_->Declare(ModelId(0), Layers()).ok());
    leader_->Declare(ModelId(0), Layers());
    LeadAll(leader_, 2);
  }
  Status Say(std::uint16_t from, const wire::FrameHeader& header) {
    return leader_->OnFrame(MemberId(from), header, {});
  }
  const std::vector<MemberId> members_ = {MemberId(3), MemberId(4), MemberId(7)};
  sim::Resident<HostMemory> memory_{simulation_, *io_, mesh_, members_, std::size_t{0}};
  sim::Resident<Leader> leader_{simulation_, *io_, *io_, mesh_, members_, std::size_t{0}, memory_.object(), nullptr};
};

TEST_F(LeaderTest, WordsThatFitNothingAreRefused) {
  EXPECT_FALSE(leader_->PlaceFor(MemberId(4), Word(0, 1)).ok());
  EXPECT_FALSE(Say(5, Word(0, 1)).ok()) << "of another host";
  EXPECT_FALSE(Say(3, Word(0, 1)).ok()) << "its own";
  EXPECT_FALSE(Say(4, Word(2, 1)).ok()) << "no such layer";
  wire::FrameHeader word = Word(0, 1);
  word.model = ModelId(1);
  EXPECT_FALSE(Say(4, word).ok());
  word = Word(0, 1);
  word.scheme = plan::Scheme::kFactorBroadcast;
  EXPECT_FALSE(Say(4, word).ok()) << "factors of a dense layer";
  word = Word(0, 1);
  word.total = 4;
  EXPECT_FALSE(Say(4, word).ok()) << "bytes of factors of a dense layer";
  word = Word(1, 1);
  word.total = 2 * kRowBytes - 4;
  EXPECT_FALSE(Say(4, word).ok()) << "a row and a half";
  word = Word(1, 1, 1);
  word.flags = wire::kFlagAbsent;
  EXPECT_FALSE(Say(4, word).ok()) << "nothing, of a row's size";
  EXPECT_TRUE(Say(4, Word(1, 1, kLeastRows)).ok());
  EXPECT_FALSE(Say(7, Word(1, 1, kLeastRows + 100)).ok()) << "more rows than the slot holds";
  EXPECT_FALSE(Say(4, Word(1, 1, 1)).ok()) << "twice";
}

TEST_F(LeaderTest, AWordForAnotherStepIsRefusedOrFailsTheStep) {
  std::optional<Status> answer;
  const auto take = [&](Result<sync::Contribution> combined) { answer = combined.status(); };
  leader_->Combine(ShareOf(0, 5), take);
  EXPECT_FALSE(Say(4, Word(0, 6)).ok());
  EXPECT_FALSE(answer.has_value());

  EXPECT_TRUE(Say(4, Word(1, 6)).ok());
  leader_->Combine(ShareOf(1, 5), take);
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), StatusCode::kDataLoss);
}

TEST_F(LeaderTest, CombinesWhenTheLastWordIsThereAndSpreads) {
  std::optional<sync::Contribution> combined;
  leader_->Combine(ShareOf(0, 5), [&](Result<sync::Contribution> result) { combined = *result; });
  EXPECT_TRUE(Say(7, Word(0, 5)).ok());
  EXPECT_FALSE(combined.has_value());
  wire::FrameHeader absent = Word(0, 5);
  absent.flags = wire::kFlagAbsent;
  EXPECT_TRUE(Say(4, absent).ok());
  ASSERT_TRUE(combined.has_value());
  // The own ones, and the zeros in the slot of member 7.
  EXPECT_EQ(reinterpret_cast<const float*>(combined->gradient.memory)[99], 1.0f);
  reinterpret_cast<float*>(combined->gradient.memory)[99] = 42;
  bool done = false;
  leader_->Spread(LayerId(0), OkStatus(), [&](Status status) { done = status.ok(); });
  simulation_.RunFor(std::chrono::milliseconds(1));
  EXPECT_TRUE(done);
  EXPECT_EQ(gradient_[99], 42.0f);
  EXPECT_TRUE(Say(4, Word(0, 6)).ok()) << "the next step";
}

// The own rows are two of ones, member 4's one of fives; member 7's row may hold anything.
TEST_F(LeaderTest, FactorsAreMultipliedByTheirWorkersWeights) {
  using Row = std::pair<float, float>;  // the first number of u and that of v
  struct Together {
    std::uint32_t weight = 0;
    std::vector<Row> rows;
  };
  std::uint64_t step = 0;
  const auto combine = [&](std::uint32_t own, std::uint32_t of_4, std::uint32_t of_7, std::uint64_t rows_of_7) {
    Share share = ShareOf(1, ++step);
    share.weight = own;
    Together together;
    leader_->Combine(share, [&](Result<sync::Contribution> combined) {
      together.weight = combined->weight;
      EXPECT_EQ(combined->gradient.memory, memory_->MeanOf(LayerId(1)));
      for (std::uint32_t r = 0; r < combined->factors->rows; ++r) {
        together.rows.emplace_back(reinterpret_cast<const float*>(combined->factors->u)[10 * r],
                                   reinterpret_cast<const float*>(combined->factors->v)[5 * r]);
      }
    });
    for (const auto& [member, weight, rows] : {std::tuple(4, of_4, std::uint64_t{1}), std::tuple(7, of_7, rows_of_7)}) {
      wire::FrameHeader word = Word(1, step, rows);
      word.weight = weight;
      EXPECT_TRUE(Say(static_cast<std::uint16_t>(member), word).ok());
    }
    leader_->Spread(LayerId(1), OkStatus(), [](const Status&) {});
    return together;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [place, value] : {std::pair(1u, 5.0f), std::pair(2u, nan)}) {
    std::fill_n(reinterpret_cast<float*>(memory_->SlotOf(LayerId(1), place)), 15, value);
  }

  Together together = combine(3, 2, 0, 1);
  EXPECT_EQ(together.weight, 5u);
  EXPECT_EQ(together.rows, (std::vector<Row>{{3, 1}, {3, 1}, {10, 5}})) << "what weighs nothing is left out";
  together = combine(0, 2, 4, 0);
  EXPECT_EQ(together.weight, 6u) << "samples without rows";
  EXPECT_EQ(together.rows, (std::vector<Row>{{10, 5}}));
  together = combine(0, 0, 0, 0);
  EXPECT_EQ(together.weight, 0u);
  EXPECT_EQ(together.rows, (std::vector<Row>{{1, 1}, {1, 1}, {5, 5}})) << "unweighted";
}

// Three rows of the mean: u counts from 0, v from 100.
factors::GatheredRows GatheredOf(std::uint64_t rows) {
  factors::GatheredRows gathered;
  const auto places = gathered.PlacesFor(plan::FactorShape{10, 5, false}, DType::kF32, rows);
  std::iota(reinterpret_cast<float*>(places->u), reinterpret_cast<float*>(places->u) + 10 * rows, 0.0f);
  std::iota(reinterpret_cast<float*>(places->v), reinterpret_cast<float*>(places->v) + 5 * rows, 100.0f);
  return gathered;
}

TEST_F(LeaderTest, SpreadsTheFactorsOfAllHostsWhereDevicesMultiply) {
  factors::GatheredRows few = GatheredOf(3);
  factors::GatheredRows none = GatheredOf(0);
  factors::GatheredRows many = GatheredOf(kLeastRows + 100);
  std::uint64_t step = 0;
  const auto spread = [&](factors::GatheredRows* gathered) {
    Share share = ShareOf(1, ++step);
    share.gathered = gathered;
    share.gradient = {};
    std::optional<Status> done;
    leader_->Combine(share, [&](Result<sync::Contribution> combined) {
      EXPECT_EQ(combined->gradient.memory, nullptr);
      EXPECT_EQ(combined->factors->rows, 4u);
      EXPECT_EQ(combined->weight, 0u);
      leader_->Spread(LayerId(1), OkStatus(), [&](const Status& status) { done = status; });
    });
    for (const int member : {4, 7}) EXPECT_TRUE(Say(static_cast<std::uint16_t>(member), Word(1, step, 1)).ok());
    EXPECT_FALSE(done.has_value()) << "not within the call";
    simulation_.RunFor(std::chrono::milliseconds(1));
    return done.value();
  };
  const std::uint64_t before = leader_->moved_bytes(LayerId(1));
  EXPECT_TRUE(spread(&few).ok());
  EXPECT_EQ(leader_->moved_bytes(LayerId(1)) - before, (1 + 1 + 3) * kRowBytes);
  const auto* const numbers = reinterpret_cast<const float*>(memory_->MeanOf(LayerId(1)));
  EXPECT_EQ(numbers[29], 29.0f) << "the last of u";
  EXPECT_EQ(numbers[30], 100.0f) << "the first of v";
  EXPECT_EQ(numbers[44], 114.0f);
  EXPECT_TRUE(spread(&none).ok());
  const Status refused = spread(&many);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "layer 'fc' brings 4196 rows, at most 4096 fit the shared memory of its host: train with --levels=flat");
}

TEST_F(LeaderTest, WeightsThatNoNumberHoldsAreRefused) {
  std::optional<Status> answer;
  Share share = ShareOf(1, 1);
  share.weight = 0xffff'ffff;
  leader_->Combine(share, [&](const Result<sync::Contribution>& combined) { answer = combined.status(); });
  wire::FrameHeader word = Word(1, 1, 1);
  word.weight = 1;
  EXPECT_TRUE(Say(4, word).ok());
  EXPECT_TRUE(Say(7, Word(1, 1, 1)).ok());
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), StatusCode::kInvalidArgument);
}

// Alone it lends its rows as they are, unless they are to be multiplied: those belong to the front end.
TEST_F(LeaderTest, AloneOnItsHostItMultipliesACopy) {
  const std::vector<MemberId> itself = {MemberId(3)};
  sim::Resident<HostMemory> memory(simulation_, *io_, mesh_, itself, std::size_t{0});
  sim::Resident<Leader> alone(simulation_, *io_, *io_, mesh_, itself, std::size_t{0}, memory.object(), nullptr);
  ASSERT_TRUE(memory->Declare(ModelId(0), Layers()).ok());
  alone->Declare(ModelId(0), Layers());
  for (const std::uint32_t weight : {0u, 7u}) {
    Share share = ShareOf(1, weight);
    share.weight = weight;
    std::optional<sync::Contribution> combined;
    alone->Combine(share, [&](Result<sync::Contribution> result) { combined = *result; });
    ASSERT_TRUE(combined.has_value());
    EXPECT_EQ(combined->weight, weight);
    EXPECT_EQ(combined->factors->rows, 2u);
    EXPECT_EQ(combined->factors->u == share.factors->u, weight == 0);
    EXPECT_EQ(reinterpret_cast<const float*>(combined->factors->u)[19], weight == 0 ? 1.0f : 7.0f);
    alone->Spread(LayerId(1), OkStatus(), [](const Status&) {});
  }
  EXPECT_EQ(factor_, std::vector<float>(20, 1));
}

TEST_F(LocalTest, TheExchangeAmongHostsGetsTheWholeContribution) {
  HostLevel level(*io_, mesh_, {.members = {MemberId(3)}, .self_rank = Rank(0)}, nullptr);
  auto inner = std::make_unique<sync::testing::KeptExchange>();
  sync::testing::KeptExchange& kept = *inner;
  HostExchange exchange(level, std::move(inner), {}, [](const Status& why) { FAIL() << why.message(); });
  sync::Contribution own = sync::testing::FullContribution(gradient_);
  own.absent = false;
  own.factors = std::nullopt;  // of a dense layer
  constexpr messaging::Priority kFirst{messaging::Priority::kData, 3, 1};
  io_->Post([&] {
    EXPECT_TRUE(level.Declare(ModelId(0), Layers()).ok());
    exchange.Declare(ModelId(0), Layers());
    exchange.Start({ModelId(0), LayerId(0)}, {own, kFirst});
  });
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(kept.kept.has_value());
  EXPECT_TRUE(*kept.kept == own);
  EXPECT_EQ(kept.kept->priority, kFirst);
}

// Both leaders of a host refuse the sum of the weights, so neither has a mean for the other.
TEST_F(LocalTest, APartThatFailsEndsTheJob) {
  HostLevel level(*io_, mesh_, {.members = {MemberId(3), MemberId(4)}, .leaders = 2, .self_rank = Rank(0)}, nullptr);
  std::vector<StatusCode> failures;
  auto inner = std::make_unique<sync::testing::KeptExchange>();
  inner->divided_over = 1;
  HostExchange exchange(level, std::move(inner), {},
                        [&](const Status& why) { failures.push_back(why.code()); });
  const std::vector<plan::LayerSpec> layers = {{.name = "large", .elements = 1 << 20}};
  std::vector<float> large(1 << 20, 1);
  std::vector<StatusCode> done;
  io_->Post([&] {
    ASSERT_TRUE(level.Declare(ModelId(0), layers).ok());
    exchange.Declare(ModelId(0), layers);
    sync::SyncRequest request;
    request.step = Step(5);
    request.gradient = ViewOf(std::span(large));
    request.weight = 0xffff'ffff;
    request.done = [&](const Status& status) { done.push_back(status.code()); };
    exchange.Start({ModelId(0), LayerId(0)}, std::move(request));
  });
  simulation_.RunFor(std::chrono::milliseconds(1));
  io_->Post([&] {
    wire::FrameHeader word = Word(0, 5);
    word.weight = 1;
    EXPECT_TRUE(level.OnFrame(MemberId(4), word, {}).ok());
  });
  simulation_.RunFor(std::chrono::milliseconds(1));
  EXPECT_EQ(failures, std::vector{StatusCode::kInvalidArgument});
  EXPECT_TRUE(done.empty()) << "the gradient is still lent";
  io_->Post([&] { level.Abandon(Unavailable("over")); });
  simulation_.RunFor(std::chrono::milliseconds(1));
  EXPECT_EQ(done, std::vector{StatusCode::kInvalidArgument}) << "what failed first";
}

TEST_F(LeaderTest, AbandonFailsWhatWaitsAndWhatFollows) {
  std::vector<StatusCode> answers;
  const auto take = [&](Result<sync::Contribution> c) { answers.push_back(c.status().code()); };
  leader_->Combine(ShareOf(0, 5), take);
  leader_->Abandon(Unavailable("over"));
  EXPECT_TRUE(answers.empty());
  leader_->Combine(ShareOf(1, 5), take);
  simulation_.RunFor(std::chrono::milliseconds(1));
  EXPECT_EQ(answers, std::vector(2, StatusCode::kUnavailable));
  EXPECT_FALSE(Say(4, Word(0, 5)).ok());
}

// More than one stretch of copying is posted behind another; what ends the job comes between them.
TEST_F(LeaderTest, AbandonedBetweenTwoStretchesItGoesNoFurther) {
  const std::uint64_t elements = 3 * 256 * 1024 / sizeof(float);
  const std::vector<plan::LayerSpec> layers = {{.name = "large", .elements = elements}};
  const std::vector<MemberId> two = {MemberId(3), MemberId(4)};
  sim::Resident<HostMemory> memory(simulation_, *io_, mesh_, two, std::size_t{0});
  sim::Resident<Leader> leader(simulation_, *io_, *io_, mesh_, two, std::size_t{0}, memory.object(), nullptr);
  ASSERT_TRUE(memory->Declare(ModelId(0), layers).ok());
  leader->Declare(ModelId(0), layers);
  LeadAll(leader, 1);
  std::vector<float> large(elements, 1);
  Share share = ShareOf(0, 5);
  share.gradient = ViewOf(std::span(large));
  share.parts = TheFirstLeads(share.gradient.bytes());
  int combined = 0;
  leader->Combine(share, [&](Result<sync::Contribution>) { ++combined; });
  ASSERT_TRUE(leader->OnFrame(MemberId(4), Word(0, 5), {}).ok());
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_EQ(combined, 1);
  std::vector<StatusCode> done;
  leader->Spread(LayerId(0), OkStatus(), [&](const Status& status) { done.push_back(status.code()); });
  ASSERT_TRUE(simulation_.Step()) << "the second stretch, which posts the last";
  leader->Abandon(Unavailable("over"));
  simulation_.RunFor(std::chrono::milliseconds(1));
  EXPECT_EQ(done, std::vector{StatusCode::kUnavailable});
}

class FollowerTest : public LocalTest {
 protected:
  const std::vector<MemberId> members_ = {MemberId(0), MemberId(1)};
  sim::Resident<HostMemory> memory_{simulation_, *io_, mesh_, members_, std::size_t{1}};
  sim::Resident<Follower> follower_{simulation_, *io_, *io_, mesh_, members_, std::size_t{1}, Rank(1), memory_.object()};
};

TEST_F(FollowerTest, AttachesToItsLeadersSegmentOfTheRightSizeOnly) {
  const auto layout = Layout::Of(Layers(), 2);
  const auto segment = Segment::Make(layout->bytes());
  follower_->Declare(ModelId(0), Layers());
  ASSERT_TRUE(memory_->Declare(ModelId(0), Layers()).ok());
  EXPECT_FALSE(memory_->Attach(MemberId(2), (*segment)->offer()).ok());
  const auto small = Segment::Make(layout->bytes() - 4096);
  EXPECT_FALSE(memory_->Attach(MemberId(0), (*small)->offer()).ok());
  EXPECT_FALSE(memory_->attached());
}

TEST_F(FollowerTest, AMeanThatNobodyWaitsForIsRefused) {
  const auto segment = Segment::Make(Layout::Of(Layers(), 2)->bytes());
  ASSERT_TRUE(memory_->Attach(MemberId(0), (*segment)->offer()).ok());
  follower_->Declare(ModelId(0), Layers());
  ASSERT_TRUE(memory_->Declare(ModelId(0), Layers()).ok());
  ASSERT_TRUE(memory_->attached());
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(0, 5), {}).ok());
  std::optional<Status> done;
  std::vector<wire::Wait> waits;
  follower_->AddWaits(&waits);
  EXPECT_TRUE(waits.empty());
  follower_->Contribute(ShareOf(0, 5), [&](Status status) { done = status; });
  follower_->AddWaits(&waits);
  EXPECT_EQ(waits, (std::vector<wire::Wait>{{wire::Wait::For::kMean, ModelId(0), LayerId(0), Step(5), {MemberId(0)}}}));
  EXPECT_FALSE(follower_->OnFrame(MemberId(2), Word(0, 5), {}).ok()) << "not the leader's";
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(0, 6), {}).ok()) << "another step";
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(9, 5), {}).ok()) << "no layer";
  EXPECT_TRUE(follower_->OnFrame(MemberId(0), Word(0, 5), {}).ok());
  EXPECT_FALSE(done.has_value()) << "not within the call";
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok());
  EXPECT_EQ(gradient_[0], 0.0f) << "what was where the mean is";
}

TEST_F(FollowerTest, FactorsOfAllHostsLandBesideOneAnother) {
  const auto segment = Segment::Make(Layout::Of(Layers(), 2)->bytes());
  ASSERT_TRUE(memory_->Attach(MemberId(0), (*segment)->offer()).ok());
  follower_->Declare(ModelId(0), Layers());
  ASSERT_TRUE(memory_->Declare(ModelId(0), Layers()).ok());
  auto* const slot =
      reinterpret_cast<float*>((*segment)->memory().data() + Layout::Of(Layers(), 2)->OffsetOf(LayerId(1), 2));
  std::iota(slot, slot + 45, 0.0f);
  factors::GatheredRows gathered;
  Share share = ShareOf(1, 5);
  share.gathered = &gathered;
  share.gradient = {};
  std::optional<Status> done;
  follower_->Contribute(share, [&](const Status& status) { done = status; });
  wire::FrameHeader word = Word(1, 5, 3);
  word.total -= 4;
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), word, {}).ok()) << "a part of a row";
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(1, 5, kLeastRows + 100), {}).ok()) << "more than the slot holds";
  EXPECT_TRUE(follower_->OnFrame(MemberId(0), Word(1, 5, 3), {}).ok());
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(1, 5, 3), {}).ok()) << "twice";
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(done.has_value());
  ASSERT_TRUE(done->ok());
  ASSERT_EQ(gathered.rows(), 3u);
  EXPECT_EQ(reinterpret_cast<const float*>(gathered.u())[29], 29.0f);
  EXPECT_EQ(reinterpret_cast<const float*>(gathered.v())[0], 30.0f);
  EXPECT_EQ(reinterpret_cast<const float*>(gathered.v())[14], 44.0f);

  share = ShareOf(1, 6);
  follower_->Contribute(share, [&](const Status& status) { done = status; });
  EXPECT_FALSE(follower_->OnFrame(MemberId(0), Word(1, 6, 3), {}).ok()) << "factors where the product is expected";
}

TEST_F(FollowerTest, AbandonedBetweenTwoStretchesItGoesNoFurther) {
  const std::uint64_t elements = 3 * 256 * 1024 / sizeof(float);
  const std::vector<plan::LayerSpec> layers = {{.name = "large", .elements = elements}};
  const auto segment = Segment::Make(Layout::Of(layers, 2)->bytes());
  for (const bool landing : {false, true}) {
    sim::Resident<HostMemory> memory(simulation_, *io_, mesh_, members_, std::size_t{1});
    sim::Resident<Follower> follower(simulation_, *io_, *io_, mesh_, members_, std::size_t{1}, Rank(1), memory.object());
    ASSERT_TRUE(memory->Attach(MemberId(0), (*segment)->offer()).ok());
    ASSERT_TRUE(memory->Declare(ModelId(0), layers).ok());
    follower->Declare(ModelId(0), layers);
    std::vector<float> large(elements, 1);
    Share share = ShareOf(0, 5);
    share.gradient = ViewOf(std::span(large));
    share.parts = TheFirstLeads(share.gradient.bytes());
    std::vector<StatusCode> done;
    follower->Contribute(share, [&](const Status& status) { done.push_back(status.code()); });
    if (landing) {
      simulation_.RunFor(std::chrono::milliseconds(1));
      ASSERT_TRUE(follower->OnFrame(MemberId(0), Word(0, 5), {}).ok());
    }
    ASSERT_TRUE(simulation_.Step()) << "the second stretch, which posts the last";
    follower->Abandon(Unavailable("over"));
    simulation_.RunFor(std::chrono::milliseconds(1));
    EXPECT_EQ(done, std::vector{StatusCode::kUnavailable});
  }
}

TEST_F(FollowerTest, MoreRowsThanTheSlotHoldsAreTheUsersMistake) {
  const auto segment = Segment::Make(Layout::Of(Layers(), 2)->bytes());
  follower_->Declare(ModelId(0), Layers());
  ASSERT_TRUE(memory_->Declare(ModelId(0), Layers()).ok());
  ASSERT_TRUE(memory_->Attach(MemberId(0), (*segment)->offer()).ok());
  Share share = ShareOf(1, 5);
  share.factors->rows = kLeastRows + 100;
  std::optional<Status> done;
  follower_->Contribute(share, [&](Status status) { done = status; });
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->code(), StatusCode::kInvalidArgument);
}

// Two of three workers lead: the first both ends of the layer, the second its middle. This is the second.
TEST_F(LocalTest, AWorkerLeadsItsPartAndFollowsInTheOthers) {
  const std::vector<MemberId> members = {MemberId(3), MemberId(4), MemberId(7)};
  const auto segment = Segment::Make(Layout::Of(Layers(), 3)->bytes());
  sim::Resident<HostMemory> memory(simulation_, *io_, mesh_, members, std::size_t{1});
  sim::Resident<Leader> leader(simulation_, *io_, *io_, mesh_, members, std::size_t{1}, memory.object(), nullptr);
  sim::Resident<Follower> follower(simulation_, *io_, *io_, mesh_, members, std::size_t{1}, Rank(1), memory.object());
  ASSERT_TRUE(memory->Attach(MemberId(3), (*segment)->offer()).ok());
  ASSERT_TRUE(memory->Declare(ModelId(0), Layers()).ok());
  leader->Declare(ModelId(0), Layers());
  leader->Lead(plan::Scheme::kKeyValue, {true, false});
  follower->Declare(ModelId(0), Layers());
  const auto numbers = [&](std::size_t place) { return reinterpret_cast<float*>(memory->SlotOf(LayerId(0), place)); };
  float* const mean = reinterpret_cast<float*>(memory->MeanOf(LayerId(0)));
  std::fill_n(numbers(0), 100, 10.0f);
  std::fill_n(numbers(2), 100, 100.0f);
  std::fill_n(mean, 100, 7.0f);

  Share share = ShareOf(0, 5);  // of ones
  share.parts = std::make_shared<const Parts>(Parts{{{0, 40}, {360, 400}}, {{40, 360}}, {}});
  std::optional<Status> followed;
  std::optional<Status> led;
  follower->Contribute(share, [&](const Status& status) { followed = status; });
  leader->Combine(share, [&](const Result<sync::Contribution>& combined) {
    ASSERT_TRUE(combined.ok());
    EXPECT_EQ(combined->gradient.memory, reinterpret_cast<std::byte*>(mean));
    leader->Spread(LayerId(0), OkStatus(), [&](const Status& status) { led = status; });
  });
  std::vector<wire::Wait> waits;
  leader->AddWaits(&waits);
  follower->AddWaits(&waits);
  EXPECT_EQ(waits, (std::vector<wire::Wait>{
                       {wire::Wait::For::kShare, ModelId(0), LayerId(0), Step(5), {MemberId(3), MemberId(7)}},
                       {wire::Wait::For::kMean, ModelId(0), LayerId(0), Step(5), {MemberId(3)}}}));
  EXPECT_FALSE(leader->OnFrame(MemberId(4), Word(0, 5), {}).ok()) << "its own";
  EXPECT_FALSE(leader->OnFrame(MemberId(3), Word(1, 5, 1), {}).ok()) << "another's";
  EXPECT_TRUE(leader->OnFrame(MemberId(3), Word(0, 5), {}).ok());
  EXPECT_TRUE(leader->OnFrame(MemberId(7), Word(0, 5), {}).ok());
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(led.has_value());
  EXPECT_FALSE(followed.has_value()) << "the other part";
  EXPECT_EQ(std::vector<float>(numbers(1), numbers(1) + 11), (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(std::vector<float>(mean + 9, mean + 11), (std::vector<float>{7, 111})) << "summed from the middle's beginning on";
  EXPECT_EQ(std::vector<float>(mean + 89, mean + 91), (std::vector<float>{111, 7}));
  EXPECT_EQ(gradient_[50], 111.0f);
  EXPECT_EQ(gradient_[0], 1.0f) << "still lent";
  EXPECT_FALSE(follower->OnFrame(MemberId(7), Word(0, 5), {}).ok()) << "a worker that leads nothing";
  EXPECT_TRUE(follower->OnFrame(MemberId(3), Word(0, 5), {}).ok());
  simulation_.RunFor(std::chrono::milliseconds(1));
  ASSERT_TRUE(followed.has_value());
  EXPECT_EQ(std::vector<float>(gradient_.begin() + 8, gradient_.begin() + 12), (std::vector<float>{7, 7, 111, 111}));
  EXPECT_EQ(gradient_[99], 7.0f);
  EXPECT_EQ(leader->moved_bytes(LayerId(0)), 3u * 320) << "two read, one copied";
  EXPECT_EQ(follower->moved_bytes(LayerId(0)), 2u * 80);
}

#ifdef POSEIDON_THREAD_CHECKS
using HostLevelDeathTest = LocalTest;

TEST_F(HostLevelDeathTest, EveryEntryWantsATaskOfItsExecutor) {
  const std::vector<MemberId> members = {MemberId(3), MemberId(4)};
  HostLevel leads(*io_, mesh_, {.members = members, .place = 0, .self_rank = Rank(0)}, nullptr);
  HostLevel follows(*io_, mesh_, {.members = members, .place = 1, .self_rank = Rank(1)}, nullptr);
  std::vector<wire::Wait> waits;
  EXPECT_DEATH(static_cast<void>(leads.Declare(ModelId(0), Layers())), "HostLevel::Declare.* outside a task of its executor");
  EXPECT_DEATH(leads.LeaderOf(ModelId(0)), "HostLevel::LeaderOf.* outside a task");
  EXPECT_DEATH(follows.FollowerOf(ModelId(0)), "HostLevel::FollowerOf.* outside a task");
  EXPECT_DEATH(leads.AddWaits(&waits), "HostLevel::AddWaits.* outside a task");
  EXPECT_DEATH(leads.Abandon(Unavailable("over")), "HostLevel::Abandon.* outside a task");
  EXPECT_DEATH(static_cast<void>(leads.moved_bytes(ModelId(0), LayerId(0))), "HostLevel::moved_bytes.* outside a task");
  EXPECT_DEATH(static_cast<void>(leads.allocated_bytes()), "HostLevel::allocated_bytes.* outside a task");
  EXPECT_DEATH(static_cast<void>(leads.PlaceFor(MemberId(4), Word(0, 1))), "HostLevel::PlaceFor.* outside a task");
  EXPECT_DEATH(static_cast<void>(leads.OnFrame(MemberId(4), Word(0, 1), {})), "HostLevel::OnFrame.* outside a task");
}
#endif

}  // namespace
}  // namespace poseidon::local
