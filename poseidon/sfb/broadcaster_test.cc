// SPDX-License-Identifier: Apache-2.0
// What frames may say, and how a broadcast ends when the job does. That it sums rightly is shown by whole jobs:
// tests/integration/core_test.cc.
#include "poseidon/sfb/broadcaster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/factors/blas_engine.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sim/resident.h"

namespace poseidon::sfb {
namespace {

using messaging::testing::Nobody;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// Rank 0 of some workers, with a layer of [2 x 3] and no connection: frames to the others fail to leave, a moment
// after they were sent; the tests say what came from them.
class BroadcasterTest : public testing::Test {
 protected:
  static constexpr plan::FactorShape kShape{2, 3, false};

  // Where ranks are hosts, these have so many workers.
  void Make(std::uint16_t ranks, std::uint16_t workers = 0) {
    sync::Topology topology{
        .self = MemberId(0), .self_rank = Rank(0), .worker_of_rank = {}, .owner_of_shard = {}, .workers = workers};
    for (std::uint16_t r = 0; r < ranks; ++r) topology.worker_of_rank.push_back(MemberId(r));
    const sync::ExchangeEnvironment env{.io = *io_,
                                        .compute = *compute_,
                                        .mesh = mesh_,
                                        .among = topology,
                                        .flat = topology,
                                        .engine = engine_.get(),
                                        .fail = {}};
    broadcaster_.emplace(simulation_, *io_, env, topology, engine_.get());
    (*broadcaster_)->Declare({ModelId(0), LayerId(0)}, {.name = "fc", .elements = 6, .factors = kShape});
  }
  static wire::FrameHeader Frame(std::uint16_t rank, std::uint64_t total = 0) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kFactor;
    header.rank = Rank(rank);
    header.total = total;
    header.scheme = plan::Scheme::kFactorBroadcast;
    return header;
  }
  // Another worker brings one row in which each number is `value`, or none.
  void Bring(std::uint16_t rank, std::optional<float> value, std::uint32_t weight) {
    const std::vector<float> row(3, value.value_or(0));
    for (const std::uint64_t width : {kShape.outputs, kShape.inputs}) {
      wire::FrameHeader frame = Frame(rank, value ? width * sizeof(float) : 0);
      frame.weight = weight;
      frame.flags = width == kShape.inputs ? wire::kFlagFactorV : 0;
      frame.length = static_cast<std::uint32_t>(frame.total);
      MutableBytes place;
      if (value) place = (*broadcaster_)->inbox().PlaceFor(MemberId(rank), frame).value();
      if (value) std::memcpy(place.data(), row.data(), place.size());
      ASSERT_TRUE((*broadcaster_)->inbox().OnFrame(MemberId(rank), frame, place).ok());
      if (!value) return;  // one frame says all there is to say
    }
  }
  // The own rows: so many ones.
  void Broadcast(std::uint32_t rows, std::uint32_t weight = 0) {
    sync::SyncRequest request;
    request.factors = {reinterpret_cast<const std::byte*>(ones_.data()),
                       reinterpret_cast<const std::byte*>(ones_.data()), rows};
    request.weight = weight;
    request.gradient = ViewOf(std::span(gradient_));
    request.done = [&](const Status& status) { done_.push_back(status.code()); };
    (*broadcaster_)->Broadcast({ModelId(0), LayerId(0)}, std::move(request));
  }

