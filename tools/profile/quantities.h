// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_QUANTITIES_H_
#define POSEIDON_TOOLS_PROFILE_QUANTITIES_H_

#include <cstddef>
#include <string>

#include "poseidon/base/result.h"

// Rates and durations as people write them, and numbers as they read them.
namespace poseidon::profile {

// "10Gbit", "100 Mbit/s", "2.5Gbps", "1e9bit": bits per second, more than 0. kInvalidArgument.
Result<double> ParseRate(const std::string& text);
// "100us", "0.5 ms", "2s": seconds, 0 or more. kInvalidArgument.
Result<double> ParseDuration(const std::string& text);

// "10 Gbit/s", "2.5 Gbit/s", "100 Mbit/s".
std::string RateText(double bits_per_second);

// The text behind blanks, together `width` bytes, or the text alone where it has more: a cell of a table.
std::string Padded(const std::string& text, std::size_t width);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_QUANTITIES_H_
