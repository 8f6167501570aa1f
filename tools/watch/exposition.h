// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_EXPOSITION_H_
#define POSEIDON_TOOLS_WATCH_EXPOSITION_H_

#include <string>
#include <vector>

#include "tools/watch/board.h"

namespace poseidon::tools {

// Returns the members' figures as Prometheus reads them, in its text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Every series has the labels rank and host.
std::string Exposition(const std::vector<Standing>& members);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_EXPOSITION_H_
