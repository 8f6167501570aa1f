// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_QUANTITIES_H_
#define POSEIDON_BASE_QUANTITIES_H_

#include <string>

#include "poseidon/base/result.h"

// Rates and durations as people write them, and rates as they read them.
namespace poseidon {

// "10Gbit", "100 Mbit/s", "2.5Gbps", "1e9bit": bits per second, more than 0. kInvalidArgument.
Result<double> ParseRate(const std::string& text);
// The same of a limit of bandwidth, in bytes per second; the sentence names it. 0 of an empty text, which is no limit.
Result<double> ParseBandwidth(const std::string& text);
// "100us", "0.5 ms", "2s": seconds, 0 or more. kInvalidArgument.
Result<double> ParseDuration(const std::string& text);

// "10 Gbit/s", "2.5 Gbit/s", "100 Mbit/s".
std::string RateText(double bits_per_second);

}  // namespace poseidon

#endif  // POSEIDON_BASE_QUANTITIES_H_
