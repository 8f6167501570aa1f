// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_UNITS_H_
#define POSEIDON_PLAN_UNITS_H_

#include <cstdint>
#include <string>

namespace poseidon::plan {

// Numbers for people, three significant digits: "1.60", "1.60 MB", "12.3 ms", "0 s", "1.74x". The first one has two decimals at most.
std::string NumberText(double number);
std::string BytesText(std::uint64_t bytes);
std::string SecondsText(double seconds);
std::string FactorText(double factor);
// "94 %" of 0.94.
std::string PercentText(double share);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_UNITS_H_
