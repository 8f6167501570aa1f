// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_TEXTS_H_
#define POSEIDON_TOOLS_WATCH_TEXTS_H_

#include <string>

// Numbers as a table shows them: three digits and a unit.
namespace poseidon::tools {

// "1.25 GB", "20 B".
std::string BytesText(double bytes);
// "82.1 ms", "1.5 s".
std::string SecondsText(double seconds);
// "94 %" of 0.94.
std::string PercentText(double share);
// "12.3", "1200": three digits, or as many as there are before the point.
std::string NumberText(double number);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_TEXTS_H_
