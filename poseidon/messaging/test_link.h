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

// Forwards to a connection that protects itself and says that it does not.
class UnprotectedConnection final : public transport::Connection {
 public:
  explicit UnprotectedConnection(std::unique_ptr<transport::Connection> inner)
      : inner_(std::move(inner)) {}
  void Read(std::span<const MutableBytes> into, std::size_t min_bytes,
            transport::ReadCompletion done) override {
    inner_->Read(into, min_bytes, std::move(done));
  }
  void Write(std::span<const ConstBytes> from, Completion done) override {
    inner_->Write(from, std::move(done));
  }
  void Close(Status reason) override { inner_->Close(std::move(reason)); }
  void LimitUndelivered(std::size_t bytes) override { inner_->LimitUndelivered(bytes); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  bool integrity_protected() const override { return false; }
  transport::ConnectionCounters counters() const override { return inner_->counters(); }

 private:
  const std::unique_ptr<transport::Connection> inner_;
};

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
  std::unique_ptr<transport::Connection> TakeLeft(bool unprotected) {
    return Wrap(std::move(left_end_), unprotected);
  }
  std::unique_ptr<transport::Connection> TakeRight(bool unprotected) {
    return Wrap(std::move(right_end_), unprotected);
  }

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
  static std::unique_ptr<transport::Connection> Wrap(std::unique_ptr<transport::Connection> end,
                                                     bool unprotected) {
    if (!unprotected) return end;
    return std::make_unique<UnprotectedConnection>(std::move(end));
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
