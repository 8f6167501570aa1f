// SPDX-License-Identifier: Apache-2.0
#include "tools/console/width.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

namespace poseidon::tools {
namespace {

constexpr std::size_t kLeast = 40;

// Of the character that begins with this byte of UTF-8; none of a byte that goes on with one. Wide characters are among those of
// three bytes and more.
std::size_t ColumnsOfByte(unsigned char byte) { return (byte & 0xc0) == 0x80 ? 0 : byte >= 0xe0 ? 2 : 1; }

}  // namespace

std::optional<std::size_t> TerminalWidth(int descriptor) {
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    if (const unsigned long width = std::strtoul(columns, nullptr, 10); width > 0) return std::max<std::size_t>(width, kLeast);
  }
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return std::max<std::size_t>(size.ws_col, kLeast);
}

TerminalSize SizeOfTerminal(int descriptor) {
  TerminalSize known;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return known;
  if (size.ws_col > 0) known.columns = size.ws_col;
  if (size.ws_row > 0) known.rows = size.ws_row;
  return known;
}

std::size_t ColumnsOf(std::string_view line) {
  std::size_t columns = 0;
  for (const char c : line) columns += ColumnsOfByte(static_cast<unsigned char>(c));
  return columns;
}

std::string Clipped(std::string_view line, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    taken += ColumnsOfByte(static_cast<unsigned char>(line[i]));
    if (taken > columns) return std::string(line.substr(0, i));
  }
  return std::string(line);
}

std::size_t OutputWidth() { return TerminalWidth(STDOUT_FILENO).value_or(kPlainWidth); }

void PassTerminalWidth(std::size_t before) {
  const std::optional<std::size_t> width = TerminalWidth(STDOUT_FILENO);
  if (width) setenv("COLUMNS", std::to_string(std::max(*width, kLeast + before) - before).c_str(), 1);
}

}  // namespace poseidon::tools
