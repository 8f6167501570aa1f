// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_WIDTH_H_
#define POSEIDON_TOOLS_CONSOLE_WIDTH_H_

#include <cstddef>
#include <optional>

namespace poseidon::tools {

// What is no terminal, a file or a pipe, gets lines that fit most.
inline constexpr std::size_t kPlainWidth = 80;

// How many columns the terminal has that is open as `descriptor`, at least 40; none where that is no terminal. The variable
// COLUMNS, which shells and tests set, counts before it.
std::optional<std::size_t> TerminalWidth(int descriptor);

// How many columns lines on standard output have: its terminal's, else kPlainWidth.
std::size_t OutputWidth();

// Sets COLUMNS for the processes that this one starts, whose output it shows behind `before` columns of its own, where
// standard output is a terminal. Before there are threads.
void PassTerminalWidth(std::size_t before = 0);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_WIDTH_H_
