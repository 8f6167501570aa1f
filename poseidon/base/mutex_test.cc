// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace poseidon {
namespace {

// A value that one thread puts and another takes.
class Slot {
 public:
  void Put(int value) {
    MutexLock lock(mutex_);
    while (full_) changed_.Wait(lock);
    value_ = value;
    full_ = true;
    changed_.NotifyOne();
  }
  int Take() {
    MutexLock lock(mutex_);
    while (!full_) changed_.Wait(lock);
    full_ = false;
    changed_.NotifyOne();
    const int value = value_;
    lock.Unlock();
    return value;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int value_ POSEIDON_GUARDED_BY(mutex_) = 0;
  bool full_ POSEIDON_GUARDED_BY(mutex_) = false;
};

TEST(Mutex, AWaitEndsWithANotificationAndHoldsTheMutexAgain) {
  Slot slot;
  std::thread putter([&] {
    for (int i = 0; i < 1000; ++i) slot.Put(i);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(slot.Take(), i);
  putter.join();
}

TEST(Mutex, AWaitUntilATimeEndsThere) {
  Mutex mutex;
  ConditionVariable changed;
  MutexLock lock(mutex);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  while (changed.WaitUntil(lock, end)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), end);
}

TEST(Mutex, IsFreeBetweenUnlockAndLock) {
  Mutex mutex;
  int value = 0;
  MutexLock lock(mutex);
  lock.Unlock();
  std::thread([&] {
    const MutexLock other(mutex);
    value = 1;
  }).join();
  lock.Lock();
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace poseidon
