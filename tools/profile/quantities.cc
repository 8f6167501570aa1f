// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/quantities.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace poseidon::profile {
namespace {

struct Unit {
  const char* name;
  double factor;
};

// The number times its unit; NaN where either is not understood. Units are compared in lower case, but for
// the B of bytes, which is no b of bits.
double Scaled(const std::string& text, std::initializer_list<Unit> units) {
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
  const double rate = Scaled(text, {{"bit", 1},
                                    {"bit/s", 1},
                                    {"bps", 1},
                                    {"kbit", 1e3},
                                    {"kbit/s", 1e3},
                                    {"kbps", 1e3},
                                    {"mbit", 1e6},
                                    {"mbit/s", 1e6},
                                    {"mbps", 1e6},
                                    {"gbit", 1e9},
                                    {"gbit/s", 1e9},
                                    {"gbps", 1e9},
                                    {"tbit", 1e12},
                                    {"tbit/s", 1e12},
                                    {"tbps", 1e12}});
  constexpr double kMost = 1e15;
  if (std::isfinite(rate) && rate > 0 && rate <= kMost) return rate;
  return InvalidArgument("rate '" + text +
                         "' is not understood, expected a number with bit, kbit, Mbit, Gbit or "
                         "Tbit (per second), as in 10Gbit, and at most 1000Tbit");
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

}  // namespace poseidon::profile
