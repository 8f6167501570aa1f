// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_FIGURES_TELLER_H_
#define POSEIDON_SESSION_FIGURES_TELLER_H_

#include <deque>
#include <functional>
#include <thread>

#include "poseidon/base/mutex.h"
#include "poseidon/place/figures.h"
#include "poseidon/session/overlap.h"

namespace poseidon::session {

// What a session knows of itself at one moment: the figures without their clock and without what `overlap` shows.
struct Sighting {
  place::Figures figures;
  OverlapMeter overlap;  // of all steps so far
};

// Makes a member's figures of what is seen of it. Counts never fall, although what waiting was for is only known better as steps add
// up. Thread: one.
class FiguresMaker {
 public:
  // `at`: seconds of the steady clock.
  place::Figures Make(Sighting seen, double at);

 private:
  struct Moment {
    double at = 0;
    OverlapMeter overlap;
  };
  std::deque<Moment> lately_;  // the oldest first
  double communication_ = 0;
  double slower_workers_ = 0;
  double hidden_ = 0;
};

// Tells a member's figures about once a second, in a thread of its own, and once more at the end.
class FiguresTeller {
 public:
  // Both are called in that thread, and in the destructor.
  FiguresTeller(std::function<Sighting()> look, place::TellFigures tell);
  ~FiguresTeller();
  FiguresTeller(const FiguresTeller&) = delete;
  FiguresTeller& operator=(const FiguresTeller&) = delete;

 private:
  void Run();
  void Tell();

  const std::function<Sighting()> look_;
  const place::TellFigures tell_;
  FiguresMaker maker_;
  Mutex mutex_;
  ConditionVariable ended_changed_;
  bool ended_ POSEIDON_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_FIGURES_TELLER_H_
