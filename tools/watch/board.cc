// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/board.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "poseidon/base/listed.h"
#include "poseidon/plan/units.h"

namespace poseidon::tools {
namespace {

using place::Figures;
using plan::SecondsText;

// Rates are over so many seconds, or longer where steps are: until so many have ended.
constexpr double kLately = 5;
constexpr std::uint64_t kFewSteps = 3;
constexpr double kLongAgo = 60;
// Members tell something once a second: who has not for so long is not heard.
constexpr double kSilent = 10;
// From here on silence is worth a remark.
constexpr double kQuiet = 4;
// A step that has not ended for so long, and for longer than steps take, is held up by somebody.
constexpr double kPatience = 1.9;  // two figures
// So many are named that wait.
constexpr std::size_t kMostNamed = 3;
// A member is slow that takes so much longer to compute a step than the one in the middle. Less is what workers on one machine differ by.
constexpr double kSlower = 1.2;

// Whether those before `later` are of another job of the process, or none.
bool BeginsAnew(const Figures& before, const Figures& later) {
  return later.at <= before.at || later.steps < before.steps || later.measured < before.measured || later.sent < before.sent ||
         later.received < before.received;
}

// Since when rates are taken.
const Figures& Base(const std::deque<Figures>& lately) {
  const Figures& last = lately.back();
  const std::uint64_t few = last.measured == lately.front().measured ? 0 : kFewSteps;  // a server makes none
  for (std::size_t i = lately.size(); i-- > 0;) {
    const Figures& one = lately[i];
    if (last.at - one.at >= kLately && last.measured - one.measured >= few) return one;
  }
  return lately.front();
}

void SetRates(const std::deque<Figures>& lately, Standing* standing) {
  const Figures& last = lately.back();
  const Figures& base = Base(lately);
  const double seconds = last.at - base.at;
  if (seconds > 0) {
    standing->steps_per_second = static_cast<double>(last.steps - base.steps) / seconds;
    standing->sent_per_second = static_cast<double>(last.sent - base.sent) / seconds;
    standing->received_per_second = static_cast<double>(last.received - base.received) / seconds;
  }
  // The first figures come before the first step, so that all steps have a base.
  const double steps = static_cast<double>(last.measured - base.measured);
  const double stepping = last.seconds - base.seconds;
  if (steps <= 0 || stepping <= 0) return;
  standing->step_seconds = stepping / steps;
  standing->computing_seconds = std::max(0.0, last.computing() - base.computing()) / steps;
  standing->communication_share = std::min(1.0, (last.communication - base.communication) / stepping);
  standing->slower_share = std::min(1.0, (last.slower_workers - base.slower_workers) / stepping);
}

// Whether the program waits, and no step has begun for longer than one takes.
bool StandsStill(const std::deque<Figures>& lately, double step_seconds) {
  if (lately.empty() || !lately.back().blocked) return false;
  const Figures& last = lately.back();
  const double patience = std::max(kPatience, 1.5 * step_seconds);
  return std::any_of(lately.begin(), lately.end(),
                     [&](const Figures& one) { return one.steps == last.steps && last.at - one.at >= patience; });
}

std::string NameOf(const Seat& seat) {
  const bool number = !seat.name.empty() && seat.name.find_first_not_of("0123456789") == std::string::npos;
  return (number ? "rank " : "") + seat.name;
}

// "rank 0, rank 2"; of many, how many they are.
std::string Few(const std::vector<std::string>& names) {
  if (names.size() > kMostNamed) return std::to_string(names.size()) + " members";
  std::string list;
  for (const std::string& name : names) AddListed(name, &list);
  return list;
}

// The middle of what those that compute steps take for one; the lower of two.
double MiddleComputing(const std::vector<Standing>& all) {
  std::vector<double> seconds;
  for (const Standing& one : all) {
    if (one.up && one.step_seconds > 0) seconds.push_back(one.computing_seconds);
  }
  if (seconds.size() < 2) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

void MarkWhoComputesLonger(std::vector<Standing>* all) {
  const double middle = MiddleComputing(*all);
  if (middle <= 0) return;
  for (Standing& one : *all) {
    if (!one.up || one.step_seconds <= 0 || one.computing_seconds < kSlower * middle) continue;
    one.slow = true;
    one.remark = "slow: computes " + SecondsText(one.computing_seconds) + " a step, median " + SecondsText(middle);
  }
}

// Of those that stand still, each waits for members that do not, or stands in a circle of which nobody can be named.
void MarkWhoIsWaitedFor(const std::vector<bool>& stand_still, std::vector<Standing>* all) {
  std::map<std::size_t, std::vector<std::string>> waiting_for;
  for (std::size_t i = 0; i < all->size(); ++i) {
    Standing& one = (*all)[i];
    if (!one.up || !stand_still[i] || one.figures.waits_on.empty()) continue;
    std::vector<std::string> names;
    for (const std::uint16_t on : one.figures.waits_on) {
      if (on >= all->size() || on == i) continue;
      names.push_back(NameOf((*all)[on].seat));
      if (!stand_still[on]) waiting_for[on].push_back(NameOf(one.seat));
    }
    if (!names.empty()) one.remark = "waits for " + Few(names) + ": " + one.figures.waits_for;
  }
  for (const auto& [awaited, by] : waiting_for) {
    Standing& one = (*all)[awaited];
    one.slow = true;
    one.remark = "slow: " + Few(by) + (by.size() == 1 ? " waits for it" : " wait for it");
  }
}

void AddWhatItDoesInstead(Standing* one) {
  if (!one->ended.empty()) {
    one->remark = one->ended;
  } else if (!one->told) {
    one->remark = "has not joined a job so far";
  } else if (one->silent_seconds >= kQuiet) {
    one->remark = (one->slow ? "slow: " : "") + std::string("has said nothing for ") + std::to_string(static_cast<int>(one->silent_seconds)) + " s";
  } else if (!one->figures.busy_with.empty()) {
    one->remark += (one->remark.empty() ? "" : "; ") + one->figures.busy_with;
  }
}

}  // namespace

std::optional<double> Standing::link_share() const {
  if (figures.link <= 0) return std::nullopt;
  return std::max(sent_per_second, received_per_second) / figures.link;
}

Board::Board(std::vector<Seat> seats) {
  for (Seat& seat : seats) members_.push_back({.seat = std::move(seat), .lately = {}, .told_at = {}, .ended = {}});
}

void Board::Take(std::size_t place, const std::string& line, Clock::time_point now) {
  const std::optional<Figures> figures = place::DecodeFigures(line);
  MutexLock lock(mutex_);
  if (!figures || place >= members_.size()) return;
  Member& member = members_[place];
  if (!member.lately.empty() && BeginsAnew(member.lately.back(), *figures)) member.lately.clear();
  member.lately.push_back(*figures);
  while (member.lately.size() > 2 && figures->at - member.lately[1].at > kLongAgo) member.lately.pop_front();
  member.told_at = now;
}

void Board::End(std::size_t place, const std::string& how) {
  MutexLock lock(mutex_);
  if (place < members_.size()) members_[place].ended = how;
}

Standing Board::Of(const Member& member, Clock::time_point now) {
  Standing standing;
  standing.seat = member.seat;
  standing.ended = member.ended;
  if (member.lately.empty()) return standing;
  standing.told = true;
  standing.figures = member.lately.back();
  standing.silent_seconds = std::chrono::duration<double>(now - member.told_at).count();
  standing.up = member.ended.empty() && standing.silent_seconds < kSilent;
  SetRates(member.lately, &standing);
  return standing;
}

std::vector<Standing> Board::Look(Clock::time_point now) const {
  std::vector<Standing> all;
  std::vector<bool> stand_still;
  {
    MutexLock lock(mutex_);
    for (const Member& member : members_) {
      all.push_back(Of(member, now));
      stand_still.push_back(StandsStill(member.lately, all.back().step_seconds) && all.back().silent_seconds < kQuiet);
    }
  }
  MarkWhoComputesLonger(&all);
  MarkWhoIsWaitedFor(stand_still, &all);
  for (Standing& one : all) AddWhatItDoesInstead(&one);
  return all;
}

}  // namespace poseidon::tools
