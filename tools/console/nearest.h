// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_NEAREST_H_
#define POSEIDON_TOOLS_CONSOLE_NEAREST_H_

#include <string>
#include <vector>

namespace poseidon::tools {

// "; did you mean --solver?" for a name that is none of `names`: the first of those that a few slips make of it; empty where
// there is none.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& names);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_NEAREST_H_
