// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_FRONT_END_H_
#define POSEIDON_SESSION_FRONT_END_H_

#include <atomic>
#include <string>
#include <utility>

#include "poseidon/base/mutex.h"

namespace poseidon::session {

// The state of the program above the session that the watch over progress asks for (coordinator/progress.h).
// Thread: any.
class FrontEnd {
 public:
  // While one of these lives, the program waits in a call.
  class Blocked {
   public:
    explicit Blocked(FrontEnd& front_end) : front_end_(front_end) { ++front_end_.blocked_; }
    ~Blocked() { --front_end_.blocked_; }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    FrontEnd& front_end_;
  };
  bool blocked() const { return blocked_ > 0; }

  // Says what keeps the program from steps, as in "evaluates"; empty: nothing in particular.
  void Say(std::string busy_with) {
    MutexLock lock(mutex_);
    busy_with_ = std::move(busy_with);
  }
  std::string busy_with() const {
    MutexLock lock(mutex_);
    return busy_with_;
  }

 private:
  std::atomic<int> blocked_ = 0;
  mutable Mutex mutex_;
  std::string busy_with_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_FRONT_END_H_
