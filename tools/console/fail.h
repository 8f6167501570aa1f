// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_FAIL_H_
#define POSEIDON_TOOLS_CONSOLE_FAIL_H_

#include <string>
#include <utility>

#include "poseidon/base/result.h"
#include "poseidon/base/status.h"
#include "tools/console/exit_code.h"

// The end of every command that cannot go on.
namespace poseidon::tools {

// Prints "poseidon: SENTENCE" on standard error and throws CLI::RuntimeError with the exit code.
[[noreturn]] void Fail(const std::string& sentence, int code = kExitFailed);

// The same for a command line that is wrong: kExitUsage.
[[noreturn]] void FailUsage(const std::string& sentence);

// The value; Fail with the sentence where there is none.
template <typename T>
T OrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status().message());
  return *std::move(result);
}
void OrFail(const Status& status);

// FailUsage with the sentence where `status` is not OK.
void OrFailUsage(const Status& status);

// Whether a job failed because of a member: one that it names, or, where nobody can know which, one of
// those that no longer hear each other.
bool IsMemberLost(const Status& failure);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_FAIL_H_