  sim::Simulation simulation_{sim::SimulationOptions{}};
  const sim::ProcessId process_ = simulation_.AddProcess("worker");
  const std::unique_ptr<Executor> io_ = simulation_.MakeExecutor(process_);
  const std::unique_ptr<Executor> compute_ = simulation_.MakeExecutor(process_);
  Nobody nobody_;
  messaging::Mesh mesh_{*io_, {}, nobody_};
  const std::unique_ptr<factors::ProductEngine> engine_ = factors::MakeBlasEngine(1);
  std::optional<sim::Resident<Broadcaster>> broadcaster_;
  std::vector<float> ones_ = std::vector<float>(12, 1.0f);
  std::vector<float> gradient_ = std::vector<float>(6);
  std::vector<StatusCode> done_;
};

TEST_F(BroadcasterTest, AProductUnderWayAndFramesThatNeverLeftCompleteOnceTheJobIsOver) {
  Make(2);
  ASSERT_TRUE((*broadcaster_)->inbox().OnFrame(MemberId(1), Frame(1), {}).ok());  // the other worker has no rows
  Broadcast(1);
  (*broadcaster_)->Abandon(Unavailable("over"));
  EXPECT_TRUE(done_.empty()) << "the product still writes";
  simulation_.RunFor(std::chrono::seconds(1));
  EXPECT_THAT(done_, ElementsAre(StatusCode::kUnavailable));
}

TEST_F(BroadcasterTest, FactorsThatAreNoWholeRowsAreRefused) {
  Make(2);
  for (const std::uint64_t total : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{12}, std::uint64_t{8} << 32}) {
    const Status refused = (*broadcaster_)->inbox().PlaceFor(MemberId(1), Frame(1, total)).status();
    EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
    EXPECT_THAT(refused.message(), HasSubstr("bytes, expected whole rows of 8"));
  }
  EXPECT_TRUE((*broadcaster_)->inbox().PlaceFor(MemberId(1), Frame(1, 16)).ok());
}

