// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_CONFORMANCE_EXECUTOR_CONFORMANCE_H_
#define POSEIDON_TESTS_CONFORMANCE_EXECUTOR_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <memory>
#include <ostream>

#include "poseidon/base/executor.h"
#include "tests/conformance/tally.h"

// Tests of what every executor promises. An implementation joins with
//
//   INSTANTIATE_TEST_SUITE_P(Mine, ExecutorConformance, testing::Values(ExecutorCase{
//       "mine", [] { return std::unique_ptr<ExecutorWorld>(new MyWorld); }}));
namespace poseidon::conformance {

// Makes executors of one kind and waits for what happens on them.
class ExecutorWorld {
 public:
  virtual ~ExecutorWorld() = default;
  virtual std::unique_ptr<Executor> Make() = 0;
  // Until `tally` has reached `count`; false when that does not happen. Real threads: block.
  virtual bool Await(const Tally& tally, std::uint64_t count) { return tally.BlockUntil(count); }
};

struct ExecutorCase {
  const char* name;
  std::unique_ptr<ExecutorWorld> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const ExecutorCase& c) { return out << c.name; }
};

class ExecutorConformance : public testing::TestWithParam<ExecutorCase> {
 protected:
  bool Await(std::uint64_t count) { return world_->Await(tally_, count); }

  // The tally outlives the executors, which outlive nothing.
  Tally tally_;
  std::unique_ptr<ExecutorWorld> world_ = GetParam().make();
};

}  // namespace poseidon::conformance

#endif  // POSEIDON_TESTS_CONFORMANCE_EXECUTOR_CONFORMANCE_H_
