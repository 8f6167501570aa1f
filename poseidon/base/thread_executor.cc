// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/thread_executor.h"

#include <pthread.h>

#include <chrono>
#include <optional>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon {
namespace {

using Clock = std::chrono::steady_clock;

TimePoint Now() {
  return {std::chrono::duration_cast<Duration>(Clock::now().time_since_epoch())};
}

// A delay so long that the sum would overflow means "never": a hundred years will do.
TimePoint After(TimePoint now, Duration delay) {
  constexpr Duration kForever = std::chrono::hours(24 * 365 * 100);
  return now + (delay < kForever ? delay : kForever);
}

}  // namespace

// Linux refuses a thread's name of more than 15 characters (pthread_setname_np(3)).
ThreadExecutor::ThreadExecutor(const std::string& name)
    : thread_([this, name = name.substr(0, 15)] { Loop(name); }) {}

ThreadExecutor::~ThreadExecutor() {
  POSEIDON_CHECK(!OnExecutor(), "an executor cannot be destroyed by its own task");
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

// The task may be what lets another thread destroy this executor, so nothing is touched after the
// lock is given up; hence the notification under it.
void ThreadExecutor::Post(Task task) {
  MutexLock lock(mutex_);
  if (stopping_) return;  // `task` dies with the argument, outside the lock
  // The clock is read under the lock, so that posted tasks are in order of their times.
  queue_.Post(Now(), next_sequence_++, std::move(task));
  // A busy thread needs no notification: it looks at the queue before it waits, under the same lock.
  if (waiting_) changed_.NotifyOne();
}

TimerId ThreadExecutor::PostAfter(Duration delay, Task task) {
  POSEIDON_CHECK(delay >= Duration::zero(), "a delay must not be negative");
  MutexLock lock(mutex_);
  const TimerId id = next_sequence_++;
  if (stopping_) return id;
  queue_.PostAt(After(Now(), delay), id, std::move(task));
  if (waiting_) changed_.NotifyOne();
  return id;
}

bool ThreadExecutor::Cancel(TimerId timer) {
  Task cancelled;
  {
    MutexLock lock(mutex_);
    cancelled = queue_.Cancel(timer);
  }
  return static_cast<bool>(cancelled);
}

TimePoint ThreadExecutor::now() const { return Now(); }

bool ThreadExecutor::OnExecutor() const { return std::this_thread::get_id() == thread_.get_id(); }

void ThreadExecutor::Loop(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
  MutexLock lock(mutex_);
  while (!stopping_) {
    const std::optional<TaskQueue::Place> next = queue_.Next();
    if (!next || next->due > Now()) {
      waiting_ = true;
      if (next) {
        changed_.WaitUntil(lock, Clock::time_point(next->due.since_origin));
      } else {
        changed_.Wait(lock);
      }
      waiting_ = false;
      continue;
    }
    Task task = queue_.Pop();
    lock.Unlock();
    task();
    task = nullptr;  // what it owned dies before the next task, and outside the lock
    lock.Lock();
  }
  // Dies here, on this thread and after the lock is given up: what a task owned may post, which takes the lock.
  TaskQueue dropped = std::exchange(queue_, TaskQueue());
  lock.Unlock();
}

}  // namespace poseidon
