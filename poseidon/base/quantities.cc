// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/quantities.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

namespace poseidon {
namespace {

struct Unit {
  std::string name;
  double factor;
};

// The number times its unit; NaN where either is not understood. Units are compared in lower case, but for
// the B of bytes, which is no b of bits.
double Scaled(const std::string& text, const std::vector<Unit>& units) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nan("");
  std::string unit;
  for (; *end != '\0'; ++end) {
    if (*end == 'B') return std::nan("");
    if (*end != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
  }
  for (const Unit& known : units) {
    if (unit == known.name) return number * known.factor;
  }
  return std::nan("");
}

}  // namespace

Result<double> ParseRate(const std::string& text) {
  std::vector<Unit> units;
  for (const auto& [prefix, factor] : std::initializer_list<std::pair<std::string, double>>{
           {"", 1}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}}) {
    for (const char* unit : {"bit", "bits", "bit/s", "bits/s", "b/s", "bps"}) units.push_back({prefix + unit, factor});
    if (!prefix.empty()) units.push_back({prefix, factor});
  }
  const double rate = Scaled(text, units);
  constexpr double kMost = 1e15;
  if (std::isfinite(rate) && rate > 0 && rate <= kMost) return rate;
  return InvalidArgument("rate '" + text +
                         "' is not understood, expected bits per second, as in 10Gbit, 10G, 400Mbit or 2.5Gbps, and at most "
                         "1000Tbit");
}

Result<double> ParseBandwidth(const std::string& text) {
  if (text.empty()) return 0.0;
  const Result<double> bits = ParseRate(text);
  return bits.ok() ? Result<double>(*bits / 8) : Result<double>(bits.status().WithPrefix("bandwidth"));
}

Result<double> ParseDuration(const std::string& text) {
  const double seconds = Scaled(text, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
  if (std::isfinite(seconds) && seconds >= 0) return seconds;
  return InvalidArgument(
      "duration '" + text +
      "' is not understood, expected a number with ns, us, ms or s, as in 100us");
}

std::string RateText(double bits_per_second) {
  double value = bits_per_second;
  const char* unit = "bit/s";
  for (const char* next : {"kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  char number[64];
  std::snprintf(number, sizeof number, "%.3g", value);
  return std::string(number) + " " + unit;
}

}  // namespace poseidon
