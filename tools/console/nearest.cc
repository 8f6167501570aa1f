// SPDX-License-Identifier: Apache-2.0
#include "tools/console/nearest.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace poseidon::tools {
namespace {

// How many characters must be changed, left out, added or swapped with the next to make one of the other.
std::size_t Distance(std::string_view one, std::string_view other) {
  std::vector<std::vector<std::size_t>> of(one.size() + 1, std::vector<std::size_t>(other.size() + 1));
  for (std::size_t i = 0; i <= one.size(); ++i) {
    for (std::size_t j = 0; j <= other.size(); ++j) {
      if (i == 0 || j == 0) {
        of[i][j] = i + j;
        continue;
      }
      const bool same = one[i - 1] == other[j - 1];
      of[i][j] = std::min({of[i - 1][j] + 1, of[i][j - 1] + 1, of[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1]) {
        of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
      }
    }
  }
  return of[one.size()][other.size()];
}

}  // namespace

std::string DidYouMean(const std::string& name, const std::vector<std::string>& names) {
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  std::string nearest;
  for (const std::string& other : names) {
    if (const std::size_t distance = Distance(name, other); distance < least) {
      least = distance;
      nearest = other;
    }
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace poseidon::tools
