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

// Of the character of UTF-8 that begins at `at`; 0 where one goes on there. By its first two bytes, so where some of a block of characters
// are wide all count two; but not the blocks and lines of which progress bars are made.
std::size_t ColumnsAt(std::string_view line, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < line.size() ? static_cast<unsigned char>(line[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  if ((first & 0xc0) == 0x80) return 0;
  if (first < 0xe1 || first == 0xee) return 1;
  if (first == 0xe1) return second < 0x86 ? 2 : 1;  // Hangul
  if (first > 0xe2) return 2;                       // Chinese, Japanese, Korean; pictures
  const bool symbols = (second >= 0x8c && second <= 0x8f) || (second >= 0x98 && second <= 0x9e) || second >= 0xac;
  return symbols ? 2 : 1;
}

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
  for (std::size_t i = 0; i < line.size(); ++i) columns += ColumnsAt(line, i);
  return columns;
}

std::string Clipped(std::string_view line, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    taken += ColumnsAt(line, i);
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
