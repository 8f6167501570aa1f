// SPDX-License-Identifier: Apache-2.0
// What a small message asks the allocator for once everything has been used: two workers of one process train over sockets
// with gradients of a few KiB, and this program's operator new counts.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/session/session.h"
#include "tests/integration/job.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<std::uint64_t> allocations = 0;

}  // namespace

// Not inlined: GCC would find that what the one takes from malloc is given to the other.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (counting) ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace poseidon::integration {
namespace {

using session::Model;
using session::Session;
using session::SessionOptions;
using transport::tcp::Security;

constexpr std::uint16_t kWorkers = 2;
constexpr std::uint64_t kWarmUp = 100;
constexpr std::uint64_t kSteps = 100;

// Half of them have two owners, half of them one.
std::vector<plan::LayerSpec> SmallLayers() {
  std::vector<plan::LayerSpec> layers;
  for (int i = 0; i < 8; ++i) {
    layers.push_back(Dense("sliced " + std::to_string(i), 2048));
    layers.push_back(Dense("whole " + std::to_string(i), 250));
  }
  return InForwardOrder(std::move(layers));
}

class Worker {
 public:
  explicit Worker(Session& session) : rank_(session.rank()), model_(**session.NewModel()) {
    EXPECT_TRUE(model_.Commit(layers_).ok());
    for (const plan::LayerSpec& layer : layers_) gradients_.emplace_back(layer.elements);
  }

  // As front ends do: all layers from the last one on, of which some tell when they have landed, then their means in order.
  void Train(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t s = begin; s < end; ++s) {
      for (std::uint32_t i = static_cast<std::uint32_t>(layers_.size()); i-- > 0;) {
        gradients_[i].assign(gradients_[i].size(), static_cast<float>(rank_.value() + s));
        session::Push push{{.step = Step(s), .gradient = ViewOf(std::span(gradients_[i]))}};
        if (i % 3 == 0) push.landed = [this](const Status& status) { told_ += status.ok() ? 1 : 0; };
        ASSERT_TRUE(model_.Push(LayerId(i), std::move(push)).ok());
      }
      for (std::uint32_t i = 0; i < layers_.size(); ++i) {
        ASSERT_TRUE(model_.Wait(LayerId(i)).ok());
        ASSERT_EQ(gradients_[i].front(), static_cast<float>(s) + 0.5f);
        ASSERT_EQ(gradients_[i].back(), static_cast<float>(s) + 0.5f);
      }
    }
  }
  std::uint64_t Frames() const {
    std::uint64_t frames = 0;
    for (const session::LayerStatistics& layer : model_.Collect().layers) frames += layer.gradients.sent.frames;
    return frames;
  }

 private:
  const std::vector<plan::LayerSpec> layers_ = SmallLayers();
  const Rank rank_;
  Model& model_;
  std::vector<std::vector<float>> gradients_;
  std::atomic<std::uint64_t> told_ = 0;
};

class AllocationsTest : public ::testing::TestWithParam<Security::Mode> {};

TEST_P(AllocationsTest, ASmallMessageTakesNone) {
  const Security security{GetParam(), transport::tcp::Token::Generate().value()};
  std::promise<transport::Address> listening;
  std::barrier all(kWorkers);
  std::atomic<std::uint64_t> messages = 0;
  const auto work = [&](std::uint16_t rank, const transport::Address& coordinator) {
    SessionOptions options;
    options.node.workers = kWorkers;
    options.node.probe_bytes = 100'000;
    options.node.final_plan_step = kWarmUp + kSteps;
    options.node.hosts_coordinator = rank == 0;
    options.node.requested_rank = rank;
    options.node.host = "127.0.0.1";
    options.node.listen = {"127.0.0.1", 0};
    options.node.coordinator = coordinator;
    UniqueFunction<void(const transport::Address&)> tell;
    if (rank == 0) tell = [&](const transport::Address& address) { listening.set_value(address); };
    auto session = Session::Open(session::MakeTcpRuntime({.security = security}).value(), options, std::move(tell));
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    Worker worker(**session);
    worker.Train(0, kWarmUp);
    const std::uint64_t before = worker.Frames();
    all.arrive_and_wait();
    counting = true;
    worker.Train(kWarmUp, kWarmUp + kSteps);
    all.arrive_and_wait();
    counting = false;
    messages += worker.Frames() - before;
    EXPECT_TRUE((*session)->Leave().ok());
  };
  allocations = 0;
  std::thread first([&] { work(0, {}); });
  const transport::Address coordinator = listening.get_future().get();
  std::thread second([&] { work(1, coordinator); });
  first.join();
  second.join();
  EXPECT_EQ(messages, kSteps * 8 * (4 + 2));
  RecordProperty("allocations", std::to_string(allocations));
  // Heartbeats and timers of the job come with time and not with messages.
  EXPECT_LT(static_cast<double>(allocations) / static_cast<double>(messages), 0.05) << allocations << " allocations";
}

INSTANTIATE_TEST_SUITE_P(Wires, AllocationsTest, ::testing::Values(Security::Mode::kPlain, Security::Mode::kAuth, Security::Mode::kTls),
                         [](const auto& mode) {
                           return mode.param == Security::Mode::kPlain  ? "Plain"
                                  : mode.param == Security::Mode::kAuth ? "Auth"
                                                                        : "Tls";
                         });

}  // namespace
}  // namespace poseidon::integration
