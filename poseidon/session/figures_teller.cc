// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/figures_teller.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace poseidon::session {
namespace {

constexpr std::chrono::seconds kBetween{1};
// The share that was hidden "lately" is that of the steps since so long ago.
constexpr double kLately = 10;

double SteadySeconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

place::Figures FiguresMaker::Make(Sighting seen, double at) {
  place::Figures figures = std::move(seen.figures);
  const OverlapMeter& now = seen.overlap;
  communication_ = std::max(communication_, now.exposed());
  slower_workers_ = std::max(slower_workers_, now.skew());
  figures.at = at;
  figures.measured = now.steps();
  figures.seconds = now.seconds();
  figures.communication = communication_;
  figures.slower_workers = slower_workers_;
  lately_.push_back({at, now});
  while (lately_.size() > 2 && lately_[1].at <= at - kLately) lately_.pop_front();
  // Where no step has ended lately, what was last known holds.
  const OverlapMeter since = lately_.size() < 2 ? now : now.Since(lately_.front().overlap);
  if (since.steps() > 0) hidden_ = since.hidden_share();
  figures.hidden = hidden_;
  return figures;
}

FiguresTeller::FiguresTeller(std::function<Sighting()> look, place::TellFigures tell)
    : look_(std::move(look)), tell_(std::move(tell)) {
  // The program's signals are for its own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

FiguresTeller::~FiguresTeller() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  ended_changed_.NotifyAll();
  thread_.join();
  Tell();
}

void FiguresTeller::Run() {
  MutexLock lock(mutex_);
  while (!ended_) {
    lock.Unlock();
    Tell();
    lock.Lock();
    const auto next = std::chrono::steady_clock::now() + kBetween;
    while (!ended_ && ended_changed_.WaitUntil(lock, next)) {
    }
  }
}

void FiguresTeller::Tell() { tell_(maker_.Make(look_(), SteadySeconds())); }

}  // namespace poseidon::session
