// SPDX-License-Identifier: Apache-2.0
// Requests in parts between two workers that each own half of a layer, whole jobs aside: what leaves when, and how a step
// ends that never becomes whole. That many workers get the same bits is shown by tests/integration/core_test.cc.
#include "poseidon/kv/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "poseidon/base/random.h"
#include "tests/shared/fake_device.h"
#include "poseidon/messaging/test_link.h"
#include "poseidon/messaging/test_observer.h"
#include "poseidon/sync/staged_exchange.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::kv {
namespace {

using messaging::testing::Nobody;
using messaging::testing::TestLink;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Key kLayer{ModelId(0), LayerId(0)};
constexpr float kUnwritten = 1e30f;
constexpr std::uint64_t kPartElements = (std::uint64_t{4} << 20) / sizeof(float);
constexpr Duration kPartTime = std::chrono::microseconds(4204);  // of its copy, on the simulation's clock

// Worker 0 is on the left, with a device; worker 1 on the right.
class ExchangeInPartsTest : public testing::Test {
 protected:
  struct Side {
    std::unique_ptr<messaging::Mesh> mesh;
    std::unique_ptr<sync::Exchange> exchange;
    std::vector<float> gradient;
    std::vector<Status> done;
  };

  void Make(std::uint64_t elements) {
    link_.Connect();
    const std::vector<plan::LayerSpec> layers = {{.name = "layer", .elements = elements}};
    const auto make = [&](Side& side, Executor& io, std::uint16_t self) {
      side.mesh = std::make_unique<messaging::Mesh>(io, messaging::MeshOptions{}, nobody_);
      const bool left = self == 0;
      ASSERT_TRUE(side.mesh->Identify(side.mesh->AddStranger(left ? link_.TakeLeft() : link_.TakeRight()),
                                      MemberId(left ? 1 : 0)));
      const sync::Topology topology{.self = MemberId(self),
                                    .self_rank = Rank(self),
                                    .worker_of_rank = {MemberId(0), MemberId(1)},
                                    .owner_of_shard = {MemberId(0), MemberId(1)}};
      side.exchange = std::make_unique<Exchange>(
          sync::ExchangeEnvironment{.io = io, .compute = io, .mesh = *side.mesh, .among = topology, .flat = topology});
      if (left) {
        device_ = std::make_unique<device::FakeDevice>(io, device::FakeDeviceOptions{.copy_bytes_per_second = 1e9});
        side.exchange = std::make_unique<sync::StagedExchange>(io, std::move(side.exchange), *device_,
                                                               std::make_shared<sync::StagingByLayer>(), nullptr);
      }
      side.exchange->Declare(ModelId(0), layers);
      for (const wire::FrameType type : {wire::FrameType::kPush, wire::FrameType::kResult}) {
        side.mesh->Route(type, *side.exchange->SinkOf(type));
      }
      side.gradient.assign(elements, kUnwritten);
    };
    link_.OnRight([&] { make(right_, link_.right(), 1); });
    link_.OnLeft([&] { make(left_, link_.left(), 0); });
  }
  ~ExchangeInPartsTest() override {
    // Nothing completes twice, also when all ends.
    const auto ends = [](Side& side) {
      side.exchange->Abandon(Unavailable("over"));
      side.exchange.reset();
      side.mesh.reset();
    };
    link_.OnRight([&] { ends(right_); });
    link_.OnLeft([&] {
      ends(left_);
      device_.reset();
    });
    link_.Run();
    EXPECT_EQ(left_.done.size(), started_[0]);
    EXPECT_EQ(right_.done.size(), started_[1]);
  }

