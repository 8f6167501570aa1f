// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_PROGRAM_H_
#define POSEIDON_BENCHMARKS_REPLAY_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/schemes.h"

// Shared by the programs of the benchmarks: how they begin and end.
namespace poseidon::replay {

// Parses the command line into `app`'s options, then calls `run`. Returns the exit code: 0, also after
// --help; 1 after "NAME: SENTENCE" on standard error, for a flag as for what `run` could not do.
int RunProgram(CLI::App& app, int argc, char** argv, const std::function<Status()>& run);

// A flag's value is a scheme's name.
inline CLI::IsMember SchemeFlag() {
  std::vector<std::string> names;
  for (const plan::SchemeRow& row : plan::Schemes()) names.emplace_back(row.name);
  return CLI::IsMember(names);
}

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_PROGRAM_H_
