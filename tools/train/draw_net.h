// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_DRAW_NET_H_
#define POSEIDON_TOOLS_TRAIN_DRAW_NET_H_

#include <CLI/CLI.hpp>

#include "tools/profile/plan_command.h"

namespace poseidon::tools {

// Adds `poseidon draw_net`: a Caffe net as an SVG picture. Where it is to show each layer's scheme, `measure` measures the net.
// The callback throws CLI::RuntimeError with the exit code.
void AddDrawNet(CLI::App& app, profile::Measure measure);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_DRAW_NET_H_