  sync::SyncRequest Request(Side& side, std::uint64_t step, bool in_parts, std::uint32_t weight = 0) {
    ++started_[&side == &left_ ? 0 : 1];
    sync::SyncRequest request;
    request.step = Step(step);
    request.gradient = ViewOf(side.gradient);
    request.in_parts = in_parts;
    request.weight = weight;
    request.done = [&side](Status status) { side.done.push_back(std::move(status)); };
    return request;
  }
  // Worker 0's gradient of ones, on its device.
  void StartOnDevice(std::uint64_t step) {
    link_.OnLeft([&] {
      sync::SyncRequest request = Request(left_, step, false);
      if (on_device_.address == nullptr) on_device_ = *device_->Allocate(request.gradient.bytes());
      request.gradient.memory = on_device_.address;
      request.on_device = true;
      // Behind the push, as kernels run.
      request.ready = device_->Launch(std::chrono::microseconds(20), [this] {
        const std::vector<float> ones(left_.gradient.size(), 1);
        std::memcpy(device_->InKernel(on_device_).data(), ones.data(), on_device_.size);
      });
      left_.exchange->Start(kLayer, std::move(request));
    });
  }
  std::vector<float> OnDevice() {
    std::vector<float> numbers(left_.gradient.size());
    link_.OnLeft([&] { std::memcpy(numbers.data(), device_->InKernel(on_device_).data(), on_device_.size); });
    return numbers;
  }
  std::uint64_t Received(const Side& side) const {
    return side.mesh->traffic().layer(ModelId(0), LayerId(0), false).received.payload_bytes;
  }
  std::vector<MemberId> MissedBy(Executor& io, const Side& side) {
    std::vector<wire::Wait> waits;
    const sim::Visit visit(link_.simulation(), io);
    side.exchange->AddWaits(&waits);
    std::vector<MemberId> missed;
    for (const wire::Wait& wait : waits) missed.insert(missed.end(), wait.on.begin(), wait.on.end());
    return missed;
  }

