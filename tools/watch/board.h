// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_BOARD_H_
#define POSEIDON_TOOLS_WATCH_BOARD_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/base/mutex.h"
#include "poseidon/place/figures.h"

namespace poseidon::tools {

// A member of a job as people see it.
struct Seat {
  std::string name;  // "3"; of a dedicated server "server 0"
  std::string host;
};

// How one member does.
struct Standing {
  Seat seat;
  bool told = false;           // it has told something; until then the rest is empty
  bool up = false;             // and did so lately, and has not ended
  place::Figures figures;      // what it told last
  double silent_seconds = 0;   // since then
  std::string ended;           // "exited with code 0"; empty: it runs

  // Of what it told lately.
  double steps_per_second = 0;
  double sent_per_second = 0;      // bytes
  double received_per_second = 0;
  double step_seconds = 0;         // the mean of a step; 0: none has ended
  double computing_seconds = 0;    // of a step, without what it waited
  double communication_share = 0;  // of the time, waited for bytes
  double slower_share = 0;         // of the time, waited for slower workers

  bool slow = false;    // the others wait for it
  std::string remark;   // in words: what it waits for, why it is slow, what it does instead; empty: nothing to say

  // What it moves the more of in one direction, as a share of what the link carries; none where that is not known.
  std::optional<double> link_share() const;
};

// What the members of a job have told their launcher, and what that says of each. Who is slow is judged here: by what all take to
// compute a step, and by who waits for whom where steps do not end.
// Thread: any.
class Board {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Board(std::vector<Seat> seats);

  // A line of poseidon/place/figures.h from the member at `place`. What is none, or nobody's, changes nothing.
  void Take(std::size_t place, const std::string& line, Clock::time_point now);
  // The member has ended.
  void End(std::size_t place, const std::string& how);
  // All, by place.
  std::vector<Standing> Look(Clock::time_point now) const;

 private:
  struct Member {
    Seat seat;
    std::deque<place::Figures> lately;  // the oldest first
    Clock::time_point told_at;
    std::string ended;
  };
  static Standing Of(const Member& member, Clock::time_point now);

  mutable Mutex mutex_;
  std::vector<Member> members_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_BOARD_H_
