// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_WIDTH_H_
#define POSEIDON_TOOLS_CONSOLE_WIDTH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace poseidon::tools {

// What is no terminal, a file or a pipe, gets lines that fit most.
inline constexpr std::size_t kPlainWidth = 80;

// How many columns the terminal has that is open as `descriptor`, at least 40; none where that is no terminal. The variable
// COLUMNS, which shells and tests set, counts before it.
std::optional<std::size_t> TerminalWidth(int descriptor);

// The terminal that is open as `descriptor`, as it is now, whatever COLUMNS says; 80 times 24 where it does not say.
struct TerminalSize {
  std::size_t columns = kPlainWidth;
  std::size_t rows = 24;
};
TerminalSize SizeOfTerminal(int descriptor);

// How many columns a terminal needs for a line of UTF-8, at most.
std::size_t ColumnsOf(std::string_view line);
// The beginning of a line that fits into so many columns.
std::string Clipped(std::string_view line, std::size_t columns);

// How many columns lines on standard output have: its terminal's, else kPlainWidth.
std::size_t OutputWidth();

// Sets COLUMNS for the processes that this one starts, whose output it shows behind `before` columns of its own, where
// standard output is a terminal. Before there are threads.
void PassTerminalWidth(std::size_t before = 0);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_WIDTH_H_
