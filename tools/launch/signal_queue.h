// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_SIGNAL_QUEUE_H_
#define POSEIDON_TOOLS_LAUNCH_SIGNAL_QUEUE_H_

#include <signal.h>

#include <initializer_list>
#include <optional>

namespace poseidon::launch {

// Signals to this process, which from its construction on wait in a descriptor and do nothing else, until they are read
// one after another. Thread: the main thread. The destructor gives the thread its old mask back.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  // False where the kernel has no descriptor left.
  bool ok() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // A signal that has come; nullopt where none waits.
  std::optional<int> Next() const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

// Does with a signal that a SignalQueue holds what it does by default: for SIGTSTP, stops this process until somebody
// lets it go on. The kernel decides whether it does: not where no shell could, nor where the signal is ignored.
void TakeAsByDefault(int signal);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_SIGNAL_QUEUE_H_