  TestLink link_{64 << 10};
  Nobody nobody_;
  std::unique_ptr<device::FakeDevice> device_;
  device::DeviceSpan on_device_;
  Side left_;
  Side right_;
  std::size_t started_[2] = {};
};

TEST_F(ExchangeInPartsTest, PartsOfAnySizeGiveTheBitsOfWholePushes) {
  constexpr std::uint64_t kElements = 10'007;
  Make(kElements);
  EXPECT_TRUE(left_.exchange->takes_parts());
  for (std::uint64_t step = 0; step < 20; ++step) {
    Random random(step);
    const std::uint32_t weights[2] = {step % 2 == 0 ? 0u : 3u, step % 2 == 0 ? 0u : 5u};
    std::vector<float> all[2];
    Side* const sides[2] = {&left_, &right_};
    std::uint64_t arrived[2] = {};
    const bool in_parts[2] = {step % 3 != 0, step % 3 != 1};
    for (const int rank : {0, 1}) {
      for (std::uint64_t i = 0; i < kElements; ++i) all[rank].push_back(static_cast<float>(random.Unit() * 2 - 1));
      sides[rank]->gradient = in_parts[rank] ? std::vector<float>(kElements, kUnwritten) : all[rank];
      const auto start = [&] {
        sides[rank]->exchange->Start(kLayer, Request(*sides[rank], step, in_parts[rank], weights[rank]));
      };
      rank == 0 ? link_.OnLeft(start) : link_.OnRight(start);
      arrived[rank] = in_parts[rank] ? 0 : kElements;
    }
    while (arrived[0] < kElements || arrived[1] < kElements) {
      const std::size_t rank = random.Below(2);
      if (arrived[rank] == kElements) continue;
      const auto bring = [&] {
        const std::uint64_t next = std::min(kElements, arrived[rank] + 1 + random.Below(random.Chance(0.3) ? 3 : 4000));
        Side& side = *sides[rank];
        std::copy(all[rank].begin() + static_cast<std::ptrdiff_t>(arrived[rank]),
                  all[rank].begin() + static_cast<std::ptrdiff_t>(next),
                  side.gradient.begin() + static_cast<std::ptrdiff_t>(arrived[rank]));
        arrived[rank] = next;
        side.exchange->Arrived(kLayer, next);
      };
      rank == 0 ? link_.OnLeft(bring) : link_.OnRight(bring);
      for (std::uint64_t turns = random.Below(50); turns > 0 && link_.Step();) --turns;
    }
    link_.Run();
    std::vector<float> mean(kElements);
    SumInRankOrder(std::vector<Summand>{{ViewOf(all[0]).memory, weights[0]}, {ViewOf(all[1]).memory, weights[1]}}, 2,
                   kElements, DType::kF32, Scaling::kMean, ViewOf(mean).memory);
    for (Side* const side : sides) {
      EXPECT_EQ(side->gradient, mean) << "step " << step;
      ASSERT_EQ(side->done.size(), step + 1);
      EXPECT_TRUE(side->done.back().ok());
    }
  }
}

// The mean of what has come is there before the rest has, and the waits name who has not brought it.
TEST_F(ExchangeInPartsTest, AMeanLandsAsFarAsAllHaveCome) {
  constexpr std::uint64_t kElements = 8192;  // two slices of 4096
  constexpr std::uint64_t kCome = 6000;
  Make(kElements);
  right_.gradient.assign(kElements, 3);
  link_.OnRight([&] { right_.exchange->Start(kLayer, Request(right_, 0, false)); });
  link_.OnLeft([&] {
    left_.exchange->Start(kLayer, Request(left_, 0, true));
    std::fill_n(left_.gradient.begin(), kCome, 1.0f);
    left_.exchange->Arrived(kLayer, kCome);
  });
  link_.Run();
  for (std::size_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(left_.gradient[i], i < kCome ? 2 : kUnwritten) << i;
    ASSERT_EQ(right_.gradient[i], i < kCome ? 2 : 3) << i;
  }
  EXPECT_THAT(MissedBy(link_.left(), left_), IsEmpty()) << "the slice here is summed, the other owner waits for it";
  EXPECT_THAT(MissedBy(link_.right(), right_), ElementsAre(MemberId(0)));
  EXPECT_TRUE(left_.done.empty() && right_.done.empty());
  link_.OnLeft([&] {
    std::fill(left_.gradient.begin() + kCome, left_.gradient.end(), 1.0f);
    left_.exchange->Arrived(kLayer, kElements);
  });
  link_.Run();
  EXPECT_EQ(left_.gradient, std::vector<float>(kElements, 2));
  EXPECT_EQ(right_.gradient, std::vector<float>(kElements, 2));
  EXPECT_EQ(left_.done.size() + right_.done.size(), 2u);
}

TEST_F(ExchangeInPartsTest, TheOwnSliceIsMissedUntilItHasCome) {
  Make(8192);
  link_.OnLeft([&] {
    left_.exchange->Start(kLayer, Request(left_, 0, true));
    left_.exchange->Arrived(kLayer, 4095);
  });
  link_.Run();
  EXPECT_THAT(MissedBy(link_.left(), left_), ElementsAre(MemberId(0), MemberId(1)));
  link_.OnLeft([&] { left_.exchange->Arrived(kLayer, 4096); });
  EXPECT_THAT(MissedBy(link_.left(), left_), ElementsAre(MemberId(1)));
}

TEST_F(ExchangeInPartsTest, ADevicesFirstPartArrivesWhileTheSecondIsCopied) {
  Make(5 * kPartElements + 1);
  right_.gradient.assign(right_.gradient.size(), 3);
  link_.OnRight([&] { right_.exchange->Start(kLayer, Request(right_, 0, false)); });
  const TimePoint begin = link_.left().now();
  StartOnDevice(0);
  // The left half is worker 0's own: worker 1 gets means of it, then worker 0's contribution to the right half.
  ASSERT_TRUE(link_.RunUntil([&] { return Received(right_) >= kPartElements * sizeof(float); }));
  EXPECT_GT(link_.left().now() - begin, kPartTime);
  EXPECT_LT(link_.left().now() - begin, 2 * kPartTime);
  // And so do the others.
  ASSERT_TRUE(link_.RunUntil([&] { return Received(right_) >= 4 * kPartElements * sizeof(float); }));
  EXPECT_GT(link_.left().now() - begin, 4 * kPartTime);
  EXPECT_LT(link_.left().now() - begin, 5 * kPartTime);
  link_.Run();
  EXPECT_EQ(OnDevice(), std::vector<float>(left_.gradient.size(), 2));
  EXPECT_EQ(right_.gradient, OnDevice());
  ASSERT_EQ(left_.done.size(), 1u);
  EXPECT_TRUE(left_.done[0].ok());
}

TEST_F(ExchangeInPartsTest, ADevicesGradientOfOnePartGoesWhole) {
  Make(kPartElements);
  for (std::uint64_t step = 0; step < 2; ++step) {
    right_.gradient.assign(right_.gradient.size(), 3);
    link_.OnRight([&] { right_.exchange->Start(kLayer, Request(right_, step, false)); });
    StartOnDevice(step);
    link_.Run();
    EXPECT_EQ(OnDevice(), std::vector<float>(left_.gradient.size(), 2));
    EXPECT_EQ(right_.gradient, OnDevice());
  }
}

// What was copied before has left. The request fails when no copy reads the device any more, and once.
TEST_F(ExchangeInPartsTest, ACopyThatFailsAmongOthersFailsTheRequestOnce) {
  Make(4 * kPartElements);
  const TimePoint begin = link_.left().now();
  StartOnDevice(0);
  link_.simulation().RunFor(std::chrono::milliseconds(5));
  link_.OnLeft([&] { device_->FailNextCopy(Internal("a bus error")); });
  ASSERT_TRUE(link_.RunUntil([&] { return !left_.done.empty(); }));
  EXPECT_GT(link_.left().now() - begin, 4 * kPartTime);
  EXPECT_EQ(left_.done[0].message(), "a bus error");
}

// Abandoned while copies are under way: the request completes once, when they have ended.
TEST_F(ExchangeInPartsTest, AbandonedWhileItIsCopiedARequestCompletesWhenTheCopiesHaveEnded) {
  Make(3 * kPartElements);
  StartOnDevice(0);
  link_.simulation().RunFor(std::chrono::milliseconds(5));
  link_.OnLeft([&] { left_.exchange->Abandon(Unavailable("over")); });
  link_.simulation().RunFor(std::chrono::milliseconds(1));
  EXPECT_THAT(left_.done, IsEmpty());
  link_.Run();
  ASSERT_EQ(left_.done.size(), 1u);
  EXPECT_EQ(left_.done[0].message(), "over");
}

// The left side's exchange is gone and then its device, while copies are under way: the fixture counts completions.
TEST_F(ExchangeInPartsTest, DestroyedWhileItIsCopiedARequestCompletesOnce) {
  Make(3 * kPartElements);
  StartOnDevice(0);
  link_.simulation().RunFor(std::chrono::milliseconds(5));
}

// The owner here has refused its worker's contribution, whose parts still come until the job has ended.
TEST_F(ExchangeInPartsTest, PartsOfAStepThatTheOthersAreNotInChangeNothing) {
  Make(8192);
  right_.gradient.assign(8192, 3);
  link_.OnRight([&] { right_.exchange->Start(kLayer, Request(right_, 2, false)); });
  link_.Run();
  link_.OnLeft([&] {
    left_.exchange->Start(kLayer, Request(left_, 1, true));
    left_.exchange->Arrived(kLayer, 1000);
    left_.exchange->Arrived(kLayer, 8192);
  });
  link_.Run();
  EXPECT_EQ(left_.gradient, std::vector<float>(8192, kUnwritten));
  EXPECT_EQ(right_.gradient, std::vector<float>(8192, 3));
}

TEST_F(ExchangeInPartsTest, AbandonedBetweenTwoPartsARequestCompletesOnce) {
  Make(1000);
  link_.OnRight([&] { right_.exchange->Start(kLayer, Request(right_, 0, true)); });
  link_.OnLeft([&] {
    left_.exchange->Start(kLayer, Request(left_, 0, true));
    left_.exchange->Arrived(kLayer, 600);
  });
  link_.Run();
  link_.OnLeft([&] {
    left_.exchange->Abandon(Unavailable("over"));
    left_.exchange->Arrived(kLayer, 700);
  });
  link_.Run();
  ASSERT_EQ(left_.done.size(), 1u);
  EXPECT_EQ(left_.done[0].code(), StatusCode::kUnavailable);
  EXPECT_THAT(right_.done, IsEmpty());
}

}  // namespace
}  // namespace poseidon::kv
