// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_LESSER_H_
#define POSEIDON_BASE_LESSER_H_

#include <algorithm>

namespace poseidon {

// The lesser of two rates, of which 0 or less is no rate: the other one then, or 0.
inline double LesserRate(double a, double b) {
  if (a <= 0 || b <= 0) return std::max({a, b, 0.0});
  return std::min(a, b);
}

}  // namespace poseidon

#endif  // POSEIDON_BASE_LESSER_H_
