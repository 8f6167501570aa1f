// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LOGS_LOG_LINES_H_
#define POSEIDON_TOOLS_LOGS_LOG_LINES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// What stands in single lines of Caffe's log.
namespace poseidon::logs {

// Reads glog's times, "I0210 13:39:22.381027 ...", which have no year, and "I20260210 13:39:22.381027 ..." of glog 0.6 and later.
class LogClock {
 public:
  explicit LogClock(int year) : year_(year) {}
  // Microseconds since 1970, as if local time were UTC; nullopt where the line does not begin with a time. Without a
  // year, a month before that of the line before is the next year's.
  std::optional<std::int64_t> TimeOf(std::string_view line);

 private:
  int year_;
  int month_ = 0;
};

// N of the first "Iteration N" in the line.
std::optional<double> IterationIn(std::string_view line);

// X of the first "lr = X".
std::optional<double> RateIn(std::string_view line);

// X of ", loss = X".
std::optional<double> LossIn(std::string_view line);

// "Train net output #0: NAME = X"; `which`: Train or Test.
struct OutputFound {
  std::string name;
  double value = 0;
};
std::optional<OutputFound> OutputIn(std::string_view line, std::string_view which);

}  // namespace poseidon::logs

#endif  // POSEIDON_TOOLS_LOGS_LOG_LINES_H_
