// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_VALUES_H_
#define POSEIDON_TOOLS_CONSOLE_VALUES_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/result.h"

// What the values of flags are. Each says in the help what is taken, and refuses everything else with a sentence:
// command.add_option("--workers", ...)->type_name("N")->check(WholeNumber(1, 1024)).
namespace poseidon::tools {

// From `least` to `most`.
CLI::Validator WholeNumber(std::int64_t least, std::int64_t most);
// Any that an int holds.
CLI::Validator WholeNumber();
// From `least` to `most`, finite.
CLI::Validator Number(double least, double most);
// What `parse` reads, such as a rate (poseidon/base/quantities.h).
CLI::Validator Quantity(Result<double> (*parse)(const std::string&));
// One of `words`, which are all that the help shows of the value.
CLI::Validator OneOf(const std::vector<std::string>& words);
// A file that can be read, which may be a pipe.
CLI::Validator InputFile();
// A file that can be made or written over.
CLI::Validator OutputFile();

// What is between the commas of a value; nothing behind a last one.
std::vector<std::string> CommaParts(const std::string& list);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_VALUES_H_
