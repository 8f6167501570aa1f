// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_TASK_TEXT_H_
#define POSEIDON_TOOLS_LAUNCH_TASK_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

// A task as the line that a launcher writes to its member. Paths, arguments and variables of the environment are bytes of any
// kind, and JSON has UTF-8 only: a task with other bytes travels with a character for each byte of its strings.
namespace poseidon::launch {

// Returns the line without its end.
std::string EncodeTask(const nlohmann::json& task);
// Returns the task with its bytes as they were; a discarded value where the line is no JSON.
nlohmann::json DecodeTask(const std::string& line);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_TASK_TEXT_H_
