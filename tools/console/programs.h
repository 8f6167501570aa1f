// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_PROGRAMS_H_
#define POSEIDON_TOOLS_CONSOLE_PROGRAMS_H_

#include <string>
#include <string_view>
#include <vector>

namespace poseidon::tools {

// Caffe's programs. A link of such a name to this program behaves as that program: `caffe` takes our commands, every other one is
// the command of its name.
const std::vector<std::string>& CaffePrograms();

// Whether two names are one with '-' and '_' taken for each other.
bool SameName(std::string_view one, std::string_view other);

// The command that a program is by the name it was called by (argv[0]), as in "/usr/bin/convert_imageset.bin"; empty where its
// first argument says what to do.
std::string CommandCalledBy(std::string_view program);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_PROGRAMS_H_
