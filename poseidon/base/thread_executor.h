// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_THREAD_EXECUTOR_H_
#define POSEIDON_BASE_THREAD_EXECUTOR_H_

#include <cstdint>
#include <string>
#include <thread>

#include "poseidon/base/executor.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/task_queue.h"

namespace poseidon {

// An executor that is one thread. Its time is the steady clock with that clock's own origin, so the
// times of all thread executors of a process compare.
//
// Destroying it waits for the task under way and drops the rest; the dropped tasks are destroyed on
// the executor's own thread (OnExecutor holds there), and what they post is dropped as well. It must
// not be destroyed from one of its own tasks.
class ThreadExecutor final : public Executor {
 public:
  // `name` is what debuggers and /proc show for the thread, cut at 15 characters.
  explicit ThreadExecutor(const std::string& name);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  bool Cancel(TimerId timer) override;
  TimePoint now() const override;
  bool OnExecutor() const override;

 private:
  void Loop(const std::string& name);

  // Tasks run and die outside it.
  Mutex mutex_;
  ConditionVariable changed_;
  TaskQueue queue_ POSEIDON_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ POSEIDON_GUARDED_BY(mutex_) = 1;
  bool waiting_ POSEIDON_GUARDED_BY(mutex_) = false;
  bool stopping_ POSEIDON_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last, because it uses all of the above
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_THREAD_EXECUTOR_H_
