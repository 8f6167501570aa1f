// SPDX-License-Identifier: Apache-2.0
#include "tools/logs/log_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace poseidon::logs {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Takes `digits` to `most` digits off the beginning; nullopt where fewer are there.
std::optional<int> TakeDigits(std::string_view* text, std::size_t digits, std::size_t most) {
  std::size_t count = 0;
  int number = 0;
  while (count < std::min(most, text->size()) && IsDigit((*text)[count])) number = 10 * number + ((*text)[count++] - '0');
  if (count < digits) return std::nullopt;
  text->remove_prefix(count);
  return number;
}

bool Take(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

void TakeSpaces(std::string_view* text) {
  while (!text->empty() && IsSpace(text->front())) text->remove_prefix(1);
}

// The number that begins here; nullopt where none does. `whole`: it must be all of `text`.
std::optional<double> NumberAt(std::string_view text, bool whole = false) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || (!IsDigit(text.front()) && text.front() != '-' && text.front() != '.')) return std::nullopt;
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || !std::isfinite(number) || (whole && read.ptr != text.data() + text.size())) return std::nullopt;
  return number;
}

// What stands behind the first `word`.
std::optional<std::string_view> Behind(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + word.size());
}

}  // namespace

std::optional<std::int64_t> LogClock::TimeOf(std::string_view line) {
  TakeSpaces(&line);
  if (line.empty()) return std::nullopt;
  line.remove_prefix(1);  // the level
  const auto year = line.find_first_not_of("0123456789") == 8 ? TakeDigits(&line, 4, 4) : std::nullopt;
  const auto month = TakeDigits(&line, 2, 2), day = month ? TakeDigits(&line, 2, 2) : std::nullopt;
  if (!day || line.empty() || !IsSpace(line.front())) return std::nullopt;
  TakeSpaces(&line);
  std::array<int, 3> clock{};
  for (std::size_t i = 0; i < clock.size(); ++i) {
    const auto part = TakeDigits(&line, 1, 2);
    if (!part || !Take(&line, i < 2 ? ':' : '.')) return std::nullopt;
    clock[i] = *part;
  }
  const auto micros = TakeDigits(&line, 1, 6);
  if (!micros || *month < 1 || *month > 12 || *day < 1 || *day > 31 || clock[0] > 23 || clock[1] > 59 || clock[2] > 60) {
    return std::nullopt;
  }
  if (year) {
    year_ = *year;
  } else if (*month < month_) {
    ++year_;
  }
  month_ = *month;
  // The first of the month and so many days: the 29th of February has its place also where the year has none.
  const std::chrono::sys_days first(std::chrono::year(year_) / *month / 1);
  const auto time = first + std::chrono::days(*day - 1) + std::chrono::hours(clock[0]) + std::chrono::minutes(clock[1]) +
                    std::chrono::seconds(clock[2]) + std::chrono::microseconds(*micros);
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::optional<double> IterationIn(std::string_view line) {
  while (const auto rest = Behind(line, "Iteration ")) {
    const std::size_t digits = std::min(rest->size(), rest->find_first_not_of("0123456789"));
    if (digits > 0) return NumberAt(rest->substr(0, digits));
    line = *rest;
  }
  return std::nullopt;
}

std::optional<double> RateIn(std::string_view line) {
  const auto rest = Behind(line, "lr = ");
  return rest ? NumberAt(*rest) : std::nullopt;
}

std::optional<double> LossIn(std::string_view line) {
  const auto rest = Behind(line, ", loss = ");
  return rest ? NumberAt(*rest) : std::nullopt;
}

std::optional<OutputFound> OutputIn(std::string_view line, std::string_view which) {
  auto rest = Behind(line, std::string(which) + " net output #");
  if (!rest) return std::nullopt;
  const std::size_t digits = std::min(rest->size(), rest->find_first_not_of("0123456789"));
  rest->remove_prefix(digits);
  if (digits == 0 || !Take(&*rest, ':') || !Take(&*rest, ' ')) return std::nullopt;
  const std::size_t end = static_cast<std::size_t>(std::find_if(rest->begin(), rest->end(), IsSpace) - rest->begin());
  const std::string_view value = rest->substr(end);
  if (end == 0 || !value.starts_with(" = ")) return std::nullopt;
  const std::string_view text = value.substr(3);
  const auto number = NumberAt(text.substr(0, text.find_first_not_of("0123456789.eE+-")), /*whole=*/true);
  if (!number) return std::nullopt;
  return OutputFound{std::string(rest->substr(0, end)), *number};
}

}  // namespace poseidon::logs
