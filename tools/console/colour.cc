// SPDX-License-Identifier: Apache-2.0
#include "tools/console/colour.h"

#include <unistd.h>

#include <cstdlib>

namespace poseidon::tools {

bool ShowsColours(int fd) {
  const char* const refused = std::getenv("NO_COLOR");
  return isatty(fd) == 1 && (refused == nullptr || *refused == '\0');
}

std::string InColour(const char* colour, const std::string& text) {
  return colour == nullptr ? text : colour + text + "\x1b[0m";
}

}  // namespace poseidon::tools
