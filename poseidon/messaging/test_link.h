// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_TEST_LINK_H_
#define POSEIDON_MESSAGING_TEST_LINK_H_

#include <functional>
#include <memory>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/sim/simulation.h"
#include "poseidon/transport/inproc/inproc_network.h"

// For tests: one connection of the in-process transport between two virtual executors, all in the
// thread of the test.
namespace poseidon::messaging::testing {

// `buffer_bytes` is how far a writer may be ahead of its reader.
class TestLink {
 public:
  explicit TestLink(std::size_t buffer_bytes, std::uint64_t seed = 1)
      : simulation_({.seed = seed, .max_jitter = std::chrono::microseconds(10)}),
        network_({.buffer_bytes = buffer_bytes}) {
    left_ = simulation_.MakeExecutor(simulation_.AddProcess("left"));
    right_ = simulation_.MakeExecutor(simulation_.AddProcess("right"));
    OnLeft([this] { left_context_ = network_.MakeContext(*left_, "left"); });
    OnRight([this] { right_context_ = network_.MakeContext(*right_, "right"); });
    Run();
  }
  ~TestLink() {
    // Objects of an executor are destroyed on it.
    OnLeft([this] {
      left_end_.reset();
      left_context_.reset();
    });
    OnRight([this] {
      right_end_.reset();
      listener_.reset();
      right_context_.reset();
    });
    Run();
  }
  TestLink(const TestLink&) = delete;
  TestLink& operator=(const TestLink&) = delete;

  // Makes a connection: afterwards TakeLeft and TakeRight give its two ends.
  void Connect() {
    OnRight([this] {
      if (listener_ != nullptr) return;
      listener_ =
          right_context_->Listen({"right", 1}, [this](auto end) { right_end_ = std::move(end); })
              .value();
    });
    Run();
    OnLeft([this] {
      left_context_->Connect({"right", 1}, std::chrono::seconds(1),
                             [this](auto end) { left_end_ = std::move(end).value(); });
    });
    Run();
    POSEIDON_CHECK(left_end_ && right_end_, "the two ends meet");
  }
  std::unique_ptr<transport::Connection> TakeLeft() { return std::move(left_end_); }
  std::unique_ptr<transport::Connection> TakeRight() { return std::move(right_end_); }

  Executor& left() { return *left_; }
  Executor& right() { return *right_; }
  // Runs `task` on an executor, and nothing else before it returns but what was there already.
  void OnLeft(std::function<void()> task) { On(*left_, std::move(task)); }
  void OnRight(std::function<void()> task) { On(*right_, std::move(task)); }
  void Run() { simulation_.Run(); }
  bool Step() { return simulation_.Step(); }
  bool RunUntil(const std::function<bool()>& reached) {
    return simulation_.RunUntil(reached, std::chrono::hours(1));
  }
  sim::Simulation& simulation() { return simulation_; }

 private:
  void On(Executor& executor, std::function<void()> task) {
    bool ran = false;
    executor.Post([&] {
      task();
      ran = true;
    });
    while (!ran) POSEIDON_CHECK(simulation_.Step(), "a posted task runs");
  }

  sim::Simulation simulation_;
  transport::InprocNetwork network_;
  std::unique_ptr<Executor> left_;
  std::unique_ptr<Executor> right_;
  std::unique_ptr<transport::Context> left_context_;
  std::unique_ptr<transport::Context> right_context_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<transport::Connection> left_end_;
  std::unique_ptr<transport::Connection> right_end_;
};

}  // namespace poseidon::messaging::testing

#endif  // POSEIDON_MESSAGING_TEST_LINK_H_
