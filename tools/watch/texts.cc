// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/texts.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "poseidon/plan/units.h"

namespace poseidon::tools {

std::string BytesText(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {" B", " kB", " MB", " GB", " TB", " PB"};
  std::size_t unit = 0;
  // What would be written as 1000 is 1 of the next unit.
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return (unit == 0 ? std::to_string(std::lround(bytes)) : plan::NumberText(bytes)) + kUnits[unit];
}

}  // namespace poseidon::tools
