// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_LINE_WRITER_H_
#define POSEIDON_TOOLS_CONSOLE_LINE_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "poseidon/base/mutex.h"

namespace poseidon::tools {

// Writes lines to a descriptor that may take nothing for a while (a paused terminal, a full pipe)
// without ever blocking whoever has something to say. What does not fit into the buffer is dropped,
// whole lines at a time, and their number is said when the descriptor takes lines again.
// Thread: any. Its own thread lives as long as the process, so it is never destroyed.
class LineWriter {
 public:
  // Does not own `fd`.
  explicit LineWriter(int fd, std::size_t limit = std::size_t{256} << 10);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void Write(std::string text);
  // Shown only where nothing waits before it; whether that is so.
  bool WriteOrDrop(std::string text);
  // Whether the descriptor keeps up: nothing is near being dropped.
  bool HasRoom();
  // Blocks until all is written, or nothing could be for `patience`; false then.
  bool Drain(std::chrono::milliseconds patience);
  // Blocks until all is written or `enough`, asked often, says so.
  void DrainUntil(const std::function<bool()>& enough);

 private:
  void Run();
  bool empty() const POSEIDON_REQUIRES(mutex_) { return texts_.empty() && dropped_ == 0; }
  // Waits until all is written, at most for `patience`; whether it is.
  bool WaitUntilEmpty(MutexLock& lock, std::chrono::milliseconds patience) POSEIDON_REQUIRES(mutex_);
  // Whether the descriptor took all of it; false where nobody reads any more.
  bool WriteWhole(const std::string& text);

  const int fd_;
  const std::size_t limit_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::string> texts_ POSEIDON_GUARDED_BY(mutex_);  // the first is being written
  std::size_t bytes_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t progress_ POSEIDON_GUARDED_BY(mutex_) = 0;  // grows with every write that the descriptor took
  bool broken_ POSEIDON_GUARDED_BY(mutex_) = false;
};

// This process's standard output and standard error; one and the same where both lead to one place,
// which keeps the order of their lines.
LineWriter& StandardOutput();
LineWriter& StandardError();

// Whether two descriptors lead to one place, as standard output and error do after 2>&1.
bool LeadToOnePlace(int one, int other);

// At the end of the process: blocks until both, where they were used, have been taken. With `patience`
// it gives up where nothing was taken for so long, without where `enough` says so.
void DrainStandardStreams(const std::function<bool()>& enough);
void DrainStandardStreams(std::chrono::milliseconds patience);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_LINE_WRITER_H_
