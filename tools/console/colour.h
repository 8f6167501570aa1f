// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_COLOUR_H_
#define POSEIDON_TOOLS_CONSOLE_COLOUR_H_

#include <string>

namespace poseidon::tools {

// Colours that are read well on dark and on bright ground.
inline constexpr const char* kRed = "\x1b[31m";
inline constexpr const char* kGreen = "\x1b[32m";
inline constexpr const char* kYellow = "\x1b[33m";
inline constexpr const char* kBlue = "\x1b[34m";
inline constexpr const char* kMagenta = "\x1b[35m";
inline constexpr const char* kCyan = "\x1b[36m";

// Whether what is open as `fd` is a terminal of somebody who wants colours (https://no-color.org).
bool ShowsColours(int fd);

// `text` in that colour; as it is with nullptr.
std::string InColour(const char* colour, const std::string& text);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_COLOUR_H_
