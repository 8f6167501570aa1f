// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/alive.h"

#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "poseidon/base/unique_function.h"

namespace poseidon {
namespace {

// As the classes of the core use it: what the callback touches dies after the Alive.
class Counter {
 public:
  explicit Counter(UniqueFunction<void()>* at_end = nullptr) : at_end_{at_end} {}

  UniqueFunction<void(int)> Add() {
    return alive_.Guard([this](int n) { sum_ += n; });
  }
  UniqueFunction<void(int)> AddOr(int* missed) {
    return alive_.Guard([this](int n) { sum_ += n; }, [missed](int n) { *missed += n; });
  }
  int sum() const { return sum_; }

 private:
  // A member that calls back while it is destroyed.
  struct AtEnd {
    UniqueFunction<void()>* call;
    ~AtEnd() {
      if (call != nullptr) (*call)();
    }
  };

  int sum_ = 0;
  AtEnd at_end_;
  Alive alive_;
};

TEST(Alive, CallsTheFunctionWhileTheObjectLives) {
  Counter counter;
  int missed = 0;
  const UniqueFunction<void(int)> add = counter.Add();
  const UniqueFunction<void(int)> add_or = counter.AddOr(&missed);
  add(1);
  add(2);
  add_or(4);
  EXPECT_EQ(counter.sum(), 7);
  EXPECT_EQ(missed, 0);
}

TEST(Alive, ACallbackDoesNothingOnceTheObjectIsGone) {
  int called = 0;
  std::optional<Alive> alive(std::in_place);
  const UniqueFunction<void()> count = alive->Guard([&called] { ++called; });
  count();
  alive.reset();
  count();
  EXPECT_EQ(called, 1);
}

TEST(Alive, CallsTheOtherFunctionWithTheArgumentsOnceTheObjectIsGone) {
  int missed = 0;
  auto counter = std::make_unique<Counter>();
  const UniqueFunction<void(int)> add = counter->AddOr(&missed);
  counter.reset();
  add(5);
  EXPECT_EQ(missed, 5);
}

TEST(Alive, MovesWhatACallbackTakesAndHolds) {
  const Alive alive;
  std::unique_ptr<int> got;
  const UniqueFunction<void(std::unique_ptr<int>)> take = alive.Guard(
      [&got, base = std::make_unique<int>(40)](std::unique_ptr<int> n) { got = std::make_unique<int>(*base + *n); });
  take(std::make_unique<int>(2));
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(*got, 42);
}

TEST(Alive, ACallbackMayDestroyItsObject) {
  std::optional<Alive> alive(std::in_place);
  int calls = 0;
  const UniqueFunction<void()> end = alive->Guard([&] {
    ++calls;
    alive.reset();
  });
  end();
  end();
  EXPECT_EQ(calls, 1);
}

// The last member is the first to go: members that end later call nothing of the object.
TEST(Alive, TheObjectIsGoneBeforeItsOtherMembersEnd) {
  UniqueFunction<void()> at_end;
  int missed = 0;
  {
    Counter counter(&at_end);
    at_end = [add = counter.AddOr(&missed)] { add(1); };
  }
  EXPECT_EQ(missed, 1);
}

}  // namespace
}  // namespace poseidon
