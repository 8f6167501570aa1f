// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/work_clock.h"

#include <chrono>

#include "poseidon/plan/layer_clock.h"

namespace poseidon::caffe {
namespace {

Duration Between(const c10::Event& from, const c10::Event& to) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(from.elapsedTime(to)));
}

}  // namespace

WorkClock::WorkClock(const Placement& placement, std::function<void(const LayerWork&)> tell)
    : placement_(placement), tell_(std::move(tell)) {}

c10::Event WorkClock::Record() {
  if (spare_.empty()) return placement_.Now(/*timed=*/true);
  c10::Event event = std::move(spare_.back());
  spare_.pop_back();
  event.record(placement_.stream());
  return event;
}

void WorkClock::Begin() {
  if (placement_.on_host()) {
    began_ = plan::SteadyNow();
  } else {
    begin_.emplace(Record());
  }
}

void WorkClock::End(Work work, int layer, std::uint64_t iteration) {
  LayerWork ended{.work = work, .layer = layer, .iteration = iteration, .begin = began_, .end = {}};
  if (placement_.on_host()) {
    ended.end = plan::SteadyNow();
    tell_(ended);
    return;
  }
  launched_.push_back({ended, {*std::exchange(begin_, std::nullopt), Record()}});
}

void WorkClock::Mark() {
  Tell();
  if (launched_.empty()) return;
  mark_.emplace(Record());
  mark_->synchronize();
  marked_at_ = plan::SteadyNow();
  std::swap(marked_, launched_);
}

void WorkClock::Tell() {
  if (!mark_) return;
  for (Launched& one : marked_) {
    auto& [begin, end] = one.events;
    one.work.begin = marked_at_ + -Between(begin, *mark_);
    one.work.end = marked_at_ + -Between(end, *mark_);
    tell_(one.work);
    spare_.push_back(std::move(begin));
    spare_.push_back(std::move(end));
  }
  spare_.push_back(*std::exchange(mark_, std::nullopt));
  marked_.clear();
}

}  // namespace poseidon::caffe