// A row of u has 2 words.
TEST_F(BroadcasterTest, CompressedFactorsThatAreNoWholeRowsAreRefused) {
  Make(2);
  wire::FrameHeader frame = Frame(1, 12);
  frame.length = 12;
  const float one = 1.0f;
  std::array<std::byte, 12> bytes{std::byte{2}};  // the second number
  std::memcpy(bytes.data() + 8, &one, sizeof one);
  for (const std::uint32_t words : {1u, 3u, 0xffff'ffffu}) {
    frame.words = words;
    const Status refused = (*broadcaster_)->inbox().PlaceFor(MemberId(1), frame).status();
    EXPECT_THAT(refused.message(), HasSubstr("bytes, expected whole rows of 8"));
    EXPECT_EQ((*broadcaster_)->inbox().OnFrame(MemberId(1), frame, bytes).code(), StatusCode::kDataLoss);
  }
  frame.words = 0xffff'fffe;  // whole rows, more than any batch: refused before there is memory for them
  EXPECT_THAT((*broadcaster_)->inbox().OnFrame(MemberId(1), frame, bytes).message(), HasSubstr("more than any batch"));
  Make(2);
  frame.words = 2;
  EXPECT_TRUE((*broadcaster_)->inbox().PlaceFor(MemberId(1), frame)->empty()) << "the channel keeps the bytes";
  EXPECT_TRUE((*broadcaster_)->inbox().OnFrame(MemberId(1), frame, bytes).ok());
}

TEST_F(BroadcasterTest, TheMeanIsThatOfTheWeights) {
  struct Case {
    const char* what;
    std::uint32_t own;  // weight of a row of ones
    std::uint32_t of_2;  // of a row of twos, whose product is four
    std::uint32_t other;
    std::optional<float> others;
    float mean;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : {Case{"unequal", 3, 1, 4, 1.0f, (3 * 1 + 1 * 4 + 4 * 1) / 8.0f},
                        Case{"equal", 2, 2, 2, 1.0f, 2.0f},
                        Case{"without samples, without rows", 3, 1, 0, std::nullopt, (3 * 1 + 1 * 4) / 4.0f},
                        Case{"without samples, with rows of anything", 3, 1, 0, nan, (3 * 1 + 1 * 4) / 4.0f},
                        Case{"only one has samples", 0, 5, 0, nan, 4.0f},
                        Case{"samples, but no rows", 3, 1, 4, std::nullopt, (3 * 1 + 1 * 4) / 8.0f},
                        Case{"unweighted", 0, 0, 0, std::nullopt, (1 + 4) / 3.0f}}) {
    Make(3);
    Bring(2, c.others, c.other);
    Bring(1, 2.0f, c.of_2);
    Broadcast(1, c.own);
    simulation_.RunFor(std::chrono::seconds(1));
    EXPECT_THAT(gradient_, Each(FloatEq(c.mean))) << c.what;
  }
}

// What a host brings is multiplied by its workers' weights already.
TEST_F(BroadcasterTest, AHostsWeightIsInItsRowsAndCountsInTheDivisorOnly) {
  for (const bool weighted : {true, false}) {
    Make(2, 8);
    Bring(1, 2.0f, weighted ? 12 : 0);
    Broadcast(1, weighted ? 4 : 0);
    simulation_.RunFor(std::chrono::seconds(1));
    EXPECT_THAT(gradient_, Each((1 + 4) / (weighted ? 16.0f : 8.0f)));
  }
}

// ---- tables

// Rank 1 may be a step ahead, whose rows must not disturb those that are read.
TEST_F(BroadcasterTest, ATablesRowsComeOutInRankOrderAndStayUntilTheNextMean) {
  Make(2);
  (*broadcaster_)->Declare({ModelId(0), LayerId(1)},
                        {.name = "words", .elements = 20, .factors = plan::FactorShape{.outputs = 10, .inputs = 2, .table = true}});
  EXPECT_TRUE((*broadcaster_)->declared({ModelId(0), LayerId(1)}));
  EXPECT_FALSE((*broadcaster_)->declared({ModelId(0), LayerId(2)}));
  const auto bring = [&](std::uint64_t step, const std::vector<std::int64_t>& indices, const std::vector<float>& values) {
    for (const ConstBytes part : {std::as_bytes(std::span(indices)), std::as_bytes(std::span(values))}) {
      wire::FrameHeader frame = Frame(1, part.size());
      frame.layer = LayerId(1);
      frame.step = Step(step);
      frame.flags = part.data() == reinterpret_cast<const std::byte*>(values.data()) ? wire::kFlagFactorV : 0;
      frame.length = static_cast<std::uint32_t>(part.size());
      const MutableBytes place = (*broadcaster_)->inbox().PlaceFor(MemberId(1), frame).value();
      std::memcpy(place.data(), part.data(), part.size());
      ASSERT_TRUE((*broadcaster_)->inbox().OnFrame(MemberId(1), frame, place).ok());
    }
  };
  factors::GatheredRows gathered;
  const auto push = [&](std::uint64_t step, const std::vector<std::int64_t>& indices, const std::vector<float>& values) {
    sync::SyncRequest request;
    request.step = Step(step);
    request.factors = {reinterpret_cast<const std::byte*>(indices.data()),
                       reinterpret_cast<const std::byte*>(values.data()), static_cast<std::uint32_t>(indices.size())};
    request.gathered = &gathered;
    request.done = [&](const Status& status) { done_.push_back(status.code()); };
    (*broadcaster_)->Broadcast({ModelId(0), LayerId(1)}, std::move(request));
    simulation_.RunFor(std::chrono::seconds(1));
  };
  const auto expect = [&](const std::vector<std::int64_t>& indices, const std::vector<float>& values) {
    ASSERT_EQ(gathered.rows(), indices.size());
    EXPECT_EQ(std::vector<std::int64_t>(gathered.indices(), gathered.indices() + indices.size()), indices);
    const float* const found = reinterpret_cast<const float*>(gathered.v());
    EXPECT_EQ(std::vector<float>(found, found + values.size()), values);
  };
  bring(0, {9, 4}, {2, 4, 6, 8});
  push(0, {4}, {10, 12});
  expect({4, 9, 4}, {5, 6, 1, 2, 3, 4});
  bring(1, {0, 1, 2, 3}, std::vector<float>(8, 100));
  expect({4, 9, 4}, {5, 6, 1, 2, 3, 4});
  push(1, {}, {});
  expect({0, 1, 2, 3}, std::vector<float>(8, 50));
  EXPECT_GE((*broadcaster_)->allocated_bytes(), gathered.allocated_bytes());
  // An index is 8 bytes wide, whatever the numbers are.
  wire::FrameHeader odd = Frame(1, 12);
  odd.layer = LayerId(1);
  odd.step = Step(2);
  EXPECT_THAT((*broadcaster_)->inbox().PlaceFor(MemberId(1), odd).status().message(), HasSubstr("expected whole rows of 8"));
  bring(2, {10}, {1, 1});
  push(2, {0}, {1, 1});
  EXPECT_EQ(gathered.rows(), 0u) << "there is no entry 10";
}

}  // namespace
}  // namespace poseidon::sfb
