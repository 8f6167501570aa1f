// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_IO_EXECUTOR_H_
#define POSEIDON_TRANSPORT_TCP_IO_EXECUTOR_H_

#include <memory>
#include <string>

#include "poseidon/base/executor.h"

namespace poseidon::transport::tcp {

// An executor that is one thread and also waits for sockets: the place where all network objects of
// a process live. Its time is the steady clock with that clock's own origin.
//
// Tasks and ready sockets take turns: the tasks that were due when a turn began run, and those that become due within 50 us
// of that, then what the sockets have ready, so neither starves the other.
//
// Lifetime: destroy connections, listeners and contexts before the executor, unless one of its own
// tasks owns them. Destroying it waits for the task under way and drops the rest; what is dropped
// is destroyed on the executor's own thread (OnExecutor holds there), and what that posts is
// dropped as well. It must not be destroyed from one of its own tasks.
class IoExecutor final : public Executor {
 public:
  // `name` is what debuggers and /proc show for the thread, cut at 15 characters.
  explicit IoExecutor(const std::string& name = "poseidon-io");
  ~IoExecutor() override;
  IoExecutor(const IoExecutor&) = delete;
  IoExecutor& operator=(const IoExecutor&) = delete;

  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  bool Cancel(TimerId timer) override;
  TimePoint now() const override;
  bool OnExecutor() const override;

 private:
  friend class Descriptor;
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_IO_EXECUTOR_H_
