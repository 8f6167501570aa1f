// SPDX-License-Identifier: Apache-2.0
#include "tools/console/width.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace poseidon::tools {
namespace {

constexpr std::size_t kLeast = 40;

}  // namespace

std::optional<std::size_t> TerminalWidth(int descriptor) {
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    if (const unsigned long width = std::strtoul(columns, nullptr, 10); width > 0) return std::max<std::size_t>(width, kLeast);
  }
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return std::max<std::size_t>(size.ws_col, kLeast);
}

std::size_t OutputWidth() { return TerminalWidth(STDOUT_FILENO).value_or(kPlainWidth); }

void PassTerminalWidth(std::size_t before) {
  const std::optional<std::size_t> width = TerminalWidth(STDOUT_FILENO);
  if (width) setenv("COLUMNS", std::to_string(std::max(*width, kLeast + before) - before).c_str(), 1);
}

}  // namespace poseidon::tools
