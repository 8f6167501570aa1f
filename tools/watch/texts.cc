// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/texts.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace poseidon::tools {

std::string NumberText(double number) {
  const int decimals = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

std::string BytesText(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {" B", " kB", " MB", " GB", " TB", " PB"};
  std::size_t unit = 0;
  // What would be written as 1000 is 1 of the next unit.
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return (unit == 0 ? std::to_string(std::lround(bytes)) : NumberText(bytes)) + kUnits[unit];
}

std::string SecondsText(double seconds) {
  if (seconds >= 0.9995) return NumberText(seconds) + " s";
  return seconds >= 0.0009995 ? NumberText(1e3 * seconds) + " ms" : NumberText(1e6 * seconds) + " us";
}

std::string PercentText(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

}  // namespace poseidon::tools
