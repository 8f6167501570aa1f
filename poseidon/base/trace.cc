// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/trace.h"

#include <algorithm>

#include "poseidon/base/check.h"

namespace poseidon {

const char* NameOf(TraceLane lane) {
  switch (lane) {
    case TraceLane::kCompute: return "compute";
    case TraceLane::kSend: return "send";
    case TraceLane::kReceive: return "receive";
    case TraceLane::kSum: return "sum";
    case TraceLane::kRebuild: return "rebuild";
    case TraceLane::kWait: return "wait";
    case TraceLane::kToHost: return "to host";
    case TraceLane::kToDevice: return "to device";
  }
  return "?";
}

TraceRecorder::TraceRecorder(const Options& options) : options_(options) {
  POSEIDON_CHECK(options.spans > 0, "a trace keeps at least one span");
}

TraceRecorder::Kept* TraceRecorder::Steps::Find(std::uint64_t step) {
  for (ByStep* const among : {&first, &last}) {
    if (const auto found = among->find(step); found != among->end()) return &found->second;
  }
  return nullptr;
}

void TraceRecorder::GiveUp(Steps* steps, ByStep* among, ByStep::iterator step) {
  steps->given_up = std::max(steps->given_up, step->first + 1);
  spans_ -= step->second.spans.size();
  among->erase(step);
}

// A place for the step of `span`, the first that comes of it. Null if it is not to be kept.
TraceRecorder::Kept* TraceRecorder::Add(const TraceSpan& span, Steps* steps) {
  // A step that was given up does not come back with the few spans that end late.
  if (span.step < steps->given_up) return nullptr;
  // Once a step was given up, a new one is not among the first, even if a first one has made room.
  const bool is_first = steps->given_up == 0 && steps->first.size() < options_.first_steps;
  if (!is_first && steps->last.size() >= options_.last_steps) {
    if (steps->last.empty()) return nullptr;
    GiveUp(steps, &steps->last, steps->last.begin());
  }
  Kept& added = (is_first ? steps->first : steps->last)[span.step];
  added.began = span.begin;
  return &added;
}

// Gives up a whole step for the next span of the step `in`: that which began first, or where there is but one besides the
// first few, the last of these. False if the span has no place all the same.
bool TraceRecorder::MakeRoom(const Kept* in) {
  Steps* oldest = nullptr;
  for (auto& [model, steps] : models_) {
    // The only last step stays if it is the one that grows: the first steps make room for it below (see the header).
    if (steps.last.empty() || (steps.last.size() == 1 && &steps.last.begin()->second == in)) continue;
    if (oldest == nullptr || steps.last.begin()->second.began < oldest->last.begin()->second.began) oldest = &steps;
  }
  if (oldest != nullptr) {
    const bool other = &oldest->last.begin()->second != in;
    GiveUp(oldest, &oldest->last, oldest->last.begin());
    return other;
  }
  for (auto& [model, steps] : models_) {
    // From the newest: of the first steps the earliest are the last to go.
    for (auto step = steps.first.end(); step != steps.first.begin();) {
      if (&(--step)->second == in) continue;
      GiveUp(&steps, &steps.first, step);
      return true;
    }
  }
  return false;
}

void TraceRecorder::Record(const TraceSpan& span) {
  MutexLock lock(mutex_);
  Steps& steps = models_[span.model];
  Kept* kept = steps.Find(span.step);
  if (kept == nullptr) kept = Add(span, &steps);
  if (kept == nullptr || (spans_ == options_.spans && !MakeRoom(kept))) return;
  kept->spans.push_back(span);
  ++spans_;
}

std::vector<TraceSpan> TraceRecorder::Take() {
  MutexLock lock(mutex_);
  std::vector<TraceSpan> spans;
  spans.reserve(spans_);
  for (auto& [model, steps] : models_) {
    for (const ByStep* const among : {&steps.first, &steps.last}) {
      for (const auto& [number, step] : *among) spans.insert(spans.end(), step.spans.begin(), step.spans.end());
    }
  }
  models_.clear();
  spans_ = 0;
  // Stable: spans of one step that end at the same moment stay in the order in which they were recorded.
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) { return a.end < b.end; });
  return spans;
}

}  // namespace poseidon
