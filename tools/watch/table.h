// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_TABLE_H_
#define POSEIDON_TOOLS_WATCH_TABLE_H_

#include <string>
#include <vector>

#include "tools/console/pinned_lines.h"
#include "tools/console/width.h"
#include "tools/watch/board.h"

namespace poseidon::tools {

// Returns a table of the members, a row each, for a terminal of that size: at most two thirds of its rows, so that output stays in
// sight. Where a column does not fit, what matters less is left out; where rows do not, the slowest members are shown, by place, and
// how many more there are. `colours`: the slow ones have one, beside their remark.
std::vector<PinnedLines::Line> Table(const std::vector<Standing>& members, const TerminalSize& size, bool colours);

// The same in one line: "step 1201, 12.3 steps/s, ...". Empty before the first step of anybody has ended.
std::string SummaryLine(const std::vector<Standing>& members);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_TABLE_H_
