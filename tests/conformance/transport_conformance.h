// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_CONFORMANCE_TRANSPORT_CONFORMANCE_H_
#define POSEIDON_TESTS_CONFORMANCE_TRANSPORT_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/transport/transport.h"
#include "tests/conformance/tally.h"

// Tests of what every transport promises. An implementation joins with a world of its own and
//
//   INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance, testing::Values(TransportCase{
//       .name = "mine",
//       .make = [](std::size_t participants) {
//         return std::unique_ptr<TransportWorld>(new MyWorld(participants)); }}),
//       testing::PrintToStringParamName());
namespace poseidon::conformance {

// Some participants that can reach each other, each with an executor and a context on it.
class TransportWorld {
 public:
  virtual ~TransportWorld() = default;

  // Where participant `i` may listen, with port 0.
  virtual transport::Address listen_address(std::size_t i) = 0;
  // Where nobody listens, in reach of everybody; a connect there is refused.
  virtual transport::Address deserted_address() = 0;
  // Until `tally` has reached `count`; false when that does not happen. Real threads: block.
  virtual bool Await(const Tally& tally, std::uint64_t count) { return tally.BlockUntil(count); }
  // Kills participant `i` as kill -9 would; false where that cannot be done within this program.
  virtual bool Kill(std::size_t) { return false; }

  std::size_t participants() const { return participants_.size(); }
  transport::Context& context(std::size_t i) { return *participants_.at(i).context; }
  Executor& executor(std::size_t i) { return *participants_.at(i).executor; }

  // Runs `task` on participant i's executor and waits for it; false when it does not come back.
  bool On(std::size_t i, Task task) {
    const auto ran = std::make_shared<Tally>();
    executor(i).Post([ran, task = std::move(task)]() mutable {
      task();
      task = nullptr;
      ran->Add();
    });
    return Await(*ran, 1);
  }
  bool DestroyContext(std::size_t i) {
    return On(i, [this, i] { participants_[i].context.reset(); });
  }
  // Destroys the contexts, each on its executor, then the executors. A killed participant cannot run
  // anything; its context dies here.
  void ShutDown() {
    for (Participant& participant : participants_) {
      if (participant.killed) continue;
      participant.executor->Post([context = std::move(participant.context)]() mutable {
        context.reset();
      });
    }
    participants_.clear();
  }

 protected:
  // For the constructor of an implementation.
  void Add(std::unique_ptr<Executor> executor, std::unique_ptr<transport::Context> context) {
    participants_.push_back({std::move(executor), std::move(context), false});
  }
  void MarkKilled(std::size_t i) { participants_.at(i).killed = true; }

 private:
  struct Participant {
    std::unique_ptr<Executor> executor;
    std::unique_ptr<transport::Context> context;  // dies before its executor
    bool killed = false;
  };
  std::vector<Participant> participants_;
};

struct TransportCase {
  const char* name = "";
  std::unique_ptr<TransportWorld> (*make)(std::size_t participants) = nullptr;
  // Bytes that the heavy tests move; more than four times what a connection buffers in one direction, which
  // in turn is at least 1000 bytes.
  std::size_t many_bytes = std::size_t{32} << 20;
  friend std::ostream& operator<<(std::ostream& out, const TransportCase& c) {
    return out << c.name;
  }
};

// How an operation ended, and how often it did.
struct Outcome {
  Tally fired;
  Status status;
  std::size_t bytes = 0;
};
using SharedOutcome = std::shared_ptr<Outcome>;

class TransportConformance : public testing::TestWithParam<TransportCase> {
 protected:
  // A connection seen from both ends; the fixture owns them.
  struct Ends {
    transport::Connection* connecting = nullptr;
    transport::Connection* accepting = nullptr;
  };

  void MakeWorld(std::size_t participants);
  void TearDown() override;

  bool On(std::size_t i, Task task) { return world_->On(i, std::move(task)); }
  bool Await(const Tally& tally, std::uint64_t count = 1) { return world_->Await(tally, count); }
  bool Await(const SharedOutcome& outcome) { return world_->Await(outcome->fired, 1); }

  // Connects participant `from` to participant `to`; both null when that failed.
  Ends Join(std::size_t from, std::size_t to);
  // Destroys a connection of participant `i`. On its executor only.
  void Drop(std::size_t i, transport::Connection* connection);
  // Lets everything that is under way at all participants come to rest as far as posting a task to
  // each of them, several times, can do that.
  bool Settle();

  std::unique_ptr<TransportWorld> world_;
  // By participant; touched on its executor only.
  std::vector<std::vector<std::unique_ptr<transport::Connection>>> connections_;
  std::vector<std::vector<std::unique_ptr<transport::Listener>>> listeners_;
};

}  // namespace poseidon::conformance

#endif  // POSEIDON_TESTS_CONFORMANCE_TRANSPORT_CONFORMANCE_H_
