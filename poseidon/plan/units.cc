// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/units.h"

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>

namespace poseidon::plan {
std::string NumberText(double number) {
  // Rounded first, so that 9.996 becomes 10.0 and not 10.00.
  const double size = std::abs(number);
  const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string BytesText(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return NumberText(value) + " " + kUnits[unit];
}

std::string SecondsText(double seconds) {
  if (seconds == 0) return "0 s";
  const double size = std::abs(seconds);
  if (size < 0.9995e-3) return NumberText(seconds * 1e6) + " us";
  if (size < 0.9995) return NumberText(seconds * 1e3) + " ms";
  return NumberText(seconds) + " s";
}

std::string PercentText(double share) {
  return std::to_string(static_cast<long>(std::lround(100 * share))) + " %";
}

std::string FactorText(double factor) { return NumberText(factor) + "x"; }

}  // namespace poseidon::plan
