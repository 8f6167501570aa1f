// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_FRONT_END_H_
#define POSEIDON_SESSION_FRONT_END_H_

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

namespace poseidon::session {

// What the program above the session does, as far as the watch over progress asks (coordinator/progress.h).
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

  // What keeps the program from steps, "evaluates"; empty: nothing in particular.
  void Say(std::string busy_with) {
    std::lock_guard lock(mutex_);
    busy_with_ = std::move(busy_with);
  }
  std::string busy_with() const {
    std::lock_guard lock(mutex_);
    return busy_with_;
  }

 private:
  std::atomic<int> blocked_ = 0;
  mutable std::mutex mutex_;
  std::string busy_with_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_FRONT_END_H_
