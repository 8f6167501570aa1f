// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_PLAN_COMMAND_H_
#define POSEIDON_TOOLS_PROFILE_PLAN_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "poseidon/base/result.h"
#include "tools/profile/profile.h"

namespace poseidon::profile {

struct MeasureOptions {
  std::string model;    // net prototxt
  int iterations = 18;  // rounded up to a multiple of 9, the trainer's own window
  int threads = 0;      // 0: one per core
  int level = 0;
  std::string stages;  // comma-separated
};
// Measures a net into a profile. A failure is a sentence about the net.
using Measure = std::function<Result<Profile>(const MeasureOptions&)>;

// What was measured, in a sentence of lines of `width` columns.
std::string Heading(const Profile& profile, std::size_t width);

// Adds the flags of a measurement, but for the net.
void AddMeasureFlags(CLI::App& command, MeasureOptions& options);

// Adds `poseidon plan`: its flags, and a callback that throws CLI::RuntimeError with the exit code. Where it is given a
// net and no profile, `measure` makes one.
void AddPlan(CLI::App& app, Measure measure);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_PLAN_COMMAND_H_
